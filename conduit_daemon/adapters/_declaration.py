"""What all providers' tool definitions have in common: one schema made ready, and what cannot be (pure)."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable, Iterator
from typing import Any, Final, TypeVar

import jsonschema_rs

from conduit_daemon.adapters._drafts import lifted
from conduit_daemon.adapters._hygiene import clean_schema
from conduit_daemon.adapters._merging import types_of
from conduit_daemon.adapters._references import localised, unref_root
from conduit_daemon.adapters._schema import Schema, Unusable, children
from conduit_daemon.hub.toolset import Entry, ToolSet
from conduit_daemon.model import Dropped
from conduit_daemon.text import clean_description

__all__ = ["PORTABLE_KEY", "check_keys", "check_valid", "convert_all", "described", "object_schema", "refusal"]

PORTABLE_KEY: Final = re.compile(r"[a-zA-Z0-9_.-]{1,64}")

_Made = TypeVar("_Made")


def convert_all(toolset: ToolSet, convert: Callable[[Entry], _Made]) -> tuple[list[_Made], tuple[Dropped, ...]]:
    """Each entry converted, in the toolset's order, and a report of those that cannot be."""
    made: list[_Made] = []
    dropped: list[Dropped] = []
    for entry in toolset:
        try:
            made.append(_guarded(entry, convert))
        except Unusable as error:
            dropped.append(Dropped(entry.exposed, ((entry.server_id, entry.tool.name),), error.reason))
    return made, tuple(dropped)


def refusal(entry: Entry, convert: Callable[[Entry], object]) -> str | None:
    """Why `convert` cannot take this entry; None where it can."""
    try:
        _guarded(entry, convert)
    except Unusable as error:
        return error.reason
    return None


def object_schema(entry: Entry, max_chars: int | None) -> Schema:
    """The entry's input schema in draft 2020-12, cleaned, its references local, its root an object.

    Raises:
        Unusable: It holds hidden characters where none may be altered, or no object satisfies it.
    """
    schema = unref_root(localised(clean_schema(lifted(entry.tool.input_schema), max_chars)))
    if "object" not in types_of(schema):
        raise Unusable("invalid_schema: the root is no object, but arguments always are one")
    return {"type": "object", "properties": {}, **schema} | {"type": "object"}


def described(entry: Entry, max_chars: int | None, notes: Iterable[str] = ()) -> str | None:
    """The entry's description with `notes` after it, cleaned and capped; None where that is blank."""
    parts = [entry.tool.description or "", *notes]
    text = clean_description("\n\n".join(part for part in parts if part.strip()), max_chars)
    return text if text.strip() else None


def check_valid(schema: Schema) -> Schema:
    """The schema itself, if it is a valid one of draft 2020-12.

    Raises:
        Unusable: ``invalid_schema``, and where.
    """
    try:
        jsonschema_rs.meta.validate({**schema, "$schema": "https://json-schema.org/draft/2020-12/schema"})
    except jsonschema_rs.ValidationError as error:
        where = "/".join(str(step) for step in error.instance_path) or "its root"
        raise Unusable(f"invalid_schema: {error.message} at {where}") from None
    return schema


def check_keys(schema: Schema) -> Schema:
    """The schema itself, if all properties' keys at any depth match ``^[a-zA-Z0-9_.-]{1,64}$``.

    Raises:
        Unusable: ``invalid_property_key``, and which.
    """
    for key in _property_keys(schema):
        if not PORTABLE_KEY.fullmatch(key):
            raise Unusable(f"invalid_property_key: {key[:80]!a}")
    return schema


def _guarded(entry: Entry, convert: Callable[[Entry], _Made]) -> _Made:
    try:
        return convert(entry)
    except RecursionError:
        raise Unusable("invalid_schema: it is nested too deeply") from None


def _property_keys(schema: Schema) -> Iterator[str]:
    waiting: list[Any] = [schema]
    while waiting:
        node = waiting.pop()
        properties = node.get("properties")
        yield from properties if isinstance(properties, dict) else ()
        waiting.extend(children(node))
