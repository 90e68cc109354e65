"""A schema as a tree: references inlined, singleton allOf merged, annotations without use left out (pure)."""

from __future__ import annotations

from typing import Any, Final

from conduit_daemon.adapters._references import resolve
from conduit_daemon.adapters._schema import Schema

__all__ = ["HARD", "SOFT", "Fallback", "tree"]

_MOST_NODES: Final = 20_000

SOFT: Final = (
    "minLength",
    "maxLength",
    "minProperties",
    "maxProperties",
    "uniqueItems",
    "contains",
    "minContains",
    "maxContains",
    "contentEncoding",
    "contentMediaType",
)
"""Assertions that strict mode lacks, and that are told in the description instead."""

HARD: Final = frozenset(
    {
        "$dynamicRef",
        "$recursiveRef",
        "$ref",
        "additionalProperties",
        "allOf",
        "anyOf",
        "const",
        "dependentRequired",
        "dependentSchemas",
        "enum",
        "exclusiveMaximum",
        "exclusiveMinimum",
        "format",
        "if",
        "items",
        "maxItems",
        "maximum",
        "minItems",
        "minimum",
        "multipleOf",
        "not",
        "oneOf",
        "pattern",
        "patternProperties",
        "prefixItems",
        "properties",
        "propertyNames",
        "required",
        "type",
        "unevaluatedItems",
        "unevaluatedProperties",
    }
)
"""The other assertions of draft 2020-12."""

_KEPT: Final = HARD | frozenset(SOFT) | {"default", "description", "title"}
_CONSTRAINING: Final = HARD | frozenset(SOFT)


class Fallback(Exception):
    """A schema that has no strict form.

    Attributes:
        reason: A stable word, with detail after a colon.
    """

    def __init__(self, reason: str) -> None:
        super().__init__(reason)
        self.reason = reason


def tree(root: Schema) -> Schema:
    """The schema without references and without unused annotations.

    Raises:
        Fallback: The root is a reference or a union; or somewhere there is a boolean schema, a tuple, several
            allOf, a reference with constraining siblings, or one that is external, dangling or recursive.
    """
    for keyword in ("$ref", "anyOf", "oneOf"):
        if keyword in root:
            raise Fallback(f"root_{keyword.lstrip('$')}")
    return _Tree(root).grow(root, frozenset({id(root)}))


class _Tree:
    def __init__(self, root: Schema) -> None:
        self._root = root
        self._nodes = 0

    def grow(self, node: Any, above: frozenset[int]) -> Schema:
        """`node` as a tree; `above` are the schemas that it stands in."""
        if isinstance(node, bool):
            raise Fallback("boolean_schema")
        if not isinstance(node, dict):
            raise Fallback("invalid_schema")
        self._nodes += 1
        if self._nodes > _MOST_NODES:
            raise Fallback(f"limits: more than {_MOST_NODES:,} schemas once references are inlined")
        if "prefixItems" in node:
            raise Fallback("tuple")
        for keyword in ("$ref", "allOf"):
            if keyword in node:
                siblings = {key: value for key, value in node.items() if key in _KEPT and key != keyword}
                if not _CONSTRAINING.isdisjoint(siblings):
                    raise Fallback("ref_siblings" if keyword == "$ref" else "allOf")
                grown = self._referred(node, above) if keyword == "$ref" else self._single(node, above)
                return {**grown, **siblings}
        made: Schema = {}
        for key, value in node.items():
            if key not in _KEPT:
                continue
            if key == "items":
                made[key] = self.grow(value, above | {id(value)})
            elif key in {"anyOf", "oneOf"} and isinstance(value, list):
                made[key] = [self.grow(child, above | {id(child)}) for child in value]
            elif key == "properties" and isinstance(value, dict):
                made[key] = {name: self.grow(child, above | {id(child)}) for name, child in value.items()}
            else:
                made[key] = value
        return made

    def _referred(self, node: Schema, above: frozenset[int]) -> Schema:
        ref = node["$ref"]
        target = resolve(self._root, ref) if isinstance(ref, str) else None
        if target is None:
            raise Fallback("dangling_ref" if isinstance(ref, str) and ref.startswith("#") else "external_ref")
        if id(target) in above:
            raise Fallback("recursive")
        return self.grow(target, above | {id(target)})

    def _single(self, node: Schema, above: frozenset[int]) -> Schema:
        parts = node["allOf"]
        if not isinstance(parts, list) or len(parts) != 1:
            raise Fallback("allOf")
        return self.grow(parts[0], above | {id(parts[0])})
