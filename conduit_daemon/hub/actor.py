"""The hub: one actor that makes one catalogue of all servers' tools and publishes it.

Listings and the routing of calls read what it published and never wait for it. Restarted, it rebuilds everything
from the servers' ports.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from functools import partial
from typing import Any, Final, final

import msgspec

import supervisors
from conduit_daemon.clients.listing import Listing
from conduit_daemon.clients.offerings import Offerings
from conduit_daemon.clients.port import Port
from conduit_daemon.config.model import Config
from conduit_daemon.hub.aside import Aside
from conduit_daemon.hub.catalogue import Catalogue, Missing
from conduit_daemon.hub.filtering import filter_of, filtered
from conduit_daemon.hub.naming import build
from conduit_daemon.hub.offers import Offers, build_offers
from conduit_daemon.hub.toolset import Entry, ToolSet
from conduit_daemon.messages import ClientChanged, GetGate
from conduit_daemon.model import Dropped, Tool
from conduit_daemon.published import Published
from conduit_daemon.telemetry.events import EventBus
from supervisors import Actor, From

__all__ = ["Hub"]

_DEBOUNCE: Final = 0.1
_NAMED: Final = 20


class _Announce(msgspec.Struct, frozen=True):
    """Time to say what has changed in the toolset."""


@final
class Hub(Actor):
    """The actor registered as ``hub``.

    Args:
        config: The configuration in force.
        ports: The servers' ports by id.
        catalogue: Where it publishes.
        announced: The toolset last announced as ``hub.toolset_changed``; watchers tell MCP hosts.
        gate: The pipeline over this hub's tools, given to callers inside the process who ask for it.
        bus: Where events go.
        withheld: Tells why a tool that could be offered is not to be; None where it may.
    """

    def __init__(
        self,
        config: Published[Config],
        ports: Mapping[str, Port],
        catalogue: Published[Catalogue],
        announced: Published[ToolSet],
        gate: object,
        bus: EventBus,
        withheld: Callable[[Entry], Dropped | None] = lambda entry: None,
    ) -> None:
        self.name = "hub"
        self._config = config
        self._ports = ports
        self._catalogue = catalogue
        self._announced = announced
        self._gate = gate
        self._bus = bus
        self._withheld = withheld
        self._built_from: list[tuple[str, Listing]] = []
        self._built_for: Config | None = None
        self._offers_from: list[tuple[str, Offerings]] = []
        self._offers_for: Config | None = None
        self._announcing = False
        self._aside = Aside()
        self._chosen: tuple[ToolSet, frozenset[str], dict[str, Dropped]] | None = None

    async def init(self) -> None:
        """Builds the catalogue anew."""
        await self._rebuild()

    async def handle_call(self, request: Any, sender: From) -> object:
        """Gives the pipeline to callers inside the process."""
        match request:
            case GetGate():
                return self._gate
            case _:
                raise TypeError(f"the hub does not know {type(request).__name__}")

    async def handle_info(self, message: Any) -> None:
        """Takes word of a client's change, and the time to announce."""
        match message:
            case ClientChanged():
                await self._rebuild()
            case _Announce():
                self._announcing = False
                self._announce()

    async def _rebuild(self) -> None:
        config = self._config.current
        listings = [
            (server, port.listing)
            for server, port in ((server, self._ports.get(server)) for server in config.servers)
            if port is not None and port.listing is not None
        ]
        before = self._catalogue.current
        if config is self._built_for and _same(listings, self._built_from):
            known, hidden = before.known, before.filtered
        else:
            tools = sum(len(listing.tools) for _, listing in listings)
            known, hidden = await self._aside.run(tools, partial(_known, config, listings))
            self._built_from, self._built_for = listings, config
        up = frozenset(server for server, port in self._ports.items() if port.standing.offered)
        offered = await self._offered(known, up)
        self._catalogue.publish(
            Catalogue(
                offered=before.offered if offered.id == before.offered.id else offered,
                known=known,
                filtered=hidden,
                missing=tuple(self._missing(config)),
                offers=self._offers(config),
                up=up,
                untold=frozenset(
                    server
                    for server, port in self._ports.items()
                    if port.standing.state == "ready" and port.offerings is None
                ),
                connecting=frozenset(
                    server for server, port in self._ports.items() if port.standing.first and server in config.servers
                ),
            )
        )
        if offered.id != self._announced.current.id and not self._announcing:
            self._announcing = True
            supervisors.send_after(supervisors.self_ref(), _Announce(), _DEBOUNCE)

    async def _offered(self, known: ToolSet, up: frozenset[str]) -> ToolSet:
        withheld = {entry.exposed: why for entry in known if (why := self._withheld(entry)) is not None}
        chosen = (known, up, withheld)
        if self._chosen is not None and self._chosen[0] is known and self._chosen[1:] == chosen[1:]:
            return self._catalogue.current.offered
        offered = await self._aside.run(len(known), partial(_select, known, up, withheld))
        self._chosen = chosen
        return offered

    def _offers(self, config: Config) -> Offers:
        """What is offered beside tools, built anew only where something changed."""
        told = [
            (server, port.offerings)
            for server, port in ((server, self._ports.get(server)) for server in config.servers)
            if port is not None and port.offerings is not None
        ]
        if told == self._offers_from and config is self._offers_for:
            return self._catalogue.current.offers
        self._offers_from, self._offers_for = told, config
        allowed = {server: filter_of(config.servers[server].tools) for server, _ in told}
        return build_offers(told, lambda server, name: allowed[server](name))

    def _missing(self, config: Config) -> list[Missing]:
        missing = []
        for server in config.servers:
            port = self._ports.get(server)
            if port is None:
                missing.append(Missing(server, "stopped", f"server {server} is not enabled"))
            elif not port.standing.offered:
                standing = port.standing
                missing.append(Missing(server, standing.state, standing.reason or f"server {server} is not ready"))
        return missing

    def _announce(self) -> None:
        before, now = self._announced.current, self._catalogue.current.offered
        if before.id == now.id:
            return
        old = {entry.exposed: entry.digest for entry in before}
        new = {entry.exposed: entry.digest for entry in now}
        added, removed = [name for name in new if name not in old], [name for name in old if name not in new]
        changed = [name for name in new if name in old and new[name] != old[name]]
        self._bus.emit(
            "hub.toolset_changed",
            toolset=now.id,
            tools=len(now),
            added=len(added),
            removed=len(removed),
            changed=len(changed),
            added_names=added[:_NAMED],
            removed_names=removed[:_NAMED],
        )
        self._announced.publish(now)


def _same(one: list[tuple[str, Listing]], other: list[tuple[str, Listing]]) -> bool:
    """Whether these are the same objects, in the same order: comparing what they hold would take longer."""
    return len(one) == len(other) and all(a[0] == b[0] and a[1] is b[1] for a, b in zip(one, other, strict=True))


def _select(known: ToolSet, up: frozenset[str], withheld: Mapping[str, Dropped]) -> ToolSet:
    offered = known.only(lambda entry: entry.server_id in up and entry.exposed not in withheld)
    if not withheld:
        return offered
    return ToolSet.of(offered.entries, (*offered.dropped, *withheld.values()), offered.warnings)


def _known(config: Config, listings: list[tuple[str, Listing]]) -> tuple[ToolSet, frozenset[tuple[str, str]]]:
    servers: list[tuple[str, list[Tool]]] = []
    hidden: set[tuple[str, str]] = set()
    for server, listing in listings:
        kept, names = filtered(listing.tools, config.servers[server].tools)
        servers.append((server, kept))
        hidden.update((server, name) for name in names)
    known, _ = build(servers)
    return known, frozenset(hidden)
