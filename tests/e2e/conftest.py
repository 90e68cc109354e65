"""A real daemon as a subprocess, and a plain socket to talk to it."""

from __future__ import annotations

import itertools
import json
import os
import signal
import socket
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

FAKE = Path(__file__).parents[1] / "fakes" / "stdio_server.py"
CONDUIT = Path(sys.executable).with_name("conduit")


_LOGS = itertools.count(1)


class Rpc:
    """One connection: requests by id, notifications kept."""

    def __init__(self, path: Path) -> None:
        self.sock = socket.socket(socket.AF_UNIX)
        self.sock.settimeout(30)
        self.sock.connect(str(path))
        self.file = self.sock.makefile("rb")
        self.ids = itertools.count(1)
        self.notifications: list[dict[str, Any]] = []
        self.answers: dict[Any, dict[str, Any]] = {}

    def send(self, method: str, params: dict[str, Any] | None = None, **more: Any) -> int:
        request_id = next(self.ids)
        message = {"jsonrpc": "2.0", "id": request_id, "method": method, "params": params or {}, **more}
        self.sock.sendall(json.dumps(message).encode() + b"\n")
        return request_id

    def notify(self, method: str, params: dict[str, Any]) -> None:
        self.sock.sendall(json.dumps({"jsonrpc": "2.0", "method": method, "params": params}).encode() + b"\n")

    def receive(self) -> dict[str, Any]:
        line = self.file.readline()
        if not line:
            raise EOFError
        message: dict[str, Any] = json.loads(line)
        return message

    def wait(self, request_id: int) -> dict[str, Any]:
        while request_id not in self.answers:
            message = self.receive()
            if "method" in message:
                self.notifications.append(message)
            else:
                self.answers[message["id"]] = message
        return self.answers.pop(request_id)

    def ask(self, method: str, params: dict[str, Any] | None = None) -> dict[str, Any]:
        return self.wait(self.send(method, params))

    def result(self, method: str, params: dict[str, Any] | None = None) -> Any:
        answer = self.ask(method, params)
        assert "result" in answer, answer
        return answer["result"]

    def call(self, name: str, arguments: dict[str, Any] | None = None) -> Any:
        return self.result("tools/call", {"name": name, "arguments": arguments or {}})

    def close(self) -> None:
        self.file.close()
        self.sock.close()


class Daemon:
    """A running `conduit run` in a folder of its own."""

    def __init__(
        self, folder: Path, config: str, wait: bool = True, rpc: str = "", shell: str = "exec {}", top: str = ""
    ) -> None:
        self.folder = folder
        self.agent = folder / "agent.sock"
        self.control = folder / "control.sock"
        self.log_path = folder / f"log-{next(_LOGS)}"
        self.config = folder / "conduit.toml"
        self.config.write_text(
            f'{top}[rpc]\nagent_socket = "{self.agent}"\n{rpc}\n[state]\ndirectory = "{folder}/state"\n'
            f'[log]\nformat = "json"\nlevel = "debug"\n' + config
        )
        self.started = time.monotonic()
        with self.log_path.open("ab") as log:
            command = shell.format(f"{CONDUIT} run --config {self.config}")
            self.process = subprocess.Popen(command, shell=True, stdout=log, stderr=log, start_new_session=True)
        self.connections: list[Rpc] = []
        if wait:
            self.wait_until(lambda: self.control.is_socket() and "daemon.started" in self.events(), 15)

    def rpc(self, control: bool = False) -> Rpc:
        connection = Rpc(self.control if control else self.agent)
        self.connections.append(connection)
        return connection

    def log(self) -> list[dict[str, Any]]:
        lines = self.log_path.read_text().splitlines()
        return [json.loads(line) for line in lines if line.startswith("{") and line.endswith("}")]

    def events(self) -> list[str]:
        return [line["event"] for line in self.log()]

    def status(self) -> dict[str, Any]:
        connection = Rpc(self.agent)
        try:
            found: dict[str, Any] = connection.result("conduit/status")
        finally:
            connection.close()
        return found

    def wait_until(self, condition: Callable[[], bool], seconds: float = 10) -> None:
        until = time.monotonic() + seconds
        while not condition():
            assert self.process.poll() is None or condition(), f"the daemon ended:\n{self.log_path.read_text()[-3000:]}"
            assert time.monotonic() < until, f"not in {seconds} s:\n{self.log_path.read_text()[-3000:]}"
            time.sleep(0.01)

    def wait_ready(self, *servers: str, seconds: float = 20) -> None:
        self.wait_until(lambda: all(self.state(server) == "ready" for server in servers), seconds)

    def state(self, server: str) -> str:
        state: str = self.status()["servers"][server]["state"]
        return state

    def pid(self, server: str) -> int:
        pid: int = self.status()["servers"][server].get("pid", 0)
        return pid

    def descendants(self) -> set[int]:
        """Processes whose environment names this daemon's run, or whose command names its folder."""
        found = set()
        for pid in filter(str.isdigit, os.listdir("/proc")):
            try:
                if str(self.folder).encode() in Path(f"/proc/{pid}/environ").read_bytes():
                    found.add(int(pid))
            except OSError:
                continue
        return found

    def stop(self, number: int = signal.SIGTERM, seconds: float = 20) -> int:
        if self.process.poll() is None:
            self.process.send_signal(number)
        return self.process.wait(seconds)


def fake(name: str, *behaviours: str, **keys: str) -> str:
    """The table of a fake server."""
    args = json.dumps([str(FAKE), *behaviours])
    more = "".join(f"{key} = {value}\n" for key, value in keys.items())
    return f'[servers.{name}]\ncommand = "{sys.executable}"\nargs = {args}\n{more}'


ALLOW = '[policy]\ndefault = "allow"\n'


def starting() -> Iterator[Callable[..., Daemon]]:
    """Starts daemons; whatever is left running at the end is killed."""
    daemons: list[Daemon] = []
    with tempfile.TemporaryDirectory(prefix="cd-") as root:

        def start(
            *tables: str, policy: str = ALLOW, wait: bool = True, rpc: str = "", shell: str = "exec {}", top: str = ""
        ) -> Daemon:
            folder = Path(root) / str(len(daemons))
            folder.mkdir()
            daemon = Daemon(folder, "\n".join([policy, *tables]), wait, rpc, shell, top)
            daemons.append(daemon)
            return daemon

        yield start
        for daemon in daemons:
            for connection in daemon.connections:
                connection.close()
            if daemon.process.poll() is None:
                os.killpg(daemon.process.pid, signal.SIGKILL)
                daemon.process.wait()


@pytest.fixture
def start() -> Iterator[Callable[..., Daemon]]:
    """Starts daemons for one test."""
    yield from starting()


@pytest.fixture(scope="module")
def start_for_all() -> Iterator[Callable[..., Daemon]]:
    """Starts daemons for a module's tests together."""
    yield from starting()


@pytest.fixture
def fake_server() -> Callable[..., str]:
    return fake


@pytest.fixture
def rpc_to() -> Iterator[Callable[[Path], Rpc]]:
    """Connects to a socket; the connections are closed with the test."""
    connections: list[Rpc] = []

    def connect(path: Path) -> Rpc:
        connections.append(Rpc(path))
        return connections[-1]

    yield connect
    for connection in connections:
        connection.close()
