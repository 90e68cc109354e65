"""The daemon's events as connections see them: numbered, masked, and never at the cost of anybody else.

A reader that falls behind loses events instead of holding the emitter back: while more than 256 KiB wait for it,
what happens is counted, and the count is told in an ``events.dropped`` event once it has caught up.
"""

from __future__ import annotations

import json
import time
from collections import deque
from collections.abc import Sequence
from typing import Any, Final, NoReturn, final

import msgspec
import trio

from conduit_daemon.config import matcher
from conduit_daemon.rpc.connection import Connection
from conduit_daemon.rpc.protocol import RequestId
from conduit_daemon.telemetry.events import Event, EventBus
from conduit_daemon.telemetry.masking import Masker

__all__ = ["BACKLOG", "EventFeed", "EventStream"]

BACKLOG: Final = 1000
"""How many past events are kept for those who ask for a backlog."""

_HIGH_WATER: Final = 1 << 18
_LOW_WATER: Final = 1 << 16
_NOT_FROM_FIELDS: Final = frozenset({"arguments", "subscription", "seq"})

_encode = msgspec.json.Encoder().encode


@final
class EventFeed:
    """The bus with the last events kept, and each event written once for all its readers.

    Args:
        bus: Where events come from.
        masker: What is never shown.
    """

    def __init__(self, bus: EventBus, masker: Masker) -> None:
        self.bus = bus
        self.recent: deque[Event] = deque(maxlen=BACKLOG)
        self._masker = masker
        self._last: tuple[Event, bytes] | None = None
        bus.attach(self.recent.append)

    def body(self, event: Event) -> bytes:
        """The members of a ``conduit/event`` after its number: ``"time":...}``."""
        if self._last is None or self._last[0] is not event:
            self._last = (event, self._render(event))
        return self._last[1]

    def _render(self, event: Event) -> bytes:
        known: dict[str, Any] = {
            **{key: value for key, value in event.fields.items() if key not in _NOT_FROM_FIELDS},
            "time": event.time,
            "type": event.type,
            "level": event.level,
            "server": event.server,
            "tool": event.tool,
            "call": event.call,
        }
        shown = self._masker.mask_value({key: value for key, value in known.items() if value is not None})
        try:
            return _encode(shown)[1:]
        except (TypeError, ValueError, OverflowError, RecursionError):
            # A lone surrogate, a huge number, an object: shown as well as JSON can.
            return json.dumps(shown, default=repr, ensure_ascii=False).encode("utf-8", "replace")[1:]


@final
class EventStream:
    """One reader's events.

    ``seq`` counts what the reader's globs let through, lost ones included, so that a gap is as wide as the
    ``count`` of the ``events.dropped`` that explains it.

    Args:
        feed: The daemon's events.
        connection: The reader's.
        subscription: The id of its request, told with each event.
        types: Globs of event types; None for all.
        servers: Globs of server ids; with any, events that concern no server are left out.
    """

    def __init__(
        self,
        feed: EventFeed,
        connection: Connection,
        subscription: RequestId,
        *,
        types: Sequence[str] | None,
        servers: Sequence[str] | None,
    ) -> None:
        self._feed = feed
        self._connection = connection
        self._subscription = subscription
        self._head = b'{"jsonrpc":"2.0","method":"conduit/event","params":{"subscription":%b,"seq":' % _encode(
            subscription
        )
        self._wants_type = None if types is None else matcher(types)
        self._wants_server = None if servers is None else matcher(servers)
        self._seq = 0
        self._lost = 0
        self._behind = trio.Event()

    async def run(self, backlog: int = 0) -> NoReturn:
        """Streams until cancelled; the last `backlog` fitting events come first."""
        if backlog:
            for event in [event for event in self._feed.recent if self._wants(event)][-backlog:]:
                self._take(event)
        token = self._feed.bus.attach(self._take_wanted)
        self._connection.stream(self._subscription)
        try:
            while True:
                await self._behind.wait()
                await self._connection.drained(_LOW_WATER)
                self._tell_lost()
        finally:
            self._feed.bus.detach(token)

    def _wants(self, event: Event) -> bool:
        if self._wants_type is not None and not self._wants_type(event.type):
            return False
        return self._wants_server is None or (event.server is not None and self._wants_server(event.server))

    def _take_wanted(self, event: Event) -> None:
        if self._wants(event):
            self._take(event)

    def _take(self, event: Event) -> None:
        self._seq += 1
        if self._lost or self._connection.unread > _HIGH_WATER:
            self._lost += 1
            self._behind.set()
            return
        self._send(self._feed.body(event))

    def _tell_lost(self) -> None:
        lost, self._lost = self._lost, 0
        self._behind = trio.Event()
        if lost:
            dropped = Event("events.dropped", time.time(), "warning", fields={"count": lost})
            self._send(self._feed.body(dropped))

    def _send(self, body: bytes) -> None:
        self._connection.send(b"%b%d,%b}\n" % (self._head, self._seq, body))
