"""What all servers offer beside tools, under names that tell them apart. Pure.

Prompts are named by the rules of tools. A resource keeps its URI, which is its name; one that two servers list
is dropped at both, as two tools of one name are. To rules, taint and audit they are tools named ``prompt:NAME``
and ``resource:URI``, with the server's own name, and a configuration's filter of tools holds for them too.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Callable, Iterable
from functools import cached_property
from typing import Any, Final

import msgspec

from conduit_daemon.clients.offerings import Offerings
from conduit_daemon.errors import ClientError
from conduit_daemon.hub.naming import exposed_name
from conduit_daemon.hub.templates import matches
from conduit_daemon.hub.toolset import Entry, definition_digest
from conduit_daemon.model import Dropped, Tool
from conduit_daemon.text import clean_description, clean_json, is_clean

__all__ = ["Offer", "Offers", "build_offers"]

_READING: Final = {"readOnlyHint": True}
_DESCRIBED: Final = ("title", "description")

Allowed = Callable[[str, str], bool]
"""Whether the configuration lets (server, name) through."""


def _everything(server: str, name: str) -> bool:
    return True


class Offer(msgspec.Struct, frozen=True):
    """One resource, template or prompt.

    Attributes:
        key: What it is asked for by: a URI, a template, or a prompt's exposed name.
        wire: Its entry in a listing for hosts.
        entry: What it is to the pipeline.
        completes: Whether its server completes arguments.
    """

    key: str
    wire: dict[str, Any]
    entry: Entry
    completes: bool


class Offers(msgspec.Struct, frozen=True, kw_only=True, dict=True):
    """Everything that is offered beside tools, by known servers, up or down.

    Attributes:
        resources: In the configuration's order of servers, then each server's.
        templates: As `resources`.
        prompts: As `resources`.
        dropped: What is not offered, and why.
        hidden: The names, as `resolve` takes them, of what the configuration hides.
        allowed: The configuration's filter, which holds for each URI that a template makes.
    """

    resources: tuple[Offer, ...] = ()
    templates: tuple[Offer, ...] = ()
    prompts: tuple[Offer, ...] = ()
    dropped: tuple[Dropped, ...] = ()
    hidden: frozenset[str] = frozenset()
    allowed: Allowed = _everything

    def resolve(self, name: str) -> Offer | None:
        """What ``resource:URI`` or ``prompt:EXPOSED`` means; a URI may also be one that a template makes.

        Raises:
            ClientError: ``invalid_params``: templates of several servers make this URI.
        """
        kind, _, key = name.partition(":")
        found = self._by_key.get((kind, key))
        if found is not None or kind != "resource" or key in self._collided:
            return found
        makers = [
            offer for offer in self.templates if matches(offer.key, key) and self.allowed(offer.entry.server_id, name)
        ]
        servers = sorted({offer.entry.server_id for offer in makers})
        if len(servers) > 1:
            raise ClientError(
                "invalid_params", f"{key[:200]!r} could be a resource of several servers ({', '.join(servers)})."
            )
        if not makers:
            return None
        tool = Tool(name=name, annotations=_READING)
        entry = Entry(name, servers[0], tool, definition_digest(tool))
        return Offer(key, {"uri": key}, entry, makers[0].completes)

    def is_filtered(self, name: str) -> bool:
        """Whether ``resource:URI`` or ``prompt:EXPOSED``, which does not resolve, would if nothing were hidden."""
        kind, _, key = name.partition(":")
        return name in self.hidden or (kind == "resource" and any(matches(offer.key, key) for offer in self.templates))

    @cached_property
    def _collided(self) -> frozenset[str]:
        """What several servers list: it is nobody's, not even one's whose template makes it."""
        return frozenset(one.exposed for one in self.dropped if one.reason == "collision")

    @cached_property
    def _by_key(self) -> dict[tuple[str, str], Offer]:
        kept = {("prompt", offer.key): offer for offer in self.prompts}
        kept.update({("resource", offer.key): offer for offer in (*self.templates, *self.resources)})
        return kept


def build_offers(servers: Iterable[tuple[str, Offerings]], allowed: Allowed) -> Offers:
    """What these servers offer, told apart.

    Args:
        servers: (server id, its offerings) in the configuration's order.
        allowed: The configuration's filter, over ``prompt:NAME`` and ``resource:URI``.
    """
    dropped: list[Dropped] = []
    hidden: set[str] = set()
    by_list: dict[str, list[Offer]] = {"resources": [], "templates": [], "prompts": []}
    for server, offerings in servers:
        for name, kind, member in (
            ("resources", "resource", "uri"),
            ("templates", "resource", "uriTemplate"),
            ("prompts", "prompt", "name"),
        ):
            for wire in getattr(offerings, name):
                pipeline_name = f"{kind}:{wire[member]}"
                offer = _offer(server, wire, member, pipeline_name, offerings.completes)
                if offer is None:
                    dropped.append(Dropped("", ((server, pipeline_name),), "invalid_name"))
                elif allowed(server, pipeline_name):
                    by_list[name].append(offer)
                else:
                    hidden.add(f"{kind}:{offer.key}")
    lists = {name: _distinct(offers, dropped) for name, offers in by_list.items()}
    return Offers(**lists, dropped=tuple(dropped), hidden=frozenset(hidden), allowed=allowed)


def _offer(server: str, wire: dict[str, Any], member: str, pipeline_name: str, completes: bool) -> Offer | None:
    """The offer of one entry; None where it cannot be named without altering its name."""
    own = wire[member]
    if not own or not is_clean(own):
        return None
    shown: dict[str, Any] = clean_json(wire)
    for key in _DESCRIBED:
        if isinstance(shown.get(key), str):
            shown[key] = clean_description(shown[key])
    name = wire.get("name")
    exposed = exposed_name(server, name if isinstance(name, str) and name else own) or ""
    shown |= {member: own, "name": exposed}
    description = shown.get("description")
    tool = Tool(
        name=pipeline_name,
        description=description if isinstance(description, str) else None,
        annotations=_READING,
    )
    key = exposed if member == "name" else own
    return Offer(key, shown, Entry(pipeline_name, server, tool, definition_digest(tool)), completes)


def _distinct(offers: list[Offer], dropped: list[Dropped]) -> tuple[Offer, ...]:
    by_key: dict[str, list[Offer]] = defaultdict(list)
    for offer in offers:
        by_key[offer.key].append(offer)
    for key, same in by_key.items():
        if len(same) > 1:
            members = tuple((offer.entry.server_id, offer.entry.tool.name) for offer in same)
            dropped.append(Dropped(key, members, "collision"))
    return tuple(offer for offer in offers if len(by_key[offer.key]) == 1)
