"""JSON-RPC messages as Structs whose params, results and errors stay undecoded bytes. Pure."""

from __future__ import annotations

from typing import Any, Final

import msgspec

__all__ = [
    "NOTHING",
    "UNDECODABLE",
    "Incoming",
    "WireError",
    "decode",
    "decode_error",
    "decode_progress_token",
    "encode",
    "encode_request",
]

NOTHING: Final = msgspec.Raw(b"")  # msgspec takes `Raw | None` for None alone, so absence is an empty Raw

UNDECODABLE: Final = (msgspec.MsgspecError, UnicodeDecodeError, RecursionError)
"""What decoding a server's JSON can raise."""


class _Request(msgspec.Struct, omit_defaults=True):
    id: int | str
    method: str
    params: Any = None
    jsonrpc: str = msgspec.field(default="")


class Incoming(msgspec.Struct):
    """Any message of a server's; which kind it is shows in what is absent."""

    id: int | str | None = None
    method: str | None = None
    params: msgspec.Raw = NOTHING
    result: msgspec.Raw = NOTHING
    error: msgspec.Raw = NOTHING


class WireError(msgspec.Struct, omit_defaults=True):
    """The error of a JSON-RPC answer."""

    code: int
    message: str = ""
    data: Any = None


class _Progress(msgspec.Struct):
    progressToken: int | str


_encode_into = msgspec.json.Encoder().encode_into
_decode_progress = msgspec.json.Decoder(_Progress).decode

decode = msgspec.json.Decoder(Incoming).decode
decode_error = msgspec.json.Decoder(WireError).decode


def decode_progress_token(params: msgspec.Raw) -> int | str | None:
    """Which request a progress notification is about; None where it is malformed."""
    try:
        return _decode_progress(params).progressToken
    except UNDECODABLE:
        return None


def encode_request(request_id: int | str, method: str, params: Any) -> bytearray:
    """A request; params of None are left out."""
    body = bytearray()
    _encode_into(_Request(request_id, method, params, "2.0"), body)
    return body


def encode(**members: Any) -> bytearray:
    """Any other message, of the members that are not None."""
    body = bytearray()
    _encode_into({"jsonrpc": "2.0", **{key: value for key, value in members.items() if value is not None}}, body)
    return body
