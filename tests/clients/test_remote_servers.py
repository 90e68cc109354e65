"""Servers that nobody here wrote, over every way to them: the SDK's under uvicorn, server-everything, mcp 1.x."""

from __future__ import annotations

import json
import os
import socket
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
import trio

from conduit_daemon.errors import ClientError

EVERYTHING = "@modelcontextprotocol/server-everything@2026.8.31"
GATEWAY = "supergateway@4.0.0"
OLD_SDK = "mcp[ws]==1.26.0"
PORT = object()
FAKES = Path(__file__).parents[1] / "fakes"
WAYS = [
    ("http", "2025-11-25", "/mcp"),
    ("http", "2026-07-28", "/mcp"),
    ("json", "2025-11-25", "/mcp"),
    ("json", "2026-07-28", "/mcp"),
    ("sse", "2025-11-25", "/sse"),
]
ERAS = {"2025-11-25": "legacy", "2026-07-28": "modern"}


def options(kind: str) -> dict[str, Any]:
    return {"transport": "sse"} if kind == "sse" else {}


@pytest.mark.parametrize(("kind", "version", "path"), WAYS)
async def test_the_sdks_server_is_used_in_full(serve: Any, connected: Any, kind: str, version: str, path: str) -> None:
    running = serve("sdk_server.py", kind)
    async with connected(running.url(path), ERAS[version], **options(kind)) as server:
        assert server.negotiated.version == version
        assert {tool.name for tool in server.listings[0].tools} == {"echo", "big", "pid", "tick", "sleep", "reveal"}
        assert await server.text("echo", {"text": "hé\nhi"}) == "hé\nhi"
        assert len(await server.text("big", {"size": 6_000_000})) == 6_000_000
        seen: list[Any] = []
        await server.text("tick", {"times": 3}, on_progress=lambda raw: seen.append(json.loads(bytes(raw))))
        if kind != "json":
            assert [progress["progress"] for progress in seen] == [1, 2, 3]
        running_call, got, done = server.begin("sleep", {"seconds": 30})
        await trio.sleep(0.1)
        running_call.cancel(ClientError("cancelled", "never mind", outcome="outcome_unknown"))
        with trio.fail_after(1):
            await done.wait()
        assert got[0].kind == "cancelled"
        texts: list[str] = []

        async def echo(text: str) -> None:
            texts.append(await server.text("echo", {"text": text}))

        async with trio.open_nursery() as nursery:
            for i in range(20):
                nursery.start_soon(echo, str(i))
        assert sorted(texts, key=int) == [str(i) for i in range(20)]


@pytest.mark.parametrize(("kind", "version", "path"), [WAYS[0], WAYS[1], WAYS[4]])
async def test_the_sdks_server_announces_its_changes(
    serve: Any, connected: Any, kind: str, version: str, path: str
) -> None:
    async with connected(serve("sdk_server.py", kind).url(path), ERAS[version], **options(kind)) as server:
        await trio.sleep(0.5)
        await server.text("reveal")
        with trio.fail_after(5):
            while "late" not in [tool.name for tool in server.listings[-1].tools]:
                await trio.sleep(0.05)
        assert await server.text("late") == "late"


@pytest.mark.parametrize(("kind", "version", "path"), WAYS)
async def test_the_sdks_server_is_missed_when_it_is_killed(
    serve: Any, connected: Any, kind: str, version: str, path: str
) -> None:
    running = serve("sdk_server.py", kind)
    async with connected(running.url(path), ERAS[version], **options(kind)) as server:
        await trio.sleep(0.5)
        _, got, _ = server.begin("sleep", {"seconds": 30})
        await trio.sleep(0.2)
        running.process.kill()
        with trio.fail_after(3):
            await server.over.wait()
        assert (got[0].kind, got[0].outcome) == ("unavailable", "outcome_unknown")
        assert server.ended.kind == "lost"


async def test_a_session_survives_the_restart_of_the_sdks_server(serve: Any, connected: Any) -> None:
    running = serve("sdk_server.py", "http")
    async with connected(running.url(), "legacy") as server:
        await trio.sleep(0.3)
        before = await server.text("pid")
        running.kill()
        running.start()
        after = None
        with trio.move_on_after(5):
            after = await server.text("pid")
        assert server.lost.is_set() or after not in (None, before)


def free_port() -> int:
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        port: int = probe.getsockname()[1]
    return port


@pytest.fixture
def launch() -> Iterator[Callable[..., int]]:
    """Starts a program that listens where $PORT or the word PORT says; gives the port once somebody is there."""
    running: list[subprocess.Popen[bytes]] = []

    def launch(*command: Any) -> int:
        port = free_port()
        environ = {**os.environ, "PORT": str(port)}
        words = [str(port) if word is PORT else word for word in command]
        running.append(subprocess.Popen(words, env=environ, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL))
        for _ in range(200):
            assert running[-1].poll() is None
            with socket.socket() as probe:
                probe.settimeout(0.1)
                if probe.connect_ex(("127.0.0.1", port)) == 0:
                    return port
            time.sleep(0.1)
        raise TimeoutError

    yield launch
    for process in running:
        process.kill()
        process.wait()


@pytest.mark.npm
@pytest.mark.parametrize(("kind", "path"), [("streamableHttp", "/mcp"), ("sse", "/sse")])
async def test_everything_over_http(npm_install: Any, launch: Any, connected: Any, kind: str, path: str) -> None:
    port = launch(npm_install(EVERYTHING) / "mcp-server-everything", kind)
    more = {"transport": "sse"} if kind == "sse" else {}
    async with connected(f"http://127.0.0.1:{port}{path}", **more) as server:
        assert await server.text("echo", {"message": "hello"}) == "Echo: hello"
        seen: list[Any] = []
        await server.text(
            "trigger-long-running-operation",
            {"duration": 1, "steps": 4},
            on_progress=lambda raw: seen.append(json.loads(bytes(raw))["progress"]),
        )
        assert seen == [1, 2, 3, 4]
        assert not server.lost.is_set()


@pytest.mark.npm
async def test_everything_killed_is_missed_and_once_restarted_used_again(npm_install: Any, connected: Any) -> None:
    program, port = npm_install(EVERYTHING) / "mcp-server-everything", free_port()

    def start() -> subprocess.Popen[bytes]:
        environ = {**os.environ, "PORT": str(port)}
        command = [program, "streamableHttp"]
        return subprocess.Popen(command, env=environ, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)

    async def listening() -> None:
        with trio.fail_after(20):
            while True:
                try:
                    stream = await trio.open_tcp_stream("127.0.0.1", port)
                except OSError:
                    await trio.sleep(0.05)
                else:
                    await stream.aclose()
                    return

    process = start()
    try:
        await listening()
        async with connected(f"http://127.0.0.1:{port}/mcp") as server:
            assert await server.text("echo", {"message": "one"}) == "Echo: one"
            process.kill()
            process.wait()
            with trio.fail_after(3):
                await server.over.wait()
        process = start()
        await listening()
        async with connected(f"http://127.0.0.1:{port}/mcp") as server:
            assert await server.text("echo", {"message": "two"}) == "Echo: two"
    finally:
        process.kill()
        process.wait()


@pytest.mark.npm
async def test_the_old_sdks_websocket_server(pip_install: Any, launch: Any, connected: Any) -> None:
    python = pip_install(OLD_SDK, "uvicorn", "websockets") / "python"
    port = launch(python, FAKES / "old_websocket_server.py")
    async with connected(f"ws://127.0.0.1:{port}/ws") as server:
        assert server.negotiated.version == "2025-11-25"
        assert await server.text("echo", {"text": "hé"}) == "hé"
        assert len(await server.text("big", {"size": 6_000_000})) == 6_000_000


@pytest.mark.npm
async def test_a_gateway_puts_a_stdio_server_on_a_websocket(npm_install: Any, launch: Any, connected: Any) -> None:
    command = f"{sys.executable} {FAKES / 'stdio_server.py'}"
    gateway = npm_install(GATEWAY) / "supergateway"
    port = launch(gateway, "--stdio", command, "--outputTransport", "ws", "--messagePath", "/ws", "--port", PORT)
    async with connected(f"ws://127.0.0.1:{port}/ws") as server:
        assert await server.text("echo", {"text": "hé"}) == "hé"
        assert len(await server.text("big", {"size": 6_000_000})) == 6_000_000
