"""Media in results: their base64, their size, and what the bytes really are."""

from __future__ import annotations

import binascii
from collections.abc import Mapping
from typing import Any, Final, Literal

import msgspec

from conduit_daemon.text.hygiene import clean_line

__all__ = ["Media", "decode", "media_of", "sniff"]

_SIGNATURES: Final = (
    (b"\x89PNG\r\n\x1a\n", "image/png"),
    (b"\xff\xd8\xff", "image/jpeg"),
    (b"GIF87a", "image/gif"),
    (b"GIF89a", "image/gif"),
    (b"%PDF-", "application/pdf"),
)


class Media(msgspec.Struct, frozen=True):
    """One block of a result that is not text.

    Attributes:
        kind: What the server calls it.
        placeholder: What stands for it in text, as ``[image: image/png, 1024 bytes]``.
        data: The base64, without white space; None where it is invalid.
        size: Decoded bytes; None where the base64 is invalid.
        actual: The type that the bytes have (`sniff`), whatever the server declares.
        declared: The type that the server declares, cleaned; None where it declares none.
        uri: The resource's, for a blob.
    """

    kind: Literal["image", "audio", "blob"]
    placeholder: str
    data: str | None
    size: int | None
    actual: str | None
    declared: str | None
    uri: str | None = None


def media_of(block: Mapping[str, Any]) -> Media | None:
    """The media that a content block holds: an image, an audio clip or a resource's blob; else None."""
    kind = block.get("type")
    if kind == "image" or kind == "audio":  # noqa: PLR1714 - mypy narrows to the literals by ==
        return _media(kind, block, "data", None)
    resource = block.get("resource")
    if kind == "resource" and isinstance(resource, dict) and "blob" in resource:
        uri = resource.get("uri")
        return _media("blob", resource, "blob", clean_line(uri) if isinstance(uri, str) else None)
    return None


def decode(data: Any) -> tuple[str, bytes] | None:
    """Base64 without its white space, and the bytes it stands for; None where it is invalid."""
    if not isinstance(data, str):
        return None
    try:
        raw = binascii.a2b_base64(data, strict_mode=True)
    except ValueError:
        data = "".join(data.split())  # as MIME wraps its lines
        try:
            raw = binascii.a2b_base64(data, strict_mode=True)
        except ValueError:
            return None
    return data, raw


def sniff(raw: bytes) -> str | None:
    """The media type that `raw` begins like: PNG, JPEG, GIF, WebP or PDF; None for anything else."""
    if raw[:4] == b"RIFF" and raw[8:12] == b"WEBP":
        return "image/webp"
    return next((mime for signature, mime in _SIGNATURES if raw.startswith(signature)), None)


def _media(kind: Literal["image", "audio", "blob"], holder: Mapping[str, Any], key: str, uri: str | None) -> Media:
    declared = holder.get("mimeType")
    mime = clean_line(declared) if isinstance(declared, str) and declared else None
    decoded = decode(holder.get(key))
    if decoded is None:
        data, size, actual, amount = None, None, None, "invalid data"
    else:
        data, raw = decoded
        size, actual, amount = len(raw), sniff(raw), f"{len(raw)} bytes"
    label = "resource" if kind == "blob" else kind
    parts = ", ".join(part for part in (uri, mime, amount) if part)
    return Media(kind, f"[{label}: {parts}]", data, size, actual, mime, uri)
