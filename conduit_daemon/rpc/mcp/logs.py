"""What servers log, passed on to the host whose call they log about."""

from __future__ import annotations

from typing import Any, Final

import msgspec

from conduit_daemon.rpc.connection import Connection

__all__ = ["LEVELS", "forward_log"]

LEVELS: Final = ("debug", "info", "notice", "warning", "error", "critical", "alert", "emergency")
"""RFC 5424's, from the least to the most."""


def forward_log(connection: Connection, server: str, method: str, params: msgspec.Raw, level: str) -> None:
    """Passes a log message on under its server's name, if it is of `level` or above."""
    try:
        message: dict[str, Any] = msgspec.json.decode(params, type=dict[str, Any])
    except (msgspec.MsgspecError, UnicodeDecodeError, RecursionError):
        return  # what a server garbles is not worth more than silence
    said = message.get("level")
    if said in LEVELS and LEVELS.index(said) >= LEVELS.index(level):
        logger = message.get("logger")
        connection.tell(method, {**message, "logger": f"{server}/{logger}" if isinstance(logger, str) else server})
