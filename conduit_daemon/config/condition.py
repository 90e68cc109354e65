"""Conditions in CEL (https://cel.dev), as ``when`` of a policy rule has them: compiled and checked, not run.

CEL resolves names and regular expressions when it runs. A rule that can never be evaluated must be found when
the configuration is read, so names and literal patterns are tried one by one here.
"""

from __future__ import annotations

import re
from typing import TYPE_CHECKING, Final

if TYPE_CHECKING:
    from cel import Program

__all__ = ["CONDITION_VARIABLES", "compile_condition"]

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
_PATTERN: Final = re.compile(r"""\bmatches\s*\(\s*(r?'[^'\\]*'|r?"[^"\\]*")\s*\)""")


def compile_condition(expression: str) -> Program:
    """Compiles a CEL expression.

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
