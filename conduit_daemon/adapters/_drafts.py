"""Schemas of older drafts lifted to draft 2020-12, the one that providers expect (pure).

The migrations are those of the JSON Schema specification's release notes: ``definitions``, tuples as a list
of ``items``, boolean exclusive bounds, ``dependencies``, ``$recursiveRef``.
"""

from __future__ import annotations

from typing import Any, Final

from conduit_daemon.adapters._schema import Schema, map_children

__all__ = ["lifted"]

_TYPE_OF_ANNOTATION: Final[dict[str, type]] = {
    "$comment": str,
    "deprecated": bool,
    "description": str,
    "examples": list,
    "readOnly": bool,
    "title": str,
    "writeOnly": bool,
}


def lifted(schema: Schema) -> Schema:
    """A deep copy of `schema` in draft 2020-12, without ``$schema`` and without malformed annotations.

    Keywords that are null count as absent: servers that serialise empty fields send them so.
    """
    made: Schema = _lift(schema)
    return made


def _lift(node: Any) -> Any:
    if not isinstance(node, dict):
        return node
    given = {key: value for key, value in node.items() if value is not None or key in {"const", "default"}}
    schema = map_children(given, _lift)
    schema.pop("$schema", None)
    for key, kind in _TYPE_OF_ANNOTATION.items():
        if key in schema and not isinstance(schema[key], kind):
            del schema[key]
    if isinstance(schema.get("definitions"), dict):
        newer = schema.get("$defs")
        schema["$defs"] = {**schema.pop("definitions"), **(newer if isinstance(newer, dict) else {})}
    if schema.get("$recursiveRef") == "#":
        schema.setdefault("$ref", schema.pop("$recursiveRef"))
    _lift_tuple(schema)
    _lift_bound(schema, "minimum", "exclusiveMinimum")
    _lift_bound(schema, "maximum", "exclusiveMaximum")
    _lift_dependencies(schema)
    _lift_required(schema)
    if schema.get("type") == "any":
        del schema["type"]
    if schema.get("additionalProperties") == {"not": {}}:
        schema["additionalProperties"] = False
    return schema


def _lift_tuple(schema: Schema) -> None:
    rest = schema.pop("additionalItems", None)
    if isinstance(schema.get("items"), list):
        schema["prefixItems"] = schema.pop("items")
        if rest is not None:
            schema["items"] = rest
        if not schema["prefixItems"]:
            del schema["prefixItems"]


def _lift_bound(schema: Schema, bound: str, exclusive: str) -> None:
    if isinstance(schema.get(exclusive), bool):
        excludes = schema.pop(exclusive)
        if excludes and bound in schema:
            schema[exclusive] = schema.pop(bound)


def _lift_dependencies(schema: Schema) -> None:
    dependencies = schema.pop("dependencies", None)
    if not isinstance(dependencies, dict):
        return
    required: dict[str, Any] = {}
    schemas: dict[str, Any] = {}
    for name, needed in dependencies.items():
        if isinstance(needed, list | str):
            names = [needed] if isinstance(needed, str) else needed
            required[name] = names
        else:
            schemas[name] = _lift(needed)
    for key, lifted_part in (("dependentRequired", required), ("dependentSchemas", schemas)):
        newer = schema.get(key)
        if lifted_part and (newer is None or isinstance(newer, dict)):
            schema[key] = {**lifted_part, **(newer or {})}


def _lift_required(schema: Schema) -> None:
    required = schema.get("required")
    if isinstance(required, bool):  # draft 3: said of a property by the property itself
        del schema["required"]
    elif isinstance(required, list) and all(isinstance(name, str) for name in required):
        schema["required"] = list(dict.fromkeys(required))
