"""A host confined to one of the configuration's named toolsets: it sees and calls what that selects, and no more."""

from __future__ import annotations

from collections.abc import Callable
from functools import lru_cache

from conduit_daemon.config import Config, ToolsetConfig, matcher
from conduit_daemon.errors import ClientError
from conduit_daemon.hub.toolset import Entry
from conduit_daemon.pipeline.gate import Gate
from conduit_daemon.pipeline.resolve import unknown_tool

__all__ = ["check", "named_toolset", "selector"]


@lru_cache(maxsize=64)
def selector(named: ToolsetConfig) -> Callable[[Entry], bool]:
    """Whether a toolset selects an entry."""
    servers, tools = matcher(named.servers), matcher(named.tools)
    return lambda entry: servers(entry.server_id) and tools(entry.tool.name)


def named_toolset(config: Config, name: str) -> ToolsetConfig:
    """The ``[toolsets.NAME]`` of a name.

    Raises:
        ClientError: ``invalid_params``: there is none.
    """
    found = config.toolsets.get(name)
    if found is None:
        known = ", ".join(config.toolsets) or "none"
        raise ClientError("invalid_params", f"There is no toolset named {name!r}; configured are: {known}.")
    return found


def check(gate: Gate, config: Config, toolset: str, name: str) -> None:
    """Lets a tool's exposed name pass if `toolset` selects the tool, or if no tool has it.

    Raises:
        ClientError: ``unknown_tool``, as for a name that nothing has; ``invalid_params``: no such toolset is left.
    """
    catalogue = gate.catalogue.current
    entry = catalogue.resolve(name)
    if entry is not None and not selector(named_toolset(config, toolset))(entry):
        raise unknown_tool(name, catalogue)
