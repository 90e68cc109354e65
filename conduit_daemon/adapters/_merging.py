"""Several schemas as one that accepts at least what satisfies them all (pure)."""

from __future__ import annotations

from typing import Any, Final

from conduit_daemon.adapters._schema import Schema
from conduit_daemon.text import compact_json

__all__ = ["joined_versions", "merged", "types_of"]

_TYPES: Final = ("object", "array", "string", "number", "integer", "boolean", "null")


def merged(parts: list[Schema]) -> Schema:
    """One schema for ``allOf: parts``, without combining keyword.

    Properties and required names are united; properties on which the parts disagree become anyOf of
    their versions. Of other keywords that differ, the first part's stays.
    """
    made: Schema = {}
    for part in parts:
        for key, value in part.items():
            if key not in made:
                made[key] = value
            elif key == "properties" and isinstance(value, dict) and isinstance(made[key], dict):
                made[key] = _united([made[key], value])
            elif key == "required" and isinstance(value, list) and isinstance(made[key], list):
                made[key] = list(dict.fromkeys([*made[key], *value]))
            elif key in {"$defs", "patternProperties"} and isinstance(value, dict) and isinstance(made[key], dict):
                made[key] = {**value, **made[key]}
            elif key == "type":
                made[key] = _common_type(made[key], value)
            elif key == "additionalProperties" and value is False:
                made[key] = False
    return made


def joined_versions(versions: list[Any]) -> Any:
    """One schema that accepts what any of these accepts; equal ones count once."""
    # By their JSON, because in Python true equals 1.
    distinct = list({compact_json(version): version for version in versions}.values())
    return distinct[0] if len(distinct) == 1 else {"anyOf": distinct}


def types_of(schema: Any) -> frozenset[str]:
    """The JSON types that a schema's ``type`` leaves; all where it has none."""
    declared = schema.get("type") if isinstance(schema, dict) else None
    if isinstance(declared, str):
        return frozenset({declared})
    if isinstance(declared, list):
        return frozenset(name for name in declared if isinstance(name, str))
    return frozenset(_TYPES)


def _united(maps: list[dict[str, Any]]) -> dict[str, Any]:
    names = dict.fromkeys(name for properties in maps for name in properties)
    return {name: joined_versions([properties[name] for properties in maps if name in properties]) for name in names}


def _common_type(one: Any, other: Any) -> Any:
    left, right = types_of({"type": one}), types_of({"type": other})
    if "number" in left and "integer" in right:
        left |= {"integer"}
    if "number" in right and "integer" in left:
        right |= {"integer"}
    both = [name for name in _TYPES if name in left & right]
    if "number" in both and "integer" in both:
        both.remove("integer")
    if not both:
        return one
    return both[0] if len(both) == 1 else both
