"""The calls that are on their way, as an operator sees them: whose, of what, since when, and where each one is."""

from __future__ import annotations

import time
from collections.abc import Collection
from itertools import islice
from typing import Final

import msgspec
import trio

from conduit_daemon.pipeline.gate import Gate, InFlight, Phase

__all__ = ["Underway", "underway"]

_LONGEST: Final = 256


class Underway(msgspec.Struct, frozen=True, omit_defaults=True):
    """One call.

    Attributes:
        id: The call's, as in the log and the audit.
        name: What the caller calls it.
        principal: Who calls.
        phase: Where it is.
        since: When it was asked for, in unix seconds.
        server: The server's id; None before it is known.
        tool: The server's own name for the tool, or ``resource:URI`` or ``prompt:NAME``.
    """

    id: str
    name: str
    principal: str
    phase: Phase
    since: float
    server: str | None = None
    tool: str | None = None


def underway(gate: Gate, *, server: str | None = None, limit: int = 100) -> tuple[list[Underway], int]:
    """The oldest `limit` calls and how many there are in all, of one server where it is given.

    What they are called with is not told.
    """
    chosen: Collection[InFlight] = gate.flights
    if server is not None:
        chosen = [each for each in chosen if each.entry is not None and each.entry.server_id == server]
    now, clock = trio.current_time(), time.time()
    return [_shown(flight, clock - (now - flight.began)) for flight in islice(chosen, limit)], len(chosen)


def _shown(flight: InFlight, since: float) -> Underway:
    entry = flight.entry
    return Underway(
        id=flight.call.id,
        name=_short(flight.call.name),
        principal=flight.call.principal.name,
        phase=flight.phase,
        since=round(since, 3),
        server=None if entry is None else entry.server_id,
        tool=None if entry is None else _short(entry.tool.name),
    )


def _short(name: str) -> str:
    """A resource's URI may have thousands of characters."""
    return name if len(name) <= _LONGEST else f"{name[:_LONGEST]}…"
