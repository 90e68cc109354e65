"""Globs over names: ``*``, ``?``, ``[abc]`` and ``[!abc]``, whole names, case-sensitive on every platform."""

from __future__ import annotations

import fnmatch
import re
from collections.abc import Callable, Iterable

__all__ = ["glob_problem", "is_plain", "matcher"]


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
    exact = frozenset(pattern for pattern in patterns if is_plain(pattern))
    wild = [fnmatch.translate(pattern) for pattern in patterns if pattern not in exact]
    if not wild:
        return exact.__contains__
    matches = re.compile("|".join(wild)).match
    return lambda name: name in exact or matches(name) is not None


def is_plain(glob: str) -> bool:
    """Whether `glob` has no wildcard, so that it is one name."""
    return not any(character in glob for character in "*?[")


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
