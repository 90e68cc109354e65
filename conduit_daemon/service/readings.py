"""What the metrics read from the daemon's parts at a scrape, without a message to the hub or to a client."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

from conduit_daemon.clients.port import Port
from conduit_daemon.pipeline.gate import Gate
from conduit_daemon.telemetry.metrics import Readings, ServerReading

__all__ = ["read"]


def read(gate: Gate, tree: dict[str, Any], *, version: str, connections: int) -> Readings:
    """How the daemon's parts stand.

    Args:
        gate: The pipeline's shared parts.
        tree: The supervision tree, as ``conduit/tree`` shows it.
        version: The daemon's version.
        connections: How many agents and administrators are connected.
    """
    return Readings(
        version=version,
        in_flight=len(gate.flights),
        connections=connections,
        servers=tuple(_server(gate, port) for port in gate.ports.values()),
        mailboxes=dict(_mailboxes(tree)),
    )


def _server(gate: Gate, port: Port) -> ServerReading:
    slots = gate.server_slots.get(port.server)
    return ServerReading(
        server=port.server,
        state=port.standing.state,
        in_flight=0 if slots is None else slots.taken,
        restarts=port.restarts,
        tools=0 if port.listing is None else len(port.listing.tools),
    )


def _mailboxes(node: dict[str, Any]) -> Iterator[tuple[str, int]]:
    """Of the named ones alone: tasks have no mailbox, and there may be hundreds of connections."""
    if "name" in node and "mailbox" in node:
        yield node["name"], node["mailbox"]
    for child in node["children"]:
        yield from _mailboxes(child)
