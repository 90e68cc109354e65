"""What a server sends over a WebSocket, frame by frame (RFC 6455, section 5.2). Pure.

Messages are put together here and not in the library, which ends the whole connection at one that is too long, and
takes all the frames of a read in one go, of which there may be tens of thousands.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Final, final

from conduit_daemon.lines import Oversized

__all__ = ["ControlFrame", "FrameError", "FrameSplitter"]

_EDGE: Final = 4096
_FINAL: Final = 0x80
_RESERVED: Final = 0x70
_MASKED: Final = 0x80
_CONTROL: Final = 0x8
_KNOWN: Final = frozenset({0, 1, 2, 8, 9, 10})
_LONGEST_CONTROL: Final = 125


class FrameError(Exception):
    """The server sent what is no frame, or not its turn."""


@final
class ControlFrame:
    """A ping, a pong or a close, as it came; for the library.

    Attributes:
        data: The whole frame.
    """

    __slots__ = ("data",)

    def __init__(self, data: bytes) -> None:
        self.data = data


@final
class FrameSplitter:
    """Cuts a stream of bytes into messages and control frames, in time linear in the bytes.

    Args:
        limit: The longest message, in bytes, that is kept; of a longer one an ``Oversized`` remains.
    """

    def __init__(self, limit: int) -> None:
        self._limit = limit
        self._header = bytearray()
        self._opcode = 0
        self._final = False
        self._left: int | None = None  # bytes of the frame that are to come; None between frames
        self._control = b""
        self._in_message = False
        self._kept = bytearray()
        self._size = 0
        self._head = b""
        self._tail = b""

    def feed(self, data: bytes) -> Iterator[bytes | Oversized | ControlFrame | None]:
        """What `data` completes, in order: messages, what is left of those over the limit, and control frames.

        A frame that completes none of them is a None, so that whoever reads can give others a turn.

        Raises:
            FrameError: While iterating; the connection is of no use any more.
        """
        at = 0
        while True:
            if self._left is None:
                at = self._take_header(data, at)
                if self._left is None:
                    return
            piece = data[at : at + self._left]
            at += len(piece)
            self._left -= len(piece)
            if self._opcode & _CONTROL:
                self._control += piece
            else:
                self._keep(piece)
            if self._left:
                return
            self._left = None
            yield self._finish()

    def _take_header(self, data: bytes, at: int) -> int:
        header = self._header
        while (missing := _header_size(header) - len(header)) > 0:
            piece = data[at : at + missing]
            if not piece:
                return at
            header += piece
            at += len(piece)
        self._begin(header)
        header.clear()
        return at

    def _begin(self, header: bytearray) -> None:
        first, second = header[0], header[1]
        size = second & ~_MASKED if len(header) == 2 else int.from_bytes(header[2:])
        self._opcode, self._final = first & 0xF, bool(first & _FINAL)
        if first & _RESERVED:
            raise FrameError("a frame is compressed, or of an extension that was not agreed on")
        if second & _MASKED:
            raise FrameError("a server must not mask its frames")
        if self._opcode not in _KNOWN or size >> 63:
            raise FrameError("what came is no frame")
        if self._opcode & _CONTROL:
            if not self._final or size > _LONGEST_CONTROL:
                raise FrameError("a control frame is too long, or in fragments")
            self._control = bytes(header)
        elif self._in_message is bool(self._opcode):
            raise FrameError("a message began within another, or went on without a beginning")
        else:
            self._in_message = True
        self._left = size

    def _keep(self, piece: bytes) -> None:
        self._size += len(piece)
        self._kept += piece
        if self._size > self._limit:
            self._head += self._kept[: _EDGE - len(self._head)]
            self._tail = (self._tail + self._kept[-_EDGE:])[-_EDGE:]
            self._kept = bytearray()

    def _finish(self) -> bytes | Oversized | ControlFrame | None:
        if self._opcode & _CONTROL:
            return ControlFrame(self._control)
        if not self._final:
            return None
        size, kept = self._size, self._kept
        self._in_message, self._size, self._kept = False, 0, bytearray()
        if size <= self._limit:
            return bytes(kept)
        message = Oversized(self._head, self._tail, size)
        self._head = self._tail = b""
        return message


def _header_size(header: bytearray) -> int:
    if len(header) < 2:
        return 2
    return {126: 4, 127: 10}.get(header[1] & ~_MASKED, 2)
