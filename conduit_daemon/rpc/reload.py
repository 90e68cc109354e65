"""``conduit/reload``."""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from typing import Any

from conduit_daemon.rpc import protocol
from conduit_daemon.rpc.connection import Connection, Handler
from conduit_daemon.rpc.params import NoParams
from conduit_daemon.rpc.protocol import Request

__all__ = ["reload_method"]


def reload_method(reload: Callable[[], Awaitable[dict[str, Any]]]) -> Handler:
    """The method of the control socket that has the configuration read again."""

    async def handle(connection: Connection, request: Request) -> object:
        protocol.decode_params(request.params, NoParams)
        return await reload()

    return handle
