"""Choosing from what is offered: one client's tools under their own names, or a named set. Pure."""

from __future__ import annotations

from conduit_daemon.config import ToolsetConfig, matcher
from conduit_daemon.hub.naming import build
from conduit_daemon.hub.toolset import ToolSet
from conduit_daemon.model import Tool

__all__ = ["choose"]


def choose(
    offered: ToolSet, *, client: str | None = None, prefix: str = "", named: ToolsetConfig | None = None
) -> ToolSet:
    """The part of a toolset that is asked for.

    Args:
        offered: All that may be offered.
        client: Only this server's tools, under their own names, without the server's.
        prefix: Put before each name.
        named: Only what a configured toolset selects; the names stay the same.
    """
    if named is not None:
        servers, tools = matcher(named.servers), matcher(named.tools)
        offered = offered.only(lambda entry: servers(entry.server_id) and tools(entry.tool.name))
    if client is None and not prefix:
        return offered
    kept: dict[str, list[Tool]] = {}
    for entry in offered:
        if client is None or entry.server_id == client:
            kept.setdefault(entry.server_id, []).append(entry.tool)
    chosen, _ = build(list(kept.items()), namespace=client is None, prefix=prefix)
    return chosen
