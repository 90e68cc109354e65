"""What a client must see of a tool's raw result, and no more: whether it is one, and whether it reports a failure."""

from __future__ import annotations

from typing import Any

import msgspec
from msgspec import UNSET

from conduit_daemon.errors import ClientError

__all__ = ["inspect_result"]


class _Head(msgspec.Struct):
    isError: Any = False
    resultType: Any = UNSET


_decode_head = msgspec.json.Decoder(_Head).decode
_decode_members = msgspec.json.Decoder(dict[str, msgspec.Raw]).decode


def inspect_result(raw: msgspec.Raw, server: str) -> tuple[msgspec.Raw, bool]:
    """Looks at a CallToolResult without decoding its content.

    Args:
        raw: The result as the server wrote it, valid JSON.
        server: The server's id, for messages.

    Returns:
        The result without ``resultType`` (which only 2026-07-28 has), and whether the tool reports a failure.

    Raises:
        ClientError: ``protocol``: it is no object, or asks for input that nobody can give.
    """
    try:
        head = _decode_head(raw)
    except (msgspec.MsgspecError, UnicodeDecodeError, RecursionError) as error:
        raise _broken(server, f"answered a call with what is no result ({error})") from None
    if head.resultType is UNSET:
        return raw, head.isError is True
    if head.resultType == "complete":
        members = _decode_members(raw)
        del members["resultType"]
        return msgspec.Raw(msgspec.json.encode(members)), head.isError is True
    if head.resultType == "input_required":
        raise _broken(server, "asked for input, which was not offered to it")
    raise _broken(server, f"answered with a result of the unknown type {str(head.resultType)[:40]!r}")


def _broken(server: str, what: str) -> ClientError:
    return ClientError(
        "protocol",
        f"Server {server} broke the protocol: it {what}. The call may have taken effect.",
        server,
        outcome="outcome_unknown",
    )
