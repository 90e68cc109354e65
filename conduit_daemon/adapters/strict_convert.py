"""A tree of schemas turned into OpenAI's strict subset, with the paths of the nulls it adds (pure)."""

from __future__ import annotations

import re
from typing import Any, Final

import jsonschema_rs

from conduit_daemon.adapters._schema import Schema
from conduit_daemon.adapters.strict_inline import HARD, SOFT, Fallback
from conduit_daemon.adapters.strict_unions import disjoint, distinct_values, type_of_value
from conduit_daemon.text import clean_description, compact_json

__all__ = ["StrictConversion"]

_Path = tuple[str | None, ...]

_ANNOTATIONS: Final = frozenset({"default", "description", "title"})
_UNSUPPORTED: Final = (
    "patternProperties",
    "propertyNames",
    "not",
    "if",
    "dependentRequired",
    "dependentSchemas",
    "unevaluatedItems",
    "unevaluatedProperties",
    "$dynamicRef",
    "$recursiveRef",
)
_FORMATS: Final = frozenset({"date-time", "time", "date", "duration", "email", "hostname", "ipv4", "ipv6", "uuid"})
# Not regular, so that no grammar can be made of them.
_NOT_REGULAR: Final = re.compile(r"\(\?<?[=!]|\\[1-9]|\\k<")

_SOMETIMES: Final = ("format", "pattern")
"""What strict mode takes of some values."""
_NUMERIC: Final = ("multipleOf", "minimum", "maximum", "exclusiveMinimum", "exclusiveMaximum")
_OWN: Final[dict[str, tuple[str, ...]]] = {
    "object": ("properties", "required", "additionalProperties"),
    "array": ("items", "minItems", "maxItems"),
    "string": ("pattern", "format"),
    "number": _NUMERIC,
    "integer": _NUMERIC,
    "boolean": (),
    "null": (),
}
_SCALARS: Final = frozenset({"string", "number", "integer", "boolean"})
_INFERRED: Final = (
    ("object", ("properties", "required", "additionalProperties", "minProperties", "maxProperties")),
    ("array", ("items", "minItems", "maxItems", "uniqueItems", "contains")),
    ("string", ("pattern", "format", "minLength", "maxLength")),
    ("number", _NUMERIC),
)


class StrictConversion:
    """One conversion: `root` makes the schema, `null_paths` then tells where it added null."""

    def __init__(self, max_description_chars: int | None) -> None:
        self._max_chars = max_description_chars
        self._added: dict[_Path, None] = {}
        self._own: set[_Path] = set()

    def root(self, schema: Schema) -> Schema:
        """The strict form of a tool's schema; arguments are an object whatever else it accepts.

        Raises:
            Fallback: It has none.
        """
        return self._convert({**schema, "type": "object"}, ())

    def null_paths(self) -> list[_Path]:
        """Where null stands for an absent property.

        Raises:
            Fallback: ``ambiguous_null``: at one place null is added in one branch of a union and means
                null in another.
        """
        if not self._own.isdisjoint(self._added):
            raise Fallback("ambiguous_null")
        return list(self._added)

    def _convert(self, node: Schema, path: _Path) -> Schema:
        for keyword in _UNSUPPORTED:
            if keyword in node:
                raise Fallback(f"unsupported_keyword: {keyword}")
        unions = [keyword for keyword in ("anyOf", "oneOf") if keyword in node]
        if unions:
            made = self._union(node, unions[0], path)
        elif "enum" in node or "const" in node:
            made = self._values(node)
        else:
            names = _types(node)
            others = [name for name in names if name != "null"]
            if len(others) == 1 and "null" in names and others[0] in _SCALARS:
                made = _nullable(self._typed(node, others[0], path))
            else:
                made = _either([self._typed(node, name, path) for name in names])
        return self._annotated(made, node)

    def _union(self, node: Schema, keyword: str, path: _Path) -> Schema:
        if not (HARD | frozenset(SOFT)).isdisjoint(node.keys() - {keyword}):
            raise Fallback("union_siblings")
        branches = node[keyword]
        if keyword == "oneOf" and not disjoint(branches):
            raise Fallback("oneOf")
        return _either([self._convert(branch, path) for branch in branches])

    def _values(self, node: Schema) -> Schema:
        if not node.keys() <= _ANNOTATIONS | {"enum", "const", "type", "minLength", "maxLength"}:
            raise Fallback("enum_siblings")
        values = distinct_values(node)
        declared = _types(node) if "type" in node else None
        by_type: dict[str, list[Any]] = {}
        for value in values:
            name = type_of_value(value)
            if declared is not None and name not in declared:
                if name != "integer" or "number" not in declared:
                    continue
                name = "number"
            by_type.setdefault(name, []).append(value)
        if "number" in by_type and "integer" in by_type:
            by_type["number"] = [value for value in values if type_of_value(value) in ("integer", "number")]
            del by_type["integer"]
        if not by_type or not by_type.keys() <= _SCALARS | {"null"}:
            raise Fallback("enum_values")
        return _either(
            [{"type": name} if name == "null" else {"type": name, "enum": chosen} for name, chosen in by_type.items()]
        )

    def _typed(self, node: Schema, name: str, path: _Path) -> Schema:
        if name == "object":
            return self._object(node, path)
        if name == "array":
            return self._array(node, path)
        made: Schema = {"type": name}
        for keyword in _OWN[name]:
            if keyword in node and not (keyword in _SOMETIMES and _is_told(keyword, node)):
                made[keyword] = node[keyword]
        return made

    def _object(self, node: Schema, path: _Path) -> Schema:
        rest = node.get("additionalProperties")
        if rest is not None and rest is not False:
            raise Fallback("open_object")
        properties = node.get("properties", {})
        if not properties and rest is not False:
            raise Fallback("free_form_object")
        required = node.get("required", [])
        if not set(required) <= properties.keys():
            raise Fallback("undeclared_required")
        made = {}
        for name, child in properties.items():
            place = (*path, name)
            if _accepts_null(child):
                self._own.add(place)
            elif name not in required:
                self._added[place] = None
            converted = self._convert(child, place)
            # Also where null is accepted but was not seen in a type that had to be inferred.
            made[name] = converted if name in required or _admits_null(converted) else _nullable(converted)
        return {"type": "object", "properties": made, "required": list(made), "additionalProperties": False}

    def _array(self, node: Schema, path: _Path) -> Schema:
        if "items" not in node:
            raise Fallback("array_without_items")
        made: Schema = {"type": "array", "items": self._convert(node["items"], (*path, None))}
        for keyword in ("minItems", "maxItems"):
            if keyword in node:
                made[keyword] = node[keyword]
        return made

    def _annotated(self, made: Schema, node: Schema) -> Schema:
        """`made` with the node's annotations, and in its description what strict mode cannot say."""
        told = [
            f"{keyword}: {compact_json(node[keyword])}"
            for keyword in ("default", *SOFT, *_SOMETIMES)
            if keyword in node and _is_told(keyword, node)
        ]
        texts = [node.get("description", made.get("description", "")), f"({', '.join(told)})" if told else ""]
        description = " ".join(text for text in texts if text)
        if description:
            made["description"] = clean_description(description, self._max_chars)
        if "title" in node:
            made["title"] = node["title"]
        return made


def _types(node: Schema) -> list[str]:
    declared = node.get("type")
    if isinstance(declared, str):
        names = [declared]
    elif isinstance(declared, list):
        names = list(dict.fromkeys(declared))
    else:
        names = [name for name, keywords in _INFERRED if not node.keys().isdisjoint(keywords)][:1]
    if "number" in names and "integer" in names:
        names.remove("integer")
    if not names:
        raise Fallback("untyped_schema")
    if not _OWN.keys() >= set(names):
        raise Fallback("invalid_schema")
    return names


def _is_told(keyword: str, node: Schema) -> bool:
    """Whether this keyword of `node` goes into the description, because strict mode does not take it."""
    value = node[keyword]
    if keyword == "format":
        return value not in _FORMATS or "string" not in _types(node)
    if keyword == "pattern":
        return isinstance(value, str) and _NOT_REGULAR.search(value) is not None
    return keyword != "uniqueItems" or value is True


def _either(branches: list[Schema]) -> Schema:
    """The union of converted schemas, flat."""
    flat: list[Schema] = []
    for branch in branches:
        flat.extend(branch["anyOf"] if branch.keys() == {"anyOf"} else [branch])
    return flat[0] if len(flat) == 1 else {"anyOf": flat}


def _nullable(schema: Schema) -> Schema:
    if schema.get("type") in tuple(_SCALARS) and "enum" not in schema:
        return {**schema, "type": [schema["type"], "null"]}
    null = {"type": "null"}
    if "anyOf" in schema:
        return {**schema, "anyOf": [*schema["anyOf"], null]}
    outer: Schema = {key: schema[key] for key in ("description", "title") if key in schema}
    return {"anyOf": [{key: value for key, value in schema.items() if key not in outer}, null], **outer}


def _admits_null(schema: Schema) -> bool:
    """Whether a converted schema allows null."""
    declared = schema.get("type")
    named = [declared] if isinstance(declared, str) else declared or []
    return "null" in named or any(map(_admits_null, schema.get("anyOf", ())))


def _accepts_null(node: Schema) -> bool:
    declared = node.get("type")
    if isinstance(declared, str) and declared != "null":
        return False
    if isinstance(declared, list) and "null" not in declared:
        return False
    try:
        # A server's schema must not make this process send requests, whatever it refers to.
        return jsonschema_rs.Draft202012Validator(node, offline=True).is_valid(None)
    except ValueError as error:
        raise Fallback("invalid_schema") from error
