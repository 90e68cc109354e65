"""A schema reduced to the keywords that Gemini knows (pure).

https://ai.google.dev/api/caching#FunctionDeclaration lists them for ``parametersJsonSchema``. What is left out
accepts more; arguments are validated against the original.
"""

from __future__ import annotations

from typing import Any, Final

from conduit_daemon.adapters._folding import fold_root
from conduit_daemon.adapters._merging import merged
from conduit_daemon.adapters._references import inlined, pruned
from conduit_daemon.adapters._schema import Schema, map_children
from conduit_daemon.adapters.strict_unions import distinct_values

__all__ = ["gemini_schema"]

_KNOWN: Final = frozenset(
    {
        "$anchor",
        "$defs",
        "$id",
        "$ref",
        "additionalProperties",
        "anyOf",
        "description",
        "enum",
        "format",
        "items",
        "maxItems",
        "maximum",
        "minItems",
        "minimum",
        "oneOf",
        "prefixItems",
        "properties",
        "required",
        "title",
        "type",
    }
)


def gemini_schema(schema: Schema) -> tuple[Schema, list[str]]:
    """A localised object schema in Gemini's keywords, and sentences on what its root offered to choose from.

    References that are not recursive are inlined, up to 64 KiB; a const is an enum; several allOf are
    merged; the root has no combining keyword, since it always has a type.
    """
    folded, notes = fold_root(schema)
    try:
        made: Schema = _reduced(inlined(folded))
    except RecursionError:  # a chain of some hundred references, too deep once inlined
        made = _reduced(folded)
    return {**pruned(made), "type": "object"}, notes


def _reduced(node: Any) -> Any:
    """What the service reads of a schema; booleans are left to what holds them."""
    if not isinstance(node, dict):
        return node
    if isinstance(node.get("allOf"), list):
        parts = [part for part in node["allOf"] if isinstance(part, dict)]
        return _reduced(merged([{key: value for key, value in node.items() if key != "allOf"}, *parts]))
    made = {key: value for key, value in map_children(node, _reduced).items() if key in _KNOWN}
    if "$ref" in made:
        return {key: value for key, value in made.items() if key.startswith("$")}
    if "oneOf" in made and made["oneOf"] != node["oneOf"]:
        # Branches that accept more than they did may overlap, and oneOf would then accept less.
        made.setdefault("anyOf", made.pop("oneOf"))
    if "const" in node:
        made["enum"] = distinct_values(node)
    for bound, exclusive in (("minimum", "exclusiveMinimum"), ("maximum", "exclusiveMaximum")):
        if exclusive in node:
            made.setdefault(bound, node[exclusive])
    if "patternProperties" in node and made.get("additionalProperties") is False:
        del made["additionalProperties"]
    return _without_booleans(made)


def _without_booleans(schema: Schema) -> Schema:
    """The schema with dicts for the boolean schemas in it, which may accept more."""
    made = dict(schema)
    if "properties" in made:
        made["properties"] = {
            name: {} if child is True else child for name, child in made["properties"].items() if child is not False
        }
    if made.get("items") is True:
        made["items"] = {}
    elif made.get("items") is False:
        del made["items"]
    if "prefixItems" in made:
        made["prefixItems"] = [{} if isinstance(child, bool) else child for child in made["prefixItems"]]
    for union in ("anyOf", "oneOf"):
        branches = [{} if child is True else child for child in made.pop(union, ()) if child is not False]
        if branches:
            made[union] = branches
    return made
