"""From the plain data of a file to the Structs of the model, with every mistake noted on the way.

msgspec's own conversion ends at the first mistake; people want all of them. The types and bounds are the
model's annotations, read once.
"""

from __future__ import annotations

import math
import re
from collections.abc import Callable, Mapping
from functools import cache
from pathlib import Path
from types import NoneType, UnionType
from typing import Annotated, Any, Final, Literal, Union, get_args, get_origin, get_type_hints

import msgspec

from conduit_daemon.config.report import KeyPath, Report, nearest

__all__ = ["INVALID", "Decoder"]

INVALID: Final = object()
"""Stands for a value that has been reported as wrong."""

Check = Callable[[Any, KeyPath, Report], None]

_DEEPEST: Final = 100
_SIZE: Final = re.compile(r"(\d{1,15}(?:\.\d{1,6})?) *(?:([KMG])(i)?)?B", re.IGNORECASE)
_POWERS: Final = {"": 0, "K": 1, "M": 2, "G": 3}
_MODE: Final = re.compile(r"(?:0o?)?([0-7]{1,4})")
_UNUSABLE: Final = re.compile("[\x00\ud800-\udfff]")
_KINDS: Final[tuple[tuple[type, str], ...]] = (
    (bool, "true or false"),
    (int, "a whole number"),
    (float, "a number"),
    (str, "text"),
    (list, "a list"),
    (dict, "a table"),
    (NoneType, "null"),
)


class Decoder:
    """Decodes the data of one configuration.

    Args:
        report: Takes the problems.
        text: Resolves the references in a text; None where that failed and was reported.
        path: Makes a path absolute.
        checks: Called with each whole Struct of a type, to note what types cannot say.
    """

    def __init__(
        self,
        report: Report,
        text: Callable[[str, KeyPath], str | None],
        path: Callable[[str], Path],
        checks: Mapping[type, Check],
    ) -> None:
        self._report = report
        self._text = text
        self._path = path
        self._checks = checks

    def decode(self, raw: Any, kind: Any, path: KeyPath = ()) -> Any:
        """`raw` as a value of the type `kind`, or INVALID after at least one problem was reported."""
        origin = get_origin(kind)
        if origin is Annotated:
            return self._annotated(raw, kind, path)
        if origin in {Union, UnionType}:
            return self.decode(raw, next(option for option in get_args(kind) if option is not NoneType), path)
        if origin is Literal:
            return self._choice(raw, get_args(kind), path)
        if origin is tuple:
            return self._list(raw, get_args(kind)[0], path)
        if origin is dict:
            return self._table(raw, get_args(kind)[1], path)
        if kind is Any:
            return self._any(raw, path)
        if issubclass(kind, msgspec.Struct):
            return self._struct(raw, kind, path)
        return self._scalar(raw, kind, path)

    def _struct(self, raw: Any, kind: type[msgspec.Struct], path: KeyPath) -> Any:
        if not isinstance(raw, dict):
            return self._expected("a table", raw, path)
        types, required = _fields(kind)
        values: dict[str, Any] = {}
        whole = True
        for name, value in raw.items():
            here = (*path, name)
            if name not in types:
                whole = False
                self._report.problem(here, f"unknown key; expected one of {_listed(types)}", nearest(name, types))
                continue
            values[name] = self.decode(value, types[name], here)
        for name in required:
            if name not in raw:
                whole = False
                self._report.problem((*path, name), f"is missing; expected {_expectation(types[name])}")
        if not whole or any(value is INVALID for value in values.values()):
            return INVALID
        decoded = kind(**values)
        check = self._checks.get(kind)
        if check is not None:
            check(decoded, path, self._report)
        return decoded

    def _table(self, raw: Any, kind: Any, path: KeyPath) -> Any:
        if not isinstance(raw, dict):
            return self._expected("a table", raw, path)
        values = {}
        for name, value in raw.items():
            here = (*path, name)
            if _UNUSABLE.search(name):
                self._report.problem(here, "the key holds a character that no text can have")
                values[name] = INVALID
            else:
                values[name] = self.decode(value, kind, here)
        return INVALID if any(value is INVALID for value in values.values()) else values

    def _list(self, raw: Any, kind: Any, path: KeyPath) -> Any:
        if not isinstance(raw, list):
            return self._expected("a list, as [...]", raw, path)
        values = [self.decode(value, kind, (*path, index)) for index, value in enumerate(raw)]
        return INVALID if any(value is INVALID for value in values) else tuple(values)

    def _choice(self, raw: Any, options: tuple[str, ...], path: KeyPath) -> Any:
        expected = "one of " + ", ".join(f'"{option}"' for option in options)
        if not isinstance(raw, str):
            return self._expected(expected, raw, path)
        text = self._text(raw, path)
        if text is None or text in options:
            return INVALID if text is None else text
        self._report.problem(path, f"expected {expected}", nearest(raw, options))
        return INVALID

    def _annotated(self, raw: Any, kind: Any, path: KeyPath) -> Any:
        inner, *notes = get_args(kind)
        meta = next(note for note in notes if isinstance(note, msgspec.Meta))
        form = (meta.extra or {}).get("form")
        if form == "program":
            name = self.decode(raw, str, path)
            return name if name is INVALID or "/" not in name else str(self._path(name))
        if form is not None and isinstance(raw, str):
            text = self._text(raw, path)
            if text is None:
                return INVALID
            raw = _parse_form(form, text)
            if raw is None:
                self._report.problem(path, f"expected {_expectation(kind)}")
                return INVALID
        value: Any = self.decode(raw, inner, path)
        if value is not INVALID and (bounds := _broken_bound(value, meta)):
            self._report.problem(path, f"must be {bounds}")
            return INVALID
        return value

    def _scalar(self, raw: Any, kind: type, path: KeyPath) -> Any:
        if kind is str or kind is Path:
            if not isinstance(raw, str):
                return self._expected("a path" if kind is Path else "text", raw, path)
            text = self._text(raw, path)
            if text is None:
                return INVALID
            if _UNUSABLE.search(text):
                self._report.problem(path, "holds a character that no text can have (NUL, or half of a pair)")
                return INVALID
            if kind is str:
                return text
            if text:
                return self._path(text)
            return self._expected("a path", None, path, "empty text")
        if kind is bool:
            return raw if isinstance(raw, bool) else self._expected("true or false", raw, path)
        if isinstance(raw, bool) or not isinstance(raw, int if kind is int else int | float):
            return self._expected(_expectation(kind), raw, path)
        if kind is float and (abs(raw) > 1e300 or not math.isfinite(raw)):
            return self._expected("a finite number", raw, path, "one without end")
        return kind(raw)

    def _any(self, raw: Any, path: KeyPath, depth: int = 0) -> Any:
        if depth > _DEEPEST:
            self._report.problem(path[:8], f"nested deeper than {_DEEPEST} levels")
            return INVALID
        children: list[tuple[str | int, Any]] = []
        if isinstance(raw, dict):
            children = list(raw.items())
        elif isinstance(raw, list):
            children = list(enumerate(raw))
        elif isinstance(raw, float) and not math.isfinite(raw):
            return self._expected("a finite number", raw, path)
        elif raw is not None and not isinstance(raw, str | int | float):
            return self._expected("text, a number, true, false, a list or a table", raw, path)
        for name, value in children:
            if self._any(value, (*path, name), depth + 1) is INVALID:
                return INVALID
        return raw

    def _expected(self, what: str, raw: Any, path: KeyPath, found: str | None = None) -> Any:
        self._report.problem(path, f"expected {what}, found {found or _kind_of(raw)}")
        return INVALID


@cache
def _fields(kind: type[msgspec.Struct]) -> tuple[dict[str, Any], tuple[str, ...]]:
    types = get_type_hints(kind, include_extras=True)
    return types, tuple(field.name for field in msgspec.structs.fields(kind) if field.required)


def _parse_form(form: str, text: str) -> int | None:
    if form == "mode":
        octal = _MODE.fullmatch(text)
        return int(octal[1], 8) if octal else None
    size = _SIZE.fullmatch(text)
    if not size:
        return None
    return int(float(size[1]) * (1024 if size[3] else 1000) ** _POWERS[(size[2] or "").upper()])


def _broken_bound(value: float, meta: msgspec.Meta) -> str | None:
    if meta.gt is not None and not value > meta.gt:
        return f"more than {meta.gt}"
    if meta.ge is not None and not value >= meta.ge:
        return f"at least {meta.ge}"
    if meta.le is not None and not value <= meta.le:
        return f"at most {meta.le}"
    return None


def _expectation(kind: Any) -> str:
    origin = get_origin(kind)
    if origin is Annotated:
        inner, *notes = get_args(kind)
        form = next((note.extra["form"] for note in notes if isinstance(note, msgspec.Meta) and note.extra), None)
        return {"size": 'a size such as "64MiB"', "mode": 'permissions such as "0660"'}.get(form or "", "") or (
            _expectation(inner)
        )
    if origin is Literal:
        return "one of " + ", ".join(f'"{option}"' for option in get_args(kind))
    return {str: "text", int: "a whole number", float: "a number"}.get(kind, "a value")


def _kind_of(raw: Any) -> str:
    return next((name for kind, name in _KINDS if isinstance(raw, kind)), "a date or time")


def _listed(names: Mapping[str, Any]) -> str:
    return ", ".join(names)
