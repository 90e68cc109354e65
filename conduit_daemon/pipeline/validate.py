"""The stage that checks a call's arguments against the schema its server gave."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, Final, final

import jsonschema_rs

from conduit_daemon.errors import ClientError
from conduit_daemon.hub.toolset import Entry
from conduit_daemon.model import Call
from conduit_daemon.pipeline.mismatch import LARGEST_PATTERN, Problem, find_problems, patterns_within
from conduit_daemon.pipeline.nesting import MAX_DEPTH, patterns_of, too_deep, unfolded_size

__all__ = ["ArgumentValidator", "Problem", "Validators", "check_arguments", "check_depth", "too_deep"]

_LARGEST_UNFOLDED: Final = 20_000
_REMEMBERED: Final = 2_000
_TOLD: Final = 20_000
_LONGEST_PATTERNS: Final = 64 * 1024
_LARGEST_COMPILED: Final = 16 << 20
"""Bytes of all compiled patterns of one schema, of which a few characters may make megabytes and take 50 ms each."""


@final
class ArgumentValidator:
    """Checks arguments against one schema, compiled once.

    Draft 2020-12 applies, or the draft that ``$schema`` names; ``format`` is not checked (the server does);
    nothing outside the schema is ever fetched. A schema that cannot be used never fails a call: its tool's
    arguments are passed on unchecked.

    Attributes:
        invalid_schema: Why nothing is checked, as one sentence; None where it is.
    """

    __slots__ = ("_schema", "_validator", "invalid_schema")

    def __init__(self, schema: dict[str, Any]) -> None:
        self._schema = schema
        self._validator: jsonschema_rs.Validator | None = None
        self.invalid_schema: str | None = _unusable(schema)
        if self.invalid_schema is not None:
            return
        for engine in _engines(schema):
            try:
                self._validator = jsonschema_rs.validator_for(
                    schema, offline=True, validate_formats=False, pattern_options=engine
                )
            except ValueError as error:
                self.invalid_schema = f"The schema is invalid: {_first_line(error)}."
            else:
                self.invalid_schema = None
                return

    def problems(self, arguments: Any) -> tuple[Problem, ...]:
        """Where `arguments` do not fit; empty where they do. They must not be nested too deeply (``too_deep``)."""
        if self._validator is None:
            return ()
        try:
            if self._validator.is_valid(arguments):
                return ()
        except ValueError:
            return (Problem("", "hold something that JSON cannot express"),)
        return find_problems(self._schema, arguments)


@final
class Validators:
    """Keeps the validators of the tools in use, so that each schema is compiled once.

    Args:
        remembered: How many are kept.
        on_unusable: Told once of each definition of a tool whose arguments cannot be checked, and why.
    """

    def __init__(self, remembered: int = _REMEMBERED, on_unusable: Callable[[Entry, str], None] | None = None) -> None:
        self._remembered = remembered
        self._on_unusable = on_unusable
        self._told: set[tuple[str, str]] = set()
        self._by_schema: dict[int, tuple[dict[str, Any], ArgumentValidator]] = {}

    def problems(self, entry: Entry, arguments: Any) -> tuple[Problem, ...]:
        """Where `arguments`, which are not nested too deeply, do not fit a tool's schema; empty where they do."""
        schema = entry.tool.input_schema
        kept = self._by_schema.get(id(schema))
        validator = self.for_schema(schema) if kept is None else kept[1]
        if validator.invalid_schema is not None:
            self._tell(entry, validator.invalid_schema)
        return validator.problems(arguments)

    def _tell(self, entry: Entry, reason: str) -> None:
        definition = (entry.server_id, entry.digest)
        if self._on_unusable is None or definition in self._told:
            return
        if len(self._told) >= _TOLD:
            self._told.clear()
        self._told.add(definition)
        self._on_unusable(entry, reason)

    def for_schema(self, schema: dict[str, Any]) -> ArgumentValidator:
        """The validator of a schema."""
        # The schema is kept beside its validator, so that its id stays its own.
        kept = self._by_schema.get(id(schema))
        if kept is not None:
            return kept[1]
        validator = ArgumentValidator(schema)
        if len(self._by_schema) >= self._remembered:
            del self._by_schema[next(iter(self._by_schema))]
        self._by_schema[id(schema)] = (schema, validator)
        return validator


def check_depth(call: Call) -> None:
    """Passes a call whose ``_meta`` and assigns can be worked on.

    Raises:
        ClientError: ``invalid_params``: they are nested too deeply.
    """
    for what, value in (("_meta", call.meta), ("assigns", call.assigns)):
        if too_deep(value):
            raise ClientError("invalid_params", f"The call's {what} are nested deeper than {MAX_DEPTH} levels.")


def check_arguments(entry: Entry, arguments: dict[str, Any], validators: Validators) -> None:
    """Passes arguments that fit the tool's schema.

    Raises:
        ClientError: ``invalid_arguments``, with every place that does not fit in ``data["problems"]``.
    """
    if too_deep(arguments):
        raise _unfit(entry, (Problem("", f"are nested deeper than {MAX_DEPTH} levels"),))
    problems = validators.problems(entry, arguments)
    if problems:
        raise _unfit(entry, problems)


def _unfit(entry: Entry, problems: tuple[Problem, ...]) -> ClientError:
    listed = "; ".join(map(_clause, problems))
    return ClientError(
        "invalid_arguments",
        f"The arguments of {entry.exposed} do not fit its schema: {listed}. Correct them and call it again.",
        entry.server_id,
        entry.tool.name,
        data={"problems": [{"pointer": problem.pointer, "message": problem.message} for problem in problems]},
    )


def _clause(problem: Problem) -> str:
    if problem.message.startswith("the property"):
        return f"in {problem.pointer} {problem.message}" if problem.pointer else problem.message
    return f"{problem.pointer or 'they'} {problem.message}"


def _engines(schema: dict[str, Any]) -> tuple[jsonschema_rs.RegexOptions | jsonschema_rs.FancyRegexOptions, ...]:
    """The first takes linear time for any pattern; what it cannot do gets few steps."""
    most = min(LARGEST_PATTERN, _LARGEST_COMPILED // max(1, len(patterns_of(schema))))
    return jsonschema_rs.RegexOptions(size_limit=most), patterns_within(most)


def _unusable(schema: dict[str, Any]) -> str | None:
    if too_deep(schema):
        return f"The schema is nested deeper than {MAX_DEPTH} levels."
    size = unfolded_size(schema, _LARGEST_UNFOLDED)
    if size is None:
        return "The schema refers to something outside itself, which is never fetched."
    if size >= _LARGEST_UNFOLDED:
        return f"The schema unfolds to more than {_LARGEST_UNFOLDED:,} parts."
    if sum(map(len, patterns_of(schema))) > _LONGEST_PATTERNS:
        return f"The schema's regular expressions have more than {_LONGEST_PATTERNS:,} characters."
    return None


def _first_line(error: ValueError) -> str:
    line = str(error).partition("\n")[0].strip().rstrip(".")
    return line if len(line) <= 200 else line[:199] + "…"
