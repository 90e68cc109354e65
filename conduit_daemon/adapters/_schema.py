"""JSON Schemas as data: which keywords hold schemas, and walks over them (pure)."""

from __future__ import annotations

import copy
from collections.abc import Callable, Iterator
from typing import Any, Final

__all__ = ["LISTS_OF_SCHEMAS", "MAPS_OF_SCHEMAS", "SCHEMAS", "Schema", "Unusable", "children", "map_children"]

Schema = dict[str, Any]

SCHEMAS: Final = frozenset(
    {
        "additionalItems",
        "additionalProperties",
        "contains",
        "contentSchema",
        "else",
        "if",
        "items",
        "not",
        "propertyNames",
        "then",
        "unevaluatedItems",
        "unevaluatedProperties",
    }
)
LISTS_OF_SCHEMAS: Final = frozenset({"allOf", "anyOf", "items", "oneOf", "prefixItems"})
"""``items`` is one schema in current drafts and was a list in older ones."""
MAPS_OF_SCHEMAS: Final = frozenset({"$defs", "definitions", "dependentSchemas", "patternProperties", "properties"})


class Unusable(Exception):
    """A tool that a provider cannot take.

    Attributes:
        reason: A stable word, with detail after a colon.
    """

    def __init__(self, reason: str) -> None:
        super().__init__(reason)
        self.reason = reason


def map_children(schema: Schema, change: Callable[[Any], Any]) -> Schema:
    """A copy of `schema` in which each schema directly inside it is what `change` makes of it.

    `change` is given what stands where a schema should: a dict, a bool, or (in an invalid schema) anything.
    """
    made: Schema = {}
    for key, value in schema.items():
        if isinstance(value, list) and key in LISTS_OF_SCHEMAS:
            made[key] = [change(child) for child in value]
        elif key in SCHEMAS:
            made[key] = change(value)
        elif isinstance(value, dict) and key in MAPS_OF_SCHEMAS:
            made[key] = {name: change(child) for name, child in value.items()}
        elif isinstance(value, dict | list):
            made[key] = copy.deepcopy(value)
        else:
            made[key] = value
    return made


def children(schema: Schema) -> Iterator[Schema]:
    """The dict schemas directly inside `schema`."""
    for key, value in schema.items():
        if isinstance(value, list) and key in LISTS_OF_SCHEMAS:
            found = value
        elif key in SCHEMAS:
            found = [value]
        elif isinstance(value, dict) and key in MAPS_OF_SCHEMAS:
            found = list(value.values())
        else:
            continue
        yield from (child for child in found if isinstance(child, dict))
