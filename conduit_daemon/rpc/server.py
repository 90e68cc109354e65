"""The RPC's part of the tree: two acceptors, and a supervisor of temporary connections."""

from __future__ import annotations

import itertools
import socket
from collections.abc import Awaitable, Callable
from functools import partial
from typing import Final, final

import trio

import supervisors
from conduit_daemon.config import Config
from conduit_daemon.errors import ClientError
from conduit_daemon.hub.toolset import ToolSet
from conduit_daemon.pipeline.gate import Context, Gate
from conduit_daemon.published import Published
from conduit_daemon.rpc import protocol
from conduit_daemon.rpc.budget import SHARES, Budget
from conduit_daemon.rpc.connection import Connection, Dispatch
from conduit_daemon.rpc.listener import Listener, peer
from conduit_daemon.rpc.mcp import listed, tell_changed
from supervisors import ChildSpec, DynamicSupervisor, Supervisor

__all__ = ["RpcServer"]

_CONNECTIONS: Final = "rpc.connections"
_SHUTDOWN: Final = 2.0
_DEBOUNCE: Final = 0.1


@final
class RpcServer:
    """Serves connections on the application's listeners.

    Args:
        listeners: The sockets; they stay open whatever happens here.
        gate: The pipeline's shared parts.
        config: The configuration in force.
        announced: The toolset that hosts are told of.
        connections: Filled with what is connected.
    """

    def __init__(
        self,
        listeners: list[Listener],
        gate: Gate,
        config: Published[Config],
        announced: Published[ToolSet],
        connections: set[Connection],
    ) -> None:
        self._listeners = listeners
        self._gate = gate
        self._config = config
        self._announced = announced
        self._connections = connections
        self._count = itertools.count(1)
        self._budgets = {control: Budget(0) for control in (False, True)}
        self.methods: Dispatch | None = None

    def supervisor(self) -> Supervisor:
        """The supervisor of all this, fresh for each start."""
        children = [
            ChildSpec(
                id="connections",
                start=lambda: DynamicSupervisor(name=_CONNECTIONS),
                type="supervisor",
            ),
            ChildSpec(id="list_changed", start=lambda: self._tell_changes),
        ]
        for listener in self._listeners:
            kind = "control" if listener.control else "agent"
            children.append(ChildSpec(id=f"acceptor:{kind}", start=partial(self._acceptor, listener)))
        return Supervisor(children, name="rpc")

    def _acceptor(self, listener: Listener) -> Callable[[], Awaitable[None]]:
        async def accept() -> None:
            while True:
                try:
                    sock = await listener.accept()
                except trio.ClosedResourceError:
                    await trio.sleep_forever()  # the daemon is stopping and will end this task
                await self.admit(sock, control=listener.control)

        return accept

    async def admit(self, sock: socket.socket, *, control: bool = False) -> None:
        """Serves a connected, non-blocking socket from now on, and owns it."""
        config, bus = self._config.current, self._gate.bus
        principal = peer(sock)
        # Each socket has a number of its own: agents that take all of theirs must not lock the operator out.
        beside = sum(connection.control is control for connection in self._connections)
        if beside >= config.rpc.max_connections:
            bus.emit("rpc.rejected", level="warning", pid=principal.pid, reason="too many connections")
            error = ClientError(
                "unavailable",
                f"{beside} connections to this socket are open, which is the limit (rpc.max_connections).",
                retry_after=1.0,
            )
            with sock:
                try:
                    sock.send(protocol.error_answer(None, error.code, error.message, error.to_data()))
                except OSError:
                    return  # it has gone already
            return
        assert self.methods is not None  # noqa: S101 - the application set it before the tree began
        budget = self._budgets[control]
        budget.limit = SHARES * config.rpc.max_message
        connection = Connection(
            sock,
            self.methods,
            context=Context(self._gate),
            principal=principal,
            control=control,
            bus=bus,
            max_message=config.rpc.max_message,
            budget=budget,
        )

        async def serve() -> None:
            bus.emit("rpc.connected", level="debug", pid=principal.pid, principal=principal.name, control=control)
            try:
                await connection.run()
            finally:
                self._connections.discard(connection)
                bus.emit("rpc.disconnected", level="debug", pid=principal.pid, principal=principal.name)

        self._connections.add(connection)
        spec = ChildSpec(
            id=f"connection:{next(self._count)}", start=lambda: serve, restart="temporary", shutdown=_SHUTDOWN
        )
        try:
            await supervisors.start_child(_CONNECTIONS, spec)
        except BaseException:
            self._connections.discard(connection)
            sock.close()
            raise

    async def _tell_changes(self) -> None:
        async with trio.open_nursery() as nursery:
            nursery.start_soon(self._tell_offers)
            while True:
                await self._announced.changed()
                tell_changed(self._connections, "tools")

    async def _tell_offers(self) -> None:
        catalogue = self._gate.catalogue
        told = listed(catalogue.current)
        while True:
            await catalogue.changed()
            await trio.sleep(_DEBOUNCE)
            now = listed(catalogue.current)
            for what, offers in now.items():
                if offers != told[what]:
                    tell_changed(self._connections, what)
            told = now
