"""Tables as TOML text (toml.io, 1.0): one table after the other, what is nested in them inline."""

from __future__ import annotations

import json
import re
from collections.abc import Mapping, Sequence
from typing import Any, Final

__all__ = ["dotted_key", "table"]

_BARE: Final = re.compile(r"[A-Za-z0-9_-]+")
_SURROGATE: Final = re.compile("[\ud800-\udfff]")


def table(path: Sequence[str], values: Mapping[str, Any]) -> str:
    """A table with its header.

    Args:
        path: The table's own path, as ``("servers", "files")``.
        values: Texts, numbers, truth values, lists and mappings of them; what is None is left out.

    Example:
        >>> print(table(("servers", "a b"), {"command": "x", "env": {"A": "1"}}), end="")
        [servers."a b"]
        command = "x"
        env = { A = "1" }
    """
    lines = [f"{_key(name)} = {_value(value)}\n" for name, value in values.items() if value is not None]
    return "".join((f"[{dotted_key(path)}]\n", *lines))


def dotted_key(path: Sequence[str]) -> str:
    """A path as TOML writes it, its parts quoted where they must be."""
    return ".".join(map(_key, path))


def _key(name: str) -> str:
    return name if _BARE.fullmatch(name) else _text(name)


def _value(value: Any) -> str:
    if isinstance(value, bool):
        return "true" if value else "false"
    if isinstance(value, str):
        return _text(value)
    if isinstance(value, Mapping):
        inner = ", ".join(f"{_key(name)} = {_value(item)}" for name, item in value.items() if item is not None)
        return f"{{ {inner} }}" if inner else "{}"
    if isinstance(value, Sequence):
        return f"[{', '.join(_value(item) for item in value if item is not None)}]"
    return repr(value)


def _text(text: str) -> str:
    # A basic string has JSON's escapes, but no lone surrogates, and DEL must be escaped too.
    return json.dumps(_SURROGATE.sub("\ufffd", text), ensure_ascii=False).replace("\x7f", "\\u007f")
