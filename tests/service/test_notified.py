"""The whole daemon in this process, and what a service manager hears of it from the start to the end."""

from __future__ import annotations

import json
import os
import socket
import sys
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import pytest
import trio

from conduit_daemon import app
from conduit_daemon.config import load
from conduit_daemon.rpc.connection import Connection
from supervisors import sys as inspection

FAKE = Path(__file__).parents[1] / "fakes" / "stdio_server.py"
INTERVAL = 0.5


class Manager:
    """systemd's end: everything that was said, in order."""

    def __init__(self, path: Path) -> None:
        self.lines: list[str] = []
        self.sock = trio.socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM)
        self.path = path

    async def listen(self) -> None:
        await self.sock.bind(str(self.path))
        while True:
            self.lines += (await self.sock.recv(4096)).decode().splitlines()

    def signs(self) -> int:
        return self.lines.count("WATCHDOG=1")

    async def until(self, condition: Callable[[], object], seconds: float = 20) -> None:
        with trio.fail_after(seconds):
            while not condition():
                await trio.sleep(0.01)


class Daemon:
    """A daemon whose sockets were passed to it."""

    def __init__(self, folder: Path, text: str) -> None:
        self.agent, self.control = folder / "a.sock", folder / "c.sock"
        self.path, self.text = folder / "conduit.toml", text
        self.exit_code: int | None = None

    async def ask(self, method: str, **params: Any) -> Any:
        async with await trio.open_unix_socket(str(self.control)) as stream:
            request = {"jsonrpc": "2.0", "id": 1, "method": method, "params": params}
            await stream.send_all(json.dumps(request).encode() + b"\n")
            answer = b""
            while not answer.endswith(b"\n"):
                answer += await stream.receive_some()
        found = json.loads(answer)
        return found.get("result", found)


@asynccontextmanager
async def running(folder: Path, config: str) -> AsyncIterator[tuple[Daemon, Manager, dict[str, str]]]:
    text = f'[state]\ndirectory = "{folder}/state"\n[limits]\nshutdown_timeout = 7\n{config}'
    manager, daemon = Manager(folder / "notify"), Daemon(folder, text)
    path = daemon.path
    path.write_text(text)
    environ = {
        "PATH": os.environ["PATH"],
        "NOTIFY_SOCKET": str(manager.path),
        "WATCHDOG_USEC": str(int(INTERVAL * 1e6)),
    }
    async with trio.open_nursery() as nursery:
        nursery.start_soon(manager.listen)

        async def run() -> None:
            daemon.exit_code = await app.serve(load(path, environ), environ)

        nursery.start_soon(run)
        yield daemon, manager, environ
        nursery.cancel_scope.cancel()


@pytest.fixture
def activation(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    """Sockets as systemd passes them; the numbers from three on are this process's own, so they are given."""

    def take(environ: dict[str, str]) -> dict[str, socket.socket]:
        passed = {}
        for name, path in (("agent", tmp_path / "a.sock"), ("control", tmp_path / "c.sock")):
            passed[name] = socket.socket(socket.AF_UNIX)
            passed[name].bind(str(path))
            passed[name].listen()
        return passed

    monkeypatch.setattr(app, "take_sockets", take)


async def test_from_the_start_to_the_end(tmp_path: Path, activation: None) -> None:
    server = f'[servers.s]\ncommand = "{sys.executable}"\nargs = ["{FAKE}"]\n'
    async with running(tmp_path, server) as (daemon, manager, environ):
        await manager.until(lambda: "READY=1" in manager.lines)
        assert set(environ) == {"PATH"}, "what is systemd's is taken out"
        await manager.until(lambda: "STATUS=1 of 1 server ready, 0 calls running" in manager.lines)

        daemon.path.write_text("nonsense = 1\n")
        del manager.lines[:]
        answer = await daemon.ask("conduit/reload")
        assert answer["error"]["data"]["kind"] == "invalid_config"
        await manager.until(lambda: "READY=1" in manager.lines)
        assert "RELOADING=1" in manager.lines[: manager.lines.index("READY=1")]
        rejected = "STATUS=1 of 1 server ready, 0 calls running, the changed configuration is rejected (conduit status)"
        await manager.until(lambda: rejected in manager.lines)

        del manager.lines[:]
        daemon.path.write_text(daemon.text)
        assert await daemon.ask("conduit/reload") == {
            "added": [],
            "removed": [],
            "changed": [],
            "unchanged": ["s"],
        }
        await manager.until(lambda: "STATUS=1 of 1 server ready, 0 calls running" in manager.lines)

        await daemon.ask("conduit/shutdown")
        await manager.until(lambda: daemon.exit_code is not None)
        stopping = manager.lines[manager.lines.index("STOPPING=1") :]
        assert "EXTEND_TIMEOUT_USEC=17000000" in stopping
    assert daemon.exit_code == 0
    assert daemon.agent.exists(), "systemd's sockets stay"
    assert daemon.control.exists()


async def test_what_is_said_of_passed_sockets_has_no_effect_and_is_warned_of(
    tmp_path: Path, activation: None, capfd: pytest.CaptureFixture[str]
) -> None:
    said = "rpc.socket_group has no effect: systemd makes the agent socket. Set SocketGroup= in conduit-agent.socket."
    async with running(tmp_path, '[rpc]\nsocket_group = "nogroup"\n') as (daemon, manager, _):
        await manager.until(lambda: "READY=1" in manager.lines)
        assert "needs_restart" not in await daemon.ask("conduit/reload")
        daemon.agent.unlink()
        await daemon.ask("conduit/reload")
        written: list[str] = []
        await manager.until(lambda: written.append(capfd.readouterr().err) or "socket_lost" in "".join(written))
        await daemon.ask("conduit/shutdown")
        await manager.until(lambda: daemon.exit_code is not None)
    log = [json.loads(line) for line in "".join(written).splitlines()]
    assert [line["reason"] for line in log if line["event"] == "config.warning"] == [said] * 3
    (lost,) = [line["reason"] for line in log if line["event"] == "rpc.socket_lost"]
    assert "systemctl restart conduit-agent.socket conduit" in lost


async def test_a_deadlocked_hub_stops_the_signs_of_life(tmp_path: Path, activation: None) -> None:
    async with running(tmp_path, "") as (daemon, manager, _):
        await manager.until(lambda: manager.signs() >= 3)
        await inspection.suspend("hub")
        await trio.sleep(INTERVAL)
        before = manager.signs()
        await trio.sleep(INTERVAL * 2)
        assert manager.signs() == before
        assert await daemon.ask("ping") == {}, "it runs, and yet it does not do its work"
        await inspection.resume("hub")
        await manager.until(lambda: manager.signs() >= before + 2)


async def test_a_wedged_rpc_stops_the_signs_of_life(
    tmp_path: Path, activation: None, monkeypatch: pytest.MonkeyPatch
) -> None:
    async def wedge(connection: Connection) -> None:
        await trio.sleep_forever()

    async with running(tmp_path, "") as (_, manager, _environ):
        await manager.until(lambda: manager.signs() >= 3)
        with monkeypatch.context() as patch:
            patch.setattr(Connection, "run", wedge)
            await trio.sleep(INTERVAL)
            before = manager.signs()
            await trio.sleep(INTERVAL * 2)
            assert manager.signs() == before
        await manager.until(lambda: manager.signs() >= before + 2)
