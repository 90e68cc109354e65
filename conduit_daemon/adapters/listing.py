"""A toolset in a provider's format, converted once and kept."""

from __future__ import annotations

from functools import cached_property
from typing import Any, Final, Literal

import msgspec
import trio

from conduit_daemon.adapters import anthropic, gemini, openai, plain
from conduit_daemon.collector import large_data
from conduit_daemon.errors import ClientError
from conduit_daemon.hub.toolset import ToolSet
from conduit_daemon.lines import TURN
from conduit_daemon.model import Dropped
from conduit_daemon.telemetry.events import EventBus

__all__ = ["Api", "Listing", "ListingOptions", "Provider", "list_tools", "render"]

Provider = Literal["anthropic", "openai", "gemini"]
Api = Literal["chat", "responses"]

_OPENAI_TAKES: Final = 128
_AT_ONCE: Final = 100  # so many convert in a few milliseconds
_FEW: Final = 50


class ListingOptions(msgspec.Struct, frozen=True, kw_only=True):
    """How to list.

    Attributes:
        provider: Whose format; None for MCP's own.
        api: OpenAI's API, required there.
        strict: OpenAI's strict form: where it can be had, always (else an error), or never.
        cache_control: Anthropic's, put on the last tool.
        max_description_chars: For providers that take less than 4,096 bytes.
    """

    provider: Provider | None = None
    api: Api | None = None
    strict: Literal["auto"] | bool = "auto"
    cache_control: dict[str, Any] | None = None
    max_description_chars: int | None = None


class Listing(msgspec.Struct, frozen=True, kw_only=True, dict=True):
    """Tools in a provider's format. They are kept as JSON alone: ten thousand in Python's own form would take tens of
    milliseconds to be freed, in one go.

    Attributes:
        toolset: What they were made of; calls are resolved against it.
        null_paths: By exposed name, where a strict schema made a property nullable (OpenAI).
        fallbacks: By exposed name, why a tool is sent non-strict (OpenAI).
        dropped: What this provider cannot take, and why.
        warnings: Sentences on what the provider may refuse.
        encoded: `tools` as JSON.
    """

    toolset: ToolSet
    null_paths: dict[str, list[list[str | None]]] = {}
    fallbacks: dict[str, str] = {}
    dropped: tuple[Dropped, ...] = ()
    warnings: tuple[str, ...] = ()
    encoded: msgspec.Raw = msgspec.Raw(b"[]")

    @cached_property
    def tools(self) -> list[dict[str, Any]]:
        """The definitions, as the provider's API takes them."""
        tools: list[dict[str, Any]] = msgspec.json.decode(self.encoded)
        return tools


async def list_tools(toolset: ToolSet, options: ListingOptions, bus: EventBus) -> Listing:
    """`render` for the event loop: many tools are converted in a thread, once for all who ask meanwhile.

    Args:
        toolset: What to list.
        options: How.
        bus: Told of each tool that has no strict form, when it is converted.

    Raises:
        ClientError: As `render`.
        StrictSchemaError: As `render`.
    """
    _check(options)
    key = _key(options)
    if toolset.has_derived(key):
        return render(toolset, options)
    async with toolset.derived(("converting", key), trio.Lock):
        if toolset.has_derived(key):
            return render(toolset, options)
        if len(toolset) > _AT_ONCE:
            listed = await trio.to_thread.run_sync(_convert_large, toolset, options)
        else:
            listed = _convert(toolset, options)
        for number, (name, reason) in enumerate(listed.fallbacks.items(), 1):
            bus.emit("adapter.strict_fallback", level="debug", tool=name, reason=reason)
            if not number % TURN:
                await trio.lowlevel.checkpoint()
        return toolset.derived(key, lambda: listed)


def render(toolset: ToolSet, options: ListingOptions) -> Listing:
    """The toolset as `options` want it; kept with the toolset, so that the next listing of the same costs nothing.

    Raises:
        ClientError: ``invalid_params``: OpenAI without an api, or a negative length.
        StrictSchemaError: `strict` is True and a tool has no strict form.
    """
    _check(options)
    return toolset.derived(_key(options), lambda: _convert(toolset, options))


def _key(options: ListingOptions) -> bytes:
    return msgspec.json.encode(options)


def _check(options: ListingOptions) -> None:
    if options.max_description_chars is not None and options.max_description_chars < 0:
        raise ClientError("invalid_params", "max_description_chars cannot be negative.")
    if options.provider == "openai" and options.api is None:
        raise ClientError("invalid_params", "OpenAI needs an api: 'chat' or 'responses'.")


def _convert(toolset: ToolSet, options: ListingOptions) -> Listing:
    tools, listed = _converted(toolset, options)
    encoded = _encoded(tools)
    return msgspec.structs.replace(listed, encoded=encoded)


def _encoded(tools: list[dict[str, Any]]) -> msgspec.Raw:
    """The tools as JSON, with `tools` emptied: both by a few, so that in a thread this holds nobody up."""
    parts = [msgspec.json.encode(tools[start : start + _FEW])[1:-1] for start in range(0, len(tools), _FEW)]
    while tools:
        del tools[-_FEW:]
    return msgspec.Raw(b"[" + b",".join(parts) + b"]")


def _convert_large(toolset: ToolSet, options: ListingOptions) -> Listing:
    with large_data():
        return _convert(toolset, options)


def _converted(toolset: ToolSet, options: ListingOptions) -> tuple[list[dict[str, Any]], Listing]:
    chars = options.max_description_chars
    match options.provider:
        case None:
            tools, dropped = plain.convert(toolset, max_description_chars=chars)
            return tools, Listing(toolset=toolset, dropped=dropped)
        case "anthropic":
            tools, dropped = anthropic.convert(
                toolset, cache_control=options.cache_control, max_description_chars=chars
            )
            return tools, Listing(toolset=toolset, dropped=dropped)
        case "gemini":
            tools, dropped = gemini.convert(toolset, max_description_chars=chars)
            return tools, Listing(toolset=toolset, dropped=dropped)
        case "openai":
            assert options.api is not None  # noqa: S101 - _check looked
            listed = openai.tools(toolset, api=options.api, strict=options.strict, max_description_chars=chars)
            warnings: tuple[str, ...] = ()
            if len(listed.tools) > _OPENAI_TAKES:
                warnings = (
                    f"OpenAI takes at most {_OPENAI_TAKES} tools and these are {len(listed.tools)}: "
                    "name a [toolsets.NAME] in the configuration and list with set = NAME.",
                )
            return listed.tools, Listing(
                toolset=toolset,
                null_paths=listed.null_paths,
                fallbacks=listed.fallbacks,
                dropped=listed.dropped,
                warnings=warnings,
            )
