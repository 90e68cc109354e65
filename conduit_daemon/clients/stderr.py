"""What a server writes to its stderr: into the log, slowed where it floods, and the last lines kept."""

from __future__ import annotations

import os
from collections import deque
from collections.abc import Callable
from typing import Final, final

import trio

from conduit_daemon.lines import TURN, LineSplitter, Oversized

__all__ = ["ErrorOutput"]

_KEPT: Final = 100
_LONGEST: Final = 1000
_CHUNK: Final = 1 << 16
_BURST: Final = 200
_PER_SECOND: Final = 50


@final
class ErrorOutput:
    """Reads a server's stderr to its end.

    Args:
        fd: A non-blocking descriptor.
        on_line: Called with each line, at most 50 a second after a burst of 200; what is over that is
            counted and said in one line.
        clean: Applied to each line before it is kept or passed on (masks secrets).

    Attributes:
        last: The last 100 lines.
    """

    def __init__(self, fd: int, on_line: Callable[[str], None], clean: Callable[[str], str]) -> None:
        self.last: deque[str] = deque(maxlen=_KEPT)
        self.ended = trio.Event()
        self._fd = fd
        self._on_line = on_line
        self._clean = clean
        self._splitter = LineSplitter(_LONGEST)
        self._allowance = float(_BURST)
        self._counted_at = trio.current_time()
        self._suppressed = 0

    async def run(self) -> None:
        """Reads until the last process that has it open has closed it."""
        try:
            while True:
                await trio.lowlevel.wait_readable(self._fd)
                try:
                    chunk = os.read(self._fd, _CHUNK)
                except BlockingIOError:
                    continue
                if not chunk:
                    await self._take(b"\n" if self._splitter.pending else b"")
                    return
                await self._take(chunk)
        finally:
            self._tell_suppressed()
            self.ended.set()

    def tail(self, lines: int) -> list[str]:
        """The last lines, oldest first."""
        return list(self.last)[-lines:]

    async def _take(self, chunk: bytes) -> None:
        for number, line in enumerate(self._splitter.feed(chunk), 1):
            if not number % TURN:
                await trio.lowlevel.checkpoint()
            raw, more = (line.head, "...") if isinstance(line, Oversized) else (line, "")
            text = raw.decode(errors="replace")
            if not text.isprintable():
                text = "".join(c if c.isprintable() or c == "\t" else repr(c)[1:-1] for c in text)
            text = text.rstrip()
            if text:  # cut after it is cleaned: half a secret is not known for one
                text = self._clean(text)
                self._tell(text[:_LONGEST] + more if more else text)

    def _tell(self, text: str) -> None:
        self.last.append(text)
        now = trio.current_time()
        self._allowance = min(_BURST, self._allowance + (now - self._counted_at) * _PER_SECOND)
        self._counted_at = now
        if self._allowance < 1:
            self._suppressed += 1
            return
        self._allowance -= 1
        self._tell_suppressed()
        self._on_line(text)

    def _tell_suppressed(self) -> None:
        if self._suppressed:
            count, self._suppressed = self._suppressed, 0
            self._on_line(f"({count} lines of stderr were not logged: too many at once)")
