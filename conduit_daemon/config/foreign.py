"""Configurations of other MCP hosts: JSON with an ``mcpServers`` object, or VS Code's ``servers``.

They are read leniently: with comments and trailing commas, under names that are no ids here, with keys that
other hosts alone understand. What comes out are tables as our own file would have them, and what was changed.
"""

from __future__ import annotations

import json
import re
from collections.abc import Mapping
from typing import Any, Final

import msgspec

from conduit_daemon.config.check import as_server_id
from conduit_daemon.config.model import ServerConfig
from conduit_daemon.config.report import KeyPath, Report

__all__ = ["parse_json", "translate"]

_HOLDERS: Final[tuple[tuple[str, ...], ...]] = (("mcpServers",), ("servers",), ("mcp", "servers"), ("mcp_servers",))
_TRANSPORTS: Final = {
    "http": "http",
    "streamable-http": "http",
    "streamablehttp": "http",
    "streamable_http": "http",
    "sse": "sse",
    "ws": "websocket",
    "websocket": "websocket",
    "stdio": "stdio",
    "local": "stdio",
}
_URL_KEYS: Final = {"serverUrl": None, "httpUrl": "http"}
_COMMENT_OR_TEXT: Final = re.compile(r'"(?:[^"\\\n]|\\.)*"|//[^\n]*|/\*.*?\*/', re.DOTALL)
_TRAILING_COMMA: Final = re.compile(r'"(?:[^"\\\n]|\\.)*"|,(?=\s*[}\]])', re.DOTALL)
_REFERENCE: Final = re.compile(r"\$\{([^{}]*)\}")
_VARIABLE: Final = re.compile(r"[A-Za-z_][A-Za-z0-9_]*(:-.*)?", re.DOTALL)
_OWN_KEYS: Final = frozenset(field.name for field in msgspec.structs.fields(ServerConfig))


def parse_json(text: str) -> Any:
    """The value of a JSON text, which may have comments and trailing commas.

    Raises:
        json.JSONDecodeError: It is none; line and column are those of `text`.
        ValueError: It holds a number that is too long.
        RecursionError: It is nested too deeply.
    """
    try:
        return json.loads(text)
    except json.JSONDecodeError:
        plain = _TRAILING_COMMA.sub(_blanked, _COMMENT_OR_TEXT.sub(_blanked, text))
        return json.loads(plain)


def translate(document: Any, report: Report) -> dict[str, Any]:
    """The servers of another host's configuration, as tables of our own by id.

    What is left out or renamed is a warning in `report`; a document without servers is a problem there.
    """
    holder = next((holder for holder in _HOLDERS if isinstance(_at(document, holder), dict)), None)
    if holder is None:
        report.problem((), 'expected an object with "mcpServers" (or VS Code\'s "servers"), each server by its name')
        return {}
    for key in document:
        if key != holder[0] and not key.startswith("$"):
            report.warning((key,), "is not a key that this daemon has; it is ignored")
    servers: dict[str, Any] = {}
    tables = _at(document, holder)
    for name, table in tables.items():
        identifier = as_server_id(name)
        if identifier != name:
            identifier = _free(identifier, {*tables, *servers})
        original: KeyPath = (*holder, name)
        if identifier != name:
            report.warning(original, f"is no server id; the server is called {identifier} here")
        report.renamed[("servers", identifier)] = original
        servers[identifier] = _server(table, original, report) if isinstance(table, dict) else table
    return servers


def _server(table: Mapping[str, Any], path: KeyPath, report: Report) -> dict[str, Any]:
    ours: dict[str, Any] = {}
    for key, value in table.items():
        if value is None or (key == "url" and value == ""):
            continue
        if key == "disabled":
            ours["enabled"] = value is not True
        elif key in {"type", "transport"} and isinstance(value, str) and value.lower() in _TRANSPORTS:
            ours["transport"] = _TRANSPORTS[value.lower()]
        elif key in _URL_KEYS:
            ours.setdefault("url", _texts(value))
            if _URL_KEYS[key]:
                ours.setdefault("transport", _URL_KEYS[key])
        elif key == "tools" and isinstance(value, list):
            ours["tools"] = {"allow": value}
        elif key in {"env", "headers"} and isinstance(value, dict):
            ours[key] = {name: _texts(_as_text(item)) for name, item in value.items() if item is not None}
        elif key == "args" and isinstance(value, list):
            ours[key] = [_texts(_as_text(item)) for item in value]
        elif key in _OWN_KEYS:
            ours[key] = _texts(value)
        else:
            report.warning((*path, key), "is not a key that this daemon has; it is ignored")
    _drop_other_kind(ours, path, report)
    return ours


def _drop_other_kind(ours: dict[str, Any], path: KeyPath, report: Report) -> None:
    """Other hosts ignore what does not fit the kind of server, so such leftovers are common."""
    if "command" in ours and "url" in ours:
        leftover = "command" if ours.get("transport") not in {None, "stdio"} else "url"
        report.warning((*path, leftover), "is ignored: the server has both a command and a url")
        del ours[leftover]
    unfit = ("args", "env", "cwd") if "url" in ours else ("headers", "auth") if "command" in ours else ()
    for key in unfit:
        if ours.get(key):
            report.warning((*path, key), f"is ignored: the server has a {'url' if 'url' in ours else 'command'}")
        ours.pop(key, None)


def _texts(value: Any) -> Any:
    """`value` with other hosts' references in its texts written as ours."""
    if isinstance(value, str):
        return _REFERENCE.sub(_as_our_reference, value)
    if isinstance(value, list):
        return [_texts(item) for item in value]
    return value


def _as_our_reference(match: re.Match[str]) -> str:
    inner = match[1]
    if inner.startswith(("env:", "file:", "credential:")):
        return match[0]
    if inner.startswith("input:"):
        return "${env:" + re.sub(r"[^A-Za-z0-9]+", "_", inner.removeprefix("input:")).upper() + "}"
    if _VARIABLE.fullmatch(inner):
        return "${env:" + inner + "}"
    return "$" + match[0]


def _as_text(value: Any) -> Any:
    if isinstance(value, bool):
        return "true" if value else "false"
    return str(value) if isinstance(value, int | float) else value


def _at(document: Any, path: tuple[str, ...]) -> Any:
    for key in path:
        document = document.get(key) if isinstance(document, dict) else None
    return document


def _free(identifier: str, taken: set[str]) -> str:
    found, number = identifier, 2
    while found in taken:
        found, number = f"{identifier}-{number}", number + 1
    return found


def _blanked(match: re.Match[str]) -> str:
    """Blanks of the same shape, so that lines and columns stay those of the file."""
    return match[0] if match[0].startswith('"') else re.sub(r"[^\n]", " ", match[0])
