"""What a client must see of a tool's raw result, and no more: whether it is one, and whether it reports a failure."""

from __future__ import annotations

from typing import Any

import msgspec
from msgspec import UNSET

from conduit_daemon.errors import ClientError

__all__ = ["InputRequest", "InputWanted", "inspect_result"]


class _Head(msgspec.Struct):
    isError: Any = False
    resultType: Any = UNSET


class InputRequest(msgspec.Struct, frozen=True):
    """One thing that a server wants before it goes on with a call."""

    method: str
    params: dict[str, Any] = {}


class InputWanted(Exception):
    """The answer to a call is no result yet: the server wants input first (2026-07-28).

    Attributes:
        requests: What it wants, by keys of its own.
        state: What it wants back with the answers, as it is; UNSET for nothing.
    """

    def __init__(self, requests: dict[str, InputRequest], state: Any) -> None:
        super().__init__()
        self.requests = requests
        self.state = state


class _Wanted(msgspec.Struct):
    inputRequests: dict[str, InputRequest] = {}
    requestState: Any = UNSET


_decode_wanted = msgspec.json.Decoder(_Wanted).decode
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
        InputWanted: The server asks for input before there is a result.
        ClientError: ``protocol``: it is no object, or of a type that is not known.
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
        raise _wanted(raw, server)
    raise _broken(server, f"answered with a result of the unknown type {str(head.resultType)[:40]!r}")


def _wanted(raw: msgspec.Raw, server: str) -> InputWanted | ClientError:
    try:
        wanted = _decode_wanted(raw)
    except (msgspec.MsgspecError, UnicodeDecodeError, RecursionError) as error:
        return _broken(server, f"asked for input in a way that cannot be read ({error})")
    if not wanted.inputRequests and wanted.requestState is UNSET:
        return _broken(server, "asked for input, and did not say for which")
    return InputWanted(wanted.inputRequests, wanted.requestState)


def _broken(server: str, what: str) -> ClientError:
    return ClientError(
        "protocol",
        f"Server {server} broke the protocol: it {what}. The call may have taken effect.",
        server,
        outcome="outcome_unknown",
    )
