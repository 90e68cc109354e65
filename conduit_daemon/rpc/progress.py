"""Progress, told under the token of whoever asked for it: a server's, and that of waiting for servers."""

from __future__ import annotations

from collections.abc import Collection
from typing import Any, Final, cast

import msgspec
import trio

from conduit_daemon.errors import ClientError
from conduit_daemon.hub.catalogue import Catalogue
from conduit_daemon.hub.listing import listing
from conduit_daemon.published import Published
from conduit_daemon.rpc.connection import Connection
from conduit_daemon.rpc.protocol import RequestId

__all__ = ["forward", "listing_with_progress", "token_of"]

_LONGEST_TOKEN: Final = 1024


def token_of(meta: dict[str, Any]) -> RequestId | None:
    """The token under which a request wants to be told of its progress; None where it does not.

    Raises:
        ClientError: ``invalid_params``: it is none. It is repeated in every notification, so it has its bound.
    """
    token = meta.get("progressToken")
    if token is None or (isinstance(token, str) and len(token) <= _LONGEST_TOKEN):
        return token
    if isinstance(token, int | float) and not isinstance(token, bool):
        return cast(RequestId, token)
    text = f"_meta.progressToken is a number, or text of at most {_LONGEST_TOKEN} characters."
    raise ClientError("invalid_params", text)


def forward(connection: Connection, request_id: RequestId, token: RequestId, raw: msgspec.Raw) -> None:
    """Passes a server's progress with a request on; `raw` are the params of its notification."""
    try:
        params = msgspec.json.decode(raw, type=dict[str, Any])
    except (msgspec.MsgspecError, UnicodeDecodeError, RecursionError):
        return  # what a server garbles is not worth more than silence
    connection.tell_progress(request_id, {**params, "progressToken": token})


async def listing_with_progress(
    connection: Connection,
    meta: dict[str, Any],
    catalogue: Published[Catalogue],
    timeout: float,
    *,
    servers: Collection[str] | None = None,
) -> Catalogue:
    """`listing`, telling a caller who asked for it how many servers are still waited for.

    Args:
        connection: The caller's.
        meta: The ``_meta`` of its request.
        catalogue: What the hub publishes.
        timeout: As for `listing`.
        servers: As for `listing`.

    Raises:
        ClientError: As of `token_of`.
    """
    token = token_of(meta)
    if token is None or not timeout:
        return await listing(catalogue, timeout, servers=servers)
    async with trio.open_nursery() as nursery:
        nursery.start_soon(_tell_waiting, connection, token, catalogue, servers)
        found = await listing(catalogue, timeout, servers=servers)
        nursery.cancel_scope.cancel()
    return found


async def _tell_waiting(
    connection: Connection, token: RequestId, catalogue: Published[Catalogue], servers: Collection[str] | None
) -> None:
    total, told = 0, -1
    while True:
        waiting = catalogue.current.connecting
        if servers is not None:
            waiting = waiting.intersection(servers)
        total = max(total, len(waiting))
        done = total - len(waiting)
        if waiting and done > told:
            told = done
            message = f"Waiting for servers to start: {', '.join(sorted(waiting))}."
            params = {"progressToken": token, "progress": done, "total": total, "message": message}
            connection.notify("notifications/progress", params)
        await catalogue.changed()
