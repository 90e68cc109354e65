"""Peers that misbehave on their own connection: each is contained there, in bounded memory, and nobody else waits."""

from __future__ import annotations

import contextlib
import json
import socket
import sys
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import psutil
import pytest

LIMIT = 8_000_000
OFFERING = Path(__file__).parents[1] / "fakes" / "offering_server.py"
MODERN = {
    "io.modelcontextprotocol/protocolVersion": "2026-07-28",
    "io.modelcontextprotocol/clientCapabilities": {"elicitation": {}},
}


def plain(daemon: Any) -> socket.socket:
    sock = socket.socket(socket.AF_UNIX)
    sock.settimeout(1)
    sock.connect(str(daemon.agent))
    return sock


def pour(sock: socket.socket, data: bytes, times: int) -> None:
    """Writes as long as the other side takes it."""
    with contextlib.suppress(TimeoutError, BrokenPipeError, ConnectionResetError):
        for _ in range(times):
            sock.sendall(data)


def endless_line(sock: socket.socket) -> None:
    pour(sock, b"x" * 1_000_000, 200)


def malformed_lines_unread(sock: socket.socket) -> None:
    pour(sock, b'{"jsonrpc": "2.0", "id": 1, "method"\n' * 10_000, 100)


def requests_unread(sock: socket.socket) -> None:
    line = json.dumps({"jsonrpc": "2.0", "id": "i", "method": "tools/list"}).encode() + b"\n"
    pour(sock, b"".join(line.replace(b'"i"', b"%d" % number) for number in range(5_000)), 20)


def deep_lines(sock: socket.socket) -> None:
    pour(sock, b"[" * 1_000_000 + b"\n", 20)


def one_id_over_and_over(sock: socket.socket) -> None:
    params = {"name": "a__sleep", "arguments": {"seconds": 5}}
    line = json.dumps({"jsonrpc": "2.0", "id": 1, "method": "tools/call", "params": params}).encode() + b"\n"
    pour(sock, line * 1000, 20)


def cancellations_of_nothing(sock: socket.socket) -> None:
    note = {"jsonrpc": "2.0", "method": "notifications/cancelled", "params": {"requestId": 77}}
    pour(sock, (json.dumps(note).encode() + b"\n") * 10_000, 20)


def answers_to_nothing(sock: socket.socket) -> None:
    pour(sock, b'{"jsonrpc": "2.0", "id": "conduit-1", "result": {}}\n' * 10_000, 20)


def questions_never_answered(sock: socket.socket) -> None:
    params = {"name": "o__ask", "arguments": {"kind": "elicit"}, "_meta": MODERN}
    for number in range(1000):
        request = {"jsonrpc": "2.0", "id": number, "method": "tools/call", "params": params}
        pour(sock, json.dumps(request).encode() + b"\n", 1)
    with contextlib.suppress(TimeoutError):
        while sock.recv(1 << 16):
            pass


def streams_unread(sock: socket.socket) -> None:
    for number in range(500):
        request = {"jsonrpc": "2.0", "id": number, "method": "conduit/events", "params": {"backlog": 1000}}
        pour(sock, json.dumps(request).encode() + b"\n", 1)


def unfinished_lines_of_many(sock: socket.socket) -> None:
    others = [socket.socket(socket.AF_UNIX) for _ in range(40)]
    for other in others:
        other.settimeout(1)
        other.connect(sock.getpeername())
        pour(other, b"x" * 500_000, LIMIT // 500_000 - 1)
    refused = 0
    for other in others:
        with contextlib.suppress(TimeoutError, ConnectionError):
            refused += b"most are yours" in other.recv(10_000)
    assert refused >= 30  # of each four that fit one stays at most
    KEPT_OPEN.extend(others)


def big_answers_of_many_unread(sock: socket.socket) -> None:
    for _ in range(40):
        other = socket.socket(socket.AF_UNIX)
        other.settimeout(1)
        other.connect(sock.getpeername())
        params = {"name": "a__big", "arguments": {"size": LIMIT // 2}}
        request = {"jsonrpc": "2.0", "id": 1, "method": "tools/call", "params": params}
        pour(other, json.dumps(request).encode() + b"\n", 1)
        KEPT_OPEN.append(other)
    time.sleep(3)


def large_requests_of_many(sock: socket.socket) -> None:
    params = {"name": "o__hang", "arguments": {"more": "x" * (LIMIT // 2)}}
    for _ in range(20):
        other = socket.socket(socket.AF_UNIX)
        other.settimeout(1)
        other.connect(sock.getpeername())
        KEPT_OPEN.append(other)
        for number in range(10):
            request = {"jsonrpc": "2.0", "id": number, "method": "tools/call", "params": params}
            pour(other, json.dumps(request).encode() + b"\n", 1)
    refused = 0
    for other in KEPT_OPEN:
        with contextlib.suppress(TimeoutError):
            refused += b'"kind":"rate_limited"' in other.recv(1 << 20)
    assert refused >= 10  # and no connection was ended for it


def many_idle_after_a_large_request(sock: socket.socket) -> None:
    params = {"name": "a__nothing", "arguments": {"more": "x" * (LIMIT // 2)}}
    request = {"jsonrpc": "2.0", "id": 1, "method": "tools/call", "params": params}
    for _ in range(40):
        other = socket.socket(socket.AF_UNIX)
        other.settimeout(5)
        other.connect(sock.getpeername())
        KEPT_OPEN.append(other)
        pour(other, json.dumps(request).encode() + b"\n", 1)
        assert b"error" in other.recv(1000)


def progress_and_logs_unread(sock: socket.socket) -> None:
    shake = {"protocolVersion": "2025-11-25", "clientInfo": {"name": "t", "version": "0"}, "capabilities": {}}
    pour(sock, json.dumps({"jsonrpc": "2.0", "id": 0, "method": "initialize", "params": shake}).encode() + b"\n", 1)
    for number in range(1, 11):
        meta = {"progressToken": f"a token of some length, of call {number}"}
        params = {"name": "a__flood", "arguments": {"count": 20_000}, "_meta": meta}
        request = {"jsonrpc": "2.0", "id": number, "method": "tools/call", "params": params}
        pour(sock, json.dumps(request).encode() + b"\n", 1)
    time.sleep(8)


KEPT_OPEN: list[socket.socket] = []

MISDEEDS: list[Callable[[socket.socket], None]] = [
    endless_line,
    malformed_lines_unread,
    requests_unread,
    deep_lines,
    one_id_over_and_over,
    cancellations_of_nothing,
    answers_to_nothing,
    questions_never_answered,
    streams_unread,
    unfinished_lines_of_many,
    big_answers_of_many_unread,
    large_requests_of_many,
    many_idle_after_a_large_request,
    progress_and_logs_unread,
]


@pytest.mark.parametrize("misdeed", MISDEEDS, ids=lambda misdeed: misdeed.__name__)
def test_a_peer_that_misbehaves_is_contained(
    start: Any, fake_server: Any, misdeed: Callable[[socket.socket], None], capsys: pytest.CaptureFixture[str]
) -> None:
    offering = f'[servers.o]\ncommand = "{sys.executable}"\nargs = ["{OFFERING}", "modern"]\n'
    daemon = start(fake_server("a", "more"), offering, rpc=f"max_message = {LIMIT}")
    daemon.wait_ready("a", "o")
    process = psutil.Process(daemon.process.pid)
    honest = daemon.rpc()
    for _ in range(20):
        honest.call("a__echo", {"text": "warm"})
    before = process.memory_info().rss
    sock = plain(daemon)
    misdeed(sock)
    longest = 0.0
    for number in range(50):
        began = time.monotonic()
        assert honest.call("a__echo", {"text": str(number)})["content"][0]["text"] == str(number)
        longest = max(longest, time.monotonic() - began)
    grown = process.memory_info().rss - before
    with capsys.disabled():
        print(f"\n{misdeed.__name__}: RSS +{grown / 1e6:.1f} MB, longest honest call {longest * 1000:.0f} ms")
    assert longest < 2
    assert grown < 8 * LIMIT  # four times is what all together may hold, and what is worked on comes beside
    while KEPT_OPEN:
        KEPT_OPEN.pop().close()
    sock.close()
    daemon.wait_until(lambda: daemon.status()["calls"]["in_flight"] == 0)


def test_half_a_line_waits_and_is_forgotten_with_its_connection(start: Any, fake_server: Any) -> None:
    daemon = start(fake_server("a"))
    daemon.wait_ready("a")
    sock = plain(daemon)
    sock.sendall(b'{"jsonrpc": "2.0", "id": 1, ')
    with pytest.raises(TimeoutError):
        sock.recv(1)
    sock.sendall(b'"method": "ping"}\n{"jsonrpc": "2.0", "id": 2, "meth')
    assert json.loads(sock.recv(1000)) == {"jsonrpc": "2.0", "id": 1, "result": {}}
    sock.shutdown(socket.SHUT_WR)
    assert sock.recv(1) == b""
    sock.close()
    daemon.wait_until(lambda: daemon.status()["connections"] == 1)
