"""The metrics over HTTP, asked by a real HTTP client and by one that misbehaves."""

from __future__ import annotations

import http.client
import socket
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import Any

import pytest
import trio

from conduit_daemon.errors import DaemonError
from conduit_daemon.telemetry import endpoint
from conduit_daemon.telemetry.endpoint import open_endpoint, serve_endpoint
from conduit_daemon.telemetry.events import EventBus
from conduit_daemon.telemetry.metrics import Metrics, Readings


def free_port() -> int:
    with socket.create_server(("127.0.0.1", 0)) as sock:
        port: int = sock.getsockname()[1]
        return port


@asynccontextmanager
async def served() -> AsyncIterator[int]:
    port = free_port()
    metrics = Metrics(EventBus())

    async def render() -> bytes:
        return metrics.render(Readings(version="1"))

    listeners = await open_endpoint(f"127.0.0.1:{port}")
    async with trio.open_nursery() as nursery:
        nursery.start_soon(serve_endpoint, listeners, render)
        yield port
        nursery.cancel_scope.cancel()
    for listener in listeners:
        await listener.aclose()


def ask(port: int, method: str, target: str, body: bytes | None = None) -> tuple[int, dict[str, str], bytes]:
    connection = http.client.HTTPConnection("127.0.0.1", port, timeout=10)
    connection.request(method, target, body)
    answer = connection.getresponse()
    found = answer.status, {key.lower(): value for key, value in answer.getheaders()}, answer.read()
    connection.close()
    return found


async def test_a_scrape() -> None:
    async with served() as port:
        status, headers, body = await trio.to_thread.run_sync(ask, port, "GET", "/metrics?x=1")
        assert status == 200
        assert headers["content-type"] == "text/plain; version=0.0.4; charset=utf-8"
        assert b'conduit_build_info{version="1"} 1.0' in body
        status, headers, body = await trio.to_thread.run_sync(ask, port, "HEAD", "/metrics")
        assert (status, body) == (200, b"")
        assert int(headers["content-length"]) > 1000


@pytest.mark.parametrize(
    ("method", "target", "expected"),
    [("GET", "/", 404), ("GET", "/metrics/x", 404), ("POST", "/metrics", 405), ("DELETE", "/metrics", 405)],
)
async def test_nothing_else_is_served(method: str, target: str, expected: int) -> None:
    async with served() as port:
        status, _, body = await trio.to_thread.run_sync(ask, port, method, target)
        assert status == expected
        assert body.endswith(b"\n")


@pytest.mark.parametrize("sent", [b"x\r\n\r\n", b"GET /metrics SPDY/3\r\n\r\n", b"\x16\x03\x01" * 5000])
async def test_what_is_no_http_is_refused(sent: bytes) -> None:
    async with served() as port, await trio.open_tcp_stream("127.0.0.1", port) as stream:
        with trio.fail_after(5):
            await stream.send_all(sent)
            assert (await stream.receive_some(12)) == b"HTTP/1.1 400"


async def test_silent_connections_hold_up_nobody_and_are_closed(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(endpoint, "_PATIENCE", 2.0)
    async with served() as port:
        silent = [await trio.open_tcp_stream("127.0.0.1", port) for _ in range(endpoint._MOST_CONNECTIONS + 4)]
        gone = await trio.open_tcp_stream("127.0.0.1", port)
        await gone.send_all(b"GET /metrics HTTP/1.1\r\n\r\n")
        gone.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, b"\x01\0\0\0\0\0\0\0")
        await gone.aclose()
        with trio.fail_after(1):
            status, _, _ = await trio.to_thread.run_sync(ask, port, "GET", "/metrics")
            assert status == 200
        with trio.fail_after(5):
            for stream in silent:
                assert await stream.receive_some() == b""
                await stream.aclose()


async def test_scraping_without_end_costs_a_few_renderings_a_second() -> None:
    rendered = 0

    async def render() -> bytes:
        nonlocal rendered
        rendered += 1
        await trio.sleep(0.01)
        return b"up 1\n"

    port = free_port()
    listeners = await open_endpoint(f"127.0.0.1:{port}")
    async with trio.open_nursery() as nursery:
        nursery.start_soon(serve_endpoint, listeners, render)
        for _ in range(20):
            async with trio.open_nursery() as askers:
                for _ in range(5):
                    askers.start_soon(trio.to_thread.run_sync, ask, port, "GET", "/metrics")
        assert 1 <= rendered <= 20
        before = rendered
        await trio.sleep(0.25)
        await trio.to_thread.run_sync(ask, port, "GET", "/metrics")
        assert rendered == before + 1
        nursery.cancel_scope.cancel()
    for listener in listeners:
        await listener.aclose()


async def test_an_address_that_is_taken_is_said() -> None:
    with socket.create_server(("127.0.0.1", 0)) as taken:
        port = taken.getsockname()[1]
        with pytest.raises(DaemonError, match="another program listens there") as caught:
            await open_endpoint(f"127.0.0.1:{port}")
        assert f"127.0.0.1:{port}" in str(caught.value)
    with pytest.raises(DaemonError, match=r"metrics\.listen"):
        await open_endpoint("203.0.113.1:9464")  # no address of this machine
    with pytest.raises(DaemonError):
        await open_endpoint("no-such-host.invalid:9464")


async def test_ipv6_in_brackets() -> None:
    port = free_port()
    try:
        listeners = await open_endpoint(f"[::1]:{port}")
    except DaemonError:
        pytest.skip("no IPv6 here")
    names: list[Any] = [listener.socket.getsockname()[:2] for listener in listeners]
    for listener in listeners:
        await listener.aclose()
    assert names == [("::1", port)]
