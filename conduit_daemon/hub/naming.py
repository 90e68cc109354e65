"""The names under which models know the tools of many servers, as pure functions.

A name depends on the configuration and on (server, tool) alone, never on which other servers are up,
so that a model's call means the same tool before and after a restart. Names are resolved by lookup
in the `ToolSet`, never by splitting.
"""

from __future__ import annotations

import hashlib
import re
import unicodedata
from collections import defaultdict
from collections.abc import Iterable, Mapping
from typing import Any, Final

from conduit_daemon.errors import InvalidServerId
from conduit_daemon.hub.toolset import Entry, ToolSet, canonical, definition_digest
from conduit_daemon.model import Dropped, Tool

__all__ = ["MAX_DEPTH", "MAX_LENGTH", "build", "check_server_id", "exposed_name"]

MAX_LENGTH: Final = 64
MAX_DEPTH: Final = 200
"""How deep a tool's schema may nest; validators and policy expressions crash on very deep data."""

_SERVER_ID = re.compile(r"[A-Za-z0-9-]+(_[A-Za-z0-9-]+)*")
_OUTSIDE = re.compile(r"[^A-Za-z0-9_-]")
_ALPHANUMERIC = re.compile(r"[A-Za-z0-9]")
_KEPT_OF_LONG = 55
_OF_OTHERS: Final = ("resource:", "prompt:")


def check_server_id(server_id: str) -> None:
    """Refuse a server id from which two servers could compose one name (``__``, or ``_`` at an edge).

    Raises:
        InvalidServerId: It does not match ``^[A-Za-z0-9-]+(_[A-Za-z0-9-]+)*$``.
    """
    if not isinstance(server_id, str) or not _SERVER_ID.fullmatch(server_id):
        raise InvalidServerId(server_id)


def exposed_name(server_id: str, tool: str, *, namespace: bool = True, prefix: str = "") -> str | None:
    """The name of one tool for models, matching ``^[A-Za-z_][A-Za-z0-9_-]{0,63}$``.

    Args:
        server_id: The server, already checked.
        tool: The server's own name for the tool, any string.
        namespace: Whether the server's id stands before the tool's name.
        prefix: Put before the whole, ahead of shortening; cleaned like a tool's name.

    Returns:
        The name; None for an empty tool name.

    Example:
        >>> exposed_name("files", "fs.read/file")
        'files__fs_read_file'
    """
    if not tool:
        return None
    part = _OUTSIDE.sub("_", unicodedata.normalize("NFC", tool))
    if not _ALPHANUMERIC.search(part):
        part = f"tool_{_h8(server_id, tool)}"
    name = _OUTSIDE.sub("_", prefix) + (f"{server_id}__{part}" if namespace else part)
    if not (name[0].isalpha() or name[0] == "_"):
        name = f"_{name}"
    if len(name) > MAX_LENGTH:
        name = f"{name[:_KEPT_OF_LONG]}_{_h8(server_id, tool)}"
    return name


def build(
    servers: Iterable[tuple[str, Iterable[Tool | Mapping[str, Any]]]],
    *,
    namespace: bool = True,
    prefix: str = "",
) -> tuple[ToolSet, tuple[Dropped, ...]]:
    """The toolset of these servers' tools, and what could not be offered.

    Args:
        servers: (server id, its tools) in the configuration's order; a tool is a `Tool` or an entry
            of a tools/list result.
        namespace: False keeps the tools' own sanitized names, for a client used alone.
        prefix: Put before every exposed name.

    Returns:
        The toolset and its ``dropped``: tools without a name (``invalid_name``), malformed ones
        (``malformed: ...``) and all members of each collision (``collision``), in the order of
        their first appearance.

    Raises:
        InvalidServerId: A server's id would make names ambiguous.

    Example:
        >>> toolset, dropped = build([("files", [{"name": "read_file", "inputSchema": {"type": "object"}}])])
        >>> [entry.exposed for entry in toolset]
        ['files__read_file']
    """
    found: dict[str, list[Entry]] = defaultdict(list)
    dropped: dict[int, Dropped] = {}
    first_seen: dict[str, int] = {}
    place = 0
    for server_id, tools in servers:
        check_server_id(server_id)
        for given in tools:
            place += 1
            name = _name_of(given)
            exposed = exposed_name(server_id, name, namespace=namespace, prefix=prefix)
            if exposed is None and isinstance(given, Tool | Mapping) and _has_name(given):
                dropped[place] = Dropped("", ((server_id, ""),), "invalid_name")
                continue
            if name.startswith(_OF_OTHERS):
                reason = "malformed: its name begins as those of resources and prompts do in rules"
                dropped[place] = Dropped(exposed or "", ((server_id, name),), reason)
                continue
            try:
                tool = given if isinstance(given, Tool) else Tool.from_wire(given)
                entry = Entry(exposed or "", server_id, tool, _checked_digest(tool))
            except ValueError as error:
                dropped[place] = Dropped(exposed or "", ((server_id, name),), f"malformed: {error}")
                continue
            found[entry.exposed].append(entry)
            first_seen.setdefault(entry.exposed, place)

    kept = []
    for exposed, entries in found.items():
        if len(entries) == 1:
            kept.append(entries[0])
        else:
            members = tuple((entry.server_id, entry.tool.name) for entry in entries)
            dropped[first_seen[exposed]] = Dropped(exposed, members, "collision")
    reports = tuple(dropped[at] for at in sorted(dropped))
    return ToolSet.of(kept, reports, _case_warnings(kept)), reports


def _h8(server_id: str, tool: str) -> str:
    original = f"{server_id}\0{tool}".encode("utf-8", "surrogatepass")
    return hashlib.sha256(original).hexdigest()[:8]


def _name_of(given: Tool | Mapping[str, Any]) -> str:
    if isinstance(given, Tool):
        return given.name
    name = given.get("name") if isinstance(given, Mapping) else None
    return name if isinstance(name, str) else ""


def _has_name(given: Tool | Mapping[str, Any]) -> bool:
    return isinstance(given, Tool) or isinstance(given.get("name"), str)


def _checked_digest(tool: Tool) -> str:
    try:
        digest = definition_digest(tool)
        schemas = canonical((tool.input_schema, tool.output_schema))
    except RecursionError:
        raise ValueError(f"its definition is nested deeper than {MAX_DEPTH}") from None
    except TypeError as error:
        raise ValueError(f"its definition is no JSON: {error}") from None
    # Counting brackets is far cheaper than a walk, and nearly always enough.
    if schemas.count(b"{") + schemas.count(b"[") > MAX_DEPTH:
        for key, schema in (("inputSchema", tool.input_schema), ("outputSchema", tool.output_schema)):
            if _deeper_than(MAX_DEPTH, schema):
                raise ValueError(f"its {key} is nested deeper than {MAX_DEPTH}")
    return digest


def _deeper_than(limit: int, value: Any) -> bool:
    """Whether the objects and lists of a JSON value nest more than `limit` levels; never recursive itself."""
    level: list[Any] = [value]
    for _ in range(limit + 1):
        level = [
            child
            for node in level
            if isinstance(node, dict | list)
            for child in (node.values() if isinstance(node, dict) else node)
        ]
        if not level:
            return False
    return True


def _case_warnings(entries: list[Entry]) -> list[str]:
    folded: dict[str, list[str]] = defaultdict(list)
    for entry in entries:
        folded[entry.exposed.lower()].append(entry.exposed)
    return [
        f"These tools' names differ only by case, which models confuse: {', '.join(names)}."
        for names in folded.values()
        if len(names) > 1
    ]
