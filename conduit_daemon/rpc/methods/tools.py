"""Listing tools in a provider's format: ``conduit/tools``."""

from __future__ import annotations

from functools import partial
from typing import final

import trio

from conduit_daemon import adapters
from conduit_daemon.config import Config
from conduit_daemon.errors import ClientError, StrictSchemaError
from conduit_daemon.hub.listing import DEFAULT_WAIT
from conduit_daemon.hub.toolset import ToolSet
from conduit_daemon.pipeline.gate import Gate
from conduit_daemon.published import Published
from conduit_daemon.rpc import protocol
from conduit_daemon.rpc.connection import Connection, Handler
from conduit_daemon.rpc.mcp.confinement import named_toolset
from conduit_daemon.rpc.params import ToolsParams
from conduit_daemon.rpc.progress import listing_with_progress
from conduit_daemon.rpc.protocol import Request
from conduit_daemon.rpc.status import port_of

__all__ = ["ToolMethods"]


@final
class ToolMethods:
    """What lists tools.

    Args:
        gate: The pipeline's shared parts.
        config: The configuration in force.
    """

    def __init__(self, gate: Gate, config: Published[Config]) -> None:
        self._gate = gate
        self._config = config

    @property
    def handlers(self) -> dict[str, Handler]:
        """The methods by name."""
        return {"conduit/tools": self._tools}

    async def _tools(self, connection: Connection, request: Request) -> object:
        params = protocol.decode_params(request.params, ToolsParams)
        toolset = await self._choose(connection, params, DEFAULT_WAIT if params.timeout is None else params.timeout)
        self._gate.remember(toolset)
        options = adapters.ListingOptions(
            provider=params.provider,
            api=params.api,
            strict=params.strict,
            cache_control=params.cache_control,
            max_description_chars=params.max_description_chars,
        )
        try:
            found = await adapters.list_tools(toolset, options, self._gate.bus)
        except StrictSchemaError as error:
            raise ClientError("invalid_params", str(error)) from error
        catalogue = self._gate.catalogue.current
        return {
            "toolset": toolset.id,
            "tools": found.encoded,
            "null_paths": found.null_paths,
            "fallbacks": found.fallbacks,
            "dropped": [*toolset.dropped, *found.dropped],
            "warnings": [*toolset.warnings, *found.warnings],
            "missing": [
                missing for missing in catalogue.missing if params.client is None or missing.server == params.client
            ],
        }

    async def _choose(self, connection: Connection, params: ToolsParams, wait: float) -> ToolSet:
        if params.client is not None:
            port_of(self._gate, params.client)
        waited = None if params.client is None else (params.client,)
        if params.refresh:
            await self._refresh(wait, waited)
        catalogue = await listing_with_progress(connection, params.meta_, self._gate.catalogue, wait, servers=waited)
        named = None if params.set is None else named_toolset(self._config.current, params.set)
        offered = catalogue.offered
        chosen = partial(adapters.choose, offered, client=params.client, prefix=params.prefix, named=named)
        return await self._gate.aside.run(len(offered), chosen)

    async def _refresh(self, wait: float, servers: tuple[str, ...] | None) -> None:
        """Has the servers that are up list their tools again, and waits for them, `wait` seconds at most."""
        ports = self._gate.ports
        old = {
            server: port.listing
            for server, port in ports.items()
            if (servers is None or server in servers) and port.refresh()
        }
        with trio.move_on_after(wait):
            while any(server in ports and ports[server].listing is listing for server, listing in old.items()):
                await self._gate.catalogue.changed()
