"""References inside a schema: found, brought together under ``$defs``, and inlined (pure)."""

from __future__ import annotations

import copy
import re
from collections.abc import Iterator
from typing import Any, Final
from urllib.parse import unquote

from conduit_daemon.adapters._merging import merged
from conduit_daemon.adapters._schema import Schema, children, map_children
from conduit_daemon.text import compact_json

__all__ = ["MAX_INLINED_BYTES", "inlined", "localised", "pruned", "resolve", "unref_root"]

MAX_INLINED_BYTES: Final = 64 * 1024

_RENAMED = {"definitions": "$defs", "items": "prefixItems"}
_UNFIT = re.compile(r"[^A-Za-z0-9_.-]")


def resolve(root: Schema, ref: str) -> Schema | bool | None:
    """What a reference inside a lifted schema stands for; None for an external or a dangling one.

    Pointers that were written for an older draft (``#/definitions/X``, ``#/items/0``) still resolve.
    """
    own = root.get("$id")
    if isinstance(own, str) and own and ref.startswith(own.rstrip("#")):
        ref = ref[len(own.rstrip("#")) :] or "#"
    if not ref.startswith("#"):
        return None
    fragment = unquote(ref[1:])
    if fragment and not fragment.startswith("/"):
        return next((node for node in _all(root) if node.get("$anchor") == fragment), None)
    target: Any = root
    for step in fragment.split("/")[1:]:
        target = _step(target, step.replace("~1", "/").replace("~0", "~"))
    return target if isinstance(target, dict | bool) else None


def localised(root: Schema) -> Schema:
    """The schema with each reference as ``#/$defs/NAME``, and only the definitions that are used.

    External and dangling references are taken out, which accepts more.
    """
    return _Localiser(root).run()


def unref_root(root: Schema) -> Schema:
    """A localised schema whose root is no reference: what it refers to stands in its place."""
    seen: set[str] = set()
    while isinstance(ref := root.get("$ref"), str):
        siblings = {key: value for key, value in root.items() if key != "$ref"}
        target = resolve(root, ref)
        if ref in seen or not isinstance(target, dict):
            return siblings
        seen.add(ref)
        root = merged([siblings, copy.deepcopy(target)])
    return root


def inlined(root: Schema) -> Schema:
    """A localised schema with the references that are not recursive replaced by what they stand for.

    Where that would take more than 64 KiB, all stay. Definitions that are used still stay under
    ``$defs``.
    """
    definitions: dict[str, Any] = root.get("$defs", {})
    if not definitions:
        return root
    used = {name: set(_names(node)) for name, node in definitions.items()}
    recursive = {name for name in used if name in _reachable(used, used[name])}
    body = {key: value for key, value in root.items() if key != "$defs"}
    expanded: dict[str, Any] = {}

    def expand(node: Any) -> Any:
        if not isinstance(node, dict):
            return node
        made = map_children(node, expand)
        name = _name(made.get("$ref"))
        if name is None or name in recursive:
            return made
        if name not in expanded:
            expanded[name] = expand(definitions[name])
        target = expanded[name]
        del made["$ref"]
        if not isinstance(target, dict):
            return made if target is True else False
        return merged([made, copy.deepcopy(target)])

    if _expanded_size(body, definitions, recursive) > MAX_INLINED_BYTES:
        return root
    made: Schema = expand(body)
    kept = _reachable(used, {name for name in _names(made) if name in recursive}) & recursive
    if kept:
        made["$defs"] = {name: expand(definitions[name]) for name in definitions if name in kept}
    return made


def pruned(root: Schema) -> Schema:
    """A localised schema without the definitions that nothing in it leads to."""
    definitions: dict[str, Any] = root.get("$defs", {})
    body = {key: value for key, value in root.items() if key != "$defs"}
    used = {name: set(_names(node)) for name, node in definitions.items()}
    kept = _reachable(used, set(_names(body)))
    if kept:
        body["$defs"] = {name: node for name, node in definitions.items() if name in kept}
    return body


def _all(root: Schema) -> Iterator[Schema]:
    waiting = [root]
    while waiting:
        node = waiting.pop()
        yield node
        waiting.extend(children(node))


def _step(target: Any, key: str) -> Any:
    if isinstance(target, dict):
        # In a tuple of an older draft `items` is what is now `prefixItems`.
        renamed = _RENAMED.get(key)
        return target[renamed] if renamed in target else target.get(key)
    if isinstance(target, list) and key.isascii() and key.isdigit() and int(key) < len(target):
        return target[int(key)]
    return None


def _name(ref: Any) -> str | None:
    return ref[len("#/$defs/") :] if isinstance(ref, str) and ref.startswith("#/$defs/") else None


def _names(node: Any) -> Iterator[str]:
    for inner in _all(node) if isinstance(node, dict) else ():
        name = _name(inner.get("$ref"))
        if name is not None:
            yield name


def _reachable(used: dict[str, set[str]], names: set[str]) -> set[str]:
    found: set[str] = set()
    waiting = list(names)
    while waiting:
        name = waiting.pop()
        if name not in found:
            found.add(name)
            waiting.extend(used.get(name, ()))
    return found


def _expanded_size(body: Schema, definitions: dict[str, Any], recursive: set[str]) -> int:
    """The bytes that inlining would take, found without doing it: it may grow exponentially."""
    sizes: dict[str, int] = {}

    def size(node: Any) -> int:
        return len(compact_json(node)) + sum(of_name(name) for name in _names(node) if name not in recursive)

    def of_name(name: str) -> int:
        if name not in sizes:
            sizes[name] = size(definitions[name])
        return sizes[name]

    return size(body) + sum(size(definitions[name]) for name in recursive)


class _Localiser:
    def __init__(self, root: Schema) -> None:
        self._root = root
        own = root.get("$defs")
        self._own: dict[str, Any] = own if isinstance(own, dict) else {}
        # By identity: one target may be written in several ways. Names that need quoting get others.
        self._names: dict[int, str] = {
            id(node): name for name, node in self._own.items() if isinstance(node, dict) and not _UNFIT.search(name)
        }
        self._made: dict[str, Any] = {}
        self._waiting: list[tuple[str, Any]] = []

    def run(self) -> Schema:
        made: Schema = self._visit(self._root)
        if "$id" in self._root:
            made["$id"] = self._root["$id"]
        while self._waiting:
            name, target = self._waiting.pop()
            self._made[name] = self._visit(target)
        if self._made:
            order = [name for name in self._own if name in self._made]
            order += [name for name in self._made if name not in self._own]
            made["$defs"] = {name: self._made[name] for name in order}
        return made

    def _visit(self, node: Any) -> Any:
        if not isinstance(node, dict):
            return node
        bare = {key: value for key, value in node.items() if key not in {"$defs", "$id", "$anchor", "$dynamicAnchor"}}
        made = map_children(bare, self._visit)
        ref = made.get("$ref")
        if ref is not None:
            target = resolve(self._root, ref) if isinstance(ref, str) else None
            if isinstance(target, dict):
                made["$ref"] = self._reference(ref, target)
            else:
                del made["$ref"]
                if target is False:
                    made["not"] = {}
        return made

    def _reference(self, ref: str, target: Schema) -> str:
        name = self._names.get(id(target))
        if name is None:
            stem = _UNFIT.sub("_", unquote(ref).rsplit("/", 1)[-1].lstrip("#")) or "root"
            name, number = stem, 2
            while name in self._own or name in self._names.values():
                name, number = f"{stem}_{number}", number + 1
            self._names[id(target)] = name
        if name not in self._made:
            self._made[name] = None
            self._waiting.append((name, target))
        return f"#/$defs/{name}"
