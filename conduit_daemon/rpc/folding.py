"""Very large values made small enough to be shown to a person, with what is left out said in its place.

Who writes the value must not choose what is left out: what there is room for is shared out, so that no large member
crowds out the small ones after it, and of a text the end is kept as well as the beginning.
"""

from __future__ import annotations

from typing import Any, Final

import msgspec

__all__ = ["folded"]

_LONGEST_TEXT: Final = 4096
_TAIL: Final = 4
_DEEPEST: Final = 20
_LEAST: Final = 32
"""Bytes below which a member is not worth showing."""


def folded(value: Any, limit: int = 1 << 18) -> Any:
    """`value` itself where its JSON has at most `limit` bytes; else what fits in about so many.

    Example:
        >>> folded({"text": "x" * 300_000, "to": "ann"})["to"]
        'ann'
        >>> folded({"text": "x" * 300_000})["text"][3066:3106]
        'xxxxxx… (295904 characters more) …xxxxxx'
    """
    if len(msgspec.json.encode(value)) <= limit:
        return value
    return _fold(value, _DEEPEST, limit // 2)


def _fold(value: Any, depth: int, room: int) -> Any:
    if isinstance(value, str):
        return _text(value, room)
    if not isinstance(value, dict | list) or not value:
        return value
    if not depth or room < _LEAST:
        return f"… ({len(value)} items)"
    return _table(value, depth, room) if isinstance(value, dict) else _items(value, depth, room)


def _text(text: str, room: int) -> str:
    kept = min(_LONGEST_TEXT, max(room, 0))
    if len(text) <= kept:
        return text
    tail = kept // _TAIL
    return f"{text[: kept - tail]}… ({len(text) - kept} characters more) …{text[len(text) - tail :]}"


def _table(table: dict[str, Any], depth: int, room: int) -> dict[str, Any]:
    shown: dict[str, Any] = {}
    places = min(len(table), room // _LEAST)
    for place, (name, item) in enumerate(table.items()):
        if place == places:
            shown["…"] = f"({len(table) - places} more)"
            break
        share = max(0, room) // (places - place)
        key = _text(name, share // 2)
        if key in shown:  # names that differ only where they are cut
            key = f"{key} ({place})"
        shown[key] = _fold(item, depth - 1, share - len(key))
        room -= _size(key) + _size(shown[key])
    return shown


def _items(items: list[Any], depth: int, room: int) -> list[Any]:
    shown: list[Any] = []
    places = min(len(items), room // _LEAST)
    for place, item in enumerate(items):
        if place == places:
            shown.append(f"… ({len(items) - places} more)")
            break
        shown.append(_fold(item, depth - 1, max(0, room) // (places - place)))
        room -= _size(shown[-1])
    return shown


def _size(shown: Any) -> int:
    return len(msgspec.json.encode(shown)) + 1
