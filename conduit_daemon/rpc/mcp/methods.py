"""MCP's own methods, in both eras: what an MCP host at the socket can ask."""

from __future__ import annotations

from collections.abc import Callable, Collection
from functools import partial
from typing import Final, final

import msgspec

from conduit_daemon import adapters
from conduit_daemon.config import Config
from conduit_daemon.hub.listing import DEFAULT_WAIT
from conduit_daemon.hub.toolset import ToolSet
from conduit_daemon.model import Call
from conduit_daemon.pipeline.gate import Gate
from conduit_daemon.pipeline.run import run
from conduit_daemon.published import Published
from conduit_daemon.rpc import protocol
from conduit_daemon.rpc.connection import Connection, Handler
from conduit_daemon.rpc.mcp import confinement
from conduit_daemon.rpc.mcp.calls import call_tool, complete, get_prompt, read_resource, subscribe
from conduit_daemon.rpc.mcp.eras import fit, is_modern, meta_of
from conduit_daemon.rpc.mcp.handshake import discover, initialize, set_level
from conduit_daemon.rpc.mcp.offers import LISTS, list_offers
from conduit_daemon.rpc.mcp.subscriptions import listen, tell_updated
from conduit_daemon.rpc.params import UseParams
from conduit_daemon.rpc.progress import listing_with_progress
from conduit_daemon.rpc.protocol import Refused, Request

__all__ = ["McpMethods"]

_REMOVED: Final = frozenset({"initialize", "logging/setLevel", "ping", "resources/unsubscribe"})
"""What the newer era does not have."""

_STARTERS: Final[dict[str, Callable[[Connection, Request], None]]] = {
    "tools/call": call_tool,
    "prompts/get": get_prompt,
    "resources/read": read_resource,
    "resources/subscribe": subscribe,
    "completion/complete": complete,
}


@final
class McpMethods:
    """What an MCP host can ask.

    Args:
        gate: The pipeline's shared parts.
        config: The configuration in force.
        version: The daemon's version.
        connections: All connections that are open.
    """

    def __init__(
        self, gate: Gate, config: Published[Config], version: str, connections: Collection[Connection]
    ) -> None:
        self._gate = gate
        self._config = config
        self._version = version
        self._connections = connections
        gate.on_updated = partial(tell_updated, connections)

    @property
    def handlers(self) -> dict[str, Handler]:
        """The methods by name, without those that are calls and take no task."""
        fitted: dict[str, Handler] = {
            "initialize": self._initialize,
            "logging/setLevel": self._set_level,
            "ping": self._ping,
            "server/discover": self._discover,
            "resources/unsubscribe": self._unsubscribe,
            "tools/list": self._list_tools,
            **dict.fromkeys(LISTS, self._list_offers),
        }
        return {
            **{method: _fitted(handler) for method, handler in fitted.items()},
            "conduit/use": self._use,
            "subscriptions/listen": self._listen,
        }

    def start(self, connection: Connection, request: Request) -> bool:
        """Starts a request that goes to a server, if it is one; takes over at once what the next line is subject to.

        Raises:
            ClientError: It is refused.
            Refused: The host's protocol version is not spoken here.
        """
        starter = _STARTERS.get(request.method)
        if starter is None:
            if request.method == "conduit/use":
                self._choose(connection, request)
            return False
        if connection.host.toolset is not None:
            confinement.check(self._gate, self._config.current, connection.host.toolset, request)
        starter(connection, request)
        return True

    def note(self, connection: Connection, notification: Request) -> None:
        """Takes note of what a host tells: that its roots have changed, which concerns the servers of its own."""
        if notification.method == "notifications/roots/list_changed" and "roots" in connection.host.capabilities:
            for port in connection.context.own:
                if port.target is not None:
                    port.target.pass_on(notification.method)

    async def _ping(self, connection: Connection, request: Request) -> object:
        return {}

    async def _initialize(self, connection: Connection, request: Request) -> object:
        return initialize(connection, request, self._version)

    async def _discover(self, connection: Connection, request: Request) -> object:
        return discover(self._version)

    async def _set_level(self, connection: Connection, request: Request) -> object:
        return set_level(connection, request)

    async def _listen(self, connection: Connection, request: Request) -> object:
        return await listen(connection, request, self._gate)

    async def _unsubscribe(self, connection: Connection, request: Request) -> object:
        uri = protocol.decode_params(request.params, _Uri).uri
        server = connection.host.subscriptions.pop(uri, None)
        if server is not None and not any(
            other.host.wants(server, uri) for other in self._connections if other is not connection
        ):
            call = Call(
                id=self._gate.new_call_id(),
                name=f"resource:{uri}",
                arguments={},
                principal=connection.principal,
                method="resources/unsubscribe",
            )
            await run(call, connection.context)
        return {}

    def _choose(self, connection: Connection, request: Request) -> None:
        params = protocol.decode_params(request.params, UseParams)
        if params.set is not None:
            confinement.named_toolset(self._config.current, params.set)
        connection.host.toolset = params.set
        if params.session is not None:
            self._gate.governance.sessions.join(connection.context, connection.principal.name, params.session)

    async def _use(self, connection: Connection, request: Request) -> object:
        return {"set": protocol.decode_params(request.params, UseParams).set}

    async def _list_tools(self, connection: Connection, request: Request) -> object:
        meta = meta_of(request.params)
        catalogue = await listing_with_progress(connection, meta, self._gate.catalogue, DEFAULT_WAIT)
        count = len(catalogue.offered)
        offered = await self._gate.aside.run(count, lambda: self._confined(connection, catalogue.offered))
        listed = await adapters.list_tools(offered, adapters.ListingOptions(), self._gate.bus)
        return {"tools": listed.encoded}

    async def _list_offers(self, connection: Connection, request: Request) -> object:
        confined = connection.host.toolset
        selects = None
        if confined is not None:
            selects = confinement.selector(confinement.named_toolset(self._config.current, confined))
        return await list_offers(self._gate.catalogue, request.method, selects)

    def _confined(self, connection: Connection, offered: ToolSet) -> ToolSet:
        if connection.host.toolset is None:
            return offered
        named = confinement.named_toolset(self._config.current, connection.host.toolset)
        return adapters.choose(offered, named=named)


class _Uri(msgspec.Struct):
    uri: str


def _fitted(handler: Handler) -> Handler:
    async def handle(connection: Connection, request: Request) -> object:
        modern = is_modern(meta_of(request.params))
        if modern and request.method in _REMOVED:
            raise Refused(-32601, f"There is no method {request.method!r} in this version of the protocol.")
        result = await handler(connection, request)
        raw = result if isinstance(result, msgspec.Raw) else msgspec.Raw(msgspec.json.encode(result))
        return fit(request.method, raw, modern=modern)

    return handle
