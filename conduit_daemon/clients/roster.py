"""Which clients there are: brings what runs in line with what the configuration says, again whenever it changes.

It compares and converges: whatever sequence of configurations came, what runs in the end is what the last one
says. Servers whose own table says nothing new to the server itself are left alone.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from typing import Final, final

import trio

import supervisors
from conduit_daemon.clients.port import Port
from conduit_daemon.config import Config, ServerConfig, started_alike
from conduit_daemon.published import Published
from supervisors import Backoff, ChildSpec

__all__ = ["Roster"]

_SUPERVISOR: Final = "clients"
_SHUTDOWN: Final = 10.0
_PAUSE: Final = 0.5
_LOOK: Final = 5.0


@final
class Roster:
    """Starts, replaces and ends clients under the supervisor ``clients``.

    Args:
        config: The configuration in force.
        ports: The servers' ports by id; filled and emptied here.
        new_client: Makes what a child specification starts, for a server's configuration.
        new_port: Makes a port.
        on_port: Called with a server's id and configuration when its port is made.
        idle: Waits until no call runs on a server.
        on_change: Called with a server's id after it has come or gone.
    """

    def __init__(
        self,
        config: Published[Config],
        ports: dict[str, Port],
        *,
        new_client: Callable[[str, ServerConfig], Callable[[], supervisors.Actor]],
        new_port: Callable[[str, ServerConfig], Port],
        on_port: Callable[[str, ServerConfig], None],
        idle: Callable[[str], Awaitable[None]],
        on_change: Callable[[str], None],
    ) -> None:
        self._config = config
        self._ports = ports
        self._new_client = new_client
        self._new_port = new_port
        self._on_port = on_port
        self._idle = idle
        self._on_change = on_change
        self._running: dict[str, ServerConfig] = {}
        self._settling: set[str] = set()
        self._under: supervisors.Ref | None = None
        for server in self._config.current.servers:
            if (wanted := self._wanted(server)) is not None:
                self._open_port(server, wanted)

    async def run(self) -> None:
        """Keeps what runs in line with the configuration until cancelled."""
        async with trio.open_nursery() as nursery:
            while True:
                changed = self._config.next_change()
                under = supervisors.whereis(_SUPERVISOR)
                if under is not None and under is not self._under:
                    self._under = under
                    self._running.clear()  # a supervisor that was restarted has no children
                for server in {**self._config.current.servers, **self._running}:
                    if server not in self._settling and not self._is_as_wanted(server):
                        self._settling.add(server)
                        nursery.start_soon(self._settle, server)
                with trio.move_on_after(_LOOK):
                    await changed.wait()

    def _wanted(self, server: str) -> ServerConfig | None:
        wanted = self._config.current.servers.get(server)
        return wanted if wanted is not None and wanted.enabled else None

    def _is_as_wanted(self, server: str) -> bool:
        return started_alike(self._running.get(server), self._wanted(server))

    async def _settle(self, server: str) -> None:
        try:
            while not self._is_as_wanted(server):
                wanted = self._wanted(server)
                if server in self._running:
                    await self._end(server)
                elif wanted is not None:
                    await self._start(server, wanted)
        finally:
            self._settling.discard(server)

    async def _start(self, server: str, wanted: ServerConfig) -> None:
        if server not in self._ports:
            self._open_port(server, wanted)
        spec = ChildSpec(id=server, start=self._new_client(server, wanted), backoff=Backoff(), shutdown=_SHUTDOWN)
        try:
            await supervisors.start_child(_SUPERVISOR, spec)
        except (supervisors.NoProcess, supervisors.ServerExit):
            await trio.sleep(_PAUSE)  # the supervisor is being restarted
            return
        except (supervisors.AlreadyStarted, supervisors.AlreadyPresent):
            await self._terminate(server)
            return
        self._running[server] = wanted
        self._on_change(server)

    async def _end(self, server: str) -> None:
        fate = "has another configuration now" if self._wanted(server) else "was taken out of the configuration"
        self._ports[server].close(f"server {server} {fate}")
        self._on_change(server)
        with trio.move_on_after(self._config.current.limits.shutdown_timeout):
            await self._idle(server)
        await self._terminate(server)
        self._ports.pop(server, None)
        self._running.pop(server, None)
        self._on_change(server)

    async def _terminate(self, server: str) -> None:
        try:
            await supervisors.terminate_child(_SUPERVISOR, server)
            await supervisors.delete_child(_SUPERVISOR, server)
        except (supervisors.NotFound, supervisors.NoProcess, supervisors.ServerExit):
            return  # it is gone already

    def _open_port(self, server: str, wanted: ServerConfig) -> None:
        self._ports[server] = self._new_port(server, wanted)
        self._on_port(server, wanted)
