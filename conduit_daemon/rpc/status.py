"""What `conduit/status` says: how the daemon and each server stand, read from the ports without a message."""

from __future__ import annotations

import os
from collections.abc import Sequence
from typing import Any

import msgspec
import trio

from conduit_daemon.clients.port import Port
from conduit_daemon.config import Config, ConfigStanding
from conduit_daemon.errors import ClientError
from conduit_daemon.pipeline.gate import Gate

__all__ = ["health", "port_of", "server_status", "status"]


def status(
    gate: Gate, config: Config, *, version: str, standing: ConfigStanding, started_at: float, connections: int
) -> dict[str, Any]:
    """The result of ``conduit/status``.

    Args:
        gate: The pipeline's shared parts.
        config: The configuration in force.
        version: The daemon's version.
        standing: How the configuration in force stands to its file.
        started_at: When it started, on trio's clock.
        connections: How many agents and administrators are connected.
    """
    servers = {server: server_status(gate, config, server) for server in config.servers}
    problems = gate.found_problems()
    return {
        "version": version,
        "pid": os.getpid(),
        "uptime": round(trio.current_time() - started_at, 3),
        "health": health(gate, config, problems),
        "config": msgspec.to_builtins(standing),
        **({"problems": problems} if problems else {}),
        "servers": servers,
        "calls": {"in_flight": len(gate.flights), "total": gate.total, "errors": gate.errors},
        "approvals": len(gate.governance.approvals.pending),
        "connections": connections,
    }


def health(gate: Gate, config: Config, problems: Sequence[str] = ()) -> str:
    """``ok`` where every server that should run is ready or resting, ``failing`` where none is, else ``degraded``.

    Where the daemon itself has problems it is ``degraded`` at best.
    """
    states = [
        gate.ports[server].standing.state
        for server, wanted in config.servers.items()
        if wanted.enabled and server in gate.ports
    ]
    well = [state in ("ready", "idle", "stopped") for state in states]
    if all(well):
        return "degraded" if problems else "ok"
    return "degraded" if any(well) else "failing"


def server_status(gate: Gate, config: Config, server: str) -> dict[str, Any]:
    """The status of one server: what is not applicable is absent."""
    wanted = config.servers[server]
    port = gate.ports.get(server)
    if port is None:
        return {"state": "stopped", "transport": wanted.kind, "reason": f"server {server} is not enabled"}
    standing = port.standing
    listed = port.listing
    slots = gate.server_slots.get(server)
    state, reason = standing.state, standing.reason
    if standing.leaving and wanted.enabled:
        state, reason = "connecting", f"server {server} is started as soon as its former process has ended"
    found: dict[str, Any] = {
        "state": state,
        "reason": reason,
        "transport": wanted.kind,
        "protocol_version": standing.protocol_version,
        "tools": len(listed.tools) if listed is not None else 0,
        "dropped": _dropped(gate, port),
        "pid": standing.pid,
        "restarts": port.restarts,
        "instances": port.instances if wanted.scope == "connection" else None,
        "since": standing.since,
        "retry_in": None if standing.retry_at is None else round(max(0.0, standing.retry_at - trio.current_time()), 3),
        "circuit": standing.circuit,
        "in_flight": slots.taken if slots is not None else 0,
        "calls": port.calls,
        "errors": port.errors,
        "last_error": standing.last_error,
    }
    percentiles = port.percentiles_ms()
    if percentiles is not None:
        found["p50_ms"], found["p99_ms"] = percentiles
    return {key: value for key, value in found.items() if value is not None}


def port_of(gate: Gate, server: str) -> Port:
    """The port of a server that exists and is enabled.

    Raises:
        ClientError: ``invalid_params``: there is no such server.
    """
    port = gate.ports.get(server)
    if port is None:
        known = ", ".join(gate.ports) or "none"
        raise ClientError("invalid_params", f"There is no server {server!r}; configured and enabled are: {known}.")
    return port


def _dropped(gate: Gate, port: Port) -> list[Any]:
    listed = port.listing.dropped if port.listing is not None else ()
    named = [
        dropped
        for dropped in gate.catalogue.current.offered.dropped
        if any(server == port.server for server, _ in dropped.members)
    ]
    return [msgspec.to_builtins(dropped) for dropped in (*listed, *named)]
