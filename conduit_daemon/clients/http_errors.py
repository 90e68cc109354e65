"""What a failed HTTP exchange means for the call that it carried. Pure."""

from __future__ import annotations

import time
from email.utils import parsedate_to_datetime
from http import HTTPStatus
from typing import Any, Final

import httpx2
import msgspec

from conduit_daemon.clients.envelopes import UNDECODABLE, decode, decode_error
from conduit_daemon.errors import ClientError, Sent

__all__ = ["is_unreachable", "parse_retry_after", "root_cause", "status_error", "transport_error"]

_MAYBE_RAN: Final = (HTTPStatus.BAD_GATEWAY, HTTPStatus.GATEWAY_TIMEOUT)
_LATER: Final = (HTTPStatus.TOO_MANY_REQUESTS, HTTPStatus.SERVICE_UNAVAILABLE)
_LONGEST: Final = 86_400.0
_PLAINER: Final = {
    "Receive buffer too long": "it sent headers without an end",
    "Server disconnected without sending a response": "it ended the connection without an answer",
}


def parse_retry_after(value: str | None, now: float | None = None) -> float | None:
    """Seconds in a Retry-After header (a number, or a date), at most a day; None where there are none."""
    if value is None:
        return None
    text = value.strip()
    if text.isdecimal():
        return min(float(text), _LONGEST)
    try:
        at = parsedate_to_datetime(text).timestamp()
    except ValueError:
        return None
    return min(max(0.0, at - (time.time() if now is None else now)), _LONGEST)


def status_error(server: str, status: int, body: bytes, retry_after: float | None) -> ClientError:
    """The error of a request that was answered with an error status.

    A JSON-RPC error in the body is the server's own and says more than the status. Whatever the status, it is in
    the error's data as ``http_status``.

    Args:
        server: The server's id.
        status: The HTTP status.
        body: The answer's body, or its beginning.
        retry_after: Seconds that the server asks to be left alone.
    """
    data: dict[str, Any] = {"http_status": status}
    try:
        wire = decode_error(decode(body).error)
    except UNDECODABLE:
        wire = None
    if wire is not None:
        data["error"] = msgspec.to_builtins(wire)
    if wire is not None and status not in _LATER and status != HTTPStatus.UNAUTHORIZED:
        text = f"answered with an error: {wire.message or 'no message'} ({wire.code}, HTTP status {status})"
        return ClientError("server_error", f"Server {server} {text}", server, outcome="failed", data=data)
    outcome: Sent = "outcome_unknown" if status in _MAYBE_RAN else "failed"
    fate = " The call may have taken effect." if outcome == "outcome_unknown" else ""
    if status == HTTPStatus.UNAUTHORIZED:
        fate = " Check its credentials."
    message = f"Server {server} answered with HTTP status {_named(status)}.{fate}"
    return ClientError("unavailable", message, server, outcome=outcome, retry_after=retry_after, data=data)


def is_unreachable(error: Exception) -> bool:
    """Whether a request never left, since no connection could be made."""
    return isinstance(error, httpx2.ConnectError | httpx2.ConnectTimeout | httpx2.PoolTimeout)


def transport_error(server: str, error: Exception) -> ClientError:
    """The error of a request whose exchange broke."""
    text = root_cause(error)
    if is_unreachable(error):
        return ClientError(
            "unavailable", f"Server {server} cannot be reached: {text}. Nothing was sent.", server, retry_after=1.0
        )
    return ClientError(
        "unavailable",
        f"Server {server} was lost while it worked: {text}. The call may have taken effect.",
        server,
        outcome="outcome_unknown",
        retry_after=1.0,
    )


def root_cause(error: BaseException) -> str:
    """What happened at the bottom of `error`, of which the layers above only tell that something did."""
    while True:
        if isinstance(error, BaseExceptionGroup):
            error = error.exceptions[0]
        elif (below := error.__cause__ or error.__context__) is not None:
            error = below
        else:
            text = str(error).rstrip(".")
            return _PLAINER.get(text, text) or type(error).__name__


def _named(status: int) -> str:
    try:
        return f"{status} ({HTTPStatus(status).phrase})"
    except ValueError:
        return str(status)
