"""The RPC's messages: JSON-RPC 2.0, one a line, in and out.

Results are spliced into their answers as raw bytes: what a server wrote is not decoded again for that.
"""

from __future__ import annotations

from typing import Any, Final, Literal, TypeVar

import msgspec
from msgspec import UNSET, UnsetType

from conduit_daemon.errors import ClientError

__all__ = [
    "Answer",
    "Refused",
    "Request",
    "RequestId",
    "answer",
    "decode_answer",
    "decode_params",
    "decode_request",
    "error_answer",
    "failure",
    "notification",
    "request",
]

RequestId = int | str
NOTHING: Final = msgspec.Raw(b"")
P = TypeVar("P")


class Request(msgspec.Struct, frozen=True):
    """A request or, without an id, a notification.

    Attributes:
        method: What is asked.
        id: The caller's id of it; UNSET for a notification.
        params: The raw params; empty where there are none.
        jsonrpc: Always "2.0".
    """

    method: str
    id: RequestId | UnsetType = UNSET
    params: msgspec.Raw = NOTHING
    jsonrpc: Literal["2.0"] = "2.0"

    @property
    def number(self) -> RequestId:
        """The id of what is known to be a request."""
        assert not isinstance(self.id, UnsetType)  # noqa: S101 - a connection starts no notification
        return self.id


class Answer(msgspec.Struct, frozen=True):
    """The peer's answer to a request of ours.

    Attributes:
        id: Our id of the request; None where the peer could not tell.
        result: What it answered, or None.
        error: The error it answered with, or None.
    """

    id: RequestId | None = None
    result: Any = None
    error: dict[str, Any] | None = None


_decode = msgspec.json.Decoder(Request).decode
_encode = msgspec.json.Encoder().encode
_DECODERS: dict[type[Any], msgspec.json.Decoder[Any]] = {}


class Refused(Exception):
    """A line that is no request, or asks for what is not there; its parts go into the answer."""

    def __init__(self, code: int, message: str, data: dict[str, Any] | None = None) -> None:
        super().__init__(message)
        self.code = code
        self.data = data


def decode_request(line: bytes) -> Request:
    """The request of a line.

    Raises:
        Refused: -32700 where it is no JSON, -32600 where it is no request.
    """
    try:
        return _decode(line)
    except msgspec.ValidationError as error:
        raise Refused(-32600, f"This is no JSON-RPC 2.0 request: {error}") from None
    except (msgspec.DecodeError, UnicodeDecodeError, RecursionError) as error:
        raise Refused(-32700, f"This line is no valid JSON: {error}") from None


def decode_answer(line: bytes) -> Answer | None:
    """The answer in a line that is no request; None where it is no answer either."""
    try:
        message = msgspec.json.decode(line, type=dict[str, msgspec.Raw])
        if "method" in message or not ("result" in message or "error" in message):
            return None
        return msgspec.json.decode(line, type=Answer)
    except (msgspec.MsgspecError, UnicodeDecodeError, RecursionError):
        return None


def decode_params(raw: msgspec.Raw, kind: type[P]) -> P:
    """The params as a `kind`.

    Raises:
        ClientError: ``invalid_params``, naming what is wrong.
    """
    decoder = _DECODERS.get(kind)
    if decoder is None:
        decoder = _DECODERS[kind] = msgspec.json.Decoder(kind)
    try:
        params: P = decoder.decode(raw if len(raw) else b"{}")
    except (msgspec.MsgspecError, UnicodeDecodeError, RecursionError) as error:
        text = str(error).replace("Object contains unknown field", "Unknown parameter")
        text = text.replace("Object missing required field", "Missing parameter")
        raise ClientError("invalid_params", f"{text}.") from None
    return params


def answer(request_id: RequestId, result: Any) -> bytes:
    """The line that answers a request; a Raw result is taken as it is, anything else is encoded."""
    body = result if isinstance(result, msgspec.Raw) else _encode(result)
    return b"".join((b'{"jsonrpc":"2.0","id":', _encode(request_id), b',"result":', body, b"}\n"))


def failure(request_id: RequestId, error: ClientError) -> bytes:
    """The line that answers a request with a ClientError."""
    return error_answer(request_id, error.code, error.message, error.to_data())


def error_answer(request_id: RequestId | None, code: int, message: str, data: dict[str, Any] | None = None) -> bytes:
    """The line that answers with an error; `request_id` is None where the request could not be read."""
    error: dict[str, Any] = {"code": code, "message": message}
    if data is not None:
        error["data"] = data
    return _encode({"jsonrpc": "2.0", "id": request_id, "error": error}) + b"\n"


def request(request_id: RequestId, method: str, params: Any) -> bytes:
    """The line of a request of ours."""
    return _encode({"jsonrpc": "2.0", "id": request_id, "method": method, "params": params}) + b"\n"


def notification(method: str, params: Any = None) -> bytes:
    """The line of a notification; Raw params are taken as they are, None sends none."""
    message = {"jsonrpc": "2.0", "method": method}
    if params is not None:
        message["params"] = params
    return _encode(message) + b"\n"
