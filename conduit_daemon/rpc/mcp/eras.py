"""The two eras of the protocol, and the one table of what a result must have, or must not, for a host of each.

In the older era (to 2025-11-25) a host shakes hands once; in the newer (2026-07-28) each request carries its
version and its host's capabilities in ``_meta``, and each result says of which type it is. The pipeline gives
results without ``resultType``, whatever the server's era; here they are made to fit the host's.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Final

import msgspec
from msgspec import UNSET, UnsetType

from conduit_daemon.rpc.protocol import Refused

__all__ = [
    "CAPABILITIES",
    "HANDSHAKE_VERSIONS",
    "MODERN_VERSIONS",
    "SERVER_INFO",
    "SUBSCRIPTION_ID",
    "fit",
    "is_modern",
    "meta_of",
]

HANDSHAKE_VERSIONS: Final = ("2024-11-05", "2025-03-26", "2025-06-18", "2025-11-25")
MODERN_VERSIONS: Final = ("2026-07-28",)

_PREFIX: Final = "io.modelcontextprotocol/"
_VERSION: Final = f"{_PREFIX}protocolVersion"
CAPABILITIES: Final = f"{_PREFIX}clientCapabilities"
SERVER_INFO: Final = f"{_PREFIX}serverInfo"
SUBSCRIPTION_ID: Final = f"{_PREFIX}subscriptionId"

_UNSUPPORTED_VERSION: Final = -32022
_TYPE: Final = {"resultType": msgspec.Raw(b'"complete"')}
_CACHED: Final = {**_TYPE, "ttlMs": msgspec.Raw(b"0"), "cacheScope": msgspec.Raw(b'"private"')}

_MODERN_MEMBERS: Final[Mapping[str, Mapping[str, msgspec.Raw]]] = {
    "completion/complete": _TYPE,
    "prompts/get": _TYPE,
    "prompts/list": _CACHED,
    "resources/list": _CACHED,
    "resources/read": _CACHED,
    "resources/templates/list": _CACHED,
    "server/discover": _CACHED,
    "subscriptions/listen": _TYPE,
    "tools/call": _TYPE,
    "tools/list": _CACHED,
}
"""By method: what its result has in the newer era, and what the older one does not know."""

_SPLICED: Final = {
    method: b"".join(b'"%b":%b,' % (key.encode(), bytes(value)) for key, value in members.items())
    for method, members in _MODERN_MEMBERS.items()
}
_SERVERS_OWN: Final = frozenset({"resources/read"})
"""Methods whose results a server writes with members of its own era beside ``resultType``."""


class _Meta(msgspec.Struct):
    meta: dict[str, Any] | UnsetType = msgspec.field(default=UNSET, name="_meta")


_decode_meta = msgspec.json.Decoder(_Meta).decode
_decode_members = msgspec.json.Decoder(dict[str, msgspec.Raw]).decode


def meta_of(params: msgspec.Raw) -> dict[str, Any]:
    """The ``_meta`` of a request's raw params; empty where there is none, or none that can be read."""
    if not len(params):
        return {}
    try:
        meta = _decode_meta(params).meta
    except (msgspec.MsgspecError, UnicodeDecodeError, RecursionError):
        return {}
    return {} if meta is UNSET else meta


def is_modern(meta: Mapping[str, Any]) -> bool:
    """Whether a request with this ``_meta`` is one of the newer era.

    Raises:
        Refused: -32022: it is of a version that is not spoken here; -32602: what it must carry is missing.
    """
    version = meta.get(_VERSION)
    if version is None:
        return False
    if version not in MODERN_VERSIONS:
        raise Refused(
            _UNSUPPORTED_VERSION,
            f"Protocol version {str(version)[:40]!r} is not spoken here; use {MODERN_VERSIONS[-1]}.",
            {"supported": list(MODERN_VERSIONS), "requested": version},
        )
    if not isinstance(meta.get(CAPABILITIES), dict):
        raise Refused(-32602, f"A request of {version} needs an object {CAPABILITIES!r} in its _meta.")
    return True


def fit(method: str, result: msgspec.Raw, *, modern: bool) -> msgspec.Raw:
    """A result as a host of its era takes it.

    Args:
        method: What it answers.
        result: A JSON object without ``resultType``.
        modern: Whether the host is of the newer era.

    Example:
        >>> bytes(fit("tools/call", msgspec.Raw(b'{"content":[]}'), modern=True))
        b'{"resultType":"complete","content":[]}'
    """
    if method in _SERVERS_OWN:
        members = _decode_members(result)
        missing = _MODERN_MEMBERS[method]
        if modern:
            return msgspec.Raw(msgspec.json.encode({**missing, **members, **_TYPE}))
        return msgspec.Raw(msgspec.json.encode({key: raw for key, raw in members.items() if key not in missing}))
    if not modern or method not in _SPLICED:
        return result
    rest = bytes(result)[1:].lstrip()
    spliced = _SPLICED[method]
    return msgspec.Raw(b"{" + (spliced[:-1] if rest == b"}" else spliced) + rest)
