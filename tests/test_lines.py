"""Lines over descriptors: cut in linear time, written without waiting, and never torn apart."""

from __future__ import annotations

import os
import socket

import pytest
import trio
from hypothesis import given
from hypothesis import strategies as st

from conduit_daemon.lines import LineSplitter, LineWriter, Oversized, WriterClosed, WriterStalled


@given(st.lists(st.binary(max_size=40).filter(lambda line: b"\n" not in line)), st.data())
def test_lines_survive_any_cut(lines: list[bytes], data: st.DataObject) -> None:
    stream = b"".join(line + b"\n" for line in lines)
    cuts = sorted(data.draw(st.lists(st.integers(0, len(stream)), max_size=8)))
    splitter = LineSplitter(1000)
    got: list[bytes | Oversized] = []
    for start, end in zip([0, *cuts], [*cuts, len(stream)], strict=True):
        if chunk := stream[start:end]:
            got += splitter.feed(chunk)
    assert got == lines
    assert splitter.pending == 0


@given(st.integers(1, 300), st.integers(1, 50))
def test_a_line_over_the_limit_leaves_its_edges_and_the_next_line_whole(size: int, step: int) -> None:
    splitter = LineSplitter(100)
    stream = b'{"id":1,' + b"x" * (100 + size) + b"}\nnext\n"
    got: list[bytes | Oversized] = []
    for at in range(0, len(stream), step):
        got += splitter.feed(stream[at : at + step])
    first, second = got
    assert isinstance(first, Oversized)
    assert first.size == len(stream) - 6
    assert first.head.startswith(b'{"id":1,x')
    assert first.tail.endswith(b"x}")
    assert second == b"next"


def test_a_line_of_exactly_the_limit_is_kept() -> None:
    assert LineSplitter(5).feed(b"12345\n") == [b"12345"]
    assert LineSplitter(5).feed(b"123456\n") == [Oversized(b"123456", b"123456", 6)]


async def test_what_the_kernel_takes_needs_no_task() -> None:
    ours, theirs = socket.socketpair()
    with ours, theirs:
        writer = LineWriter(ours.fileno())
        assert writer.write(b"hello\n") is None
        assert theirs.recv(100) == b"hello\n"


async def test_lines_of_one_pass_of_the_loop_are_joined_and_one_that_comes_alone_is_not_delayed() -> None:
    ours, theirs = socket.socketpair(socket.AF_UNIX, socket.SOCK_SEQPACKET)  # which keeps each write apart
    with ours, theirs:
        theirs.setblocking(False)
        writer = LineWriter(ours.fileno())
        async with trio.open_nursery() as nursery:
            nursery.start_soon(writer.run)
            for number in (0, 10):
                await trio.sleep(0.01)
                assert writer.write(b"%d\n" % number) is None
                assert theirs.recv(100) == b"%d\n" % number
                waiting = [writer.write(b"%d\n" % (number + more)) for more in (1, 2, 3)]
                assert all(queued is not None and not queued.started for queued in waiting)
                await trio.lowlevel.wait_readable(theirs.fileno())
                assert theirs.recv(100) == b"".join(b"%d\n" % (number + more) for more in (1, 2, 3))
                assert all(queued is not None and queued.started for queued in waiting)
            nursery.cancel_scope.cancel()


async def test_flush_writes_what_nobody_will_drain_any_more() -> None:
    ours, theirs = socket.socketpair()
    with ours, theirs:
        writer = LineWriter(ours.fileno())
        writer.write(b"first\n")
        writer.write(b"last\n")
        writer.flush()
        writer.close()
        assert theirs.recv(100) == b"first\nlast\n"
        theirs.close()
        writer.flush()


async def test_what_it_does_not_take_is_written_in_order_by_run_and_urgent_lines_go_first() -> None:
    ours, theirs = socket.socketpair()
    with ours, theirs:
        writer = LineWriter(ours.fileno())
        big = b"a" * 2_000_000 + b"\n"
        started = writer.write(big)
        assert started is not None
        assert started.started
        waiting = writer.write(b"second\n")
        withdrawn = writer.write(b"third\n")
        writer.write(b"urgent\n", urgent=True)
        assert waiting is not None
        assert withdrawn is not None
        assert writer.withdraw(withdrawn)
        assert not writer.withdraw(started)
        async with trio.open_nursery() as nursery:
            nursery.start_soon(writer.run)
            theirs.setblocking(False)
            got = bytearray()
            while not got.endswith(b"second\n"):
                await trio.lowlevel.wait_readable(theirs.fileno())
                got += theirs.recv(1 << 20)
            nursery.cancel_scope.cancel()
        assert bytes(got) == big + b"urgent\nsecond\n"
        assert writer.buffered == 0
        assert waiting.started  # whoever read it may act on it, though it waited first
        assert not withdrawn.started


async def test_a_peer_that_has_gone_is_told_by_write_and_by_run() -> None:
    ours, theirs = socket.socketpair()
    with ours:
        writer = LineWriter(ours.fileno())
        assert writer.write(b"x" * 1_000_000 + b"\n") is not None
        theirs.close()
        with pytest.raises(WriterClosed):
            await writer.run()
        with pytest.raises(WriterClosed):
            writer.write(b"more\n")


async def test_a_reader_that_stops_is_a_stall() -> None:
    read, write = os.pipe()
    try:
        writer = LineWriter(write, patience=0.05)
        writer.write(b"x" * 1_000_000 + b"\n")
        with pytest.raises(WriterStalled):
            await writer.run()
    finally:
        os.close(read)
        os.close(write)


async def test_drained_waits_for_room() -> None:
    ours, theirs = socket.socketpair()
    with ours, theirs:
        writer = LineWriter(ours.fileno())
        writer.write(b"x" * 1_000_000 + b"\n")
        with trio.move_on_after(0.05) as waiting:
            await writer.drained(1000)
        assert waiting.cancelled_caught
        theirs.setblocking(False)
        async with trio.open_nursery() as nursery:
            nursery.start_soon(writer.run)

            async def read() -> None:
                while True:
                    await trio.lowlevel.wait_readable(theirs.fileno())
                    theirs.recv(1 << 20)

            nursery.start_soon(read)
            with trio.fail_after(5):
                await writer.drained()
            nursery.cancel_scope.cancel()
