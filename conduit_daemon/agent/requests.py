"""Every request that the daemon understands, as data: what goes out, and how the answer is read.

Each function here is a method of `Conduit` and of `AsyncConduit` under the same name and with the same
parameters. Parameters left at None are not sent, so that the daemon's own defaults hold.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from conduit_daemon.agent._administration import (
    approvals,
    audit,
    decide,
    events,
    log_level,
    metrics,
    policy_explain,
    reload,
    running,
    servers_accept,
    servers_add,
    servers_explain,
    servers_remove,
    servers_restart,
    servers_start,
    servers_stop,
    shutdown,
    status,
    taint_reset,
    tree,
    watch_approvals,
)
from conduit_daemon.agent._request import Done, Request, Subscription, given
from conduit_daemon.agent._results import CallResult, Execution, ServerInfo, ToolList, Tools

__all__ = [
    "Request",
    "Subscription",
    "approvals",
    "audit",
    "call",
    "call_tool",
    "decide",
    "events",
    "execute",
    "initialize",
    "list_tools",
    "log_level",
    "metrics",
    "ping",
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
    "tools",
    "tree",
    "watch_approvals",
]


def tools(
    provider: str | None = None,
    *,
    api: str | None = None,
    strict: bool | str | None = None,
    cache_control: Mapping[str, Any] | None = None,
    client: str | None = None,
    prefix: str | None = None,
    set: str | None = None,
    refresh: bool | None = None,
    principal: str | None = None,
    assigns: Mapping[str, Any] | None = None,
    max_description_chars: int | None = None,
    timeout: float | None = None,
) -> Request[Tools]:
    """Lists the tools in a provider's format.

    Args:
        provider: ``anthropic``, ``openai`` or ``gemini``; None for plain MCP tools.
        api: For OpenAI: ``chat`` or ``responses``.
        strict: For OpenAI: ``"auto"`` (the daemon's default), True or False.
        cache_control: For Anthropic: put on the last tool.
        client: One server's tools alone, under their own names.
        prefix: Put before every name.
        set: A named toolset of the configuration.
        refresh: Whether the servers are asked anew.
        principal: The agent beneath this user that is asked for.
        assigns: Values that rules may look at.
        max_description_chars: A shorter cap on descriptions, for providers that need one.
        timeout: Seconds to wait for servers in their first connect (the daemon's default is 5; 0: not at all).

    Raises:
        CallFailed: ``invalid_params`` for an unknown provider, client or set.
        DaemonUnreachable: No daemon answers.
    """
    params = given(
        provider=provider,
        api=api,
        strict=strict,
        cache_control=cache_control,
        client=client,
        prefix=prefix,
        set=set,
        refresh=refresh,
        principal=principal,
        assigns=assigns,
        max_description_chars=max_description_chars,
        timeout=timeout,
    )
    return Request("conduit/tools", params, Tools)


def execute(
    provider: str,
    response: Any = None,
    *,
    calls: Sequence[Mapping[str, Any]] | None = None,
    api: str | None = None,
    toolset: str | None = None,
    null_paths: Any = None,
    max_concurrency: int | None = None,
    call_timeout: float | None = None,
    structured: str | None = None,
    error_prefix: str | None = None,
    shape: str | None = "llm",
    principal: str | None = None,
    assigns: Mapping[str, Any] | None = None,
    taint: Sequence[str] | None = None,
    session: str | None = None,
    timeout: float | None = None,
    meta: Mapping[str, Any] | None = None,
) -> Request[Execution]:
    """Runs every tool call of a model's response and answers each, in order, in the provider's shape.

    Args:
        provider: ``anthropic``, ``openai`` or ``gemini``.
        response: The response as the provider gave it, as a dict (``response.model_dump()`` of an SDK).
        calls: In place of `response`: its calls alone.
        api: For OpenAI: ``chat`` or ``responses``.
        toolset: The id of the listing that the model was offered; names are resolved in it.
        null_paths: Those of that listing; needed only without `toolset`.
        max_concurrency: Calls that run at once.
        call_timeout: Seconds that one call may take in all.
        structured: How structured content is rendered: ``auto``, ``append``, ``prefer`` or ``ignore``.
        error_prefix: Put before the text of a failure.
        shape: ``llm``: results are cleaned and capped for a model; None leaves them as they are.
        principal: The agent beneath this user that calls.
        assigns: Values that rules may look at.
        taint: The servers whose output is in the model's context.
        session: The conversation's name, under which the daemon keeps its taint; else the connection's.
        timeout: As `call_timeout`; the lesser counts.
        meta: Passed on to the servers as ``_meta``.

    Raises:
        CallFailed: ``unknown_toolset`` (list again), ``invalid_params``. A call that fails does not raise:
            the model gets an answer that says so.
        DaemonUnreachable: No daemon answers.
    """
    params = given(
        provider=provider,
        response=response,
        calls=calls,
        api=api,
        toolset=toolset,
        null_paths=null_paths,
        max_concurrency=max_concurrency,
        call_timeout=call_timeout,
        structured=structured,
        error_prefix=error_prefix,
        principal=principal,
        assigns=assigns,
        taint=taint,
        session=session,
        timeout=timeout,
        meta=meta,
    )
    if shape != "llm":
        params["shape"] = shape
    return Request("conduit/execute", params, Execution)


def call(
    name: str | None = None,
    arguments: Mapping[str, Any] | None = None,
    *,
    server: str | None = None,
    tool: str | None = None,
    taint: Sequence[str] | None = None,
    session: str | None = None,
    timeout: float | None = None,
    shape: str | None = None,
    principal: str | None = None,
    assigns: Mapping[str, Any] | None = None,
    meta: Mapping[str, Any] | None = None,
) -> Request[CallResult]:
    """Calls one tool.

    Args:
        name: The tool's exposed name, as ``files__read_file``; else give `server` and `tool`.
        arguments: Its arguments.
        server: The server's id.
        tool: The tool's name at that server.
        taint: The servers whose output is in the model's context.
        session: The conversation's name, under which the daemon keeps its taint; else the connection's.
        timeout: Seconds that the call may take in all.
        shape: ``llm``: cleaned and capped for a model. Untouched by default.
        principal: The agent beneath this user that calls.
        assigns: Values that rules may look at.
        meta: Passed on to the server as ``_meta``.

    Raises:
        CallFailed: ``denied``, ``timeout``, ``unavailable``, ... A tool that reports a failure does not
            raise: the result's `is_error` is true.
        DaemonUnreachable: No daemon answers.
    """
    params = given(
        name=name,
        server=server,
        tool=tool,
        arguments=arguments,
        taint=taint,
        session=session,
        timeout=timeout,
        shape=shape,
        principal=principal,
        assigns=assigns,
        meta=meta,
    )
    return Request("conduit/call", params, CallResult)


def initialize(
    protocol_version: str = "2025-11-25", *, client_name: str = "conduit-agent", client_version: str = "1"
) -> Request[ServerInfo]:
    """MCP's handshake, for those who use the socket as an MCP server; no other method needs it."""
    params = {
        "protocolVersion": protocol_version,
        "capabilities": {},
        "clientInfo": {"name": client_name, "version": client_version},
    }
    return Request("initialize", params, ServerInfo)


def ping() -> Request[Done]:
    """Whether the daemon answers."""
    return Request("ping", {}, Done)


def list_tools(cursor: str | None = None) -> Request[ToolList]:
    """One page of MCP's tools/list."""
    return Request("tools/list", given(cursor=cursor), ToolList)


def call_tool(name: str, arguments: Mapping[str, Any] | None = None) -> Request[CallResult]:
    """MCP's tools/call: what fails is a result whose `is_error` is true, in words for a model."""
    return Request("tools/call", given(name=name, arguments=arguments), CallResult)
