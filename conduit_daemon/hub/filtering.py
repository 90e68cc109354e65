"""Which of a server's tools exist for agents: the configuration's filters, and its own descriptions. Pure."""

from __future__ import annotations

from collections.abc import Callable, Iterable

import msgspec

from conduit_daemon.config import ToolFilter
from conduit_daemon.hub.readings import matches_possibly, matches_surely
from conduit_daemon.model import Tool

__all__ = ["filter_of", "filtered"]


def filter_of(rules: ToolFilter) -> Callable[[str], bool]:
    """Whether the rules let a name through."""
    allowed, denied = matches_surely(rules.allow), matches_possibly(rules.deny)
    return lambda name: allowed(name) and not denied(name)


def filtered(tools: Iterable[Tool], rules: ToolFilter) -> tuple[list[Tool], list[str]]:
    """The tools that the rules let through, with the configuration's descriptions, and the names of the others.

    Example:
        >>> filtered([Tool(name="read"), Tool(name="write")], ToolFilter(allow=("read*",)))[1]
        ['write']
    """
    passes = filter_of(rules)
    kept: list[Tool] = []
    hidden: list[str] = []
    for tool in tools:
        if not passes(tool.name):
            hidden.append(tool.name)
            continue
        description = rules.describe.get(tool.name)
        kept.append(tool if description is None else msgspec.structs.replace(tool, description=description))
    return kept, hidden
