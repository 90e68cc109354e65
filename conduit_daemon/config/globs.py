"""Globs over names: ``*``, ``?``, ``[abc]`` and ``[!abc]``, whole names, case-sensitive on every platform."""

from __future__ import annotations

import fnmatch
import re
from collections.abc import Callable, Iterable
from typing import Final

__all__ = ["glob_problem", "is_plain", "matcher"]

_WILDCARD: Final = re.compile(r"[*?[]")


def matcher(globs: Iterable[str]) -> Callable[[str], bool]:
    """A predicate that is true of names which any of `globs` matches.

    Example:
        >>> matches = matcher(["read_*", "stat"])
        >>> matches("read_file"), matches("stat"), matches("write_file")
        (True, True, False)
    """
    patterns = tuple(globs)
    if "*" in patterns:
        return lambda name: True
    exact = frozenset(filter(is_plain, patterns))
    # Most globs have one star at an end. A regular expression takes 50 us to compile, and a policy may have thousands.
    prefixes = tuple(pattern[:-1] for pattern in patterns if pattern.endswith("*") and is_plain(pattern[:-1]))
    suffixes = tuple(pattern[1:] for pattern in patterns if pattern.startswith("*") and is_plain(pattern[1:]))
    simple = exact.union((f"{prefix}*" for prefix in prefixes), (f"*{suffix}" for suffix in suffixes))
    wild = [fnmatch.translate(pattern) for pattern in patterns if pattern not in simple]
    if len(exact) == len(simple) and not wild:
        return exact.__contains__
    if not wild:
        return lambda name: name in exact or name.startswith(prefixes) or name.endswith(suffixes)
    matches = re.compile("|".join(wild)).match
    return lambda name: name in exact or name.startswith(prefixes) or name.endswith(suffixes) or bool(matches(name))


def is_plain(glob: str) -> bool:
    """Whether `glob` has no wildcard, so that it is one name."""
    return _WILDCARD.search(glob) is None


def glob_problem(glob: str) -> str | None:
    """What is wrong with `glob`, as a predicate of a sentence; None where nothing is."""
    if not glob:
        return "is empty, and so matches nothing"
    remainder = glob
    while (start := remainder.find("[")) >= 0:
        first = start + 2 if remainder[start + 1 : start + 2] == "!" else start + 1
        end = remainder.find("]", first + 1)
        if end < 0:
            return "has a '[' that is never closed"
        remainder = remainder[end + 1 :]
    return None
