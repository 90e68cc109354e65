"""Servers that are one caller's alone (``scope = "connection"``): started at its first call, ended with it.

The server's own port and client stay: they learn its tools and rest. What callers use are instances, each with a
port and a client of its own, which are brought in line with what callers and the configuration want.
"""

from __future__ import annotations

import itertools
import time
from collections.abc import Callable
from functools import partial
from typing import Final, final

import trio

import supervisors
from conduit_daemon.clients.port import Port, Standing
from conduit_daemon.clients.standing import resting
from conduit_daemon.config import Config, ServerConfig, started_alike
from conduit_daemon.errors import ClientError
from conduit_daemon.published import Published
from supervisors import Backoff, ChildSpec

__all__ = ["Instance", "Instances"]

_SUPERVISOR: Final = "clients"
_SHUTDOWN: Final = 10.0
_LOOK: Final = 5.0
_RETRY_AFTER: Final = 5.0


@final
class Instance:
    """One caller's server.

    Attributes:
        server: The server's id.
        number: Tells it from the server's other instances.
        config: The server's configuration.
        port: The caller's door to it.
    """

    def __init__(self, server: str, number: str, config: ServerConfig, port: Port) -> None:
        self.server = server
        self.number = number
        self.config = config
        self.port = port
        self.wanted = True
        self.started = False
        self.settling = False


@final
class Instances:
    """Starts and ends instances under the supervisor ``clients``.

    Args:
        config: The configuration in force.
        ports: The servers' own ports by id.
        new_client: Makes what a child specification starts.
    """

    def __init__(
        self,
        config: Published[Config],
        ports: dict[str, Port],
        new_client: Callable[[Instance], Callable[[], supervisors.Actor]],
    ) -> None:
        self._config = config
        self._ports = ports
        self._new_client = new_client
        self._instances: list[Instance] = []
        self._numbers = itertools.count(1)
        self._wake = trio.Event()
        self._under: supervisors.Ref | None = None

    def serve(self, server: str, config: ServerConfig, port: Port) -> None:
        """Has callers at a server's own port get instances."""
        port.instantiate = partial(self._open, server, config, port)
        port.on_restart = partial(self._renew, server)

    async def run(self) -> None:
        """Keeps what runs in line with what is wanted, until cancelled."""
        forget = self._config.watch(lambda config: self._wake.set())
        try:
            async with trio.open_nursery() as nursery:
                while True:
                    self._wake = trio.Event()
                    self._look(nursery)
                    with trio.move_on_after(_LOOK):
                        await self._wake.wait()
        finally:
            forget()
            for instance in self._instances:
                instance.settling = False

    def _open(self, server: str, config: ServerConfig, base: Port) -> Port:
        if base.standing.state == "stopped":
            raise base.unavailable()
        if base.instances >= config.max_instances:
            raise ClientError(
                "unavailable",
                f"{config.max_instances} connections have a server {server} of their own, which is the limit "
                "(max_instances); close one of them, or raise it.",
                server,
                retry_after=_RETRY_AFTER,
            )
        port = Port(server, Standing(state="idle", since=time.time(), reason=resting(server)))
        port.listing, port.offerings = base.listing, base.offerings
        instance = Instance(server, str(next(self._numbers)), config, port)
        port.on_updated = base.on_updated
        port.release = partial(self._close, instance)
        base.instances += 1
        self._instances.append(instance)
        self._wake.set()
        return port

    def _close(self, instance: Instance) -> None:
        instance.wanted = False
        self._wake.set()

    def _renew(self, server: str) -> None:
        for instance in self._instances:
            if instance.server == server:
                self._close(instance)

    def _look(self, nursery: trio.Nursery) -> None:
        under = supervisors.whereis(_SUPERVISOR)
        if under is not None and under is not self._under:
            self._under = under
            for instance in self._instances:
                instance.started = False  # a supervisor that was restarted has no children
        for instance in list(self._instances):
            if instance.settling:
                continue
            base = self._ports.get(instance.server)
            if not started_alike(self._config.current.servers.get(instance.server), instance.config) or (
                base is not None and base.standing.state == "stopped"
            ):
                instance.wanted = False
            if not instance.wanted or not instance.started:
                instance.settling = True
                nursery.start_soon(self._settle, instance)

    async def _settle(self, instance: Instance) -> None:
        try:
            if instance.wanted:
                await self._start(instance)
            else:
                await self._end(instance)
        finally:
            instance.settling = False
            self._wake.set()

    async def _start(self, instance: Instance) -> None:
        spec = ChildSpec(
            id=f"{instance.server}:{instance.number}",
            start=self._new_client(instance),
            backoff=Backoff(),
            shutdown=_SHUTDOWN,
        )
        try:
            await supervisors.start_child(_SUPERVISOR, spec)
        except (supervisors.NoProcess, supervisors.ServerExit):
            await trio.sleep(_LOOK / 10)  # the supervisor is being restarted
            return
        except (supervisors.AlreadyStarted, supervisors.AlreadyPresent):
            pass  # started in an earlier life of `run`
        instance.started = True

    async def _end(self, instance: Instance) -> None:
        base = self._ports.get(instance.server)
        instance.port.close(f"this connection's server {instance.server} was ended")
        try:
            await supervisors.terminate_child(_SUPERVISOR, f"{instance.server}:{instance.number}")
            await supervisors.delete_child(_SUPERVISOR, f"{instance.server}:{instance.number}")
        except (supervisors.NotFound, supervisors.NoProcess, supervisors.ServerExit):
            pass  # it is gone already, or never was
        self._instances.remove(instance)
        if base is not None and base.instances:
            base.instances -= 1
