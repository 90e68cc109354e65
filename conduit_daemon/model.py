"""The frozen Structs that all layers share: tools, calls, and what comes of them."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Literal

import msgspec
from msgspec import UNSET, UnsetType

from conduit_daemon.errors import ClientError, ErrorKind, Sent

__all__ = [
    "Call",
    "Dropped",
    "Method",
    "Outcome",
    "Principal",
    "Rejected",
    "Tool",
    "ToolCall",
    "ToolReport",
    "ToolResult",
    "user_of",
]

_TOOL_KEYS = frozenset({"name", "title", "description", "inputSchema", "outputSchema", "annotations"})


class Tool(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True):
    """One tool as its server lists it.

    Attributes:
        name: The server's own name for it.
        description: For the model; None where the server gives none.
        input_schema: JSON Schema of the arguments.
        output_schema: JSON Schema of the structured content, where there is one.
        annotations: The server's hints (``readOnlyHint``, ...). To be believed of trusted servers only.
        extra: Further keys of the listing (``icons``, ``_meta``, ...), passed on untouched.
    """

    name: str
    description: str | None = None
    input_schema: dict[str, Any] = msgspec.field(default_factory=lambda: {"type": "object"})
    title: str | None = None
    output_schema: dict[str, Any] | None = None
    annotations: dict[str, Any] = {}
    extra: dict[str, Any] = {}

    @classmethod
    def from_wire(cls, wire: Mapping[str, Any]) -> Tool:
        """A Tool from one entry of a tools/list result.

        Raises:
            ValueError: It is malformed; the message says how, in words for the report of a dropped tool.
        """
        if not isinstance(wire, Mapping):
            raise ValueError(f"a tool must be an object, not {type(wire).__name__}")
        name = wire.get("name")
        if not isinstance(name, str):
            raise ValueError("a tool needs a name that is a string")
        schema = wire.get("inputSchema")
        if not isinstance(schema, dict):
            raise ValueError(f"inputSchema of {name!r} must be an object")
        optional: dict[str, Any] = {}
        for key, field, kind in (
            ("title", "title", str),
            ("description", "description", str),
            ("outputSchema", "output_schema", dict),
            ("annotations", "annotations", dict),
        ):
            value = wire.get(key)
            if value is None:
                continue
            if not isinstance(value, kind):
                raise ValueError(f"{key} of {name!r} has the wrong type ({type(value).__name__})")
            optional[field] = value
        extra = {key: value for key, value in wire.items() if key not in _TOOL_KEYS}
        return cls(name=name, input_schema=schema, extra=extra, **optional)

    def to_wire(self, name: str | None = None) -> dict[str, Any]:
        """The tools/list entry, under `name` where one is given."""
        wire: dict[str, Any] = {"name": self.name if name is None else name, "inputSchema": self.input_schema}
        if self.title is not None:
            wire["title"] = self.title
        if self.description is not None:
            wire["description"] = self.description
        if self.output_schema is not None:
            wire["outputSchema"] = self.output_schema
        if self.annotations:
            wire["annotations"] = self.annotations
        wire.update(self.extra)
        return wire


class ToolResult(msgspec.Struct, frozen=True, kw_only=True):
    """The result of a call that the server answered.

    Attributes:
        content: The content blocks, as dicts in the wire's form; unknown kinds included.
        structured_content: Any JSON value; UNSET where the key is absent (null is a value).
        is_error: Whether the tool itself reports a failure.
        meta: The result's ``_meta``.
    """

    content: list[dict[str, Any]] = []
    structured_content: Any | UnsetType = UNSET
    is_error: bool = False
    meta: dict[str, Any] | None = None

    @classmethod
    def from_wire(cls, wire: Mapping[str, Any]) -> ToolResult:
        """A ToolResult from a CallToolResult.

        Raises:
            ValueError: `wire` is no object, or its content is no list of objects.
        """
        if not isinstance(wire, Mapping):
            raise ValueError(f"a tool's result must be an object, not {type(wire).__name__}")
        content = wire.get("content")
        if content is None:
            content = []
        if not isinstance(content, list) or not all(isinstance(block, dict) for block in content):
            raise ValueError("content of a tool's result must be a list of objects")
        meta = wire.get("_meta")
        return cls(
            content=content,
            structured_content=wire.get("structuredContent", UNSET),
            is_error=wire.get("isError") is True,
            meta=meta if isinstance(meta, dict) else None,
        )

    def to_wire(self) -> dict[str, Any]:
        """The CallToolResult; `isError` is always present."""
        wire: dict[str, Any] = {"content": self.content, "isError": self.is_error}
        if self.structured_content is not UNSET:
            wire["structuredContent"] = self.structured_content
        if self.meta is not None:
            wire["_meta"] = self.meta
        return wire


class ToolCall(msgspec.Struct, frozen=True):
    """A model's call of a tool that its toolset holds.

    Attributes:
        call_id: The provider's id of the call; None where it gave none (Gemini).
        server_id: The server that has the tool.
        name: The server's own name for the tool.
        exposed_name: The name that the model used.
        arguments: The arguments, an object.
    """

    call_id: str | None
    server_id: str
    name: str
    exposed_name: str
    arguments: dict[str, Any]


class Rejected(msgspec.Struct, frozen=True):
    """A model's call that is answered without being sent.

    Attributes:
        call_id: The provider's id of the call, where it gave one.
        exposed_name: The name that the model used; empty where it gave none.
        answer: The ready answer, in the provider's result shape.
        kind: Why: ``unknown_tool`` or ``invalid_arguments``.
    """

    call_id: str | None
    exposed_name: str
    answer: dict[str, Any]
    kind: ErrorKind = "unknown_tool"


class Dropped(msgspec.Struct, frozen=True):
    """Tools that are not offered, and why.

    Attributes:
        exposed: The name they would have had; empty where none can be made.
        members: The (server id, tool name) pairs concerned.
        reason: A stable word (``collision``, ``invalid_name``, ``malformed``, ...), with detail after a colon.
    """

    exposed: str
    members: tuple[tuple[str, str], ...]
    reason: str


class Principal(msgspec.Struct, frozen=True):
    """Who asks: the peer of the socket, and the agent that it says it speaks for.

    Attributes:
        name: As rules and the audit see it: ``USER`` or ``USER/AGENT``.
        uid: The peer's user id; None for a caller inside the process.
        pid: The peer's process id; None for a caller inside the process.
    """

    name: str
    uid: int | None = None
    pid: int | None = None

    def narrowed(self, agent: str | None) -> Principal:
        """This principal speaking for `agent`: it narrows, never widens.

        Raises:
            ClientError: ``invalid_params``: the name holds what a person would not see, or spaces at its ends.
        """
        if not agent:
            return self
        if not agent.isprintable() or agent != agent.strip():
            shown = ascii(agent[:64])
            raise ClientError("invalid_params", f"An agent's name is a line of visible characters, not {shown}.")
        return Principal(f"{self.name}/{agent}", self.uid, self.pid)


def user_of(principal: str) -> str:
    """The user in a principal's name, without the agent that it says it speaks for.

    Example:
        >>> user_of("alice/researcher"), user_of("alice")
        ('alice', 'alice')
    """
    return principal.partition("/")[0]


class ToolReport(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True):
    """What became of one call, without its contents: for `outcomes` of an execution and for logs.

    Attributes:
        call_id: The provider's id of the call.
        server: The server's id; None where no tool was found.
        tool: The server's own name of the tool, or the name asked for where none was found.
        kind: ``ok``, ``tool_error`` or an error kind.
        outcome: ``done`` or how far a failed call came.
        duration: Seconds.
    """

    call_id: str | None
    server: str | None
    tool: str
    kind: str
    outcome: Sent | str
    duration: float


Method = Literal[
    "tools/call",
    "resources/read",
    "resources/subscribe",
    "resources/unsubscribe",
    "prompts/get",
    "completion/complete",
]
"""What a call asks of a server. All but the first go as tools named ``resource:URI`` and ``prompt:NAME``."""


class Call(msgspec.Struct, frozen=True, kw_only=True):
    """One call on its way through the pipeline.

    Attributes:
        id: The daemon's own id of the call, the same in every event, log line and audit row.
        name: The exposed name, as the caller gave it.
        arguments: What the tool is called with.
        principal: Who calls.
        taint: Ids of the servers whose output is in the caller's context.
        assigns: Facts of the caller's own, for rules.
        meta: The request's ``_meta``, passed to the server.
        timeout: Seconds that the whole call may take, waiting included; None for the configuration's.
        toolset: The id of the toolset that the model was offered; None for today's.
        method: What is asked of the server.
    """

    id: str
    name: str
    arguments: dict[str, Any]
    principal: Principal
    taint: frozenset[str] = frozenset()
    assigns: dict[str, Any] = {}
    meta: dict[str, Any] = {}
    timeout: float | None = None
    toolset: str | None = None
    method: Method = "tools/call"


Decided = Literal["allow", "approve", "deny", "filtered", "invalid", "none"]
"""What was decided about a call; ``none`` where it failed before a decision was due."""


class Outcome(msgspec.Struct, frozen=True, kw_only=True):
    """What came of a call.

    Attributes:
        call: The call.
        server: The server's id; None where no tool was found.
        tool: The server's own name of the tool; None where none was found.
        kind: ``ok``, ``tool_error`` (the tool ran and reports a failure) or an error kind.
        sent: ``done``, or how far a failed call came.
        result: The CallToolResult as the server wrote it; empty where the call failed.
        error: Why it failed; None where there is a result.
        decision: What was decided about it.
        rule: The rule that decided, ``default`` where none matched; None where none was asked.
        duration: Seconds from the request to the answer.
        halt: Whether an approver asked for the agent's loop to end.
    """

    call: Call
    kind: str
    server: str | None = None
    tool: str | None = None
    sent: Sent | Literal["done"] = "done"
    result: msgspec.Raw = msgspec.Raw(b"")
    error: ClientError | None = None
    decision: Decided = "none"
    rule: str | None = None
    duration: float = 0.0
    halt: bool = False

    @property
    def asked(self) -> str:
        """The tool's own name; where none was found the one asked for, which may be anything, cut to 200 characters."""
        return self.tool or self.call.name[:200]

    @property
    def heard_from(self) -> str | None:
        """The server whose words reach the caller, by a result or by its own error; None where none do."""
        return self.server if self.error is None or self.error.kind == "server_error" else None

    def tool_result(self) -> ToolResult:
        """The result, decoded.

        Raises:
            ClientError: The call failed; or ``protocol``, what the server answered is no CallToolResult.
        """
        if self.error is not None:
            raise self.error
        try:
            return ToolResult.from_wire(msgspec.json.decode(self.result))
        except (msgspec.MsgspecError, UnicodeDecodeError, RecursionError, ValueError) as error:
            raise ClientError(
                "protocol",
                f"Server {self.server} broke the protocol: {error}. The call may have taken effect.",
                self.server,
                self.tool,
                outcome="outcome_unknown",
            ) from None

    def report(self, call_id: str | None = None) -> ToolReport:
        """What became of it, without its contents."""
        return ToolReport(
            call_id=call_id,
            server=self.server,
            tool=self.asked,
            kind=self.kind,
            outcome=self.sent,
            duration=self.duration,
        )
