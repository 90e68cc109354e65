"""The sizes beyond which OpenAI refuses a strict schema (pure)."""

from __future__ import annotations

from typing import Any, Final

from conduit_daemon.adapters._schema import Schema, children
from conduit_daemon.adapters.strict_inline import Fallback

__all__ = ["check_limits"]

_PROPERTIES: Final = 5_000
_DEPTH: Final = 10
_CHARACTERS: Final = 120_000
_ENUM_VALUES: Final = 1_000
_LARGE_ENUM: Final = 250
_LARGE_ENUM_CHARACTERS: Final = 15_000


def check_limits(schema: Schema) -> None:
    """Refuse a strict schema over the limits of the API.

    Depth counts objects and arrays within each other, the root included.

    Raises:
        Fallback: ``limits``, and which.
    """
    properties = characters = values = 0
    level: list[tuple[Schema, int]] = [(schema, 1)]
    while level:
        node, depth = level.pop()
        if depth > _DEPTH:
            raise Fallback(f"limits: nested deeper than {_DEPTH}")
        names = node.get("properties", {})
        properties += len(names)
        characters += sum(map(len, names))
        enum = node.get("enum", [])
        values += len(enum)
        size = sum(len(_as_text(value)) for value in enum)
        characters += size
        if len(enum) > _LARGE_ENUM and node.get("type") == "string" and size > _LARGE_ENUM_CHARACTERS:
            raise Fallback(f"limits: an enum of {len(enum)} values has over {_LARGE_ENUM_CHARACTERS:,} characters")
        is_container = "properties" in node or "items" in node
        level.extend((child, depth + (is_container and _is_container(child))) for child in children(node))
    if properties > _PROPERTIES:
        raise Fallback(f"limits: more than {_PROPERTIES:,} properties")
    if characters > _CHARACTERS:
        raise Fallback(f"limits: more than {_CHARACTERS:,} characters of names and values")
    if values > _ENUM_VALUES:
        raise Fallback(f"limits: more than {_ENUM_VALUES:,} enum values")


def _as_text(value: Any) -> str:
    return value if isinstance(value, str) else str(value)


def _is_container(schema: Schema) -> bool:
    """Whether it is, or may be, an object or an array; a union of such is one level, not two."""
    if "anyOf" in schema:
        return any(_is_container(branch) for branch in schema["anyOf"])
    return schema.get("type") in ("object", "array")
