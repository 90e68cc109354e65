"""The requests of people and their tools: events, servers, approvals, policy, audit, the daemon itself."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from conduit_daemon.agent._request import Done, Level, Request, Subscription, Text, given
from conduit_daemon.agent._results import (
    Accepted,
    ApprovalChange,
    AuditRows,
    Decision,
    Event,
    PendingApprovals,
    TaintReset,
    Verdict,
)
from conduit_daemon.agent._standing import (
    Explanation,
    Reloaded,
    RunningCalls,
    ServerStatus,
    Status,
    TreeNode,
)

__all__ = [
    "approvals",
    "audit",
    "decide",
    "events",
    "log_level",
    "metrics",
    "policy_explain",
    "reload",
    "running",
    "servers_accept",
    "servers_add",
    "servers_explain",
    "servers_remove",
    "servers_restart",
    "servers_start",
    "servers_stop",
    "shutdown",
    "status",
    "taint_reset",
    "tree",
    "watch_approvals",
]


def status() -> Request[Status]:
    """The daemon's health and every server's state."""
    return Request("conduit/status", {}, Status)


def events(
    types: Sequence[str] | None = None, *, servers: Sequence[str] | None = None, backlog: int | None = None
) -> Subscription[Event]:
    """Follows the daemon's events.

    Args:
        types: Globs of event types, as ``client.*``; None for all.
        servers: Only of these servers.
        backlog: How many past events come first.
    """
    return Subscription("conduit/events", given(types=types, servers=servers, backlog=backlog), "conduit/event", Event)


def tree() -> Request[TreeNode]:
    """The supervision tree as it stands (control socket)."""
    return Request("conduit/tree", {}, TreeNode, control=True)


def running(*, server: str | None = None, limit: int | None = None) -> Request[RunningCalls]:
    """The calls that are on their way, the oldest first, and where each one is (control socket).

    Args:
        server: Only those of this server.
        limit: How many at most (the daemon's default is 100).
    """
    return Request("conduit/running", given(server=server, limit=limit), RunningCalls, control=True)


def servers_restart(server: str) -> Request[ServerStatus]:
    """Restarts a server, or tries one now that waits in backoff (control socket)."""
    return Request("conduit/servers/restart", {"server": server}, ServerStatus, control=True)


def servers_start(server: str) -> Request[ServerStatus]:
    """Starts a stopped server (control socket)."""
    return Request("conduit/servers/start", {"server": server}, ServerStatus, control=True)


def servers_stop(server: str) -> Request[ServerStatus]:
    """Stops a server until it is started again (control socket)."""
    return Request("conduit/servers/stop", {"server": server}, ServerStatus, control=True)


def servers_add(server: str, config: Mapping[str, Any]) -> Request[ServerStatus]:
    """Adds a server until the next reload; `config` is its table of the file (control socket)."""
    return Request("conduit/servers/add", {"server": server, "config": config}, ServerStatus, control=True)


def servers_remove(server: str) -> Request[ServerStatus]:
    """Removes a server until the next reload (control socket)."""
    return Request("conduit/servers/remove", {"server": server}, ServerStatus, control=True)


def servers_explain(server: str) -> Request[Explanation]:
    """A server's timeline: starts, exits, last stderr lines, the next retry and why (control socket)."""
    return Request("conduit/servers/explain", {"server": server}, Explanation, control=True)


def servers_accept(server: str, tool: str, *, look: bool | None = None, digest: str | None = None) -> Request[Accepted]:
    """Accepts the changed definition of a pinned tool, or with `look` only tells it (control socket).

    Args:
        server: The server's id.
        tool: The server's own name of the tool.
        look: Tell what has changed, and accept nothing.
        digest: Accept the definition of this digest alone, the one that was looked at.
    """
    params = given(server=server, tool=tool, look=look, digest=digest)
    return Request("conduit/servers/accept", params, Accepted, control=True)


def approvals() -> Request[PendingApprovals]:
    """The calls that wait for a person's word (control socket)."""
    return Request("conduit/approvals", {}, PendingApprovals, control=True)


def watch_approvals() -> Subscription[ApprovalChange]:
    """Follows approvals as they are asked, decided and withdrawn (control socket)."""
    return Subscription("conduit/approvals", {"watch": True}, "conduit/approval", ApprovalChange, control=True)


def decide(
    id: str,
    decision: str,
    *,
    reason: str | None = None,
    halt: bool | None = None,
    remember: Mapping[str, Any] | None = None,
) -> Request[Decision]:
    """Decides a pending approval (control socket).

    Args:
        id: The approval's id.
        decision: ``approve`` or ``deny``.
        reason: For the model, where it is denied.
        halt: Whether the agent shall stop.
        remember: ``{"scope": "args" or "tool", "for": seconds}``.
    """
    params = given(id=id, decision=decision, reason=reason, halt=halt, remember=remember)
    return Request("conduit/approvals/decide", params, Decision, control=True)


def policy_explain(
    name: str,
    arguments: Mapping[str, Any] | None = None,
    *,
    principal: str | None = None,
    taint: Sequence[str] | None = None,
    assigns: Mapping[str, Any] | None = None,
) -> Request[Verdict]:
    """What the policy would say of a call, and why; nothing is run (control socket)."""
    params = given(name=name, arguments=arguments, principal=principal, taint=taint, assigns=assigns)
    return Request("conduit/policy/explain", params, Verdict, control=True)


def taint_reset(*, principal: str | None = None, session: str | None = None) -> Request[TaintReset]:
    """Forgets whose output models have read: of a principal, one of its conversations, or all (control socket)."""
    return Request("conduit/taint/reset", given(principal=principal, session=session), TaintReset, control=True)


def audit(
    *,
    since: float | None = None,
    until: float | None = None,
    server: str | None = None,
    tool: str | None = None,
    principal: str | None = None,
    outcome: str | None = None,
    limit: int | None = None,
) -> Request[AuditRows]:
    """Rows of the audit, newest first (control socket)."""
    params = given(
        since=since, until=until, server=server, tool=tool, principal=principal, outcome=outcome, limit=limit
    )
    return Request("conduit/audit", params, AuditRows, control=True)


def reload() -> Request[Reloaded]:
    """Reads the configuration again; a bad one changes nothing and raises ``invalid_config`` (control socket)."""
    return Request("conduit/reload", {}, Reloaded, control=True)


def log_level(level: str, *, server: str | None = None) -> Request[Level]:
    """Changes the log level; the answer's `level` is the old one (control socket)."""
    return Request("conduit/log_level", given(level=level, server=server), Level, control=True)


def metrics() -> Request[Text]:
    """The metrics; the answer's `text` is in Prometheus' format (control socket)."""
    return Request("conduit/metrics", {}, Text, control=True)


def shutdown(*, drain: bool | None = None) -> Request[Done]:
    """Stops the daemon; with `drain` running calls may finish (control socket)."""
    return Request("conduit/shutdown", given(drain=drain), Done, control=True)
