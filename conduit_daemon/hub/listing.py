"""Waiting for a listing: for servers in their first attempt to connect, and for no others."""

from __future__ import annotations

from collections.abc import Collection

import trio

from conduit_daemon.hub.catalogue import Catalogue
from conduit_daemon.published import Published

__all__ = ["DEFAULT_WAIT", "listing"]

DEFAULT_WAIT = 5.0


async def listing(
    catalogue: Published[Catalogue], timeout: float = DEFAULT_WAIT, *, servers: Collection[str] | None = None
) -> Catalogue:
    """The current catalogue, after servers in their first connect had their chance.

    Args:
        catalogue: What the hub publishes.
        timeout: Seconds to wait at most; 0 answers at once.
        servers: Wait only for these; None waits for all.
    """
    current = catalogue.current
    with trio.move_on_after(timeout):
        while current.connecting if servers is None else current.connecting.intersection(servers):
            current = await catalogue.changed()
    return catalogue.current
