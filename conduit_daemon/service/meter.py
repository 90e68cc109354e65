"""The daemon's metrics in place: counted from its bus, read from its parts at a scrape, served where asked."""

from __future__ import annotations

from collections.abc import AsyncIterator, Iterator, Sized
from contextlib import asynccontextmanager
from functools import partial
from typing import Any, final

import trio

from conduit_daemon.clients.port import Port
from conduit_daemon.pipeline.audit import Audit
from conduit_daemon.pipeline.gate import Gate
from conduit_daemon.service.reload import Reloader
from conduit_daemon.service.tree import describe
from conduit_daemon.service.watchdog import health_line
from conduit_daemon.telemetry.endpoint import open_endpoint, serve_endpoint
from conduit_daemon.telemetry.logging import Log
from conduit_daemon.telemetry.metrics import Metrics, Readings, ServerReading
from supervisors import ChildSpec

__all__ = ["Meter"]


@final
class Meter:
    """Measures the daemon.

    Args:
        gate: The pipeline's shared parts; what is counted are its bus's events.
        reloader: Knows whether the configuration could be used when it was last read.
        audit: Knows what it could not write.
        log: As does this.
        version: The daemon's version.
        connections: The open connections to the sockets.
        root: The name of the supervision tree's root.
    """

    def __init__(
        self,
        gate: Gate,
        reloader: Reloader,
        audit: Audit,
        log: Log,
        *,
        version: str,
        connections: Sized,
        root: str = "root",
    ) -> None:
        self._gate = gate
        self._audit = audit
        self._log = log
        self._reloader = reloader
        self._version = version
        self._connections = connections
        self._root = root
        self._metrics = Metrics(gate.bus)
        self._listeners: tuple[trio.SocketListener, ...] = ()

    @asynccontextmanager
    async def endpoint(self, listen: str | None) -> AsyncIterator[None]:
        """Listens for scrapes over HTTP while it is entered; `children` answers them.

        Args:
            listen: ``HOST:PORT``; None for no such endpoint.

        Raises:
            DaemonError: It cannot be listened there.
        """
        listeners = [] if listen is None else await open_endpoint(listen)
        self._listeners = tuple(listeners)
        try:
            yield
        finally:
            for listener in listeners:
                await listener.aclose()

    def children(self) -> list[ChildSpec]:
        """The tasks that it needs."""
        specs = [ChildSpec(id="event_loop_lag", start=lambda: self._metrics.measure_lag)]
        if self._listeners:
            serve = partial(serve_endpoint, self._listeners, self.render)
            specs.append(ChildSpec(id="metrics_endpoint", start=lambda: serve))
        return specs

    def health(self) -> str:
        """The daemon's line of health, as a service manager shows it."""
        gate = self._gate
        states = [port.standing.state for port in gate.ports.values()]
        rejected = self._reloader.rejected is not None
        return health_line(states, len(gate.flights), rejected=rejected, problems=gate.found_problems())

    async def render(self) -> bytes:
        """All numbers as they are now, in Prometheus' text format. No message goes to the hub or to a client.

        Raises:
            NoProcess: The supervision tree does not run.
        """
        gate = self._gate
        text = self._metrics.render(
            Readings(
                version=self._version,
                in_flight=len(gate.flights),
                connections=len(self._connections),
                servers=tuple(_server(gate, port) for port in gate.ports.values()),
                mailboxes=dict(_mailboxes(await describe(self._root))),
                log_lines_dropped=self._log.missing,
                audit_rows_waiting=self._audit.waiting,
                audit_rows_lost=self._audit.lost,
                problems=len(gate.found_problems()),
            )
        )
        masker = gate.masker  # tools are labels, and are named by others
        return masker.mask(text.decode()).encode() if masker.occurs_in(text) else text


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
