"""Progress, passed on under the token of whoever asked for it."""

from __future__ import annotations

from typing import Any

import msgspec

from conduit_daemon.rpc.connection import Connection
from conduit_daemon.rpc.protocol import RequestId

__all__ = ["forward"]


def forward(connection: Connection, token: RequestId, raw: msgspec.Raw) -> None:
    """Passes a server's progress on; `raw` are the params of its notification."""
    try:
        params = msgspec.json.decode(raw, type=dict[str, Any])
    except (msgspec.MsgspecError, UnicodeDecodeError, RecursionError):
        return  # what a server garbles is not worth more than silence
    connection.notify("notifications/progress", {**params, "progressToken": token})
