"""Telling hosts that what they listed has changed: ``list_changed``, and ``subscriptions/listen`` of 2026-07-28."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any, Final, Literal

import msgspec
import trio

from conduit_daemon.model import Call
from conduit_daemon.pipeline.gate import Gate
from conduit_daemon.pipeline.run import run
from conduit_daemon.rpc import protocol
from conduit_daemon.rpc.connection import Connection
from conduit_daemon.rpc.mcp.eras import SUBSCRIPTION_ID
from conduit_daemon.rpc.protocol import Request

__all__ = ["Changed", "listen", "tell_changed", "tell_updated"]

Changed = Literal["tools", "resources", "prompts"]

_WANTED_AS: Final[dict[Changed, str]] = {
    "tools": "toolsListChanged",
    "resources": "resourcesListChanged",
    "prompts": "promptsListChanged",
}


class _ListenParams(msgspec.Struct, frozen=True):
    notifications: dict[str, Any]


async def listen(connection: Connection, request: Request, gate: Gate) -> object:
    """Serves ``subscriptions/listen``: acknowledges it, and tells what was asked for until it is cancelled.

    A resource is subscribed to at its server by a call through the pipeline; what that refuses is not honoured.
    The result comes only where the daemon ends the stream: when it stops.

    Raises:
        ClientError: ``invalid_params``.
    """
    wanted = protocol.decode_params(request.params, _ListenParams).notifications
    honoured: dict[str, Any] = {key: True for key in _WANTED_AS.values() if wanted.get(key) is True}
    uris = [uri for uri in wanted.get("resourceSubscriptions") or () if isinstance(uri, str)]
    subscribed = [uri for uri in uris if await _subscribe(connection, gate, uri)]
    if subscribed:
        honoured["resourceSubscriptions"] = subscribed
    request_id = request.number
    mark = {SUBSCRIPTION_ID: request_id}
    connection.notify("notifications/subscriptions/acknowledged", {"notifications": honoured, "_meta": mark})
    connection.stream(request_id)
    connection.host.listening[request_id] = frozenset([*honoured, *subscribed])
    try:
        await trio.sleep_forever()
    except trio.Cancelled:
        if request_id in connection.running:  # not cancelled by the host: the daemon stops
            connection.settle(request_id, protocol.answer(request_id, {"resultType": "complete", "_meta": mark}))
        raise
    finally:
        del connection.host.listening[request_id]


async def _subscribe(connection: Connection, gate: Gate, uri: str) -> bool:
    call = Call(
        id=gate.new_call_id(),
        name=f"resource:{uri}",
        arguments={},
        principal=connection.principal,
        method="resources/subscribe",
    )
    return (await run(call, connection.context)).error is None


def tell_updated(connections: Iterable[Connection], server: str, uri: str) -> None:
    """Tells all who subscribed to a resource that it has changed."""
    method = "notifications/resources/updated"
    for connection in list(connections):
        if connection.host.subscriptions.get(uri) == server:
            connection.notify(method, {"uri": uri})
        for request_id, wanted in list(connection.host.listening.items()):
            if uri in wanted:
                connection.notify(method, {"uri": uri, "_meta": {SUBSCRIPTION_ID: request_id}})


def tell_changed(connections: Iterable[Connection], what: Changed) -> None:
    """Tells all who want to know that a list has changed."""
    method = f"notifications/{what}/list_changed"
    for connection in list(connections):
        if connection.host.initialized:
            connection.notify(method)
        for request_id, wanted in list(connection.host.listening.items()):
            if _WANTED_AS[what] in wanted:
                connection.notify(method, {"_meta": {SUBSCRIPTION_ID: request_id}})
