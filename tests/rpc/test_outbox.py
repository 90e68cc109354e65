"""What a peer that does not read is kept: every answer, and of what is only told to it the newest."""

from __future__ import annotations

import socket
from collections.abc import Iterator

import pytest
import trio

from conduit_daemon.rpc.outbox import Outbox


@pytest.fixture
def pair() -> Iterator[tuple[socket.socket, socket.socket]]:
    ours, theirs = socket.socketpair(socket.AF_UNIX)
    theirs.setblocking(False)
    with ours, theirs:
        yield ours, theirs


def fill(outbox: Outbox) -> int:
    """Sends until the kernel takes no more and 64 KiB wait; how many lines that took."""
    count = 0
    while outbox.unread < 1 << 16:
        outbox.send(b"%d\n" % count * 1000)
        count += 1
    return count


async def everything(theirs: socket.socket, outbox: Outbox) -> list[bytes]:
    data = b""
    async with trio.open_nursery() as nursery:
        nursery.start_soon(outbox.run)
        with trio.move_on_after(0.3):
            while True:
                await trio.lowlevel.wait_readable(theirs.fileno())
                data += theirs.recv(1 << 20)
        nursery.cancel_scope.cancel()
    return data.splitlines()


async def test_to_a_peer_that_reads_all_is_told(pair: tuple[socket.socket, socket.socket]) -> None:
    ours, theirs = pair
    outbox = Outbox(ours.fileno(), lambda: None)
    for number in range(100):
        outbox.tell_progress(1, b"progress %d\n" % number)
        outbox.tell(b"log %d\n" % number)
    assert len(await everything(theirs, outbox)) == 200


async def test_a_late_peer_gets_answers_and_the_newest_progress(pair: tuple[socket.socket, socket.socket]) -> None:
    ours, theirs = pair
    outbox = Outbox(ours.fileno(), lambda: None)
    lines = fill(outbox) * 1000
    before = outbox.unread
    for number in range(10_000):
        outbox.tell_progress(number % 3, b"progress of %d: %d\n" % (number % 3, number))
        outbox.tell(b"log\n")
    outbox.tell_progress(0, b"x" * 100_000 + b"\n")  # too large to be kept
    assert outbox.unread == before
    outbox.send(b"answer\n")
    outbox.forget(1)
    got = await everything(theirs, outbox)
    assert got[lines:] == [b"answer", b"progress of 0: 9999", b"progress of 2: 9998"]
    outbox.tell_progress(0, b"again\n")
    assert await everything(theirs, outbox) == [b"again"]


async def test_growth_is_told_now_and_then_and_counts_what_lines_take(
    pair: tuple[socket.socket, socket.socket],
) -> None:
    ours, _ = pair
    held: list[int] = []
    outbox = Outbox(ours.fileno(), lambda: held.append(outbox.held))
    for _ in range(20_000):
        outbox.send(b"short\n")
    assert outbox.held > 10 * outbox.unread
    assert held == sorted(held)
    assert 5 < len(held) < outbox.held // (1 << 16) + 2
    outbox.close()
    outbox.send(b"nobody\n")
    assert outbox.held == 0
