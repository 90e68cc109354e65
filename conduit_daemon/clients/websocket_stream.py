"""Between a WebSocket and its library, which sees the handshake and control frames; messages go to the dispatcher."""

from __future__ import annotations

import re
from collections.abc import Iterator
from http import HTTPStatus
from typing import Final, final

import trio

from conduit_daemon.clients.dispatcher import Dispatcher
from conduit_daemon.clients.http_errors import parse_retry_after
from conduit_daemon.clients.transport import Loss, Unreachable
from conduit_daemon.clients.websocket_frames import ControlFrame, FrameSplitter
from conduit_daemon.lines import TURN, Oversized

__all__ = ["MessageStream"]

_READ: Final = 1 << 16
_LONGEST_HEAD: Final = 1 << 16
_STATUS: Final = re.compile(rb"HTTP/1\.[01] (\d{3})")
_RETRY_AFTER: Final = re.compile(rb"\r\nretry-after:\s*([^\r\n]*)", re.IGNORECASE)
_ATTENTION: Final = (401, 403)


@final
class MessageStream(trio.abc.Stream):
    """The stream that the library reads from.

    Args:
        stream: The way to the server.
        wire: Where messages go.
    """

    def __init__(self, stream: trio.abc.Stream, wire: Dispatcher) -> None:
        self._stream = stream
        self._wire = wire
        self._head: bytes | None = b""
        self._splitter = FrameSplitter(wire.max_message)
        self._items: Iterator[bytes | Oversized | ControlFrame | None] = iter(())
        self._taken = 0

    async def receive_some(self, max_bytes: int | None = None) -> bytes:
        """What the library is to see.

        Raises:
            Unreachable: The server does not open a WebSocket.
            FrameError: It broke the protocol.
        """
        while True:
            for item in self._items:
                self._taken += 1
                if not self._taken % TURN:
                    await trio.lowlevel.checkpoint()
                if isinstance(item, ControlFrame):
                    return item.data
                if isinstance(item, Oversized):
                    self._wire.take_oversized(item.head, item.tail, item.size)
                elif item:
                    self._wire.take_body(item)
            chunk = bytes(await self._stream.receive_some(_READ))
            if not chunk:
                return b""
            if self._head is not None:
                return self._take_head(self._head, chunk)
            self._items = self._splitter.feed(chunk)

    def _take_head(self, before: bytes, chunk: bytes) -> bytes:
        head, end, rest = (before + chunk).partition(b"\r\n\r\n")
        if not end:
            if len(head) > _LONGEST_HEAD:
                raise Unreachable(Loss(reason="cannot be reached: it sent headers without an end"))
            self._head = head
            return chunk
        self._head = None
        status = _STATUS.match(head)
        if status is not None and int(status[1]) != HTTPStatus.SWITCHING_PROTOCOLS:
            raise Unreachable(_rejected(int(status[1]), head))
        self._items = self._splitter.feed(rest)
        return chunk[: len(chunk) - len(rest)]

    async def send_all(self, data: bytes | bytearray | memoryview) -> None:
        """Sends on."""
        await self._stream.send_all(data)

    async def wait_send_all_might_not_block(self) -> None:
        """Waits on."""
        await self._stream.wait_send_all_might_not_block()

    async def aclose(self) -> None:
        """Closes the way to the server."""
        await self._stream.aclose()


def _rejected(status: int, head: bytes) -> Loss:
    after = _RETRY_AFTER.search(head)
    return Loss(
        reason=f"refused the WebSocket with HTTP status {status}",
        attention=status in _ATTENTION,
        retry_after=parse_retry_after(None if after is None else after[1].decode(errors="replace")),
    )
