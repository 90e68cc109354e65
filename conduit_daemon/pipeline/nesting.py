"""How deep a JSON value goes, and how far a schema unfolds: asked before anything recursive sees them."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any, Final
from urllib.parse import unquote

__all__ = ["MAX_DEPTH", "extent", "patterns_of", "resolve_pointer", "too_deep", "unfolded_size"]

MAX_DEPTH: Final = 200
"""Values nested deeper are refused: validation and CEL both crash the process on very deep ones."""

_FEW: Final = 8
_CONTAINERS: Final = frozenset({dict, list})
_REFERENCES: Final = ("$ref", "$dynamicRef", "$recursiveRef")
_DEEPEST_CHAIN: Final = 400


def too_deep(value: Any, limit: int = MAX_DEPTH) -> bool:
    """Whether `value`, as JSON decodes it, has arrays and objects nested in more than `limit` levels.

    Example:
        >>> too_deep([[1]], limit=2), too_deep([[[1]]], limit=2)
        (False, True)
    """
    if type(value) not in _CONTAINERS:
        return False
    if _CONTAINERS.isdisjoint(map(type, value.values() if type(value) is dict else value)):
        return limit < 1
    level = [value]
    for _ in range(limit):
        below: list[Any] = []
        for container in level:
            items = container.values() if type(container) is dict else container
            if len(items) > _FEW and _CONTAINERS.isdisjoint(map(type, items)):
                continue
            for item in items:
                kind = type(item)
                if kind is dict or kind is list:
                    below.append(item)
        if not below:
            return False
        level = below
    return True


def extent(value: Any) -> tuple[int, int]:
    """How many items the arrays and objects in `value` have together, and how many characters its texts.

    Example:
        >>> extent({"to": ["ann", "bob"]})
        (3, 8)
    """
    items = characters = 0
    waiting: list[Any] = [value]
    while waiting:
        node = waiting.pop()
        if isinstance(node, str):
            characters += len(node)
        elif isinstance(node, dict):
            items += len(node)
            characters += sum(map(len, node))
            waiting.extend(node.values())
        elif isinstance(node, list):
            items += len(node)
            waiting.extend(node)
    return items, characters


def unfolded_size(schema: dict[str, Any], limit: int) -> int | None:
    """How many subschemas `schema` has once each reference is replaced by what it refers to, once per cycle.

    A few dozen definitions, each referring twice to the one before, unfold to billions, and validation visits
    every one of them.

    Returns:
        The number, at most `limit`; None where a reference cannot be followed inside the schema.
    """
    names: dict[str, Any] = {}
    for count, (name, node) in enumerate(_named(schema)):
        if count >= limit:
            return limit
        if name is not None:
            names[name] = node
    sizes: dict[int, int] = {}
    open_nodes: set[int] = set()

    def size(node: Any, depth: int) -> int:
        if type(node) not in _CONTAINERS:
            return 0
        if id(node) in open_nodes:
            return 1
        known = sizes.get(id(node))
        if known is not None:
            return known
        if depth > _DEEPEST_CHAIN:
            return limit
        open_nodes.add(id(node))
        total = 1
        for child in node.values() if type(node) is dict else node:
            total += size(child, depth + 1)
            if total >= limit:
                break
        if type(node) is dict:
            for reference in _references(node):
                target = resolve_pointer(schema, reference, names)
                if target is None:
                    raise LookupError(reference)
                total += size(target, depth + 1)
        open_nodes.discard(id(node))
        sizes[id(node)] = total = min(total, limit)
        return total

    try:
        return size(schema, 0)
    except LookupError:
        return None


def patterns_of(schema: dict[str, Any]) -> set[str]:
    """Every regular expression in `schema`."""
    found: set[str] = set()
    waiting: list[Any] = [schema]
    while waiting:
        node = waiting.pop()
        if isinstance(node, dict):
            pattern, keys = node.get("pattern"), node.get("patternProperties")
            if isinstance(pattern, str):
                found.add(pattern)
            if isinstance(keys, dict):
                found.update(keys)
            waiting.extend(node.values())
        elif isinstance(node, list):
            waiting.extend(node)
    return found


def resolve_pointer(schema: dict[str, Any], reference: str, names: dict[str, Any] | None = None) -> Any:
    """What `reference` refers to inside `schema`: a JSON Pointer (RFC 6901) or one of `names`; None for nothing."""
    if names is not None and reference in names:
        return names[reference]
    if reference in {"#", ""}:
        return schema
    if not reference.startswith("#/"):
        return None
    node: Any = schema
    for part in reference[2:].split("/"):
        key = unquote(part).replace("~1", "/").replace("~0", "~")
        if isinstance(node, dict) and key in node:
            node = node[key]
        elif isinstance(node, list) and key.isdecimal() and int(key) < len(node):
            node = node[int(key)]
        else:
            return None
    return node


def _references(node: dict[str, Any]) -> Iterator[str]:
    for keyword in _REFERENCES:
        reference = node.get(keyword)
        if isinstance(reference, str):
            yield reference


def _named(schema: dict[str, Any]) -> Iterator[tuple[str | None, Any]]:
    """Every object and array of `schema`, under each name that references may give it, or None."""
    waiting: list[Any] = [schema]
    while waiting:
        node = waiting.pop()
        if type(node) in _CONTAINERS:
            yield None, node
        if isinstance(node, dict):
            for keyword, prefix in (("$anchor", "#"), ("$dynamicAnchor", "#"), ("$id", ""), ("id", "")):
                name = node.get(keyword)
                if isinstance(name, str):
                    yield prefix + name, node
                    if not prefix and node is schema:
                        yield name.removesuffix("#") + "#", node
            waiting.extend(node.values())
        elif isinstance(node, list):
            waiting.extend(node)
