"""Combining keywords at the root of a schema folded into plain properties (pure).

Providers refuse anyOf, oneOf and allOf there. The folded form accepts at least what the original does
where an argument means the same in every alternative; arguments are validated against the original.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from conduit_daemon.adapters._merging import joined_versions, merged, types_of
from conduit_daemon.adapters._references import resolve
from conduit_daemon.adapters._schema import Schema
from conduit_daemon.text import compact_json

__all__ = ["fold_root"]

_DEEPEST = 20


def fold_root(root: Schema, combinators: Sequence[str] = ("allOf", "anyOf", "oneOf")) -> tuple[Schema, list[str]]:
    """A localised object schema without `combinators` at its root, and sentences on the alternatives.

    allOf: properties and required names are united. anyOf and oneOf: properties are united, and a name
    is required only where the root or every branch requires it.
    """
    folder = _Folder(root, combinators)
    return folder.fold(root, 0), folder.notes


class _Folder:
    def __init__(self, root: Schema, combinators: Sequence[str]) -> None:
        self._root = root
        self._combinators = combinators
        self.notes: list[str] = []

    def fold(self, schema: Schema, depth: int) -> Schema:
        for keyword in self._combinators:
            if keyword not in schema:
                continue
            rest = {key: value for key, value in schema.items() if key != keyword}
            given = schema[keyword] if isinstance(schema[keyword], list) else []
            branches = [made for branch in given if (made := self._object_branch(branch, depth)) is not None]
            if keyword == "allOf":
                schema = merged([rest, *branches])
                # What the branches brought along may be a combinator again.
                if depth < _DEEPEST and any(name in schema for name in self._combinators):
                    schema = self.fold(schema, depth + 1)
            else:
                schema = self._either(rest, branches, keyword) if branches else rest
        return {key: value for key, value in schema.items() if key not in self._combinators}

    def _object_branch(self, branch: Any, depth: int) -> Schema | None:
        """The branch folded itself; None where no object can satisfy it."""
        seen: set[str] = set()
        while isinstance(branch, dict) and isinstance(ref := branch.get("$ref"), str):
            siblings = {key: value for key, value in branch.items() if key != "$ref"}
            target = resolve(self._root, ref)
            if target is False:
                return None
            known = isinstance(target, dict) and ref not in seen
            branch = merged([siblings, target]) if isinstance(target, dict) and known else siblings
            seen.add(ref)
        if branch is True:
            return {}
        if not isinstance(branch, dict) or "object" not in types_of(branch) or depth > _DEEPEST:
            return None
        return self.fold({key: value for key, value in branch.items() if key != "$defs"}, depth + 1)

    def _either(self, rest: Schema, branches: list[Schema], keyword: str) -> Schema:
        made = dict(rest)
        maps = [_properties(schema) for schema in (rest, *branches)]
        names = dict.fromkeys(name for properties in maps for name in properties)
        if names:
            made["properties"] = {
                name: joined_versions([properties[name] for properties in maps if name in properties]) for name in names
            }
        needed = _required(rest)
        shared = [name for name in _required(branches[0]) if all(name in _required(one) for one in branches)]
        if needed or shared:
            made["required"] = list(dict.fromkeys([*needed, *shared]))
        if "additionalProperties" not in rest and all(_closed(branch) for branch in branches):
            made["additionalProperties"] = False
        if len(branches) > 1:
            amount = "exactly one" if keyword == "oneOf" else "at least one"
            sets = " or ".join(f"({_summary(branch, rest)})" for branch in branches)
            self.notes.append(f"Give {amount} of these sets of arguments: {sets}.")
        return made


def _properties(schema: Schema) -> dict[str, Any]:
    properties = schema.get("properties")
    return properties if isinstance(properties, dict) else {}


def _required(schema: Schema) -> list[str]:
    required = schema.get("required")
    return [name for name in required if isinstance(name, str)] if isinstance(required, list) else []


def _closed(schema: Schema) -> bool:
    return schema.get("additionalProperties") is False and "patternProperties" not in schema


def _summary(branch: Schema, rest: Schema) -> str:
    properties = _properties(branch)
    required = _required(branch)
    told = [_named(name, properties.get(name)) for name in required]
    told += [
        f"{_named(name, schema)} (optional)"
        for name, schema in properties.items()
        if name not in required and name not in _properties(rest)
    ]
    return ", ".join(told) or "nothing more"


def _named(name: str, schema: Any) -> str:
    values = schema.get("enum", [schema["const"]] if "const" in schema else []) if isinstance(schema, dict) else []
    return f"{name}={compact_json(values[0])}" if isinstance(values, list) and len(values) == 1 else name
