"""Server-sent events out of a stream of chunks, in time linear in the bytes. Pure.

The format is that of the WHATWG's HTML standard, "Parsing an event stream".
"""

from __future__ import annotations

import re
from typing import Final, final

import msgspec

from conduit_daemon.lines import Oversized

__all__ = ["Event", "EventParser"]

_LINE_END: Final = re.compile(rb"\r\n|\n|\r")
_BOM: Final = b"\xef\xbb\xbf"
_ID: Final = re.compile(rb"[\x20-\x7e]{0,1024}")
"""An id that can be sent back in a header. Any other is none, as the standard has it for one with a NUL."""

_SHORTEST_RETRY: Final = 0.1
_NAME: Final = 64  # a field's name stands before its data
_EDGE: Final = 4096


class Event(msgspec.Struct, frozen=True):
    """One event.

    Attributes:
        data: Its data lines, joined by line feeds; empty where it has none (a mere id).
        type: Its type.
        id: The last event id so far, to resume after it.
        oversized: The edges of its data, which was over the limit and is left out; None where it is whole.
    """

    data: bytes
    type: str
    id: str
    oversized: Oversized | None = None


@final
class EventParser:
    """Cuts a stream into events.

    Args:
        limit: The most bytes of data in an event that are kept.

    Attributes:
        retry: Seconds after which the server wants to be asked again; None where it did not say.
        last_id: The last event id.
    """

    def __init__(self, limit: int) -> None:
        self.retry: float | None = None
        self.last_id = ""
        self._limit = limit
        self._parts: list[bytes] = []
        self._partial = 0
        self._data: list[bytes] = []
        self._size = 0
        self._head = b""
        self._tail = b""
        self._type = ""
        self._fresh_id = False
        self._begun = False
        self._after_return = False

    def feed(self, chunk: bytes) -> list[Event]:
        """The events that `chunk` completes, in order."""
        if not chunk:
            return []
        if self._after_return and chunk[:1] == b"\n":  # of a line end that was cut in two
            chunk = chunk[1:]
        self._after_return = chunk[-1:] == b"\r"
        events: list[Event] = []
        pieces = _LINE_END.split(chunk)
        last = pieces.pop()
        for piece in pieces:
            self._keep(piece)
            parts, size = self._parts, self._partial
            self._parts, self._partial = [], 0
            event = self._take(b"".join(parts)) if size <= self._longest_line else None
            if event is not None:
                events.append(event)
        if last:
            self._keep(last)
        return events

    @property
    def _longest_line(self) -> int:
        return self._limit + _NAME

    def _keep(self, piece: bytes) -> None:
        self._partial += len(piece)
        if self._partial <= self._longest_line:
            self._parts.append(piece)
        else:
            self._drop(*self._parts, piece)
            self._parts, self._size = [], max(self._size, self._partial)

    def _drop(self, *values: bytes) -> None:
        """Keeps the edges alone of what came of an event, and of `values`, which follow it."""
        for part in (*self._data, *values):
            self._head += part[: _EDGE - len(self._head)]
            self._tail = (self._tail + part[-_EDGE:])[-_EDGE:]
        self._data = []

    def _take(self, line: bytes) -> Event | None:
        if not self._begun:
            line, self._begun = line.removeprefix(_BOM), True
        if not line:
            return self._finish()
        name, _, value = line.partition(b":")
        value = value[1:] if value[:1] == b" " else value
        match name:
            case b"data":
                self._size += len(value)
                if self._size <= self._limit:
                    self._data.append(value)
                else:
                    self._drop(value)
            case b"event":
                self._type = value.decode(errors="replace")
            case b"id" if _ID.fullmatch(value):
                self.last_id, self._fresh_id = value.decode(), True
            case b"retry" if value.isdigit() and len(value) < 10:
                self.retry = max(int(value) / 1000, _SHORTEST_RETRY)
            case _:
                pass
        return None

    def _finish(self) -> Event | None:
        oversized = None
        if self._size > self._limit:
            head = self._head.removeprefix(b"data:").removeprefix(b" ")  # of one line alone over the limit
            oversized = Oversized(head, self._tail, self._size)
        event = None
        if self._data or oversized is not None or self._fresh_id:
            event = Event(b"\n".join(self._data), self._type or "message", self.last_id, oversized)
        self._data, self._size, self._type, self._fresh_id = [], 0, "", False
        self._head = self._tail = b""
        return event
