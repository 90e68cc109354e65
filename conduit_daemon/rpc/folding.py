"""Very large values made small enough to be shown to a person, with what is left out said in its place."""

from __future__ import annotations

from typing import Any, Final, final

import msgspec

__all__ = ["folded"]

_LONGEST_TEXT: Final = 4096
_DEEPEST: Final = 20
_SCALAR: Final = 16


def folded(value: Any, limit: int = 1 << 18) -> Any:
    """`value` itself where its JSON has at most `limit` bytes; else what fits in about so many.

    Example:
        >>> folded({"text": "x" * 300_000})["text"][-30:]
        'xxxxxx… (295904 characters more)'[-30:]
    """
    if len(msgspec.json.encode(value)) <= limit:
        return value
    return _Folding(limit // 2).fold(value, _DEEPEST)


@final
class _Folding:
    """Takes of a value what there is room for, from its beginning."""

    def __init__(self, room: int) -> None:
        self._room = room

    def fold(self, value: Any, depth: int) -> Any:
        if isinstance(value, str):
            return self._text(value)
        if isinstance(value, dict | list) and value and (not depth or self._room <= 0):
            return f"… ({len(value)} items)"
        if isinstance(value, dict):
            return self._table(value, depth)
        if isinstance(value, list):
            return self._items(value, depth)
        self._room -= _SCALAR
        return value

    def _text(self, text: str) -> str:
        kept = min(_LONGEST_TEXT, max(self._room, 0))
        self._room -= min(len(text), kept) + _SCALAR
        return text if len(text) <= kept else f"{text[:kept]}… ({len(text) - kept} characters more)"

    def _table(self, table: dict[str, Any], depth: int) -> dict[str, Any]:
        shown: dict[str, Any] = {}
        for place, (key, item) in enumerate(table.items()):
            if self._room <= 0:
                shown["…"] = f"({len(table) - place} more)"
                break
            shown[self._text(key)] = self.fold(item, depth - 1)
        return shown

    def _items(self, items: list[Any], depth: int) -> list[Any]:
        shown: list[Any] = []
        for place, item in enumerate(items):
            if self._room <= 0:
                shown.append(f"… ({len(items) - place} more)")
                break
            shown.append(self.fold(item, depth - 1))
        return shown
