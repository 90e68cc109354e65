"""WebSocket against a server that misbehaves."""

from __future__ import annotations

import base64
import json
import signal
from collections.abc import Callable
from typing import Any

import pytest
import trio

from conduit_daemon.clients import websocket
from conduit_daemon.config import LimitsConfig
from conduit_daemon.errors import ClientError


@pytest.fixture
def fake(serve: Callable[..., Any]) -> Callable[..., Any]:
    return lambda *behaviours: serve("websocket_server.py", *behaviours)


@pytest.mark.parametrize("behaviours", [(), ("modern",), ("plain", "pretty")], ids="-".join)
async def test_it_is_ready_lists_and_answers_in_both_eras(fake: Any, connected: Any, behaviours: Any) -> None:
    async with connected(fake(*behaviours).url(scheme="ws")) as server:
        assert server.negotiated.version == ("2026-07-28" if "modern" in behaviours else "2025-11-25")
        assert await server.call("echo", {"text": "hé\n"}) == ({"content": [{"type": "text", "text": "hé\n"}]}, False)
        assert len(await server.text("big", {"size": 6_000_000})) == 6_000_000
        texts: list[str] = []

        async def echo(text: str) -> None:
            texts.append(await server.text("echo", {"text": text}))

        async with trio.open_nursery() as nursery:
            for i in range(50):
                nursery.start_soon(echo, str(i))
        assert sorted(map(int, texts)) == list(range(50))


async def test_headers_and_the_subprotocol_are_offered(fake: Any, connected: Any) -> None:
    async with connected(fake("token=x").url(scheme="ws"), headers={"Authorization": "Bearer x"}) as server:
        headers = json.loads(await server.text("headers"))
        assert (headers["sec-websocket-protocol"], headers["authorization"]) == ("mcp", "Bearer x")


async def test_a_name_and_a_password_in_the_address_are_sent(fake: Any, connected: Any) -> None:
    running = fake()
    async with connected(f"ws://robot:open%20sesame@127.0.0.1:{running.port}/mcp") as server:
        sent = json.loads(await server.text("headers"))["authorization"]
        assert base64.b64decode(sent.removeprefix("Basic ")) == b"robot:open sesame"


@pytest.mark.parametrize(
    ("behaviour", "kind", "status"),
    [("token=x", "misconfigured", 401), ("status=403", "misconfigured", 403), ("status=503", "start", 503)],
)
async def test_a_refused_handshake_says_the_status(
    fake: Any, connected: Any, behaviour: str, kind: str, status: int
) -> None:
    async with connected(fake(behaviour).url(scheme="ws"), wait=False) as server:
        assert server.ended.kind == kind
        assert server.ended.reason == f"server fake refused the WebSocket with HTTP status {status}"
        assert server.ended.retry_after == (3 if "status" in behaviour else None)


async def test_nobody_there_is_said(connected: Any) -> None:
    async with connected("ws://127.0.0.1:9/mcp", wait=False) as server:
        assert server.ended.kind == "start"
        assert server.ended.reason.startswith("server fake cannot be reached: ")


async def test_a_cancelled_call_is_cancelled_at_the_server(fake: Any, connected: Any) -> None:
    async with connected(fake().url(scheme="ws")) as server:
        running, got, done = server.begin("sleep", {"seconds": 30})
        await trio.sleep(0.1)
        request_id = running.pending.request_id
        running.cancel(ClientError("cancelled", "never mind", outcome="outcome_unknown"))
        await done.wait()
        assert got[0].kind == "cancelled"
        assert ["notifications/cancelled", request_id] in json.loads(await server.text("received"))


async def test_too_large_a_message_fails_its_call_and_the_session_lives(fake: Any, connected: Any) -> None:
    limits = LimitsConfig(max_result=100_000)
    async with connected(fake().url(scheme="ws"), limits=limits) as server:
        _, slept, done = server.begin("sleep", {"seconds": 0.5})
        with pytest.raises(ClientError) as raised:
            await server.call("big", {"size": 11_000_000})
        assert (raised.value.kind, raised.value.outcome) == ("too_large", "outcome_unknown")
        with trio.fail_after(5):
            await done.wait()
        assert slept[0][0]["content"][0]["text"] == "slept"
        assert len(await server.text("big", {"size": 90_000})) == 90_000
        assert not server.lost.is_set()


@pytest.mark.parametrize("how", ["killed", "closed"])
async def test_a_lost_socket_is_noticed_at_once(fake: Any, connected: Any, how: str) -> None:
    running = fake()
    async with connected(running.url(scheme="ws")) as server:
        _, got, _ = server.begin("sleep", {"seconds": 30})
        await trio.sleep(0.1)
        if how == "killed":
            running.process.kill()
        else:
            server.begin("fail", {"kind": "close"})
        with trio.fail_after(1):
            await server.over.wait()
        assert (got[0].kind, got[0].outcome) == ("unavailable", "outcome_unknown")
        assert server.ended.reason == (
            "server fake closed its WebSocket (1006 ABNORMAL_CLOSURE)"
            if how == "killed"
            else "server fake closed its WebSocket (4321 PRIVATE_RESERVED: enough)"
        )


async def test_garbage_fails_its_call_alone(fake: Any, connected: Any) -> None:
    async with connected(fake().url(scheme="ws")) as server:
        with pytest.raises(ClientError) as raised:
            await server.call("fail", {"kind": "garbage"})
        assert raised.value.kind == "protocol"
        assert await server.text("echo", {"text": "on"}) == "on"


async def test_a_server_that_speaks_no_websocket_is_said_at_once(serve: Any, connected: Any) -> None:
    async def hang_up(stream: trio.SocketStream) -> None:
        await stream.receive_some(1)

    began = trio.current_time()
    async with connected(serve("http_server.py", "no_stream").url(scheme="ws"), wait=False) as server:
        assert server.ended.reason == "server fake refused the WebSocket with HTTP status 405"
    async with trio.open_nursery() as nursery:
        listeners = await nursery.start(trio.serve_tcp, hang_up, 0)
        port = listeners[0].socket.getsockname()[1]
        async with connected(f"ws://127.0.0.1:{port}/", wait=False) as server:
            assert "cannot be reached: it ended the handshake" in server.ended.reason
        nursery.cancel_scope.cancel()
    assert trio.current_time() - began < 5


async def test_a_host_that_says_nothing_any_more_is_missed(
    fake: Any, connected: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(websocket, "_HEARTBEAT", 0.3)
    running = fake()
    async with connected(running.url(scheme="ws")) as server:
        await trio.sleep(1)
        assert not server.lost.is_set()
        running.process.send_signal(signal.SIGSTOP)
        with trio.fail_after(5):
            await server.over.wait()
        assert server.ended.reason == "server fake gave no sign of life for 0.3 s"
