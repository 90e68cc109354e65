"""Streams of the daemon's events: ``conduit/events``."""

from __future__ import annotations

from typing import final

from conduit_daemon.config.globs import glob_problem
from conduit_daemon.errors import ClientError
from conduit_daemon.rpc import protocol
from conduit_daemon.rpc.connection import Connection, Handler
from conduit_daemon.rpc.events import EventFeed, EventStream
from conduit_daemon.rpc.params import EventsParams
from conduit_daemon.rpc.protocol import Request

__all__ = ["EventMethods"]


@final
class EventMethods:
    """What follows events.

    Args:
        feed: The daemon's events.
    """

    def __init__(self, feed: EventFeed) -> None:
        self._feed = feed

    @property
    def handlers(self) -> dict[str, Handler]:
        """The methods by name."""
        return {"conduit/events": self._stream}

    async def _stream(self, connection: Connection, request: Request) -> object:
        params = protocol.decode_params(request.params, EventsParams)
        for glob in (*(params.types or ()), *(params.servers or ())):
            problem = glob_problem(glob)
            if problem is not None:
                raise ClientError("invalid_params", f"The glob {glob!r} {problem}.")
        stream = EventStream(self._feed, connection, request.number, types=params.types, servers=params.servers)
        await stream.run(params.backlog)
