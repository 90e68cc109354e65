"""Servers over HTTP and WebSocket that attack: each attack ends its own call or connection, by a sentence, in bounds.

How much memory each took at its height, and how long the event loop stood still, is printed with ``-rP``.
"""

from __future__ import annotations

import json
import time
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import pytest
import trio

from conduit_daemon.clients.sdk import import_sdk
from conduit_daemon.errors import ClientError

MEGABYTES = 64
SECRET = {"Authorization": "Bearer open-sesame"}
FINE = ("ok", "")
SLOW = ("timeout", "max_call_time")
LARGE = ("too_large", "over the limit of 10485760")

HTTP: dict[str, tuple[str, str]] = {
    "headers_for_ever": ("unavailable", "it sent headers without an end"),
    "a_header_for_ever": ("unavailable", "it sent headers without an end"),
    "early_hints_for_ever": SLOW,
    "body_for_ever": LARGE,
    "tiny_chunks_for_ever": SLOW,
    "comments_for_ever": SLOW,
    "events_for_ever": SLOW,
    "a_line_for_ever": SLOW,
    "a_line_of_100_mb": FINE,
    "gzip_bomb": LARGE,
    "gzip_bomb_of_events": SLOW,
    "gzip_bomb_of_an_error": ("unavailable", "HTTP status 500"),
    "gzip_bomb_of_a_redirect": ("unavailable", "more than 8192 bytes, where few are needed"),
    "gzip_twice": ("unavailable", "encoded as gzip, gzip, which was not asked for"),
    "gzip_garbage": ("unavailable", "incorrect header check"),
    "gzip": FINE,
    "an_unknown_encoding": ("unavailable", "encoded as br, which was not asked for"),
    "no_content_type": ("protocol", "HTTP status 200 and no content type"),
    "an_odd_content_type": ("protocol", "HTTP status 200 and application/json"),
    "an_odd_charset": ("protocol", "answered a request with something else"),
    "chunked_garbage": ("unavailable", "illegal chunk header"),
    "a_huge_chunk": LARGE,
    "two_lengths": ("unavailable", "conflicting Content-Length headers"),
    "a_negative_length": ("unavailable", "bad Content-Length"),
    "too_short": ("unavailable", "without sending complete message body"),
    "no_http": ("unavailable", "was lost while it worked"),
    "a_thousand_cookies": FINE,
    "an_odd_session": FINE,
    "a_long_session": FINE,
    "odd_event_ids": ("unavailable", "its answer ended early"),
    "long_event_ids": ("unavailable", "its answer ended early"),
    "redirected_elsewhere": ("protocol", "elsewhere, which is not followed"),
    "redirected_to_a_file": ("protocol", "a redirect to file:///etc/passwd, which is not followed"),
    "redirected_for_ever": ("protocol", "a redirect to /round, which is not followed"),
    "redirected_nowhere": ("protocol", "which is not followed"),
    "an_odd_retry": ("unavailable", "HTTP status 503"),
    "an_odd_challenge": ("unavailable", "HTTP status 403"),
    "a_deep_error": ("unavailable", "HTTP status 400"),
}
FIRST = {
    "an_odd_session": "gave a session id that is none",
    "a_long_session": "gave a session id that is none",
}
"""What is said where it is the answer to the handshake, if it is something else than in a call."""

BROKEN = "broke the protocol of its WebSocket: "
SOCKET: dict[str, tuple[str, str]] = {
    "fragments_for_ever": SLOW,
    "empty_fragments_for_ever": SLOW,
    "pings_for_ever": SLOW,
    "pongs_for_ever": SLOW,
    "tiny_messages_for_ever": SLOW,
    "a_frame_of_100_mb": ("too_large", "answered with 104857600 bytes"),
    "fragments_of_100_mb": ("too_large", "over the limit of 10485760"),
    "a_frame_of_an_exabyte": SLOW,
    "a_negative_frame": ("unavailable", BROKEN + "what came is no frame"),
    "masked": ("unavailable", BROKEN + "a server must not mask its frames"),
    "compressed": ("unavailable", BROKEN + "a frame is compressed"),
    "no_text": SLOW,
    "binary": FINE,
    "an_unknown_opcode": ("unavailable", BROKEN + "what came is no frame"),
    "a_long_ping": ("unavailable", BROKEN + "a control frame is too long"),
    "a_ping_in_fragments": ("unavailable", BROKEN + "a control frame is too long, or in fragments"),
    "a_continuation_of_nothing": ("unavailable", BROKEN + "a message began within another"),
    "a_message_within_another": ("unavailable", BROKEN + "a message began within another"),
    "closed_with_a_reason": ("unavailable", "closed its WebSocket (4000 PRIVATE_RESERVED: so long  [31m!!!"),
    "closed_with_an_odd_code": ("unavailable", "CLOSE with invalid code"),
    "closed_with_an_odd_reason": ("unavailable", "1007 INVALID_FRAME_PAYLOAD_DATA"),
    "closed_by_half": ("unavailable", "CLOSE with 1 byte payload"),
}
NO_HANDSHAKE = "cannot be reached: it ended the handshake, or answered with what is none"
UPGRADES = {
    "upgraded_headers_for_ever": "cannot be reached: it",
    "upgraded_wrongly": NO_HANDSHAKE,
    "upgraded_to_compression": NO_HANDSHAKE,
    "upgraded_to_another_protocol": NO_HANDSHAKE,
    "upgraded_and_silent": "did not answer the handshake within 0.7 s",
    "upgraded_to_garbage": BROKEN + "a frame is compressed",
    "refused_for_ever": "refused the WebSocket with HTTP status 403",
    "no_http_at_all": NO_HANDSHAKE,
}


def rss(name: str) -> int:
    """A figure of this process' memory, in megabytes."""
    status = Path("/proc/self/status").read_text()
    return int(status.partition(f"{name}:")[2].split()[0]) // 1024


@asynccontextmanager
async def in_bounds(attack: str) -> AsyncIterator[None]:
    """Measures memory and the event loop, and holds the former."""
    await import_sdk()  # which takes its own
    Path("/proc/self/clear_refs").write_text("5")  # forgets the former height
    before, longest = rss("VmRSS"), 0.0

    async def meter() -> None:
        nonlocal longest
        while True:
            began = time.perf_counter()
            await trio.sleep(0.001)
            longest = max(longest, time.perf_counter() - began - 0.001)

    async with trio.open_nursery() as nursery:
        nursery.start_soon(meter)
        yield
        nursery.cancel_scope.cancel()
    grown = rss("VmHWM") - before
    print(f"{attack}: +{grown} MB, the loop stood still for {longest * 1000:.0f} ms at most")
    assert grown < MEGABYTES


def patience(slow: bool) -> dict[str, float]:
    """Short where the attack has no end but this."""
    return {"call_timeout": 0.7 if slow else 9.0, "connect_timeout": 0.7 if slow else 9.0}


async def attacked(server: Any, slow: bool) -> tuple[str, str]:
    try:
        await server.call("attack", {}, total=0.7 if slow else 9.0)
    except ClientError as error:
        return error.kind, error.message
    return FINE


@pytest.fixture
def hostile(serve: Callable[..., Any]) -> Callable[..., Any]:
    return lambda attack: serve("hostile_server.py", attack)


@pytest.mark.parametrize("attack", HTTP)
async def test_an_attack_over_http_ends_its_own_call_alone(hostile: Any, connected: Any, attack: str) -> None:
    slow, url = HTTP[attack] == SLOW, hostile(attack).url()
    async with in_bounds(attack), connected(url, "legacy", headers=SECRET, **patience(slow)) as server:
        kind, said = await attacked(server, slow)
        assert kind == HTTP[attack][0], said
        assert HTTP[attack][1] in said
        assert said.isprintable()
        assert len(said) < 500
        assert await server.text("echo", {"text": "on"}) == "on"
        assert json.loads(await server.text("told")) == []  # nobody else was shown what is for this server
        assert not server.lost.is_set()


@pytest.mark.parametrize("attack", [attack for attack in HTTP if HTTP[attack] != FINE or attack in FIRST])
async def test_an_attack_over_http_at_first_is_a_sentence_in_the_status(
    hostile: Any, connected: Any, attack: str
) -> None:
    slow, url = HTTP[attack] == SLOW, hostile(attack).url("/first")
    async with in_bounds(attack), connected(url, "legacy", wait=False, headers=SECRET, **patience(slow)) as server:
        said = FIRST.get(attack, HTTP[attack][1])
        if slow:
            said = "did not answer the handshake within 0.7 s"
        assert server.ended.kind == ("misconfigured" if attack == "an_odd_challenge" else "start")
        assert said in server.ended.reason
        assert server.ended.reason.isprintable()
        assert len(server.ended.reason) <= 400


@pytest.mark.parametrize("attack", SOCKET)
async def test_an_attack_over_a_websocket_ends_nothing_but_it(hostile: Any, connected: Any, attack: str) -> None:
    slow, url = SOCKET[attack] == SLOW, hostile(attack).url(scheme="ws")
    async with in_bounds(attack), connected(url, "legacy", **patience(slow)) as server:
        kind, said = await attacked(server, slow)
        assert kind == SOCKET[attack][0], said
        assert SOCKET[attack][1] in said
        assert said.isprintable()
        if kind in ("ok", "too_large") or attack == "no_text":
            assert await server.text("echo", {"text": "on"}) == "on"
        elif kind == "unavailable":
            with trio.fail_after(5):
                await server.over.wait()
            assert server.ended.kind == "lost"


@pytest.mark.parametrize("attack", UPGRADES)
async def test_an_attack_at_the_opening_of_a_websocket_is_a_sentence(hostile: Any, connected: Any, attack: str) -> None:
    slow, url = "0.7 s" in UPGRADES[attack], hostile(attack).url(scheme="ws")
    async with in_bounds(attack), connected(url, wait=False, **patience(slow)) as server:
        assert server.ended.kind == ("misconfigured" if attack == "refused_for_ever" else "start")
        assert UPGRADES[attack] in server.ended.reason
