"""Between a connection and its client: what an old connection still has to say reaches nobody."""

from __future__ import annotations

from typing import Protocol, final

from conduit_daemon.clients.connection import Connection
from conduit_daemon.clients.listing import Listing
from conduit_daemon.clients.observer import Ended, Observer
from conduit_daemon.clients.offerings import Offerings
from conduit_daemon.clients.session import Negotiated

__all__ = ["Watch", "Watcher"]


class Watcher(Protocol):
    """The client that a connection belongs to.

    Attributes:
        generation: Grows with each connection.
    """

    generation: int

    @property
    def subscriptions(self) -> set[str]:
        """The resources that somebody wants to hear of."""

    @property
    def caller(self) -> object:
        """Who called last."""

    def note_started(self, pid: int) -> None:
        """The server's process runs."""

    def note_ready(self, connection: Connection, negotiated: Negotiated, listing: Listing) -> None:
        """Calls may come."""

    def note_listing(self, listing: Listing) -> None:
        """The tools changed."""

    def note_offerings(self, offerings: Offerings) -> None:
        """What the server offers beside tools is known, or changed."""

    def note_updated(self, uri: str) -> None:
        """A resource that was subscribed to has changed."""

    def note_lost(self, ended: Ended) -> None:
        """No call may come any more."""


@final
class Watch(Observer):
    """What a connection tells its client; deaf once the connection is not the client's current one."""

    def __init__(self, client: Watcher, generation: int) -> None:
        self._client = client
        self._generation = generation

    def _current(self) -> bool:
        return self._client.generation == self._generation

    @property
    def subscriptions(self) -> set[str]:
        return self._client.subscriptions

    @property
    def caller(self) -> object:
        return self._client.caller

    def on_started(self, pid: int) -> None:
        if self._current():
            self._client.note_started(pid)

    def on_ready(self, connection: Connection, negotiated: Negotiated, listing: Listing) -> None:
        if self._current():
            self._client.note_ready(connection, negotiated, listing)

    def on_listing(self, listing: Listing) -> None:
        if self._current():
            self._client.note_listing(listing)

    def on_offerings(self, offerings: Offerings) -> None:
        if self._current():
            self._client.note_offerings(offerings)

    def on_updated(self, uri: str) -> None:
        if self._current():
            self._client.note_updated(uri)

    def on_lost(self, ended: Ended) -> None:
        if self._current():
            self._client.note_lost(ended)
