"""How the servers stand, and orders to them: ``conduit/status`` and ``conduit/servers/*``.

A server that is added or removed here changes the configuration in force and not its file, so that it lasts until
the next reload.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any, Final, final

import msgspec
import trio

import supervisors
from conduit_daemon.config import Config, ConfigStanding, LoadedServer, ServerConfig
from conduit_daemon.errors import ClientError, ConfigError
from conduit_daemon.messages import Explain, RestartServer, StartServer, StopServer
from conduit_daemon.pipeline.gate import Gate
from conduit_daemon.pipeline.underway import underway
from conduit_daemon.published import Published
from conduit_daemon.rpc import protocol
from conduit_daemon.rpc.connection import Connection, Handler
from conduit_daemon.rpc.params import AddServerParams, NoParams, ServerParams
from conduit_daemon.rpc.protocol import Request
from conduit_daemon.rpc.status import port_of, server_status, status

__all__ = ["ServerEdits", "ServerMethods"]

_CONTROL_WAIT: Final = 10.0
_ROSTER_WAIT: Final = 2.0


class ServerEdits(msgspec.Struct, frozen=True):
    """How the servers of the configuration in force are changed.

    Attributes:
        read: Reads a server's table, as it would stand in the file; raises ConfigError.
        apply: Puts servers into force, and masks further secrets.
    """

    read: Callable[[str, Mapping[str, Any]], LoadedServer]
    apply: Callable[[dict[str, ServerConfig], frozenset[str]], None]


@final
class ServerMethods:
    """What asks about servers, and what orders them.

    Args:
        gate: The pipeline's shared parts.
        config: The configuration in force.
        version: The daemon's version.
        standing: How the configuration in force stands to its file.
        edits: Reads and applies changes of the servers.
        count_connections: How many connections are open.
    """

    def __init__(
        self,
        gate: Gate,
        config: Published[Config],
        version: str,
        standing: Callable[[], ConfigStanding],
        edits: ServerEdits,
        count_connections: Callable[[], int],
    ) -> None:
        self._gate = gate
        self._config = config
        self._version = version
        self._standing = standing
        self._edits = edits
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
            "conduit/servers/add": self._add,
            "conduit/servers/remove": self._remove,
        }

    async def _status(self, connection: Connection, request: Request) -> object:
        protocol.decode_params(request.params, NoParams)
        return status(
            self._gate,
            self._config.current,
            version=self._version,
            standing=self._standing(),
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
        told: dict[str, Any] = msgspec.to_builtins(await self._ask(server, Explain()))
        return {**told, "running": underway(self._gate, server=server)[0]}

    async def _add(self, connection: Connection, request: Request) -> object:
        params = protocol.decode_params(request.params, AddServerParams)
        server = params.server
        if server in self._config.current.servers:
            raise ClientError("invalid_params", f"There is a server {server} already; remove it first.", server)
        try:
            loaded = self._edits.read(server, params.config)
        except ConfigError as error:
            raise ClientError(
                "invalid_config",
                f"Server {server} was not added: {error}",
                server,
                data={"problems": [msgspec.to_builtins(problem) for problem in error.problems]},
            ) from error
        self._edits.apply({**self._config.current.servers, server: loaded.server}, loaded.secrets)
        with trio.move_on_after(_ROSTER_WAIT):
            while loaded.server.enabled and server not in self._gate.ports:
                await self._gate.catalogue.changed()
        return server_status(self._gate, self._config.current, server)

    async def _remove(self, connection: Connection, request: Request) -> object:
        server = protocol.decode_params(request.params, ServerParams).server
        before = self._config.current.servers
        if server not in before:
            known = ", ".join(before) or "none"
            raise ClientError("invalid_params", f"There is no server {server!r}; configured are: {known}.")
        self._edits.apply({other: wanted for other, wanted in before.items() if other != server}, frozenset())
        reason = f"server {server} was removed; it comes back with the next reload if the file still has it"
        return {"state": "stopped", "transport": before[server].kind, "reason": reason}

    async def _ask(self, server: str, order: supervisors.Call[Any]) -> Any:
        try:
            return await supervisors.call(f"client:{server}", order, timeout=_CONTROL_WAIT)
        except (supervisors.NoProcess, supervisors.ServerExit, supervisors.CallTimeout) as error:
            raise ClientError(
                "unavailable", f"The client of {server} does not answer ({error}); try again.", server, retry_after=1.0
            ) from error
