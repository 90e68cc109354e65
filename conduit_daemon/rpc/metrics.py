"""``conduit/metrics``."""

from __future__ import annotations

from collections.abc import Awaitable, Callable

from conduit_daemon.rpc import protocol
from conduit_daemon.rpc.connection import Connection, Handler
from conduit_daemon.rpc.params import NoParams
from conduit_daemon.rpc.protocol import Request

__all__ = ["metrics_method"]


def metrics_method(render: Callable[[], Awaitable[bytes]]) -> Handler:
    """The method of the control socket that gives the metrics in Prometheus' text format.

    Args:
        render: Gives them as they are now, in UTF-8.
    """

    async def handle(connection: Connection, request: Request) -> object:
        protocol.decode_params(request.params, NoParams)
        return {"text": (await render()).decode()}

    return handle
