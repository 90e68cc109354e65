"""Listing resources, templates of resources and prompts of all servers that are up."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, Final

import trio

from conduit_daemon.hub.catalogue import Catalogue
from conduit_daemon.hub.listing import DEFAULT_WAIT, listing
from conduit_daemon.hub.offers import Offer
from conduit_daemon.hub.toolset import Entry
from conduit_daemon.published import Published
from conduit_daemon.rpc.mcp.subscriptions import Changed

__all__ = ["LISTS", "list_offers", "listed"]

LISTS: Final = {
    "prompts/list": ("prompts", "prompts"),
    "resources/list": ("resources", "resources"),
    "resources/templates/list": ("templates", "resourceTemplates"),
}
"""By method: the list's name in `Offers`, and the result's member."""


async def list_offers(
    catalogue: Published[Catalogue], method: str, selects: Callable[[Entry], bool] | None
) -> dict[str, Any]:
    """The result of a method of `LISTS`, after servers that have not told yet had their chance.

    Args:
        catalogue: What the hub publishes.
        method: The method.
        selects: What a confined host may see; None for all.
    """
    with trio.move_on_after(DEFAULT_WAIT):
        current = await listing(catalogue, DEFAULT_WAIT)
        while current.untold:
            current = await catalogue.changed()
    current = catalogue.current
    name, member = LISTS[method]
    offers: tuple[Offer, ...] = getattr(current.offers, name)
    return {
        member: [
            offer.wire
            for offer in offers
            if offer.entry.server_id in current.up and (selects is None or selects(offer.entry))
        ]
    }


def listed(catalogue: Catalogue) -> dict[Changed, list[dict[str, Any]]]:
    """What hosts can list beside tools at present, by what its change is called."""
    offers = catalogue.offers
    return {
        "resources": [
            offer.wire for offer in (*offers.resources, *offers.templates) if offer.entry.server_id in catalogue.up
        ],
        "prompts": [offer.wire for offer in offers.prompts if offer.entry.server_id in catalogue.up],
    }
