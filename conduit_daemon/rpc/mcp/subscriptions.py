"""Telling hosts that what they listed has changed: ``list_changed``, and ``subscriptions/listen`` of 2026-07-28."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any, Final, Literal

import msgspec
import trio

from conduit_daemon.rpc import protocol
from conduit_daemon.rpc.connection import Connection
from conduit_daemon.rpc.mcp.eras import SUBSCRIPTION_ID
from conduit_daemon.rpc.protocol import Request

__all__ = ["Changed", "listen", "tell_changed"]

Changed = Literal["tools", "resources", "prompts"]

_WANTED_AS: Final[dict[Changed, str]] = {
    "tools": "toolsListChanged",
    "resources": "resourcesListChanged",
    "prompts": "promptsListChanged",
}


class _ListenParams(msgspec.Struct, frozen=True):
    notifications: dict[str, Any]


async def listen(connection: Connection, request: Request) -> object:
    """Serves ``subscriptions/listen``: acknowledges it, and tells what was asked for until it is cancelled.

    The result comes only where the daemon ends the stream: when it stops.

    Raises:
        ClientError: ``invalid_params``.
    """
    wanted = protocol.decode_params(request.params, _ListenParams).notifications
    honoured = {key: True for key in _WANTED_AS.values() if wanted.get(key) is True}
    request_id = request.number
    mark = {SUBSCRIPTION_ID: request_id}
    connection.notify("notifications/subscriptions/acknowledged", {"notifications": honoured, "_meta": mark})
    connection.stream(request_id)
    connection.host.listening[request_id] = frozenset(honoured)
    try:
        await trio.sleep_forever()
    except trio.Cancelled:
        if request_id in connection.running:  # not cancelled by the host: the daemon stops
            connection.settle(request_id, protocol.answer(request_id, {"resultType": "complete", "_meta": mark}))
        raise
    finally:
        del connection.host.listening[request_id]


def tell_changed(connections: Iterable[Connection], what: Changed) -> None:
    """Tells all who want to know that a list has changed."""
    method = f"notifications/{what}/list_changed"
    for connection in list(connections):
        if connection.host.initialized:
            connection.notify(method)
        for request_id, wanted in list(connection.host.listening.items()):
            if _WANTED_AS[what] in wanted:
                connection.notify(method, {"_meta": {SUBSCRIPTION_ID: request_id}})
