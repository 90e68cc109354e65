"""How the servers stand, and orders to them: ``conduit/status`` and ``conduit/servers/*``."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, Final, final

import trio

import supervisors
from conduit_daemon.config import Config
from conduit_daemon.errors import ClientError
from conduit_daemon.messages import Explain, RestartServer, StartServer, StopServer
from conduit_daemon.pipeline.gate import Gate
from conduit_daemon.published import Published
from conduit_daemon.rpc import protocol
from conduit_daemon.rpc.connection import Connection, Handler
from conduit_daemon.rpc.params import NoParams, ServerParams
from conduit_daemon.rpc.protocol import Request
from conduit_daemon.rpc.status import port_of, server_status, status

__all__ = ["ServerMethods"]

_CONTROL_WAIT: Final = 10.0


@final
class ServerMethods:
    """What asks about servers, and what orders them.

    Args:
        gate: The pipeline's shared parts.
        config: The configuration in force.
        version: The daemon's version.
        count_connections: How many connections are open.
    """

    def __init__(
        self, gate: Gate, config: Published[Config], version: str, count_connections: Callable[[], int]
    ) -> None:
        self._gate = gate
        self._config = config
        self._version = version
        self._count_connections = count_connections
        self._started_at = trio.current_time()

    @property
    def handlers(self) -> dict[str, Handler]:
        """The methods of both sockets by name."""
        return {"conduit/status": self._status}

    @property
    def control_handlers(self) -> dict[str, Handler]:
        """The control socket's methods by name."""
        return {
            "conduit/servers/restart": self._restart,
            "conduit/servers/start": self._start,
            "conduit/servers/stop": self._stop,
            "conduit/servers/explain": self._explain,
        }

    async def _status(self, connection: Connection, request: Request) -> object:
        protocol.decode_params(request.params, NoParams)
        return status(
            self._gate,
            self._config.current,
            version=self._version,
            started_at=self._started_at,
            connections=self._count_connections(),
        )

    async def _restart(self, connection: Connection, request: Request) -> object:
        return await self._order(request, RestartServer())

    async def _start(self, connection: Connection, request: Request) -> object:
        return await self._order(request, StartServer())

    async def _stop(self, connection: Connection, request: Request) -> object:
        return await self._order(request, StopServer())

    async def _order(self, request: Request, order: supervisors.Call[None]) -> object:
        server = protocol.decode_params(request.params, ServerParams).server
        port_of(self._gate, server)
        await self._ask(server, order)
        return server_status(self._gate, self._config.current, server)

    async def _explain(self, connection: Connection, request: Request) -> object:
        server = protocol.decode_params(request.params, ServerParams).server
        port_of(self._gate, server)
        return await self._ask(server, Explain())

    async def _ask(self, server: str, order: supervisors.Call[Any]) -> Any:
        try:
            return await supervisors.call(f"client:{server}", order, timeout=_CONTROL_WAIT)
        except (supervisors.NoProcess, supervisors.ServerExit, supervisors.CallTimeout) as error:
            raise ClientError(
                "unavailable", f"The client of {server} does not answer ({error}); try again.", server, retry_after=1.0
            ) from error
