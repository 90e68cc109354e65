"""The parameters of the methods beyond MCP, strict: an unknown one is refused by its name."""

from __future__ import annotations

from typing import Any, Literal

import msgspec

__all__ = ["CallParams", "ExecuteParams", "NoParams", "ServerParams", "ToolsParams"]

Provider = Literal["anthropic", "openai", "gemini"]
Api = Literal["chat", "responses"]
Meta = dict[str, Any]


class _Strict(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    meta_: Meta = msgspec.field(default={}, name="_meta")


class NoParams(_Strict, frozen=True, kw_only=True):
    """No parameters."""


class ServerParams(_Strict, frozen=True, kw_only=True):
    """One server."""

    server: str


class ToolsParams(_Strict, frozen=True, kw_only=True):
    """``conduit/tools``."""

    provider: Provider | None = None
    api: Api | None = None
    strict: Literal["auto"] | bool = "auto"
    cache_control: dict[str, Any] | None = None
    client: str | None = None
    prefix: str = ""
    refresh: bool = False
    max_description_chars: int | None = None
    set: str | None = None
    principal: str | None = None
    assigns: dict[str, Any] = {}
    timeout: float | None = None


class ExecuteParams(_Strict, frozen=True, kw_only=True):
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
    principal: str | None = None
    assigns: dict[str, Any] = {}
    taint: list[str] = []
    timeout: float | None = None
    meta: dict[str, Any] = {}


class CallParams(_Strict, frozen=True, kw_only=True):
    """``conduit/call``."""

    name: str | None = None
    server: str | None = None
    tool: str | None = None
    arguments: dict[str, Any] = {}
    taint: list[str] = []
    timeout: float | None = None
    shape: Literal["llm"] | None = None
    principal: str | None = None
    assigns: dict[str, Any] = {}
    meta: dict[str, Any] = {}
