"""What a connection sends: at once where the peer takes it, and bounded where it does not read.

Answers wait for the peer. Of what is only told to it, no more waits than the newest: of progress the last of each
request, of logs none.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Final, final

from conduit_daemon.lines import LineWriter, WriterClosed
from conduit_daemon.rpc.budget import LITTLE
from conduit_daemon.rpc.protocol import RequestId

__all__ = ["Outbox"]

_LATE: Final = 1 << 16
_LARGEST_KEPT: Final = 1 << 12
_OF_A_LINE: Final = 256
"""Bytes of memory that a waiting line takes beside its own."""


@final
class Outbox:
    """The lines to one peer.

    Args:
        fd: The connected socket.
        on_growth: Called whenever the peer has left some more unread.
    """

    def __init__(self, fd: int, on_growth: Callable[[], None]) -> None:
        self._writer = LineWriter(fd, on_drained=self._tell_newest)
        self._on_growth = on_growth
        self._seen = LITTLE
        self._newest: dict[RequestId, bytes] = {}

    @property
    def unread(self) -> int:
        """Bytes that wait for the peer to read."""
        return self._writer.buffered

    @property
    def held(self) -> int:
        """Bytes of memory that what waits takes."""
        return self._writer.buffered + _OF_A_LINE * self._writer.lines

    def send(self, line: bytes) -> None:
        """Sends a line; a peer that has gone is no error."""
        try:
            self._writer.write(line)
        except WriterClosed:
            return
        if self._writer.buffered:
            self._watch()

    def tell_progress(self, request_id: RequestId, line: bytes) -> None:
        """Sends a request's progress; to a peer that is late, only what is the newest once it reads again."""
        if self._writer.buffered < _LATE and not self._newest:
            self.send(line)
        elif len(line) <= _LARGEST_KEPT:
            self._newest[request_id] = line

    def tell(self, line: bytes) -> None:
        """Sends what a peer that is late need not hear."""
        if self._writer.buffered < _LATE:
            self.send(line)

    def forget(self, request_id: RequestId) -> None:
        """A request is over: nothing is told of its progress any more."""
        if self._newest:
            self._newest.pop(request_id, None)

    async def drained(self, below: int = 1) -> None:
        """Waits until the peer has left fewer than `below` bytes unread, or has gone."""
        await self._writer.drained(below)

    async def run(self) -> None:
        """Writes what waits, until closed.

        Raises:
            WriterClosed: The peer has gone.
        """
        await self._writer.run()

    def close(self) -> None:
        """Writes what the peer takes now of what waits, forgets the rest, and refuses more."""
        self._newest.clear()
        self._writer.flush()
        self._writer.close()

    def _watch(self) -> None:
        held = self.held
        if held < self._seen - LITTLE:
            self._seen = max(LITTLE, held)
        elif held > self._seen:
            self._seen = held + LITTLE
            self._on_growth()

    def _tell_newest(self) -> None:
        newest, self._newest = self._newest, {}
        for line in newest.values():
            self.send(line)
