"""The text of a schema made fit for a model, without altering what the schema means (pure)."""

from __future__ import annotations

from typing import Any, Final

from conduit_daemon.adapters._schema import LISTS_OF_SCHEMAS, MAPS_OF_SCHEMAS, SCHEMAS, Schema, Unusable, map_children
from conduit_daemon.text import clean, clean_description, clean_json, is_clean

__all__ = ["clean_schema"]

_PROSE: Final = frozenset({"$comment", "description", "title"})
_LITERAL: Final = frozenset(
    {
        "$anchor",
        "$dynamicAnchor",
        "$dynamicRef",
        "$id",
        "$ref",
        "const",
        "contentEncoding",
        "contentMediaType",
        "dependencies",
        "dependentRequired",
        "enum",
        "format",
        "pattern",
        "required",
        "type",
    }
)


def clean_schema(schema: Schema, max_chars: int | None = None) -> Schema:
    """A deep copy of a lifted schema whose annotations are cleaned, descriptions and titles capped too.

    Args:
        schema: In draft 2020-12.
        max_chars: The most characters that a description may have.

    Raises:
        Unusable: ``hidden_characters``: there are some in a property's key, an enum, a const or a
            pattern, which must not be altered.
    """

    def visit(node: Any) -> Any:
        if not isinstance(node, dict):
            return clean_json(node)
        cleaned: Schema = {}
        for key, value in map_children(node, visit).items():
            if key in _PROSE and isinstance(value, str):
                cleaned[key] = clean_description(value, max_chars)
            elif key in _LITERAL:
                _refuse_hidden(value, key)
                cleaned[key] = value
            elif key in MAPS_OF_SCHEMAS and isinstance(value, dict):
                for name in value:
                    _refuse_hidden(name, f"a key of {key}")
                cleaned[key] = value
            elif key in SCHEMAS or (key in LISTS_OF_SCHEMAS and isinstance(value, list)):
                cleaned[key] = value
            else:
                cleaned[clean(key)] = clean_json(value)
        return cleaned

    made: Schema = visit(schema)
    return made


def _refuse_hidden(value: Any, where: str) -> None:
    if isinstance(value, str):
        if not is_clean(value):
            raise Unusable(f"hidden_characters: {where} holds {value[:80]!a}")
    elif isinstance(value, dict):
        for key, child in value.items():
            _refuse_hidden(key, where)
            _refuse_hidden(child, where)
    elif isinstance(value, list):
        for child in value:
            _refuse_hidden(child, where)
