"""Whether a name is one that the configuration speaks of, where a server may read the same name in several ways. Pure.

A tool's name is looked up, so it means what it says. The URI of a resource that a template makes is its caller's own
text: ``file:///srv/%2e%2e/etc/passwd`` opens ``/etc/passwd`` at most servers and begins with ``file:///srv/``. So
what closes (``tools.deny``, rules that deny or ask) counts for every way in which such a URI may be read, and what
opens (``tools.allow``, rules that allow) only where all of them are meant. The readings are those of RFC 3986,
section 6.2, and of servers that are less exact than that.
"""

from __future__ import annotations

import unicodedata
from collections.abc import Callable, Iterable, Iterator
from functools import lru_cache
from typing import Final
from urllib.parse import unquote

from conduit_daemon.config import matcher
from conduit_daemon.config.globs import is_plain

__all__ = ["matches_possibly", "matches_surely"]

_RESOURCE: Final = "resource:"
_MOST_DECODED: Final = 5
_KEPT: Final = 256


def matches_surely(globs: Iterable[str]) -> Callable[[str], bool]:
    """A predicate that is true of names which one of `globs` matches however a server reads them; for what opens.

    Example:
        >>> opens = matches_surely(["resource:file:///srv/*"])
        >>> opens("resource:file:///srv/a%20b"), opens("resource:file:///srv/../etc/passwd")
        (True, False)
    """
    patterns = tuple(globs)
    plain = matcher(patterns)
    exact = frozenset(filter(is_plain, patterns))
    every = _Later(lambda: matcher(_with_decoded(patterns)))

    def matches(name: str) -> bool:
        if not plain(name) or not name.startswith(_RESOURCE) or name in exact:
            return plain(name)
        return all(map(every(), _readings(name.removeprefix(_RESOURCE))))

    return plain if "*" in patterns else matches


def matches_possibly(globs: Iterable[str]) -> Callable[[str], bool]:
    """A predicate that is true of names which one of `globs` matches in some way of reading them; for what closes.

    Case and the forms of Unicode do not count in a resource's URI, nor what follows ``?`` or ``#``.

    Example:
        >>> closes = matches_possibly(["resource:file:///etc/*"])
        >>> closes("resource:file:///srv/%2E%2e/ETC/passwd"), closes("resource:file:///srv/etc")
        (True, False)
    """
    patterns = tuple(globs)
    plain = matcher(patterns)
    any_of = _Later(lambda: matcher(map(_folded, _with_decoded(patterns))))

    def matches(name: str) -> bool:
        if plain(name) or not name.startswith(_RESOURCE):
            return plain(name)
        return any(map(any_of(), _loose_readings(name.removeprefix(_RESOURCE))))

    return plain if "*" in patterns else matches


class _Later:
    """A matcher that is made when it is first asked for: most rules never meet a resource."""

    def __init__(self, make: Callable[[], Callable[[str], bool]]) -> None:
        self._make = make
        self._made: Callable[[str], bool] | None = None

    def __call__(self) -> Callable[[str], bool]:
        if self._made is None:
            self._made = self._make()
        return self._made


def _with_decoded(globs: tuple[str, ...]) -> list[str]:
    """`globs`, and those that are percent-encoded as what they stand for, unless that would be a wildcard."""
    decoded = [text for glob in globs if (text := unquote(glob)) != glob and _wildcards(text) == _wildcards(glob)]
    return [*globs, *decoded]


def _wildcards(glob: str) -> int:
    return sum(map(glob.count, "*?["))


@lru_cache(maxsize=_KEPT)
def _readings(uri: str) -> tuple[str, ...]:
    """`uri` with its escapes and its dot segments as written, and resolved, each with ``resource:`` before it."""
    found = dict.fromkeys(text for written in _decoded(uri) for text in (written, *_resolved(written)))
    return tuple(f"{_RESOURCE}{text}" for text in found)


@lru_cache(maxsize=_KEPT)
def _loose_readings(uri: str) -> tuple[str, ...]:
    """All texts that a server may take `uri` for, without its case."""
    found: dict[str, None] = {}
    for written in _decoded(uri):
        folded = _folded(written)
        for text in (folded, *(folded.partition(mark)[0] for mark in "?#")):
            for reading in (text, *_resolved(text), *_rooted(text)):
                found[reading] = None
                found[reading.rstrip("/")] = None
    return tuple(f"{_RESOURCE}{text}" for text in found)


def _folded(text: str) -> str:
    return unicodedata.normalize("NFKC", unicodedata.normalize("NFKC", text).casefold())


def _decoded(uri: str) -> Iterator[str]:
    for _ in range(_MOST_DECODED):
        yield uri
        decoded = unquote(uri)
        if decoded == uri:
            return
        uri = decoded


def _resolved(uri: str) -> Iterator[str]:
    """`uri` without empty and dot segments: by the generic syntax, and with its authority taken for a segment too."""
    scheme, slashes, rest = _parted(uri)
    yield f"{scheme}{slashes}{_without_dots(rest)}"
    if len(slashes) == 2:
        authority, slash, path = rest.partition("/")
        yield f"{scheme}//{authority}{slash}{_without_dots(path)}"


def _rooted(uri: str) -> Iterator[str]:
    """`uri` with as many slashes after its scheme as people write, and the local machine's name left out."""
    scheme, _, rest = _parted(uri)
    path = _without_dots(rest)
    for own in ("localhost/", "127.0.0.1/", "[::1]/"):
        path = path.removeprefix(own)
    for slashes in ("", "/", "//", "///"):
        yield f"{scheme}{slashes}{path}"


def _parted(uri: str) -> tuple[str, str, str]:
    """The scheme with its colon, at most three slashes, and the rest."""
    scheme, colon, rest = uri.replace("\\", "/").partition(":")
    if not colon:
        scheme, rest = "", scheme
    path = rest.lstrip("/")
    return scheme + colon, "/" * min(3, len(rest) - len(path)), path


def _without_dots(path: str) -> str:
    kept: list[str] = []
    last = ""
    for last in path.split("/"):
        if last == "..":
            kept[-1:] = []
        elif last not in {"", "."}:
            kept.append(last)
    return "/".join(kept) + ("/" if kept and last in {"", ".", ".."} else "")
