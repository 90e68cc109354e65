"""The configuration as frozen Structs, with every default: what ``config.load`` makes of a file.

Sizes are bytes, durations are seconds, file system modes are ints. Names that a section lists are globs.
``Config()`` is a whole configuration of its own: no servers, and everything at its default.
"""

from __future__ import annotations

from pathlib import Path
from typing import Annotated, Any, Final, Literal

import msgspec
from msgspec import Meta

__all__ = [
    "UNTRUSTED",
    "AuditConfig",
    "AuthConfig",
    "BackoffConfig",
    "Config",
    "Count",
    "Duration",
    "Effect",
    "FileMode",
    "FilePath",
    "Globs",
    "HooksConfig",
    "LimitsConfig",
    "LogConfig",
    "LogLevel",
    "MetricsConfig",
    "PolicyConfig",
    "PolicyRule",
    "PolicyTest",
    "Program",
    "RateConfig",
    "RpcConfig",
    "ServerConfig",
    "ShapeConfig",
    "Size",
    "StateConfig",
    "ToolFilter",
    "ToolsetConfig",
    "TransportKind",
]

KIB: Final = 1024
MIB: Final = 1024 * KIB
YEAR: Final = 365 * 86_400

UNTRUSTED: Final = "untrusted"
"""In ``tainted_by``: every server that is not trusted."""

_SIZE_SCHEMA: Final[dict[str, Any]] = {"type": ["integer", "string"], "examples": ["64MiB"]}
_MODE_SCHEMA: Final[dict[str, Any]] = {"type": ["integer", "string"], "examples": ["0660"]}

Size = Annotated[int, Meta(gt=0, le=2**40, extra={"form": "size"}, extra_json_schema=_SIZE_SCHEMA)]
"""Bytes; a file may write ``"64MiB"``, ``"50KiB"``, ``"10MB"`` or a whole number."""

FileMode = Annotated[int, Meta(ge=0, le=0o777, extra={"form": "mode"}, extra_json_schema=_MODE_SCHEMA)]
"""Permission bits; a file may write ``"0660"`` or ``0o660``."""

FilePath = Annotated[Path, Meta(extra_json_schema={"type": "string"})]
"""A path, absolute once it is loaded."""

Program = Annotated[str, Meta(extra={"form": "program"})]
"""A program's name, looked up on the path, or its path, absolute once it is loaded."""

Duration = Annotated[float, Meta(gt=0, le=YEAR)]
"""Seconds, more than none."""

Count = Annotated[int, Meta(ge=1, le=1_000_000_000)]
"""How many, at least one."""

Globs = tuple[str, ...]
"""Patterns with ``*``, ``?`` and ``[...]``, matched against whole names, case-sensitively."""

Effect = Literal["allow", "approve", "deny"]
LogLevel = Literal["debug", "info", "warning", "error"]
TransportKind = Literal["stdio", "http", "sse", "websocket"]


class RpcConfig(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """``[rpc]``: the two sockets.

    Attributes:
        agent_socket: Where agents connect; None for the default place (see ``config.agent_socket``).
        control_socket: Where administration connects; None for ``control.sock`` beside the agents'.
        socket_mode: Permission bits of the agents' socket.
        socket_group: The group that the agents' socket is given to; None leaves the daemon's own.
        control_group: The group that may use the control socket (which then has mode 0660); None for nobody else.
        max_message: The longest line that is read, in bytes. All that a socket's connections leave unfinished or
            unread, and large requests that run, may take four times as much.
        max_connections: How many connections each socket may have open at a time.
    """

    agent_socket: FilePath | None = None
    control_socket: FilePath | None = None
    socket_mode: FileMode = 0o660
    socket_group: str | None = None
    control_group: str | None = None
    max_message: Size = 64 * MIB
    max_connections: Count = 256


class LogConfig(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """``[log]``: where and how much is logged."""

    format: Literal["auto", "json", "console", "journal"] = "auto"
    level: LogLevel = "info"


class RateConfig(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """``rate``: a token bucket per principal and tool; ``calls`` in ``per`` seconds."""

    calls: Count
    per: Duration = 60.0


class LimitsConfig(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """``[limits]``: bounds on calls and results, for all servers together.

    Attributes:
        max_result: The largest result that is delivered, in bytes.
        max_in_flight: Calls running at a time.
        call_timeout: The longest silence of a call in seconds; progress renews it.
        max_call_time: The longest call in seconds, whatever its progress.
        shutdown_timeout: Seconds that running calls get when the daemon stops or a server is removed.
        rate: Calls per principal and tool; None for no limit.
    """

    max_result: Size = 10 * MIB
    max_in_flight: Count = 256
    call_timeout: Duration = 60.0
    max_call_time: Duration = 600.0
    shutdown_timeout: Annotated[float, Meta(ge=0, le=YEAR)] = 10.0
    rate: RateConfig | None = None


class StateConfig(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """``[state]``: where what must survive a restart is kept; None for the default (see ``state_directory``)."""

    directory: FilePath | None = None


class BackoffConfig(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """``backoff``: the pauses between attempts to connect, in seconds.

    Attributes:
        initial: The first pause.
        factor: What each further pause is multiplied by.
        maximum: The longest pause.
        reset_after: How long a server must have been ready for the next failure to count as the first.
    """

    initial: Duration = 0.5
    factor: Annotated[float, Meta(ge=1, le=1000)] = 2.0
    maximum: Duration = 60.0
    reset_after: Duration = 60.0


class ToolFilter(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """``tools``: which of a server's tools exist for agents, and in what words.

    Attributes:
        allow: Globs of the server's own names; a tool that none matches is neither listed nor callable.
        deny: Globs of names that are taken out again.
        describe: A description by the server's own name of the tool, instead of the server's.
    """

    allow: Globs = ("*",)
    deny: Globs = ()
    describe: dict[str, str] = {}


class AuthConfig(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """``auth``: how a remote server is logged in to.

    Attributes:
        type: ``oauth`` (a person logs in once, ``conduit login``) or ``client_credentials``.
        client_id: The client's id; None to register dynamically (``oauth`` only).
        client_secret: The client's secret, where it has one.
        token_url: The token endpoint; None to discover it.
        scopes: The scopes asked for; empty for the server's default.
    """

    type: Literal["oauth", "client_credentials"]
    client_id: str | None = None
    client_secret: str | None = None
    token_url: str | None = None
    scopes: tuple[str, ...] = ()


class ServerConfig(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """``[servers.ID]``: one MCP server, started by ``command`` or reached at ``url``.

    Attributes:
        command: The program to start; a relative path with a slash is relative to the file.
        args: Its arguments.
        env: Variables added to the safe default environment (never the daemon's whole one).
        cwd: The directory it is started in; None for the daemon's own.
        url: ``http(s)://`` for Streamable HTTP, ``ws(s)://`` for WebSocket.
        transport: As written; None to derive it (see ``kind``).
        headers: Sent with each HTTP request or with the WebSocket handshake.
        enabled: False keeps the table and starts nothing.
        start: ``eager`` with the daemon, ``lazy`` at the first call.
        idle_timeout: Seconds without a call after which a lazy server is stopped; None for never.
        connect_timeout: Seconds that starting and negotiating may take.
        call_timeout: Instead of the one in ``limits``; None for that.
        max_in_flight: Calls running at a time on this server.
        protocol: The era spoken; ``auto`` finds out.
        scope: One connection for all, or a server for each agent's connection.
        max_instances: The most servers of a ``connection`` scope at a time.
        trusted: Whether its annotations are believed by rules, and its output is no taint of ``untrusted``.
        pin: Whether a tool's definition is fixed at its first use.
        auth: How it is logged in to; None for not at all.
        backoff: The pauses between attempts to connect.
        tools: Which of its tools exist.
        roots: Directories told to it as its roots.
        log_stderr: The level at which its stderr is logged; ``off`` keeps it for explain alone.
        rate: Instead of the one in ``limits``; None for that.
    """

    command: Program | None = None
    args: tuple[str, ...] = ()
    env: dict[str, str] = {}
    cwd: FilePath | None = None
    url: str | None = None
    transport: TransportKind | None = None
    headers: dict[str, str] = {}
    enabled: bool = True
    start: Literal["eager", "lazy"] = "eager"
    idle_timeout: Duration | None = None
    connect_timeout: Duration = 30.0
    call_timeout: Duration | None = None
    max_in_flight: Count = 32
    protocol: Literal["auto", "2025-11-25", "2026-07-28"] = "auto"
    scope: Literal["shared", "connection"] = "shared"
    max_instances: Count = 8
    trusted: bool = False
    pin: bool = False
    auth: AuthConfig | None = None
    backoff: BackoffConfig = BackoffConfig()
    tools: ToolFilter = ToolFilter()
    roots: tuple[FilePath, ...] = ()
    log_stderr: Literal["debug", "info", "warning", "error", "off"] = "info"
    rate: RateConfig | None = None

    @property
    def kind(self) -> TransportKind:
        """The transport: the one written, else the one that ``command`` or the URL's scheme means."""
        if self.transport is not None:
            return self.transport
        if self.url is None:
            return "stdio"
        return "websocket" if self.url.lower().startswith(("ws://", "wss://")) else "http"


class PolicyRule(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """``[[policy.rules]]``: what is done with the calls that match all of its conditions.

    Attributes:
        effect: What is done.
        name: What the rule is called in the audit and in explanations; None for ``rules[N]``.
        servers: Globs of server ids.
        tools: Globs of the servers' own names, of ``resource:URI`` and of ``prompt:NAME``.
        principals: Globs of ``USER`` or ``USER/AGENT``.
        annotations: Hints that the tool must have, with these values; they count on trusted servers only.
        tainted_by: Globs of servers, any of whose output is in the model's context; ``untrusted`` stands for all
            that are not trusted. None for no condition.
        when: A CEL expression over args, server, tool, annotations, principal, taint and assigns.
        reason: Told to the model, or to the person who is asked.
    """

    effect: Effect
    name: str | None = None
    servers: Globs = ("*",)
    tools: Globs = ("*",)
    principals: Globs = ("*",)
    annotations: dict[str, Any] = {}
    tainted_by: Globs | None = None
    when: str | None = None
    reason: str | None = None


class PolicyTest(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """``[[policy.tests]]``: a call and the effect that the rules must have on it.

    Attributes:
        call: The exposed name, ``server__tool``.
        expect: The effect that is expected.
        taint: Server ids whose output is in the model's context.
        arguments: The call's arguments.
        annotations: The tool's hints.
        principal: Who calls; empty for nobody in particular.
        assigns: What the caller assigned.
    """

    call: str
    expect: Effect
    taint: tuple[str, ...] = ()
    arguments: dict[str, Any] = {}
    annotations: dict[str, Any] = {}
    principal: str = ""
    assigns: dict[str, Any] = {}


class PolicyConfig(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """``[policy]``: which calls run, which are asked about, which are refused.

    Attributes:
        default: For calls that no rule matches.
        approval_timeout: Seconds that an approval is waited for.
        track_taint: Whether a connection's own taint is added to what the caller gives.
        rules: The first match decides.
        tests: Run by ``conduit policy test`` and ``conduit check``.
    """

    default: Effect = "approve"
    approval_timeout: Duration = 300.0
    track_taint: bool = True
    rules: tuple[PolicyRule, ...] = ()
    tests: tuple[PolicyTest, ...] = ()


class HooksConfig(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """``[hooks]``: ``module:function`` of one's own code, run around each call."""

    before_call: tuple[str, ...] = ()
    after_call: tuple[str, ...] = ()


class AuditConfig(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """``[audit]``: the record of every decision and call.

    Attributes:
        enabled: Whether it is kept.
        retention_days: Days after which a row is removed.
        arguments: Whether redacted arguments are kept beside their digest.
    """

    enabled: bool = True
    retention_days: Count = 90
    arguments: bool = False


class MetricsConfig(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """``[metrics]``: an HTTP endpoint for Prometheus at ``listen`` (``HOST:PORT``); None for none."""

    listen: str | None = None


class ShapeConfig(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """``[shape]``: how a result is shaped for a model; ``max_text`` is its longest text in bytes."""

    max_text: Size = 50 * KIB


class ToolsetConfig(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """``[toolsets.NAME]``: a named selection: tools matching ``tools`` of servers matching ``servers``."""

    servers: Globs = ("*",)
    tools: Globs = ("*",)


class Config(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """The whole configuration.

    Attributes:
        servers: By id, in the file's order.
        toolsets: Named selections, by name.
        watch: Whether a saved change of the file is a reload.
    """

    rpc: RpcConfig = RpcConfig()
    log: LogConfig = LogConfig()
    limits: LimitsConfig = LimitsConfig()
    state: StateConfig = StateConfig()
    servers: dict[str, ServerConfig] = {}
    policy: PolicyConfig = PolicyConfig()
    hooks: HooksConfig = HooksConfig()
    audit: AuditConfig = AuditConfig()
    metrics: MetricsConfig = MetricsConfig()
    shape: ShapeConfig = ShapeConfig()
    toolsets: dict[str, ToolsetConfig] = {}
    watch: bool = False

    @property
    def trusted(self) -> frozenset[str]:
        """The servers whose annotations count."""
        return frozenset(server for server, wanted in self.servers.items() if wanted.trusted)
