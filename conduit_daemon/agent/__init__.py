"""The library for agents: list tools in a provider's format and run a model's calls through the daemon.

    from conduit_daemon.agent import Conduit

    with Conduit() as conduit:
        listing = conduit.tools("anthropic")
        ...
        answers = conduit.execute("anthropic", response, toolset=listing.toolset).results

`Conduit` blocks; `AsyncConduit` runs on asyncio and trio. Both have a method for each request of the daemon.
Importing this loads neither an event loop nor the daemon.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from conduit_daemon.agent import requests
from conduit_daemon.agent._blocking import Conduit, Stream
from conduit_daemon.agent._errors import AgentError, CallFailed, DaemonUnreachable
from conduit_daemon.agent._results import (
    Accepted,
    Approval,
    ApprovalChange,
    AuditRow,
    AuditRows,
    CallResult,
    Considered,
    Decision,
    DroppedTools,
    Event,
    Execution,
    MissingServer,
    Outcome,
    PendingApprovals,
    Progress,
    ServerInfo,
    TaintReset,
    ToolList,
    Tools,
    Verdict,
)
from conduit_daemon.agent._standing import (
    CallCounts,
    ConfigMistake,
    ConfigStatus,
    Explanation,
    Rejection,
    Reloaded,
    RunningCall,
    RunningCalls,
    ServerStatus,
    Status,
    TimelineEntry,
    TreeNode,
)
from conduit_daemon.agent.sockets import Sockets, lookup

if TYPE_CHECKING:
    from conduit_daemon.agent._async import AsyncConduit, AsyncStream

__all__ = [
    "Accepted",
    "AgentError",
    "Approval",
    "ApprovalChange",
    "AsyncConduit",
    "AsyncStream",
    "AuditRow",
    "AuditRows",
    "CallCounts",
    "CallFailed",
    "CallResult",
    "Conduit",
    "ConfigMistake",
    "ConfigStatus",
    "Considered",
    "DaemonUnreachable",
    "Decision",
    "DroppedTools",
    "Event",
    "Execution",
    "Explanation",
    "MissingServer",
    "Outcome",
    "PendingApprovals",
    "Progress",
    "Rejection",
    "Reloaded",
    "RunningCall",
    "RunningCalls",
    "ServerInfo",
    "ServerStatus",
    "Sockets",
    "Status",
    "Stream",
    "TaintReset",
    "TimelineEntry",
    "ToolList",
    "Tools",
    "TreeNode",
    "Verdict",
    "lookup",
    "requests",
]


def __getattr__(name: str) -> Any:
    # anyio is loaded by those who use it.
    if name in {"AsyncConduit", "AsyncStream"}:
        from conduit_daemon.agent import _async  # noqa: PLC0415

        return getattr(_async, name)
    raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
