"""One digest for one set of arguments, by which the audit and remembered approvals know them."""

from __future__ import annotations

import hashlib
import json
from typing import Any

import msgspec

__all__ = ["arguments_digest", "canonical_digest", "canonical_json"]


_ENCODER = msgspec.json.Encoder(order="sorted")


def canonical_json(value: Any) -> bytes:
    """`value` as JSON with sorted keys and no spaces: the same bytes for the same value.

    ``1`` and ``1.0`` are different values. msgspec.Raw in it counts as what it decodes to, so that spaces and
    the order of keys do not matter there either.

    Raises:
        TypeError: It has no JSON form.
        RecursionError: It is nested too deeply.
        ValueError: Raw JSON in it is malformed.
    """
    if isinstance(value, msgspec.Raw):
        value = msgspec.json.decode(value)
    try:
        return _ENCODER.encode(value)
    except UnicodeEncodeError:
        # A lone surrogate, which UTF-8 does not have; its escaped form is one that no valid text has.
        return json.dumps(value, sort_keys=True, separators=(",", ":")).encode()


def arguments_digest(arguments: Any) -> str:
    """The SHA-256 of the arguments' canonical JSON, as 64 hexadecimal digits.

    All of it: who chooses arguments could find two sets with the same first 16 digits within minutes, and
    have the one approved to run the other.

    Raises:
        TypeError: They have no JSON form.
        RecursionError: They are nested too deeply.
        ValueError: They are malformed raw JSON.

    Example:
        >>> arguments_digest({"b": 1, "a": 2}) == arguments_digest({"a": 2, "b": 1})
        True
    """
    return canonical_digest(canonical_json(arguments))


def canonical_digest(canonical: bytes) -> str:
    """The digest of what is canonical JSON already."""
    return hashlib.sha256(canonical).hexdigest()
