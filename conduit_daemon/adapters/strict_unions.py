"""Whether the branches of a oneOf exclude each other, so that it may be an anyOf (pure)."""

from __future__ import annotations

from itertools import combinations
from typing import Any

from conduit_daemon.adapters._merging import types_of
from conduit_daemon.adapters._schema import Schema

__all__ = ["disjoint", "distinct_values", "type_of_value"]


def disjoint(branches: list[Schema]) -> bool:
    """Whether no value satisfies two of these schemas, as far as types, values or a tag tell.

    A tag is a property that both objects require, with other values of a const or an enum in each.
    """
    return all(_exclude(one, other) for one, other in combinations(branches, 2))


def distinct_values(schema: Schema) -> list[Any]:
    """The values that an enum or a const leaves, each once; true is not 1."""
    values = schema.get("enum", [schema["const"]] if "const" in schema else [])
    if "enum" in schema and "const" in schema:
        values = [value for value in values if _key(value) == _key(schema["const"])]
    return list({_key(value): value for value in values}.values())


def type_of_value(value: Any) -> str:
    """The JSON type of a value; a number without a fraction is an integer."""
    if isinstance(value, bool):
        return "boolean"
    if isinstance(value, int) or (isinstance(value, float) and value.is_integer()):
        return "integer"
    names = {float: "number", str: "string", type(None): "null", list: "array", dict: "object"}
    return names[type(value)]


def _exclude(one: Schema, other: Schema) -> bool:
    if not _types(one) & _types(other):
        return True
    if _differ(one, other):
        return True
    left, right = one.get("properties", {}), other.get("properties", {})
    shared = set(one.get("required", [])) & set(other.get("required", [])) & left.keys() & right.keys()
    both_objects = _types(one) == _types(other) == {"object"}
    return both_objects and any(_differ(left[name], right[name]) for name in shared)


def _types(schema: Schema) -> set[str]:
    """The types a value of the schema may have, integers counted apart from other numbers."""
    for union in ("anyOf", "oneOf"):
        if union in schema:
            return set().union(*(_types(branch) for branch in schema[union]))
    values = distinct_values(schema)
    found = {type_of_value(value) for value in values} if values else set(types_of(schema))
    return found | {"integer"} if "number" in found and not values else found


def _differ(one: Schema, other: Schema) -> bool:
    left = {_key(value) for value in distinct_values(one)}
    right = {_key(value) for value in distinct_values(other)}
    return bool(left and right) and not left & right


def _key(value: Any) -> Any:
    """A hashable that is equal for equal JSON values only, of scalars; others compare by their text."""
    if isinstance(value, dict | list):
        return ("container", repr(value))
    return (isinstance(value, bool), value)
