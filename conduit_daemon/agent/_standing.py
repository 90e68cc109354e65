"""How the daemon stands, as it answers: its servers, its processes, the calls that are on their way."""

from __future__ import annotations

import msgspec

from conduit_daemon.agent._results import DroppedTools

__all__ = [
    "CallCounts",
    "ConfigMistake",
    "ConfigStatus",
    "Explanation",
    "Rejection",
    "Reloaded",
    "RunningCall",
    "RunningCalls",
    "ServerStatus",
    "Status",
    "TimelineEntry",
    "TreeNode",
]


class Standing(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True):
    """The base of these: as lenient as all answers."""


class RunningCall(Standing, frozen=True):
    """A call that is on its way.

    Attributes:
        id: The call's, as in the log and the audit.
        name: What the caller calls it.
        server: The server's id, where it is known yet.
        tool: The server's own name for the tool; ``resource:URI`` or ``prompt:NAME`` for what is none.
        principal: Who calls.
        since: When it was asked for.
        phase: ``approval``, ``rate``, ``slot``, ``hook`` or ``start`` where it waits for that, else ``server``.
    """

    id: str = ""
    name: str = ""
    server: str | None = None
    tool: str | None = None
    principal: str = ""
    since: float = 0.0
    phase: str = ""


class RunningCalls(Standing, frozen=True):
    """The oldest of the calls that are on their way; `total` is how many there are in all."""

    running: list[RunningCall] = []
    total: int = 0


class ServerStatus(Standing, frozen=True):
    """One MCP server, as the daemon sees it; `reason` is one sentence where it is not ready."""

    state: str = ""
    reason: str | None = None
    transport: str | None = None
    protocol_version: str | None = None
    tools: int = 0
    dropped: list[DroppedTools] = []
    pid: int | None = None
    restarts: int = 0
    since: float | None = None
    retry_in: float | None = None
    circuit: str | None = None
    in_flight: int = 0
    calls: int = 0
    errors: int = 0
    p50_ms: float | None = None
    p99_ms: float | None = None
    last_error: str | None = None


class CallCounts(Standing, frozen=True):
    """How many calls run, and how many there were."""

    in_flight: int = 0
    total: int = 0
    errors: int = 0


class ConfigMistake(Standing, frozen=True):
    """One thing that is wrong with a configuration: in which file, at which key (empty for all of it), and what."""

    file: str = ""
    key: str = ""
    message: str = ""
    suggestion: str | None = None


class Rejection(Standing, frozen=True):
    """A configuration that was read and cannot be used, so that the one from before is in force."""

    time: float = 0.0
    file: str = ""
    problems: list[ConfigMistake] = []


class ConfigStatus(Standing, frozen=True):
    """The configuration in force; `needs_restart` names keys of its file that count only after a restart."""

    file: str | None = None
    loaded: float = 0.0
    watch: bool = False
    rejected: Rejection | None = None
    needs_restart: list[str] = []


class Status(Standing, frozen=True):
    """The daemon at a glance; `health` is ``ok``, ``degraded`` or ``failing``.

    `problems` are the daemon's own: one sentence each.
    """

    version: str = ""
    pid: int = 0
    uptime: float = 0.0
    health: str = ""
    config: ConfigStatus = ConfigStatus()
    problems: list[str] = []
    servers: dict[str, ServerStatus] = {}
    calls: CallCounts = CallCounts()
    approvals: int = 0
    connections: int = 0


class TreeNode(Standing, frozen=True):
    """One process of the supervision tree, with what it supervises.

    Attributes:
        id: Its id beneath its supervisor.
        kind: ``supervisor``, ``actor`` or ``task``.
        name: The name it is registered under.
        state: What it does.
        restarts: How often it was restarted.
        uptime: Seconds since it was last started.
        mailbox: Messages that wait.
        busy_for: Seconds it has been at its present message.
        children: In the order of their start.
    """

    id: str = ""
    kind: str = ""
    name: str | None = None
    state: str = ""
    restarts: int = 0
    uptime: float | None = None
    mailbox: int | None = None
    busy_for: float | None = None
    children: list[TreeNode] = []


class TimelineEntry(Standing, frozen=True):
    """One moment in a server's life."""

    time: float = 0.0
    event: str = ""
    text: str = ""


class Explanation(Standing, frozen=True):
    """Why a server is in the state it is in; `waiting` is how many calls wait for its start, `running` its calls."""

    server: str = ""
    state: str = ""
    reason: str | None = None
    next_retry: float | None = None
    waiting: int = 0
    running: list[RunningCall] = []
    timeline: list[TimelineEntry] = []
    stderr: list[str] = []


class Reloaded(Standing, frozen=True):
    """What a reload did to the servers; `needs_restart` names keys that count only after a restart."""

    added: list[str] = []
    removed: list[str] = []
    changed: list[str] = []
    unchanged: list[str] = []
    needs_restart: list[str] = []
