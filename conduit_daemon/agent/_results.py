"""What the daemon answers, as frozen Structs.

Every field has a default and unknown keys are ignored, so that an agent works with older and newer
daemons. Times are unix seconds, durations seconds unless a name says otherwise.
"""

from __future__ import annotations

from typing import Any

import msgspec
from msgspec import UNSET, UnsetType

__all__ = [
    "Accepted",
    "Approval",
    "ApprovalChange",
    "AuditRow",
    "AuditRows",
    "CallResult",
    "Considered",
    "Decision",
    "DroppedTools",
    "Event",
    "Execution",
    "MissingServer",
    "Outcome",
    "PendingApprovals",
    "Progress",
    "ServerInfo",
    "TaintReset",
    "ToolList",
    "Tools",
    "Verdict",
]


class Result(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True):
    """The base of all answers: frozen, lenient, and encoded without what was absent."""


class MissingServer(Result, frozen=True):
    """A server whose tools a listing lacks, and why."""

    server: str = ""
    state: str = ""
    reason: str | None = None


class DroppedTools(Result, frozen=True):
    """Tools that are not offered under `exposed`, and why; `members` are (server, tool) pairs."""

    exposed: str = ""
    members: list[list[str]] = []
    reason: str = ""


class Tools(Result, frozen=True):
    """A listing in a provider's format.

    Attributes:
        toolset: The content id of what was listed, to be given with the calls that come of it.
        tools: As the provider takes them.
        null_paths: For OpenAI, per tool: where a null stands for an absent optional argument. A daemon
            that knows `toolset` knows them too.
        fallbacks: For OpenAI, the tools that are sent non-strict, and why.
        dropped: What is not offered, and why.
        missing: Servers whose tools are not in it.
        warnings: Sentences for the person who set it up, as that a provider takes fewer tools.
    """

    toolset: str = ""
    tools: list[dict[str, Any]] = []
    null_paths: dict[str, Any] = {}
    fallbacks: dict[str, str] = {}
    dropped: list[DroppedTools] = []
    missing: list[MissingServer] = []
    warnings: list[str] = []


class Outcome(Result, frozen=True):
    """What became of one call of an execution.

    Attributes:
        call_id: The provider's id of the call, where it gave one.
        server: The server's id, where a tool was found.
        tool: The tool's name at its server.
        kind: ``ok``, ``tool_error`` or an error kind.
        outcome: How far a failed call came.
        duration: Seconds.
    """

    call_id: str | None = None
    server: str | None = None
    tool: str = ""
    kind: str = ""
    outcome: str | None = None
    duration: float = 0.0


class Execution(Result, frozen=True):
    """The answers to a model's calls.

    Attributes:
        status: ``ok``, or ``halt`` where a person said that the agent shall stop.
        results: One answer a call, in the model's order and the provider's shape.
        taint: The servers whose output now is in the model's context, to be given with the next turn.
        outcomes: One an answer, in the same order.
    """

    status: str = "ok"
    results: list[dict[str, Any]] = []
    taint: list[str] = []
    outcomes: list[Outcome] = []


class CallResult(
    Result, frozen=True, rename={"structured_content": "structuredContent", "is_error": "isError", "meta": "_meta"}
):
    """A tool's result.

    Attributes:
        content: The content blocks.
        structured_content: Any JSON value; UNSET where there is none (null is a value).
        is_error: Whether the tool itself reports a failure.
        meta: The result's ``_meta``.
    """

    content: list[dict[str, Any]] = []
    structured_content: Any | UnsetType = UNSET
    is_error: bool = False
    meta: dict[str, Any] | None = None

    @property
    def text(self) -> str:
        """The text blocks, joined with newlines."""
        return "\n".join(str(block.get("text", "")) for block in self.content if block.get("type") == "text")


class ToolList(Result, frozen=True, rename={"next_cursor": "nextCursor"}):
    """One page of MCP's tools/list."""

    tools: list[dict[str, Any]] = []
    next_cursor: str | None = None


class ServerInfo(Result, frozen=True, rename="camel"):
    """The daemon's answer to MCP's initialize."""

    protocol_version: str = ""
    capabilities: dict[str, Any] = {}
    server_info: dict[str, Any] = {}
    instructions: str | None = None


class Event(Result, frozen=True):
    """One event of the daemon; `fields` holds all that it says, the named ones included."""

    seq: int = 0
    time: float = 0.0
    type: str = ""
    server: str | None = None
    tool: str | None = None
    call: str | None = None
    fields: dict[str, Any] = {}


class Approval(Result, frozen=True):
    """A call that waits for a person's word; `folded` where its arguments are too large to be told whole."""

    id: str = ""
    call: str | None = None
    server: str = ""
    tool: str = ""
    exposed_name: str = ""
    arguments: dict[str, Any] = {}
    annotations: dict[str, Any] = {}
    principal: str = ""
    taint: list[str] = []
    rule: str | None = None
    reason: str | None = None
    asked_at: float = 0.0
    expires_in: float | None = None
    folded: bool = False


class PendingApprovals(Result, frozen=True):
    """All calls that wait for a person's word."""

    approvals: list[Approval] = []


class ApprovalChange(Result, frozen=True):
    """An approval that was ``requested``, ``decided`` (how, by whom, why) or ``withdrawn``."""

    type: str = ""
    approval: Approval = Approval()
    decision: str | None = None
    approver: str | None = None
    reason: str | None = None


class Decision(Result, frozen=True):
    """What was decided of an approval; `late`: its caller had gone, and it holds for the same call for a while."""

    id: str = ""
    decision: str = ""
    approver: str | None = None
    reason: str | None = None
    halt: bool = False
    remembered: dict[str, Any] | None = None
    late: bool = False


class Accepted(Result, frozen=True):
    """A pinned tool's definition that is accepted, or only looked at; `changed` names what of it had changed.

    Where it is looked at, `definition` has these parts as they are now, and `digest` is what to accept them by.
    """

    server: str = ""
    tool: str = ""
    changed: list[str] = []
    definition: dict[str, Any] = {}
    digest: str | None = None


class TaintReset(Result, frozen=True):
    """How many conversations' taint was forgotten."""

    reset: int = 0


class Considered(Result, frozen=True):
    """A rule that was looked at, and why it did or did not match."""

    rule: str = ""
    matched: bool = False
    why: str = ""


class Verdict(Result, frozen=True):
    """What the policy says of a call, and why; `rule` is None where its default decided."""

    decision: str = ""
    rule: str | None = None
    reason: str | None = None
    considered: list[Considered] = []


class AuditRow(Result, frozen=True):
    """One decision or call, as the audit keeps it."""

    time: float = 0.0
    call: str | None = None
    principal: str | None = None
    server: str | None = None
    tool: str | None = None
    arguments_digest: str | None = None
    arguments: Any = None
    rule: str | None = None
    decision: str | None = None
    approver: str | None = None
    kind: str | None = None
    outcome: str | None = None
    duration: float | None = None
    request_bytes: int | None = None
    result_bytes: int | None = None


class AuditRows(Result, frozen=True):
    """Rows of the audit, newest first."""

    rows: list[AuditRow] = []


class Progress(Result, frozen=True):
    """How far a call is, as its server tells."""

    progress: float = 0.0
    total: float | None = None
    message: str | None = None
