"""What `conduit top` shows, as data: two looks at the daemon, and what happened between them."""

from __future__ import annotations

import time
from typing import Final

import msgspec

from conduit_daemon.agent import AgentError, Conduit, DaemonUnreachable, RunningCall, ServerStatus, Status, TreeNode

__all__ = ["PATIENCE", "Meter", "Sample", "ServerSample"]

PATIENCE: Final = 3.0
"""Seconds within which a daemon that is well has answered."""


class ServerSample(msgspec.Struct, frozen=True):
    """One server at a moment; `calls_per_second` is None where there is nothing to compare with."""

    state: str
    reason: str | None
    calls_per_second: float | None
    running: int
    calls: int
    errors: int
    p50_ms: float | None
    p99_ms: float | None
    restarts: int
    tools: int
    retry_in: float | None
    circuit: str | None
    pid: int | None


class Sample(msgspec.Struct, frozen=True):
    """The daemon at a moment.

    Attributes:
        time: When, in unix seconds.
        version: The daemon's version.
        pid: Its process.
        uptime: Seconds since it was started.
        health: ``ok``, ``degraded`` or ``failing``.
        calls_per_second: Since the look before; None where there was none, or another daemon answered it.
        running: Calls that run.
        calls: Calls so far.
        errors: Those that failed.
        approvals: Calls that wait for a person.
        connections: Agents and administrators that are connected.
        servers: By id.
        running_calls: The oldest of the calls that run; None where they cannot be seen.
        tree: The supervision tree; None where it cannot be seen, and then `tree_missing` says why.
        tree_missing: Why there is no tree.
        rejected: Whether the configuration as it was last read cannot be used.
    """

    time: float
    version: str
    pid: int
    uptime: float
    health: str
    calls_per_second: float | None
    running: int
    calls: int
    errors: int
    approvals: int
    connections: int
    servers: dict[str, ServerSample]
    running_calls: list[RunningCall] | None = None
    tree: TreeNode | None = None
    tree_missing: str | None = None
    rejected: bool = False


class Meter:
    """Looks at a daemon again and again.

    Args:
        conduit: The connection; it is made not to wait for a daemon that is gone.
    """

    def __init__(self, conduit: Conduit) -> None:
        self._conduit = conduit
        conduit.reconnect_timeout = 0.0
        conduit.timeout = PATIENCE
        self._before: tuple[float, Status] | None = None

    def look(self) -> Sample:
        """The daemon now.

        Raises:
            AgentError: It does not answer.
        """
        status = self._conduit.status()
        now = time.monotonic()
        tree, running, missing = self._inside()
        before, self._before = self._before, (now, status)
        if before is not None and before[1].pid != status.pid:
            before = None  # its counts have begun anew
        passed = 0.0 if before is None else now - before[0]
        known = {} if before is None else before[1].servers
        return Sample(
            time=time.time(),
            version=status.version,
            pid=status.pid,
            uptime=status.uptime,
            health=status.health,
            calls_per_second=_rate(None if before is None else before[1].calls.total, status.calls.total, passed),
            running=status.calls.in_flight,
            calls=status.calls.total,
            errors=status.calls.errors,
            approvals=status.approvals,
            rejected=status.config.rejected is not None,
            connections=status.connections,
            servers={name: _server(known.get(name), server, passed) for name, server in status.servers.items()},
            running_calls=running,
            tree=tree,
            tree_missing=missing,
        )

    def _inside(self) -> tuple[TreeNode | None, list[RunningCall] | None, str | None]:
        """What the control socket alone tells, or why it does not."""
        tree = running = None
        try:
            tree = self._conduit.tree()
            running = self._conduit.running().running
        except DaemonUnreachable as error:
            return None, None, f"the control socket cannot be used: {error.tried[0][0]} ({error.tried[0][1]})"
        except AgentError as error:
            return tree, running, str(error)
        return tree, running, None


def _server(before: ServerStatus | None, now: ServerStatus, passed: float) -> ServerSample:
    return ServerSample(
        state=now.state,
        reason=now.reason,
        calls_per_second=_rate(None if before is None else before.calls, now.calls, passed),
        running=now.in_flight,
        calls=now.calls,
        errors=now.errors,
        p50_ms=now.p50_ms,
        p99_ms=now.p99_ms,
        restarts=now.restarts,
        tools=now.tools,
        retry_in=now.retry_in,
        circuit=now.circuit,
        pid=now.pid,
    )


def _rate(before: int | None, now: int, passed: float) -> float | None:
    # A server that was removed and added again counts from zero.
    return None if before is None or now < before or passed <= 0 else round((now - before) / passed, 2)
