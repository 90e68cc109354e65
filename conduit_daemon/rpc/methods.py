"""The methods beyond MCP, and the table of all: who may ask what, and what answers it."""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Mapping
from functools import partial
from typing import Any, Final, final

import msgspec
import trio

import supervisors
from conduit_daemon import adapters
from conduit_daemon.clients.port import Port
from conduit_daemon.config import Config, ToolsetConfig
from conduit_daemon.errors import ClientError, StrictSchemaError
from conduit_daemon.hub.listing import DEFAULT_WAIT, listing
from conduit_daemon.hub.toolset import ToolSet
from conduit_daemon.messages import Explain, RestartServer, StartServer, StopServer
from conduit_daemon.model import Call, Principal
from conduit_daemon.pipeline.gate import Context, Gate
from conduit_daemon.pipeline.resolve import unknown_toolset
from conduit_daemon.pipeline.run import OnProgress, run
from conduit_daemon.pipeline.shape import shape
from conduit_daemon.published import Published
from conduit_daemon.rpc import mcp, protocol
from conduit_daemon.rpc.connection import Connection, Handler
from conduit_daemon.rpc.params import CallParams, ExecuteParams, NoParams, ServerParams, ToolsParams
from conduit_daemon.rpc.protocol import Refused, Request
from conduit_daemon.rpc.status import server_status, status

__all__ = ["Methods"]

_DONE: Final = msgspec.Raw(b"{}")
_CONTROL_WAIT: Final = 10.0


@final
class Methods:
    """What the sockets offer.

    Args:
        gate: The pipeline's shared parts.
        config: The configuration in force.
        version: The daemon's version.
        stop: Asks the daemon to stop.
        connections: All connections that are open.
        tree: The root of the supervision tree; None until it stands.
        more: Further methods of the control socket.
    """

    def __init__(
        self,
        gate: Gate,
        config: Published[Config],
        *,
        version: str,
        stop: Callable[[], None],
        connections: set[Connection],
        tree: Callable[[], Awaitable[dict[str, Any]]],
        more: Mapping[str, Handler] | None = None,
    ) -> None:
        self._gate = gate
        self._config = config
        self._version = version
        self._stop = stop
        self._connections = connections
        self._tree = tree
        self._started_at = trio.current_time()
        self._handlers: dict[str, Handler] = {
            "tools/list": self._list_tools,
            "conduit/tools": self._tools,
            "conduit/execute": self._execute,
            "conduit/call": self._call,
            "conduit/status": self._status,
        }
        self._control: dict[str, Handler] = {
            "conduit/tree": self._show_tree,
            "conduit/servers/restart": self._restart,
            "conduit/servers/start": self._start,
            "conduit/servers/stop": self._stop_server,
            "conduit/servers/explain": self._explain,
            "conduit/shutdown": self._shutdown,
            **(more or {}),
        }

    def start(self, connection: Connection, request: Request) -> Handler | None:
        """Starts a request at once, or returns what is to run as a task.

        Raises:
            ClientError: The request is refused.
        """
        method = request.method
        if method == "tools/call":
            mcp.call_tool(connection, request)
            return None
        if method == "ping":
            return self._ping
        if method == "initialize":
            return self._initialize
        handler = self._handlers.get(method)
        if handler is not None:
            return handler
        handler = self._control.get(method)
        if handler is None:
            raise Refused(-32601, f"There is no method {method[:100]!r}.")
        if not connection.control:
            raise ClientError("forbidden", f"{method} is for the control socket alone; this is the agents' socket.")
        return handler

    # ---- MCP

    async def _ping(self, connection: Connection, request: Request) -> object:
        return _DONE

    async def _initialize(self, connection: Connection, request: Request) -> object:
        return mcp.initialize(connection, request, self._version)

    async def _list_tools(self, connection: Connection, request: Request) -> object:
        catalogue = await listing(self._gate.catalogue, DEFAULT_WAIT)
        return adapters.plain_listing(catalogue.offered)

    # ---- conduit/*

    async def _tools(self, connection: Connection, request: Request) -> object:
        params = protocol.decode_params(request.params, ToolsParams)
        wait = DEFAULT_WAIT if params.timeout is None else params.timeout
        toolset = await self._choose(params, wait)
        self._gate.remember(toolset)
        options = adapters.ListingOptions(
            provider=params.provider,
            api=params.api,
            strict=params.strict,
            cache_control=params.cache_control,
            max_description_chars=params.max_description_chars,
        )
        try:
            found = adapters.render(toolset, options)
        except StrictSchemaError as error:
            raise ClientError("invalid_params", str(error)) from error
        catalogue = self._gate.catalogue.current
        return {
            "toolset": toolset.id,
            "tools": found.tools,
            "null_paths": found.null_paths,
            "fallbacks": found.fallbacks,
            "dropped": [*toolset.dropped, *found.dropped],
            "warnings": [*toolset.warnings, *found.warnings],
            "missing": [
                missing for missing in catalogue.missing if params.client is None or missing.server == params.client
            ],
        }

    async def _choose(self, params: ToolsParams, wait: float) -> ToolSet:
        if params.client is not None:
            self._port(params.client)
        waited = None if params.client is None else (params.client,)
        catalogue = await listing(self._gate.catalogue, wait, servers=waited)
        return adapters.choose(
            catalogue.offered, client=params.client, prefix=params.prefix, named=self._named(params.set)
        )

    def _named(self, name: str | None) -> ToolsetConfig | None:
        if name is None:
            return None
        found = self._config.current.toolsets.get(name)
        if found is None:
            known = ", ".join(self._config.current.toolsets) or "none"
            raise ClientError("invalid_params", f"There is no toolset named {name!r}; configured are: {known}.")
        return found

    async def _execute(self, connection: Connection, request: Request) -> object:
        params = protocol.decode_params(request.params, ExecuteParams)
        if (params.response is None) == (params.calls is None):
            raise ClientError("invalid_params", "Give either the model's response, or its calls.")
        options = adapters.ExecuteOptions(
            provider=params.provider,
            api=params.api,
            null_paths=params.null_paths,
            max_concurrency=params.max_concurrency,
            call_timeout=params.call_timeout if params.timeout is None else min(params.call_timeout, params.timeout),
            structured=params.structured,
            error_prefix=params.error_prefix,
            shape=params.shape,
            max_text=self._config.current.shape.max_text,
            assigns=params.assigns,
            taint=frozenset(params.taint),
            meta=params.meta,
        )
        principal = connection.principal.narrowed(params.principal)
        return await adapters.execute(
            self._context(connection, principal, params.session),
            principal,
            self._recall(params.toolset),
            params.response if params.calls is None else params.calls,
            options,
            on_progress=_progress_to(connection, params.meta_),
        )

    def _recall(self, toolset: str | None) -> ToolSet:
        if toolset is None:
            return self._gate.catalogue.current.offered
        found = self._gate.recall(toolset)
        if found is None:
            raise unknown_toolset(toolset)
        return found

    async def _call(self, connection: Connection, request: Request) -> object:
        params = protocol.decode_params(request.params, CallParams)
        principal = connection.principal.narrowed(params.principal)
        call = Call(
            id=self._gate.new_call_id(),
            name=self._exposed(params),
            arguments=params.arguments,
            principal=principal,
            taint=frozenset(params.taint),
            assigns=params.assigns,
            meta=params.meta,
            timeout=params.timeout,
        )
        context = self._context(connection, principal, params.session)
        outcome = await run(call, context, on_progress=_progress_to(connection, params.meta_))
        if outcome.error is not None:
            raise outcome.error
        if params.shape is None:
            return outcome.result
        return shape(outcome.tool_result(), max_text=self._config.current.shape.max_text).to_wire()

    def _context(self, connection: Connection, principal: Principal, session: str | None) -> Context:
        if session is None:
            return connection.context
        return self._gate.governance.sessions.context(self._gate, principal.name, session)

    def _exposed(self, params: CallParams) -> str:
        if params.name is not None:
            if params.server is not None or params.tool is not None:
                raise ClientError("invalid_params", "Give either name, or server and tool, not both.")
            return params.name
        if params.server is None or params.tool is None:
            raise ClientError("invalid_params", "Give the tool's name, or its server and tool.")
        self._port(params.server)
        exposed = self._gate.catalogue.current.known.exposed_name(params.server, params.tool)
        if exposed is None:
            raise ClientError(
                "unknown_tool", f"Server {params.server} has no tool {params.tool!r}.", params.server, params.tool
            )
        return exposed

    async def _status(self, connection: Connection, request: Request) -> object:
        protocol.decode_params(request.params, NoParams)
        return status(
            self._gate,
            self._config.current,
            version=self._version,
            started_at=self._started_at,
            connections=len(self._connections),
        )

    # ---- control

    async def _show_tree(self, connection: Connection, request: Request) -> object:
        protocol.decode_params(request.params, NoParams)
        return await self._tree()

    async def _restart(self, connection: Connection, request: Request) -> object:
        return await self._order(request, RestartServer())

    async def _start(self, connection: Connection, request: Request) -> object:
        return await self._order(request, StartServer())

    async def _stop_server(self, connection: Connection, request: Request) -> object:
        return await self._order(request, StopServer())

    async def _order(self, request: Request, order: supervisors.Call[None]) -> object:
        server = protocol.decode_params(request.params, ServerParams).server
        self._port(server)
        await self._ask(server, order)
        return server_status(self._gate, self._config.current, server)

    async def _explain(self, connection: Connection, request: Request) -> object:
        server = protocol.decode_params(request.params, ServerParams).server
        self._port(server)
        return await self._ask(server, Explain())

    async def _ask(self, server: str, order: supervisors.Call[Any]) -> Any:
        try:
            return await supervisors.call(f"client:{server}", order, timeout=_CONTROL_WAIT)
        except (supervisors.NoProcess, supervisors.ServerExit, supervisors.CallTimeout) as error:
            raise ClientError(
                "unavailable", f"The client of {server} does not answer ({error}); try again.", server, retry_after=1.0
            ) from error

    async def _shutdown(self, connection: Connection, request: Request) -> object:
        protocol.decode_params(request.params, NoParams)
        self._stop()
        return _DONE

    def _port(self, server: str) -> Port:
        port = self._gate.ports.get(server)
        if port is None:
            known = ", ".join(self._gate.ports) or "none"
            raise ClientError("invalid_params", f"There is no server {server!r}; configured and enabled are: {known}.")
        return port


def _progress_to(connection: Connection, meta: dict[str, Any]) -> OnProgress | None:
    token = meta.get("progressToken")
    return None if token is None else partial(mcp.forward_progress, connection, token)
