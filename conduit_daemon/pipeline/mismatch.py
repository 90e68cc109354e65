"""Why arguments do not fit a tool's schema, at which place, in words that a model can correct itself by.

jsonschema-rs gives the verdict; its own error details take exponential time on recursive alternatives (measured:
seven seconds at ten levels), quote the arguments, and do not say which properties there are. So the places are
found here, with an end to how far is looked, and single keywords are judged by jsonschema-rs again.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping
from typing import Any, Final, NamedTuple

import jsonschema_rs
import msgspec

from conduit_daemon.pipeline.nesting import resolve_pointer

__all__ = ["LARGEST_PATTERN", "Problem", "find_problems", "patterns_within"]

LARGEST_PATTERN: Final = 10 << 20
"""Bytes of one compiled pattern, at most: the engine's own limit."""


def patterns_within(size: int) -> jsonschema_rs.FancyRegexOptions:
    """Look-around and back-references work, in few steps: a pattern is the server's, and its text the model's.

    Args:
        size: Bytes that each compiled pattern may have.
    """
    return jsonschema_rs.FancyRegexOptions(backtrack_limit=10_000, size_limit=size)


_PATTERNS: Final = patterns_within(LARGEST_PATTERN)

_MOST_PROBLEMS: Final = 10
_MOST_STEPS: Final = 500
_DEEPEST: Final = 40
_LONGEST_SHOWN: Final = 60
_MOST_LISTED: Final = 20
_OTHER_TYPE: Final = 1000
_OTHER_VALUE: Final = 100  # of a const or enum, which tells alternatives apart

_NOUNS: Final = {
    "string": "a string",
    "integer": "an integer",
    "number": "a number",
    "boolean": "true or false",
    "array": "an array",
    "object": "an object",
    "null": "null",
}
_LEAVES: Final[Mapping[str, str]] = {
    "minLength": "must have {} or more characters",
    "maxLength": "must have {} or fewer characters",
    "pattern": "must match the regular expression {}",
    "minimum": "must be at least {}",
    "maximum": "must be at most {}",
    "exclusiveMinimum": "must be more than {}",
    "exclusiveMaximum": "must be less than {}",
    "multipleOf": "must be a multiple of {}",
    "minItems": "must have {} or more items",
    "maxItems": "must have {} or fewer items",
    "minProperties": "must have {} or more properties",
    "maxProperties": "must have {} or fewer properties",
    "const": "must be {}",
    "format": "must be in the format {}",
}


class Problem(msgspec.Struct, frozen=True):
    """One way in which arguments do not fit.

    Attributes:
        pointer: Where, as a JSON Pointer (RFC 6901) into the arguments; empty for them as a whole.
        message: What is expected there. Quotes the schema, never the arguments.
    """

    pointer: str
    message: str


def find_problems(schema: dict[str, Any], arguments: Any) -> tuple[Problem, ...]:
    """Where `arguments`, which are known not to fit, differ from `schema`; at least one place, at most ten."""
    search = _Search(schema)
    search.visit(schema, arguments, "")
    found = tuple(Problem(one.pointer, one.message) for one in search.found)
    return found or (Problem("", "do not fit the tool's schema"),)


class _Found(NamedTuple):
    pointer: str
    message: str
    weight: int
    """How much it speaks against an alternative that this is what was meant."""


class _Search:
    def __init__(self, root: dict[str, Any]) -> None:
        self.root = root
        self.found: list[_Found] = []
        self.steps = 0
        self.depth = 0
        self.gave_up = False

    def visit(self, schema: Any, value: Any, pointer: str) -> None:
        self.steps += 1
        if self.steps > _MOST_STEPS or self.depth >= _DEEPEST or len(self.found) >= _MOST_PROBLEMS:
            self.gave_up = True
            return
        self.depth += 1
        self._visit(schema, value, pointer)
        self.depth -= 1

    def _visit(self, schema: Any, value: Any, pointer: str) -> None:
        if schema is False:
            self._add(pointer, "must be left out")
        if not isinstance(schema, dict):
            return
        reference = schema.get("$ref")
        if isinstance(reference, str):
            self.visit(resolve_pointer(self.root, reference), value, pointer)
        if not self._has_type(schema, value, pointer):
            return
        self._visit_leaves(schema, value, pointer)
        if isinstance(value, dict):
            self._visit_object(schema, value, pointer)
        elif isinstance(value, list):
            self._visit_array(schema, value, pointer)
        for part in _list(schema.get("allOf")):
            self.visit(part, value, pointer)
        for keyword in ("anyOf", "oneOf"):
            if isinstance(schema.get(keyword), list):
                self._visit_alternatives(schema[keyword], value, pointer, exactly_one=keyword == "oneOf")
        if "if" in schema:
            branch = "else" if self._differs(schema["if"], value, pointer) else "then"
            self.visit(schema.get(branch), value, pointer)

    def _has_type(self, schema: dict[str, Any], value: Any, pointer: str) -> bool:
        types = _types(schema)
        if not types or any(_is_type(value, kind) for kind in types):
            return True
        self._add(pointer, _mistyped(types, value), _OTHER_TYPE)
        return False

    def _visit_leaves(self, schema: dict[str, Any], value: Any, pointer: str) -> None:
        for keyword, message in _LEAVES.items():
            if keyword in schema and not self._fits({keyword: schema[keyword]}, value):
                weight = _OTHER_VALUE if keyword == "const" else 1
                self._add(pointer, message.format(_shown(schema[keyword])), weight)
        if isinstance(schema.get("enum"), list) and not self._fits({"enum": schema["enum"]}, value):
            self._add(pointer, f"must be one of {_listed(schema['enum'])}", _OTHER_VALUE)
        if schema.get("uniqueItems") is True and not self._fits({"uniqueItems": True}, value):
            self._add(pointer, "must not have the same item twice")

    def _visit_object(self, schema: dict[str, Any], value: dict[str, Any], pointer: str) -> None:
        properties = _table(schema.get("properties"))
        for name in _list(schema.get("required")):
            if isinstance(name, str) and name not in value:
                types = _types(_table(properties.get(name)))
                kind = f" ({_either([_NOUNS[kind] for kind in types])})" if types else ""
                self._add(pointer, f"the property {_shown(name)}{kind} is missing")
        for name, needed in _table(schema.get("dependentRequired")).items():
            for other in _list(needed):
                if name in value and other not in value:
                    self._add(pointer, f"the property {_shown(other)} is missing, which {_shown(name)} needs")
        patterns = _table(schema.get("patternProperties"))
        others = schema.get("additionalProperties", schema.get("unevaluatedProperties"))
        for name, item in value.items():
            if self.gave_up:
                return
            here = f"{pointer}/{_escaped(name)}"
            meant = [part for pattern, part in patterns.items() if self._fits({"pattern": pattern}, name)]
            if name in properties:
                meant.append(properties[name])
            for part in meant:
                self.visit(part, item, here)
            if meant or others is None:
                continue
            if others is False and "additionalProperties" in schema:
                known = f"there are {_listed(list(properties))}" if properties else "there are none"
                self._add(here, f"is no property here; {known}")
            elif others is not False:
                self.visit(others, item, here)

    def _visit_array(self, schema: dict[str, Any], value: list[Any], pointer: str) -> None:
        items = schema.get("items")
        first = _list(schema.get("prefixItems")) or (items if isinstance(items, list) else [])
        rest = schema.get("additionalItems") if isinstance(items, list) else items
        for index, item in enumerate(value):
            if self.gave_up:
                return
            self.visit(first[index] if index < len(first) else rest, item, f"{pointer}/{index}")

    def _visit_alternatives(self, branches: list[Any], value: Any, pointer: str, *, exactly_one: bool) -> None:
        all_found = [self._differs(branch, value, pointer) for branch in branches]
        fitting = all_found.count([])
        if fitting > 1 and exactly_one and not self.gave_up:
            self._add(pointer, "fits more than one of the forms that exclude each other")
        if fitting or not branches:
            return
        closest = min(all_found, key=lambda found: _distance(found, pointer))
        kinds = list(dict.fromkeys(kind for branch in branches for kind in _types(_table(branch))))
        if kinds and all(found[0].pointer == pointer and found[0].weight == _OTHER_TYPE for found in all_found):
            self._add(pointer, _mistyped(kinds, value), _OTHER_TYPE)
            return
        for one in closest[:3]:
            self._add(*one)

    def _fits(self, keyword: dict[str, Any], value: Any) -> bool:
        """Whether `value` keeps to one keyword of the schema's draft; yes once looking has to end."""
        self.steps += 1
        if self.steps > _MOST_STEPS:
            self.gave_up = True
            return True
        draft = self.root.get("$schema")
        schema = {"$schema": draft, **keyword} if isinstance(draft, str) else keyword
        try:
            return jsonschema_rs.validator_for(
                schema, offline=True, validate_formats=False, pattern_options=_PATTERNS
            ).is_valid(value)
        except ValueError:
            return True

    def _differs(self, schema: Any, value: Any, pointer: str) -> list[_Found]:
        kept, self.found = self.found, []
        self.visit(schema, value, pointer)
        found, self.found = self.found, kept
        return found

    def _add(self, pointer: str, message: str, weight: int = 1) -> None:
        one = _Found(pointer, message, weight)
        if len(self.found) < _MOST_PROBLEMS and one not in self.found:
            self.found.append(one)


def _distance(found: list[_Found], pointer: str) -> int:
    """How far a value is from an alternative; what is wrong further in says less about which one was meant."""
    return sum(1 if one.weight == _OTHER_TYPE and one.pointer != pointer else one.weight for one in found)


def _mistyped(types: list[str], value: Any) -> str:
    hint = ""
    if isinstance(value, str) and not {"object", "array"}.isdisjoint(types) and value.lstrip()[:1] in {"{", "["}:
        hint = "; give the value itself, not its JSON text"
    return f"must be {_either([_NOUNS[kind] for kind in types])}, not {_noun_of(value)}{hint}"


def _types(schema: dict[str, Any]) -> list[str]:
    kinds = schema.get("type")
    return [
        kind for kind in (kinds if isinstance(kinds, list) else [kinds]) if isinstance(kind, str) and kind in _NOUNS
    ]


_TESTS: Final[Mapping[str, Callable[[Any], bool]]] = {
    "string": lambda value: isinstance(value, str),
    "integer": lambda value: (
        (isinstance(value, int) and not isinstance(value, bool)) or (isinstance(value, float) and value.is_integer())
    ),
    "number": lambda value: isinstance(value, int | float) and not isinstance(value, bool),
    "boolean": lambda value: isinstance(value, bool),
    "array": lambda value: isinstance(value, list),
    "object": lambda value: isinstance(value, dict),
    "null": lambda value: value is None,
}


def _is_type(value: Any, kind: str) -> bool:
    return _TESTS[kind](value)


def _noun_of(value: Any) -> str:
    if isinstance(value, bool):
        return "true" if value else "false"
    return next((_NOUNS[kind] for kind in _NOUNS if _is_type(value, kind)), "something else")


def _either(words: list[str]) -> str:
    return words[0] if len(words) == 1 else ", ".join(words[:-1]) + " or " + words[-1]


def _listed(values: list[Any]) -> str:
    shown = [_shown(value) for value in values[:_MOST_LISTED]]
    more = f" and {len(values) - _MOST_LISTED} more" if len(values) > _MOST_LISTED else ""
    return ", ".join(shown) + more


def _shown(value: Any) -> str:
    text = json.dumps(value, ensure_ascii=True) if not isinstance(value, str) else json.dumps(value, ensure_ascii=False)
    return text if len(text) <= _LONGEST_SHOWN else text[: _LONGEST_SHOWN - 1] + "…"


def _escaped(name: str) -> str:
    short = name if len(name) <= _LONGEST_SHOWN else name[: _LONGEST_SHOWN - 1] + "…"
    return short.replace("~", "~0").replace("/", "~1")


def _table(value: Any) -> dict[str, Any]:
    return value if isinstance(value, dict) else {}


def _list(value: Any) -> list[Any]:
    return value if isinstance(value, list) else []
