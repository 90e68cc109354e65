"""What the drivers in a booted container need: commands, the state of units, and a plain connection to the daemon."""

from __future__ import annotations

import json
import os
import pwd
import socket
import subprocess
import time
import traceback
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

OUT = Path("/out")
AGENT, CONTROL = "/run/conduit/agent.sock", "/run/conduit/control.sock"
PYTHON = "/opt/conduit/bin/python"
FAKE = "/src/tests/fakes/stdio_server.py"

Step = Callable[[], dict[str, Any]]


def run(*command: str, check: bool = True, **options: Any) -> str:
    done = subprocess.run(command, capture_output=True, text=True, check=False, timeout=60, **options)
    if check and done.returncode != 0:
        raise RuntimeError(f"{command}: {done.returncode}\n{done.stdout}\n{done.stderr}")
    return done.stdout + ("" if check else done.stderr)


def show(*properties: str, unit: str = "conduit.service") -> dict[str, str]:
    lines = run("systemctl", "show", unit, f"--property={','.join(properties)}").splitlines()
    return dict(line.split("=", 1) for line in lines)


def main_pid() -> int:
    pid = int(show("MainPID")["MainPID"])
    if pid == 0:
        raise ProcessLookupError("the daemon does not run")
    return pid


def until(condition: Callable[[], Any], seconds: float = 20, pause: float = 0.02) -> Any:
    end = time.monotonic() + seconds
    while True:
        found = condition()
        if found:
            return found
        if time.monotonic() > end:
            raise TimeoutError(f"not in {seconds} s; the journal ends:\n{run('journalctl', '-n', '40', '-o', 'cat')}")
        time.sleep(pause)


class Rpc:
    """One connection to a socket of the daemon."""

    def __init__(self, path: str = AGENT) -> None:
        self.sock = socket.socket(socket.AF_UNIX)
        self.sock.settimeout(30)
        self.sock.connect(path)
        self.file = self.sock.makefile("rb")

    def send(self, method: str, **params: Any) -> None:
        self.sock.sendall(json.dumps({"jsonrpc": "2.0", "id": 1, "method": method, "params": params}).encode() + b"\n")

    def receive(self) -> dict[str, Any]:
        while True:
            line = self.file.readline()
            if not line:
                raise EOFError
            message: dict[str, Any] = json.loads(line)
            if "id" in message:
                return message

    def ask(self, method: str, **params: Any) -> Any:
        self.send(method, **params)
        answer = self.receive()
        return answer.get("result", answer)

    def call(self, name: str, **arguments: Any) -> Any:
        return self.ask("tools/call", name=name, arguments=arguments)

    def close(self) -> None:
        self.file.close()
        self.sock.close()


def ask(method: str, path: str = AGENT, **params: Any) -> Any:
    connection = Rpc(path)
    try:
        return connection.ask(method, **params)
    finally:
        connection.close()


def call(name: str, **arguments: Any) -> Any:
    return ask("tools/call", name=name, arguments=arguments)


def state(server: str) -> str:
    found: str = ask("conduit/status")["servers"][server]["state"]
    return found


def processes(user: str = "conduit") -> list[int]:
    uid = pwd.getpwnam(user).pw_uid
    found = []
    for pid in filter(str.isdigit, os.listdir("/proc")):
        try:
            dead = Path(f"/proc/{pid}/stat").read_text().rpartition(") ")[2].startswith("Z")
            if os.stat(f"/proc/{pid}").st_uid == uid and not dead:
                found.append(int(pid))
        except (FileNotFoundError, ProcessLookupError):
            continue
    return found


def drive(steps: Sequence[Step]) -> None:
    """Takes the steps in their order up to the first that fails, and writes their findings to /out/results.json."""
    results: dict[str, Any] = {}
    for step in steps:
        began = time.monotonic()
        try:
            found = step()
        except Exception:  # noqa: BLE001 - whatever went wrong is the finding
            log = run("journalctl", "-o", "short-monotonic", "-n", "60")
            found = {"failed": f"{traceback.format_exc()}\n{log}"}
        results[step.__name__] = {**found, "seconds": round(time.monotonic() - began, 2)}
        (OUT / "results.json").write_text(json.dumps(results))
        if "failed" in found:
            break  # the steps after it build on it
    (OUT / "journal").write_text(run("journalctl", "-o", "short-monotonic"))
