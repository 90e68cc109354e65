"""What happened to one client: told to the bus, and remembered for whoever asks for an explanation."""

from __future__ import annotations

import time
from collections import deque
from collections.abc import Callable
from typing import Any, Final, final

from conduit_daemon.clients.listing import Listing
from conduit_daemon.messages import TimelineEntry
from conduit_daemon.telemetry.events import EventBus, Level

__all__ = ["Journal", "Timeline", "new_timeline", "sentence"]

_KEPT: Final = 200

Timeline = deque[TimelineEntry]
"""What happened to one client, the last 200 things; kept by the application, so that it survives the actor."""


def new_timeline() -> Timeline:
    """An empty timeline."""
    return deque(maxlen=_KEPT)


@final
class Journal:
    """Tells what happens to one client.

    Args:
        server: The server's id.
        bus: Where events go.
        timeline: Where it is remembered.
        clean: Masks secrets.
    """

    def __init__(self, server: str, bus: EventBus, timeline: Timeline, clean: Callable[[str], str]) -> None:
        self._server = server
        self._bus = bus
        self._clean = clean
        self.timeline = timeline

    def tell(self, event: str, level: Level, text: str, **fields: Any) -> None:
        """Says in one sentence what happened; fields that are None are left out."""
        text = self._clean(text)
        self.timeline.append(TimelineEntry(time.time(), event, text))
        known = {key: value for key, value in fields.items() if value is not None}
        self._bus.emit(event, level=level, server=self._server, reason=text, **known)

    def tell_dropped(self, listing: Listing) -> None:
        """Says which tools of a listing cannot be offered, and what cut it short."""
        for dropped in listing.dropped:
            self._bus.emit(
                "client.tool_dropped",
                level="warning",
                server=self._server,
                tool=dropped.members[0][1],
                reason=dropped.reason,
            )
        if listing.note is not None:
            self.tell("client.protocol", "warning", f"The listing of {self._server} was cut short: {listing.note}.")


def sentence(reason: str) -> str:
    """A reason as a sentence of its own."""
    return f"{reason[:1].upper()}{reason[1:]}."
