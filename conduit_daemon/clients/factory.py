"""How the daemon's clients are made: ports from what was kept, clients on them, and servers of a caller's own."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import final

from conduit_daemon.clients.actor import Client
from conduit_daemon.clients.clocks import SleepWatch
from conduit_daemon.clients.connection import Settings
from conduit_daemon.clients.instances import Instance, Instances
from conduit_daemon.clients.journal import Timeline, new_timeline
from conduit_daemon.clients.kept import KeptListing
from conduit_daemon.clients.port import Port, new_port
from conduit_daemon.clients.process import Warden
from conduit_daemon.config import Config, ServerConfig
from conduit_daemon.published import Published
from conduit_daemon.telemetry.events import EventBus

__all__ = ["ClientFactory"]


@final
class ClientFactory:
    """Makes what `Roster` and `Instances` start. The application supervises its `instances` and `sleep`.

    Args:
        config: The configuration in force.
        ports: The servers' ports by id; filled by the roster.
        settings: What a server's connections are made of.
        warden: Ends servers if the daemon cannot.
        bus: Where events go.
        state: The state directory, where listings are kept.
        on_change: Called with a server's id after each change of its state or listing.

    Attributes:
        instances: The servers of single connections.
        sleep: Tells when the machine has slept.
    """

    def __init__(
        self,
        config: Published[Config],
        ports: dict[str, Port],
        *,
        settings: Callable[[str, ServerConfig], Settings],
        warden: Warden,
        bus: EventBus,
        state: Path,
        on_change: Callable[[str], None],
    ) -> None:
        self.instances = Instances(config, ports, self._instance)
        self.sleep = SleepWatch()
        self._ports = ports
        self._settings = settings
        self._warden = warden
        self._bus = bus
        self._state = state
        self._on_change = on_change
        self._kept: dict[str, KeptListing] = {}
        self._timelines: dict[str, Timeline] = {}

    def port(self, server: str, wanted: ServerConfig) -> Port:
        """A server's port, with what was kept of it."""
        kept = self._kept[server] = KeptListing(self._state, server, wanted, self._bus)
        port = new_port(server, kept.load(), lazy=wanted.start == "lazy" or wanted.scope == "connection")
        if wanted.scope == "connection":
            self.instances.serve(server, wanted, port)
        return port

    def client(self, server: str, wanted: ServerConfig) -> Callable[[], Client]:
        """What starts a server's client, afresh each time."""
        settings, timeline = self._settings(server, wanted), self._timeline(server)

        def start() -> Client:
            port, kept = self._ports[server], self._kept[server]
            return Client(
                settings, port, self._warden, self._bus, timeline, self._on_change, kept=kept, sleep=self.sleep
            )

        return start

    def save_again(self) -> None:
        """Has what is kept of the servers written once more, for its files may be gone."""
        for kept in self._kept.values():
            kept.save_again()

    def _instance(self, instance: Instance) -> Callable[[], Client]:
        server, port = instance.server, instance.port
        settings, timeline = self._settings(server, instance.config), self._timeline(server)

        def learn(server: str) -> None:
            common = self._ports.get(server)
            if common is None or port.listing is None:
                return
            if port.listing is not common.listing or port.offerings is not common.offerings:
                common.listing, common.offerings = port.listing, port.offerings
                self._kept[server].save(port.listing, port.offerings)
                self._on_change(server)

        def start() -> Client:
            return Client(
                settings,
                port,
                self._warden,
                self._bus,
                timeline,
                learn,
                instance=instance.number,
                sleep=self.sleep,
            )

        return start

    def _timeline(self, server: str) -> Timeline:
        return self._timelines.setdefault(server, new_timeline())
