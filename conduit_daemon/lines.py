"""Messages that are lines, over file descriptors: cut from what is read, written without waiting where possible.

Both the servers' pipes and the agents' sockets carry one JSON message a line. The costs that matter on
that way are task switches and system calls, not bytes, so a write is tried at once by whoever has something to
write; what the kernel does not take is queued, for one task to drain, and so is what comes by the dozen.
"""

from __future__ import annotations

import math
import os
from collections import deque
from collections.abc import Callable
from contextlib import suppress
from typing import Final, final

import msgspec
import trio

__all__ = ["READ_SIZE", "TURN", "LineSplitter", "LineWriter", "Oversized", "Queued", "WriterClosed", "WriterStalled"]

READ_SIZE: Final = 1 << 18
TURN: Final = 64
"""Lines that one reader takes before everybody else has a turn: a chunk may hold a hundred thousand."""

_EDGE: Final = 4096
_JOIN: Final = 64  # buffers joined into one writev; IOV_MAX is at least 1,024 on Linux, 16 by POSIX


@final
class Oversized(msgspec.Struct, frozen=True):
    """A line longer than the limit, of which only the edges were kept.

    Attributes:
        head: Its first bytes (at most 4 KiB), in which a message's id usually stands.
        tail: Its last bytes (at most 4 KiB).
        size: Its length in bytes.
    """

    head: bytes
    tail: bytes
    size: int


@final
class LineSplitter:
    """Cuts a stream of chunks into lines, in time linear in the bytes however the chunks fall.

    Args:
        limit: The longest line, in bytes, that is kept; of a longer one an ``Oversized`` remains. May be changed.
    """

    __slots__ = ("_head", "_parts", "_size", "_tail", "limit")

    def __init__(self, limit: int) -> None:
        self.limit = limit
        self._parts: list[bytes] = []
        self._size = 0
        self._head = b""
        self._tail = b""

    @property
    def pending(self) -> int:
        """Bytes of the unfinished line so far, kept or not."""
        return self._size

    @property
    def kept(self) -> int:
        """Bytes of the unfinished line that are kept: none of one that is too long already."""
        return self._size if self._size <= self.limit else 0

    def feed(self, chunk: bytes) -> list[bytes | Oversized]:
        """The lines that `chunk` completes, without their line feeds, in order."""
        if not self._size and chunk.find(b"\n") == len(chunk) - 1 <= self.limit:
            return [chunk[:-1]]  # the usual case: one message, whole
        lines: list[bytes | Oversized] = []
        pieces = chunk.split(b"\n")
        last = pieces.pop()
        for count, piece in enumerate(pieces, 1):
            self._add(piece)
            lines.append(self._finish())
            if len(chunk) <= self.limit:  # only the first could be too long, with what came before
                lines += pieces[count:]
                break
        if last:
            self._add(last)
        return lines

    def _add(self, piece: bytes) -> None:
        self._size += len(piece)
        if self._size <= self.limit:
            self._parts.append(piece)
            return
        if self._parts or not self._head:
            self._head = self._first_bytes(piece)
            self._parts = []
        self._tail = (self._tail + piece[-_EDGE:])[-_EDGE:]

    def _first_bytes(self, piece: bytes) -> bytes:
        head = b""
        for part in (*self._parts, piece):  # joining all of a long line would take longer than all else here
            head += part[: _EDGE - len(head)]
            if len(head) == _EDGE:
                break
        return head

    def _finish(self) -> bytes | Oversized:
        size, parts = self._size, self._parts
        self._size, self._parts = 0, []
        if size <= self.limit:
            return parts[0] if len(parts) == 1 else b"".join(parts)
        line = Oversized(self._head, self._tail, size)
        self._head = self._tail = b""
        return line


class WriterClosed(Exception):
    """The other end is gone, or this writer was closed: nothing can be written any more."""


class WriterStalled(Exception):
    """The other end took no byte for the writer's patience."""


@final
class Queued:
    """A line that the kernel did not take at once.

    Attributes:
        started: Whether any byte of it has been handed to the kernel.
    """

    __slots__ = ("data", "started")

    def __init__(self, data: memoryview, started: bool) -> None:
        self.data = data
        self.started = started


class _Passes(trio.abc.Instrument):
    """Counts the passes of the event loop: in each it runs what is ready, then looks at the descriptors."""

    def __init__(self) -> None:
        self.count = 0

    def before_io_wait(self, timeout: float) -> None:
        self.count += 1


_PASSES: Final[trio.lowlevel.RunVar[_Passes]] = trio.lowlevel.RunVar("conduit.passes")


def _passes_of_this_run() -> _Passes:
    try:
        return _PASSES.get()
    except LookupError:
        passes = _Passes()
        trio.lowlevel.add_instrument(passes)
        _PASSES.set(passes)
        return passes


@final
class LineWriter:
    """Writes lines to a non-blocking descriptor, at once where the kernel takes them.

    `write` never waits and may be called from any task; `run` is the task that drains what is left over.
    A line that was begun is always finished before another one starts.

    Only the first line in each pass of the event loop goes to the kernel by itself; those of the same pass that follow
    are joined into one write in the next pass. Under load that is one system call, and one waking of the reader, for
    dozens of lines; a line that comes alone is not delayed.

    Args:
        fd: The descriptor; set to non-blocking here. The writer does not close it.
        patience: Seconds without progress after which `run` raises ``WriterStalled``.
        on_drained: Called by `run` each time that the kernel has taken all that waited; it may write.
    """

    __slots__ = (
        "_backlog",
        "_closed",
        "_fd",
        "_on_drained",
        "_passes",
        "_patience",
        "_room",
        "_wake",
        "_written_in",
        "buffered",
    )

    def __init__(self, fd: int, *, patience: float = math.inf, on_drained: Callable[[], None] | None = None) -> None:
        os.set_blocking(fd, False)
        self._fd = fd
        self._patience = patience
        self._on_drained = on_drained
        self._backlog: deque[Queued] = deque()
        self._closed = False
        self._passes = _passes_of_this_run()
        self._written_in = -1
        self._wake: trio.Event | None = None
        self._room: trio.Event | None = None
        self.buffered = 0
        """Bytes that wait for the kernel to take them."""

    @property
    def lines(self) -> int:
        """Lines that wait, whole or in part, for the kernel to take them."""
        return len(self._backlog)

    def write(self, line: bytes | bytearray, *, urgent: bool = False) -> Queued | None:
        """Writes `line`, which ends with a line feed; what the kernel does not take now, `run` writes later.

        Args:
            line: Whole lines.
            urgent: Ahead of all queued lines that were not begun.

        Returns:
            None if the kernel has it all, else the queued rest.

        Raises:
            WriterClosed: The other end is gone; nothing of `line` was queued.
        """
        if self._closed:
            raise WriterClosed
        started = False
        rest = memoryview(line)
        if not self._backlog and self._written_in != self._passes.count:
            self._written_in = self._passes.count
            try:
                taken = os.write(self._fd, line)
            except BlockingIOError:
                taken = 0
            except OSError as error:
                self.close()
                raise WriterClosed from error
            if taken == len(line):
                return None
            started = taken > 0
            rest = rest[taken:]
        queued = Queued(rest, started)
        if urgent:
            self._backlog.insert(1 if self._backlog and self._backlog[0].started else 0, queued)
        else:
            self._backlog.append(queued)
        self.buffered += len(rest)
        if self._wake is not None:
            self._wake.set()
        return queued

    def withdraw(self, queued: Queued) -> bool:
        """Takes a queued line back, unless a byte of it was written; tells whether it did."""
        if queued.started or queued not in self._backlog:
            return False
        self._backlog.remove(queued)
        self.buffered -= len(queued.data)
        self._note_room()
        return True

    def flush(self) -> None:
        """Writes what the kernel takes now of what is queued, for an end that will not wait for `run`."""
        if not self._closed:
            with suppress(WriterClosed):
                self._write_some()

    def close(self) -> None:
        """Refuses all further writes and forgets what is queued. The descriptor stays open."""
        self._closed = True
        self._backlog.clear()
        self.buffered = 0
        self._note_room()
        if self._wake is not None:
            self._wake.set()

    async def drained(self, below: int = 1) -> None:
        """Waits until fewer than `below` bytes are buffered, or the writer is closed."""
        while self.buffered >= below and not self._closed:
            if self._room is None:
                self._room = trio.Event()
            await self._room.wait()

    async def run(self) -> None:
        """Drains the backlog until the writer is closed.

        Raises:
            WriterStalled: No byte was taken for `patience` seconds.
            WriterClosed: The other end is gone.
        """
        while not self._closed:
            if not self._backlog:
                self._wake = trio.Event()
                await self._wake.wait()
                self._wake = None
                continue
            if self._write_some():
                continue
            with trio.move_on_after(self._patience) as waiting:
                await trio.lowlevel.wait_writable(self._fd)
            if waiting.cancelled_caught:
                raise WriterStalled

    def _write_some(self) -> bool:
        """Writes once what the kernel takes; whether it took all that was tried."""
        if not self._backlog:  # closed or withdrawn while waiting
            return True
        batch = [self._backlog[i].data for i in range(min(_JOIN, len(self._backlog)))]
        try:
            taken = os.writev(self._fd, batch)
        except BlockingIOError:
            return False
        except OSError as error:
            self.close()
            raise WriterClosed from error
        complete = taken == sum(map(len, batch))
        self.buffered -= taken
        while taken:
            first = self._backlog[0]
            first.started = True  # also of one that goes whole: its call may run from now on
            if taken < len(first.data):
                first.data = first.data[taken:]
                break
            taken -= len(first.data)
            self._backlog.popleft()
        self._note_room()
        if not self._backlog and self._on_drained is not None:
            self._on_drained()
        return complete

    def _note_room(self) -> None:
        if self._room is not None:
            self._room.set()
            self._room = None
