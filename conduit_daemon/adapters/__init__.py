"""The agent's side of the tools: listing them in a provider's format, and running the calls that a model made.

The provider modules are pure; this package adds what needs the daemon: the current toolset, the pipeline, and
running calls side by side. Everything here runs inside the daemon's process; other programs use the socket
(`conduit_daemon.agent`).
"""

from __future__ import annotations

import os
from collections.abc import Collection
from typing import Any, Literal

import supervisors
from conduit_daemon.adapters.execution import Executed, ExecuteOptions, Structured, execute
from conduit_daemon.adapters.listing import Api, Listing, ListingOptions, Provider, list_tools, render
from conduit_daemon.adapters.selection import choose
from conduit_daemon.errors import ClientError
from conduit_daemon.hub.listing import DEFAULT_WAIT, listing
from conduit_daemon.hub.toolset import ToolSet
from conduit_daemon.messages import GetGate
from conduit_daemon.model import Principal
from conduit_daemon.pipeline.gate import Context, Gate
from conduit_daemon.pipeline.resolve import unknown_toolset
from conduit_daemon.pipeline.run import OnProgress

__all__ = [
    "ExecuteOptions",
    "Executed",
    "Listing",
    "ListingOptions",
    "choose",
    "execute",
    "execute_tool_calls",
    "list_tools",
    "render",
    "tools",
    "toolset",
]

Source = Gate | supervisors.Ref | str
"""A hub or one client: the Gate, or the actor's Ref or name (``hub``, ``client:files``)."""


async def toolset(
    hub_or_client: Source,
    *,
    principal: str | None = None,
    assigns: dict[str, Any] | None = None,
    timeout: float | None = None,
    refresh: bool = False,
    prefix: str | None = None,
) -> ToolSet:
    """The tools that a model may be offered now.

    Args:
        hub_or_client: The hub (names are ``server__tool``) or one client (its tools' own names).
        principal: Who asks; the same tools are offered to all, who may call them the policy decides.
        assigns: As `principal`.
        timeout: Seconds to wait for servers in their first connect (default 5).
        refresh: Wait even where a listing is there already, until no server is in its first connect.
        prefix: Put before the names of a client's tools.

    Raises:
        ClientError: ``invalid_params``: there is no such hub or client.
    """
    gate, client = await _resolve(hub_or_client)
    wait = DEFAULT_WAIT if timeout is None else timeout
    catalogue = await listing(gate.catalogue, wait, servers=None if client is None else (client,))
    return choose(catalogue.offered, client=client, prefix=prefix or "")


async def tools(hub_or_client: Source, provider: Provider, **options: Any) -> Listing:
    """The tools in a provider's format.

    Args:
        hub_or_client: As in `toolset`.
        provider: ``anthropic``, ``openai`` or ``gemini``.
        **options: Those of `toolset`, and of `ListingOptions`.

    Raises:
        ClientError: As in `toolset`; or OpenAI without ``api``.
        StrictSchemaError: ``strict=True`` and a tool that has no strict form.
    """
    own = {key: options.pop(key) for key in _TOOLSET_OPTIONS if key in options}
    found = await toolset(hub_or_client, **own)
    gate, _ = await _resolve(hub_or_client)
    gate.remember(found)
    return await list_tools(found, ListingOptions(provider=provider, **options), gate.bus)


async def execute_tool_calls(
    hub_or_client: Source,
    provider: Provider,
    calls_or_response: Any,
    *,
    toolset: ToolSet | str | None = None,
    api: Api | None = None,
    null_paths: dict[str, list[list[str | None]]] | None = None,
    max_concurrency: int | None = os.cpu_count(),
    call_timeout: float = 300.0,
    structured: Structured | None = None,
    error_prefix: str | None = None,
    shape: Literal["llm"] | None = "llm",
    principal: str | None = None,
    assigns: dict[str, Any] | None = None,
    taint: Collection[str] = (),
    timeout: float | None = None,
    meta: dict[str, Any] | None = None,
    on_progress: OnProgress | None = None,
) -> Executed:
    """Runs the calls of a model's response and answers each, in order; see `execution.execute`.

    Args:
        hub_or_client: As in `toolset`.
        provider: Whose response it is.
        calls_or_response: What the provider's adapter parses, or a list of ToolCalls.
        toolset: What the model was offered, or its id; None for today's.
        api: OpenAI's API.
        null_paths: As the listing gave them.
        max_concurrency: Calls that run at a time.
        call_timeout: Seconds that one call may take in all.
        structured: What becomes of structured content; None for the provider's default.
        error_prefix: What stands before a failure (OpenAI).
        shape: ``llm`` cleans and caps results.
        principal: Who calls.
        assigns: Facts for rules.
        taint: Ids of the servers whose output is in the model's context.
        timeout: Seconds for each call; the smaller of this and `call_timeout` holds.
        meta: Passed to the servers.
        on_progress: Called with the raw params of each progress notification.

    Raises:
        ClientError: ``unknown_toolset``, ``invalid_params``.
    """
    gate, client = await _resolve(hub_or_client)
    if isinstance(toolset, str):
        found = gate.recall(toolset)
        if found is None:
            raise unknown_toolset(toolset)
    else:
        found = toolset or choose(gate.catalogue.current.offered, client=client)
    options = ExecuteOptions(
        provider=provider,
        api=api,
        null_paths=null_paths,
        max_concurrency=max_concurrency,
        call_timeout=call_timeout if timeout is None else min(call_timeout, timeout),
        structured=structured,
        error_prefix=error_prefix,
        shape=shape,
        assigns=assigns or {},
        taint=frozenset(taint),
        meta=meta or {},
    )
    caller = Principal(principal or "local")
    return await execute(Context(gate), caller, found, calls_or_response, options, on_progress=on_progress)


_TOOLSET_OPTIONS = ("principal", "assigns", "timeout", "refresh", "prefix")


async def _resolve(source: Source) -> tuple[Gate, str | None]:
    if isinstance(source, Gate):
        return source, None
    name = source if isinstance(source, str) else source.name
    gate = await supervisors.call("hub", GetGate())
    assert isinstance(gate, Gate)  # noqa: S101 - that is what the hub was given
    if name == "hub":
        return gate, None
    client = (name or "").removeprefix("client:")
    if client not in gate.ports:
        raise ClientError("invalid_params", f"There is neither a hub nor a client {name!r}.")
    return gate, client
