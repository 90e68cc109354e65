"""What the hub publishes: which tools are offered now, which names are known at all, and what is missing."""

from __future__ import annotations

import msgspec

from conduit_daemon.hub.offers import Offers
from conduit_daemon.hub.toolset import Entry, ToolSet

__all__ = ["Catalogue", "Missing"]


class Missing(msgspec.Struct, frozen=True):
    """A server whose tools are not offered at present.

    Attributes:
        server: Its id.
        state: Its client's state.
        reason: One sentence.
    """

    server: str
    state: str
    reason: str


class Catalogue(msgspec.Struct, frozen=True, kw_only=True):
    """One immutable snapshot of all that can be listed or resolved.

    Attributes:
        offered: The tools of the servers that are ready: what a model may see.
        known: These and the last known tools of servers that are down, under the same names.
        filtered: (server id, tool name) of what the configuration hides.
        missing: The servers whose tools are not offered, in the configuration's order.
        connecting: Those of them that are in their first attempt to connect, worth waiting for.
        offers: Resources, templates and prompts of all servers that told theirs, up or down.
        up: The servers whose tools, resources and prompts are offered.
        untold: The servers that are ready and have not yet told what they offer beside tools.
    """

    offered: ToolSet = ToolSet()
    known: ToolSet = ToolSet()
    filtered: frozenset[tuple[str, str]] = frozenset()
    missing: tuple[Missing, ...] = ()
    connecting: frozenset[str] = frozenset()
    offers: Offers = Offers()
    up: frozenset[str] = frozenset()
    untold: frozenset[str] = frozenset()

    def resolve(self, exposed: str) -> Entry | None:
        """The tool of this exposed name, also where its server is down."""
        return self.known.resolve(exposed)
