"""The parameters of the methods beyond MCP, strict: an unknown one is refused by its name."""

from __future__ import annotations

from typing import Annotated, Any, Literal

import msgspec

from conduit_daemon.pipeline.question import Remember
from conduit_daemon.telemetry.events import Level

__all__ = [
    "AcceptParams",
    "AddServerParams",
    "ApprovalsParams",
    "AuditParams",
    "CallParams",
    "DecideParams",
    "EventsParams",
    "ExecuteParams",
    "ExplainPolicyParams",
    "LogLevelParams",
    "NoParams",
    "ResetTaintParams",
    "RunningParams",
    "ServerParams",
    "ShutdownParams",
    "StrictParams",
    "ToolsParams",
    "UseParams",
]

Provider = Literal["anthropic", "openai", "gemini"]
Api = Literal["chat", "responses"]
Meta = dict[str, Any]
Session = Annotated[str, msgspec.Meta(min_length=1, max_length=256)]
# An agent chooses these, and they are kept or worked on for every tool or event: what is no name is refused.
Agent = Annotated[str, msgspec.Meta(max_length=256)]
Prefix = Annotated[str, msgspec.Meta(max_length=64)]
Taint = Annotated[list[Annotated[str, msgspec.Meta(max_length=256)]], msgspec.Meta(max_length=1000)]
Globs = Annotated[list[Annotated[str, msgspec.Meta(max_length=256)]], msgspec.Meta(max_length=100)]


class StrictParams(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """The base of all: an unknown parameter is refused by its name."""

    meta_: Meta = msgspec.field(default={}, name="_meta")


class NoParams(StrictParams, frozen=True, kw_only=True):
    """No parameters."""


class ServerParams(StrictParams, frozen=True, kw_only=True):
    """One server."""

    server: str


class AddServerParams(StrictParams, frozen=True, kw_only=True):
    """``conduit/servers/add``."""

    server: str
    config: dict[str, Any]


class EventsParams(StrictParams, frozen=True, kw_only=True):
    """``conduit/events``."""

    types: Globs | None = None
    servers: Globs | None = None
    backlog: Annotated[int, msgspec.Meta(ge=0)] = 0


class UseParams(StrictParams, frozen=True, kw_only=True):
    """``conduit/use``: a host's choices for its connection.

    Attributes:
        set: The named toolset that it is confined to; None for all tools.
        session: Its conversation, whose taint a later connection has again.
    """

    set: str | None
    session: Session | None = None


class LogLevelParams(StrictParams, frozen=True, kw_only=True):
    """``conduit/log_level``."""

    level: Level
    server: str | None = None


class RunningParams(StrictParams, frozen=True, kw_only=True):
    """``conduit/running``."""

    server: str | None = None
    limit: Annotated[int, msgspec.Meta(ge=1, le=1000)] = 100


class ShutdownParams(StrictParams, frozen=True, kw_only=True):
    """``conduit/shutdown``."""

    drain: bool = True


class ToolsParams(StrictParams, frozen=True, kw_only=True):
    """``conduit/tools``."""

    provider: Provider | None = None
    api: Api | None = None
    strict: Literal["auto"] | bool = "auto"
    cache_control: dict[str, Any] | None = None
    client: str | None = None
    prefix: Prefix = ""
    refresh: bool = False
    max_description_chars: int | None = None
    set: str | None = None
    principal: Agent | None = None
    assigns: dict[str, Any] = {}
    timeout: float | None = None


class ExecuteParams(StrictParams, frozen=True, kw_only=True):
    """``conduit/execute``."""

    provider: Provider
    api: Api | None = None
    response: Any = None
    calls: list[Any] | None = None
    toolset: str | None = None
    null_paths: dict[str, list[list[str | None]]] | None = None
    max_concurrency: int | None = None
    call_timeout: float = 300.0
    structured: Literal["auto", "append", "prefer", "ignore"] | None = None
    error_prefix: str | None = None
    shape: Literal["llm"] | None = "llm"
    principal: Agent | None = None
    assigns: dict[str, Any] = {}
    taint: Taint = []
    session: Session | None = None
    timeout: float | None = None
    meta: dict[str, Any] = {}


class CallParams(StrictParams, frozen=True, kw_only=True):
    """``conduit/call``."""

    name: str | None = None
    server: str | None = None
    tool: str | None = None
    arguments: dict[str, Any] = {}
    taint: Taint = []
    session: Session | None = None
    timeout: float | None = None
    shape: Literal["llm"] | None = None
    principal: Agent | None = None
    assigns: dict[str, Any] = {}
    meta: dict[str, Any] = {}


class ApprovalsParams(StrictParams, frozen=True, kw_only=True):
    """``conduit/approvals``."""

    watch: bool = False


class DecideParams(StrictParams, frozen=True, kw_only=True):
    """``conduit/approvals/decide``."""

    id: str
    decision: Literal["approve", "deny"]
    reason: Annotated[str, msgspec.Meta(max_length=2000)] | None = None
    halt: bool = False
    remember: Remember | None = None


class ExplainPolicyParams(StrictParams, frozen=True, kw_only=True):
    """``conduit/policy/explain``."""

    name: str
    arguments: dict[str, Any] = {}
    principal: Agent | None = None
    taint: Taint = []
    assigns: dict[str, Any] = {}


class AuditParams(StrictParams, frozen=True, kw_only=True):
    """``conduit/audit``."""

    since: float | None = None
    until: float | None = None
    server: str | None = None
    tool: str | None = None
    principal: str | None = None
    outcome: str | None = None
    limit: int = 100


class AcceptParams(StrictParams, frozen=True, kw_only=True):
    """``conduit/servers/accept``.

    Attributes:
        look: Tell what has changed, and accept nothing.
        digest: Accept the definition of this digest alone, the one that was looked at.
    """

    server: str
    tool: str
    look: bool = False
    digest: str | None = None


class ResetTaintParams(StrictParams, frozen=True, kw_only=True):
    """``conduit/taint/reset``."""

    principal: str | None = None
    session: str | None = None
