"""A tool's arguments as people type them: ``'{"a": 1}'``, ``a=text``, ``b:=1``."""

from __future__ import annotations

import re
from collections.abc import Sequence
from typing import Any

import msgspec

from conduit_daemon.cli.exits import UsageError

__all__ = ["parse_arguments"]

_PAIR = re.compile(r"([^=:]+)(:=|=)(.*)", re.DOTALL)


def parse_arguments(words: Sequence[str]) -> dict[str, Any]:
    """The arguments that `words` say.

    Args:
        words: Each a JSON object, ``name=text`` or ``name:=JSON``.

    Raises:
        UsageError: A word is none of these, its JSON is wrong, or a name is given twice.
    """
    arguments: dict[str, Any] = {}
    for word in words:
        for name, value in _read(word).items():
            if name in arguments:
                raise UsageError(f"The argument {name!r} is given twice.")
            arguments[name] = value
    return arguments


def _read(word: str) -> dict[str, Any]:
    if word.lstrip().startswith("{"):
        value = _json(word, "The arguments")
        return dict(value)
    match = _PAIR.fullmatch(word)
    if match is None:
        raise UsageError(f"{word!r} is no argument; give a JSON object, name=text or name:=JSON.")
    name, sign, text = match.groups()
    return {name: text if sign == "=" else _json(text, f"The value of {name!r}")}


def _json(text: str, what: str) -> Any:
    try:
        return msgspec.json.decode(text)
    except (msgspec.DecodeError, UnicodeEncodeError, RecursionError) as error:
        raise UsageError(f"{what} cannot be read as JSON: {error}.") from error
