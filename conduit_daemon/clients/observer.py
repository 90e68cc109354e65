"""Whom a connection tells how it goes, and how it tells that it has ended."""

from __future__ import annotations

from typing import TYPE_CHECKING, Literal

import msgspec

from conduit_daemon.clients.listing import Listing
from conduit_daemon.clients.offerings import Offerings
from conduit_daemon.clients.process import Exit
from conduit_daemon.clients.session import Negotiated

if TYPE_CHECKING:
    from conduit_daemon.clients.connection import Connection

__all__ = ["Ended", "Observer"]


class Ended(msgspec.Struct, frozen=True, kw_only=True):
    """How a connection ended.

    Attributes:
        kind: ``misconfigured`` (trying again is of no use), ``probe`` (the server ended when asked for the
            newer era), ``start`` (it never was ready), ``lost`` (it was) or ``stopped`` (on purpose).
        reason: One sentence.
        exit: How the process ended, where it did by itself.
        stderr: Its last lines.
        ready_for: Seconds that it was ready.
        retry_after: Seconds that the server asks to be left alone.
        http_status: With which it refused the handshake, where it said no more than that.
    """

    kind: Literal["misconfigured", "probe", "start", "lost", "stopped"]
    reason: str
    exit: Exit | None = None
    stderr: tuple[str, ...] = ()
    ready_for: float = 0.0
    retry_after: float | None = None
    http_status: int | None = None


class Observer:
    """Whom a connection tells how it goes; called from its task. See `clients.actor`."""

    @property
    def subscriptions(self) -> set[str]:
        """URIs of the resources that are subscribed to; a connection's successor takes them over."""
        return set()

    @property
    def caller(self) -> object:
        """Who called last, whether or not that call has reached the connection; None where nobody did."""
        return None

    def on_started(self, pid: int) -> None:
        """The process runs; not told of a server that is none of ours."""

    def on_ready(self, connection: Connection, negotiated: Negotiated, listing: Listing) -> None:
        """Calls may come."""

    def on_listing(self, listing: Listing) -> None:
        """The tools changed."""

    def on_offerings(self, offerings: Offerings) -> None:
        """What the server offers beside tools is known, or changed."""

    def on_updated(self, uri: str) -> None:
        """A resource that was subscribed to has changed."""

    def on_lost(self, ended: Ended) -> None:
        """No call may come any more; told once, before the process is gone altogether."""
