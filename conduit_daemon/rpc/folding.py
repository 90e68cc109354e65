"""Very large values made small enough to be shown to a person, with what is left out said in its place."""

from __future__ import annotations

from typing import Any, Final

import msgspec

__all__ = ["folded"]

_LARGEST: Final = 1 << 18
_LONGEST_TEXT: Final = 4096
_MOST_ITEMS: Final = 100
_DEEPEST: Final = 20


def folded(value: Any) -> Any:
    """`value` itself up to 256 KiB of JSON; else with long texts, long lists and deep branches cut.

    Example:
        >>> folded({"text": "x" * 300_000})["text"][-30:]
        'xxxxx… (295904 characters more)'[-30:]
    """
    if len(msgspec.json.encode(value)) <= _LARGEST:
        return value
    return _folded(value, _DEEPEST)


def _folded(value: Any, depth: int) -> Any:
    if isinstance(value, str):
        if len(value) <= _LONGEST_TEXT:
            return value
        return f"{value[:_LONGEST_TEXT]}… ({len(value) - _LONGEST_TEXT} characters more)"
    if isinstance(value, dict | list) and not depth:
        return f"… ({len(value)} items, too deep to be shown)"
    if isinstance(value, dict):
        shown = {_folded(key, depth): _folded(item, depth - 1) for key, item in list(value.items())[:_MOST_ITEMS]}
        if len(value) > _MOST_ITEMS:
            shown["…"] = f"({len(value) - _MOST_ITEMS} more)"
        return shown
    if isinstance(value, list):
        items = [_folded(item, depth - 1) for item in value[:_MOST_ITEMS]]
        return [*items, f"… ({len(value) - _MOST_ITEMS} more)"] if len(value) > _MOST_ITEMS else items
    return value
