"""Whether a URI can be one that a template makes (RFC 6570), in time linear in both. Pure.

It says of which server a URI is, and no more, so it may be generous: what a variable stands for is any text. The
server itself decides what the URI means.
"""

from __future__ import annotations

import re
from functools import lru_cache
from typing import Final

__all__ = ["matches"]

_EXPRESSION: Final = re.compile(r"\{[^{}]*\}")
_LONGEST: Final = 8192
_OPTIONAL: Final = frozenset("?&;#")


def matches(template: str, uri: str) -> bool:
    """Whether `uri` can be made from `template`.

    Example:
        >>> matches("file:///logs/{day}.txt", "file:///logs/monday.txt")
        True
        >>> matches("file:///logs/{day}.txt", "file:///logs/monday.gz")
        False
        >>> matches("db://rows{?limit}", "db://rows")
        True
    """
    if len(uri) > _LONGEST:
        return False
    literals, least = _parts(template)
    if len(literals) == 1:
        return uri == template
    first, *middle, last = literals
    if not uri.startswith(first) or not uri.endswith(last) or len(uri) < least:
        return False
    at, end = len(first), len(uri) - len(last)
    for literal in middle:
        found = uri.find(literal, at, end)
        if found < 0:
            return False
        at = found + len(literal)
    return at <= end


@lru_cache(maxsize=1024)
def _parts(template: str) -> tuple[tuple[str, ...], int]:
    """The literals between the expressions, and the length of the shortest URI that the template makes."""
    literals = tuple(_EXPRESSION.split(template))
    needed = sum(expression[1:2] not in _OPTIONAL for expression in _EXPRESSION.findall(template))
    return literals, sum(map(len, literals)) + needed
