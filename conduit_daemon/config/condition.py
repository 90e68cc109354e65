"""Conditions in CEL (https://cel.dev), as ``when`` of a policy rule has them: compiled and checked, not run.

CEL resolves names and regular expressions when it runs. A rule that can never be evaluated must be found when
the configuration is read, so names and literal patterns are tried one by one here.
"""

from __future__ import annotations

import re
from functools import lru_cache
from typing import TYPE_CHECKING, Final, NamedTuple

if TYPE_CHECKING:
    from cel import Program

__all__ = ["CONDITION_VARIABLES", "Work", "compile_condition", "work_of"]

CONDITION_VARIABLES: Final = ("annotations", "args", "assigns", "principal", "server", "taint", "tool")
"""What an expression may speak of."""

# The functions of the CEL specification's standard definitions that the evaluator has; it tells an unknown
# function from a wrong argument only by running.
_FUNCTIONS: Final = frozenset(
    {"bytes", "contains", "double", "duration", "dyn", "endsWith", "int", "matches", "size", "startsWith", "string"}
    | {"timestamp", "type", "uint", "getDate", "getDayOfMonth", "getDayOfWeek", "getDayOfYear", "getFullYear"}
    | {"getHours", "getMilliseconds", "getMinutes", "getMonth", "getSeconds"}
)
_TYPES: Final = frozenset({"bool", "bytes", "double", "int", "list", "map", "null_type", "string", "uint", "type"})
_LONGEST: Final = 10_000
_DEEPEST: Final = 50
_BOUND: Final = re.compile(r"\.\s*(?:all|exists|exists_one|map|filter)\s*\(\s*([A-Za-z_]\w*)\s*,")
_MACRO: Final = re.compile(r"\.\s*(?:all|exists|exists_one|map|filter)\s*\(|[()]")
_LITERAL: Final = re.compile(
    r"""[bB]?[rR](?:\"{3}.*?\"{3}|'{3}.*?'{3}|"[^"]*"|'[^']*')"""
    r"""|[bB]?(?:\"{3}(?:\\.|[^\\])*?\"{3}|'{3}(?:\\.|[^\\])*?'{3}|"(?:\\.|[^"\\])*"|'(?:\\.|[^'\\])*')""",
    re.DOTALL,
)
_CHARACTERS: Final = {"+": 20, "matches": 2_000, "contains": 5_000, "": 100_000}
"""How many characters of a text cost as much as one step of a macro, by what looks at all of them (measured)."""

_PATTERN: Final = re.compile(r"""\bmatches\s*\(\s*(r?'[^'\\]*'|r?"[^"\\]*")\s*\)""")


class Work(NamedTuple):
    """How the time that a condition takes grows with what it is asked about.

    Attributes:
        loops: How many macros over lists (``all``, ``exists``, ``map`` and their kind) are inside one another.
        characters: How many characters of a text may cost a step each time.
    """

    loops: int
    characters: int

    def steps(self, items: int, characters: int) -> int:
        """Steps, of a microsecond or less, that it takes at most on values of so many items and characters."""
        return items**self.loops * (1 + characters // self.characters) if self.loops else 0


def work_of(expression: str) -> Work:
    """How much work a condition may make.

    Example:
        >>> work_of("args.to.all(x, args.to.exists_one(y, x == y))").loops
        2
    """
    plain = _LITERAL.sub("''", expression)
    opened: list[bool] = []
    loops = 0
    for found in _MACRO.findall(plain):
        if found == ")":
            del opened[-1:]
        else:
            opened.append(found != "(")
            loops = max(loops, sum(opened))
    return Work(loops, next(cost for word, cost in _CHARACTERS.items() if word in plain))


@lru_cache(maxsize=4096)
def compile_condition(expression: str) -> Program:
    """Compiles a CEL expression.

    That takes a millisecond, so it is kept: a configuration is checked in a thread, and what is compiled there holds
    nobody up when it is taken over.

    Raises:
        ValueError: It is no CEL, or names a variable, a function or a pattern that there is none of; the
            message completes a sentence about the expression.
    """
    if len(expression) > _LONGEST or _nesting(expression) > _DEEPEST:
        raise ValueError(f"is longer than {_LONGEST:,} characters or nested deeper than {_DEEPEST} levels")
    import cel  # noqa: PLC0415 - its package loads a command line of its own: 0.15 s that only users of CEL pay

    try:
        program = cel.compile(expression)
    except ValueError as error:
        raise ValueError(f"is no CEL expression: {_reason(error)}") from None
    known = {*CONDITION_VARIABLES, *_TYPES, *_BOUND.findall(expression)}
    for name in program.variables():
        if name not in known:
            raise ValueError(f"speaks of {name!r}; what it can speak of is {', '.join(CONDITION_VARIABLES)}")
    for name in program.functions():
        if name.isidentifier() and name not in _FUNCTIONS:
            raise ValueError(f"uses the function {name!r}, which CEL does not have here")
    for literal in _PATTERN.findall(expression):
        _try_pattern(literal)
    return program


def _try_pattern(literal: str) -> None:
    import cel  # noqa: PLC0415

    try:
        cel.evaluate(f"''.matches({literal})")
    except (RuntimeError, ValueError):
        raise ValueError("has a pattern for matches() that is no regular expression") from None


def _nesting(expression: str) -> int:
    depth = deepest = 0
    for character in expression:
        if character in "([{":
            depth += 1
            deepest = max(deepest, depth)
        elif character in ")]}":
            depth -= 1
    return deepest


def _reason(error: ValueError) -> str:
    found = re.search(r"ERROR: <input>:(\d+):(\d+): ([^\n]*)", str(error))
    if found is None:
        return "it cannot be parsed"
    return f"line {found[1]}, column {int(found[2])}: {found[3].partition(' expecting {')[0]}"
