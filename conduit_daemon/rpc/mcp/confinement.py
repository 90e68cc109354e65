"""A host confined to one of the configuration's named toolsets: it sees and calls what that selects, and no more."""

from __future__ import annotations

from collections.abc import Callable
from functools import lru_cache

import msgspec

from conduit_daemon.config import Config, ToolsetConfig, matcher
from conduit_daemon.errors import ClientError
from conduit_daemon.hub.readings import matches_surely
from conduit_daemon.hub.toolset import Entry
from conduit_daemon.pipeline.gate import Gate
from conduit_daemon.pipeline.resolve import unknown_tool
from conduit_daemon.rpc import protocol
from conduit_daemon.rpc.protocol import Request

__all__ = ["check", "named_toolset", "selector"]


@lru_cache(maxsize=64)
def selector(named: ToolsetConfig) -> Callable[[Entry], bool]:
    """Whether a toolset selects an entry."""
    servers, tools = matcher(named.servers), matches_surely(named.tools)
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


class _Ref(msgspec.Struct):
    name: str = ""
    uri: str = ""


class _Named(msgspec.Struct):
    name: str = ""
    uri: str = ""
    ref: _Ref = msgspec.field(default_factory=_Ref)


def check(gate: Gate, config: Config, toolset: str, request: Request) -> None:
    """Lets a request to a server pass if `toolset` selects what it names, or if nothing has that name.

    Raises:
        ClientError: ``unknown_tool``, as for a name that nothing has; ``invalid_params``: no such toolset is left.
    """
    catalogue = gate.catalogue.current
    params = protocol.decode_params(request.params, _Named)
    if request.method == "tools/call":
        name, entry = params.name, catalogue.resolve(params.name)
    else:
        uri = params.uri or params.ref.uri
        name = uri or params.name or params.ref.name
        offer = catalogue.offers.resolve(f"resource:{name}" if uri else f"prompt:{name}")
        entry = None if offer is None else offer.entry
    if entry is not None and not selector(named_toolset(config, toolset))(entry):
        raise unknown_tool(name, catalogue)
