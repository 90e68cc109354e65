"""The messages between the daemon's actors."""

from __future__ import annotations

import msgspec

from supervisors import Call

__all__ = [
    "ClientChanged",
    "Explain",
    "Explanation",
    "GetGate",
    "RestartServer",
    "StartServer",
    "StopServer",
    "TimelineEntry",
]


class ClientChanged(msgspec.Struct, frozen=True):
    """To the hub: a client's state or listing has changed; both stand on its port.

    Attributes:
        server: The server's id.
    """

    server: str


class GetGate(Call[object], frozen=True):
    """To the hub: the pipeline's `Gate` over its tools, for callers inside the process."""


class RestartServer(Call[None], frozen=True):
    """To a client: end the connection if there is one, and connect now, whatever was planned."""


class StartServer(Call[None], frozen=True):
    """To a client: connect, if it is not connected or trying to."""


class StopServer(Call[None], frozen=True):
    """To a client: end the connection and stay stopped."""


class TimelineEntry(msgspec.Struct, frozen=True):
    """One thing that happened to a client.

    Attributes:
        time: Unix seconds.
        event: The event's type.
        text: One sentence.
    """

    time: float
    event: str
    text: str


class Explanation(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True):
    """Why a client is as it is.

    Attributes:
        server: The server's id.
        state: Its state.
        reason: One sentence, where it is not ready.
        next_retry: Seconds until the next attempt.
        waiting: How many calls wait for a slot.
        timeline: What happened, oldest first.
        stderr: The last lines that the server wrote.
    """

    server: str
    state: str
    reason: str | None = None
    next_retry: float | None = None
    waiting: int = 0
    timeline: tuple[TimelineEntry, ...] = ()
    stderr: tuple[str, ...] = ()


class Explain(Call[Explanation], frozen=True):
    """To a client: what happened to it, and what comes next."""
