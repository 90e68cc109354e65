"""The toolset: an immutable, content-addressed snapshot of the tools that a model may be offered.

Readers resolve names against it without a lock or a message; a changed toolset is another object
with another id.
"""

from __future__ import annotations

import hashlib
import json
from collections.abc import Callable, Hashable, Iterable, Iterator
from functools import cached_property
from typing import Any, Final, TypeVar

import msgspec

from conduit_daemon.model import Dropped, Tool

__all__ = ["Entry", "ToolSet", "canonical", "definition_digest"]

T = TypeVar("T")

_DERIVED: Final = 32
_NOTHING: Final[Any] = object()
_ID_LENGTH = 32
_EMPTY_ID = hashlib.sha256().hexdigest()[:_ID_LENGTH]
_ENCODER = msgspec.json.Encoder(order="sorted")


def canonical(value: Any) -> bytes:
    """`value` as compact JSON with sorted keys, whatever strings and numbers it holds.

    Raises:
        TypeError: It holds something that is no JSON value.
        RecursionError: It is nested too deeply.
    """
    try:
        return _ENCODER.encode(value)
    except (UnicodeEncodeError, OverflowError):
        # Lone surrogates and integers over 64 bits, which JSON allows and msgspec does not.
        return json.dumps(value, sort_keys=True, separators=(",", ":")).encode()


def definition_digest(tool: Tool) -> str:
    """The digest of what a tool is: name, title, description, schemas and annotations (not ``extra``).

    The order of an object's keys does not count, for JSON gives it no meaning.

    Raises:
        TypeError: A schema holds something that is no JSON value.
        RecursionError: A schema is nested too deeply.
    """
    definition = (
        tool.name,
        tool.title,
        tool.description,
        tool.input_schema,
        tool.output_schema,
        tool.annotations,
    )
    return hashlib.sha256(canonical(definition)).hexdigest()


class Entry(msgspec.Struct, frozen=True):
    """One tool under the name that models know it by.

    Attributes:
        exposed: That name, matching ``^[A-Za-z_][A-Za-z0-9_-]{0,63}$``.
        server_id: The server that has the tool.
        tool: The tool as its server lists it.
        digest: Of the tool's definition (`definition_digest`); a changed definition has another.
    """

    exposed: str
    server_id: str
    tool: Tool
    digest: str


class ToolSet(msgspec.Struct, frozen=True, dict=True):
    """Tools under their exposed names, in a stable order. Made by `conduit_daemon.hub.naming.build`.

    Iterating yields the entries; ``len`` counts them; ``name in toolset`` asks for an exposed name.

    Attributes:
        entries: The configuration's order of servers, then each server's order of tools.
        dropped: What is not offered, and why.
        warnings: Sentences on what is offered but may confuse, as names that differ by case only.
        id: A digest over all that a listing shows: order, exposed name, server and definition.
    """

    entries: tuple[Entry, ...] = ()
    dropped: tuple[Dropped, ...] = ()
    warnings: tuple[str, ...] = ()
    id: str = _EMPTY_ID

    @classmethod
    def of(cls, entries: Iterable[Entry], dropped: Iterable[Dropped] = (), warnings: Iterable[str] = ()) -> ToolSet:
        """A toolset of these entries, whose exposed names must be distinct, with its id computed."""
        kept = tuple(entries)
        digest = hashlib.sha256()
        for entry in kept:
            shown = (entry.exposed, entry.server_id, entry.tool.name, entry.digest, entry.tool.extra)
            digest.update(canonical(shown))
            digest.update(b"\n")
        return cls(kept, tuple(dropped), tuple(warnings), digest.hexdigest()[:_ID_LENGTH])

    @cached_property
    def _by_exposed(self) -> dict[str, Entry]:
        return {entry.exposed: entry for entry in self.entries}

    @cached_property
    def _by_tool(self) -> dict[tuple[str, str], str]:
        return {(entry.server_id, entry.tool.name): entry.exposed for entry in self.entries}

    def resolve(self, exposed: object) -> Entry | None:
        """The entry with exactly this exposed name (never split, never case-folded); None where there is none."""
        return self._by_exposed.get(exposed) if isinstance(exposed, str) else None

    def exposed_name(self, server_id: str, name: str) -> str | None:
        """The name under which a server's tool is offered; None where it is not."""
        return self._by_tool.get((server_id, name))

    def only(self, keep: Callable[[Entry], bool]) -> ToolSet:
        """The toolset of those entries for which `keep` is true, under the same names."""
        return ToolSet.of(filter(keep, self.entries), self.dropped, self.warnings)

    def has_derived(self, key: Hashable) -> bool:
        """Whether what `derived` would compute for this key is kept."""
        return key in self.__dict__.get("_derived", ())

    def derived(self, key: Hashable, make: Callable[[], T]) -> T:
        """What `make` computes from this toolset, kept with it: the last 32 keys asked for.

        It may be called from several threads; at worst both compute the same.
        """
        kept: dict[Hashable, Any] = self.__dict__.setdefault("_derived", {})
        found: T = kept.pop(key, _NOTHING)
        if found is _NOTHING:
            found = make()
        kept[key] = found
        if len(kept) > _DERIVED:
            kept.pop(next(iter(tuple(kept))), None)
        return found

    def __iter__(self) -> Iterator[Entry]:
        return iter(self.entries)

    def __len__(self) -> int:
        return len(self.entries)

    def __bool__(self) -> bool:
        return bool(self.entries)

    def __contains__(self, exposed: object) -> bool:
        return self.resolve(exposed) is not None

    def __hash__(self) -> int:
        return hash(self.id)
