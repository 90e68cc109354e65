"""What is looked at in a result: its size, and whether its structured content is what the tool promised."""

from __future__ import annotations

from typing import Any, Final

import msgspec
from msgspec import UNSET

from conduit_daemon.errors import ClientError
from conduit_daemon.hub.toolset import Entry
from conduit_daemon.pipeline.nesting import MAX_DEPTH, too_deep
from conduit_daemon.pipeline.validate import Validators

__all__ = ["check_size", "output_problem"]

_LARGEST_CHECKED: Final = 1 << 20


class _Structured(msgspec.Struct):
    structuredContent: Any = UNSET
    isError: Any = False


_decode = msgspec.json.Decoder(_Structured).decode


def check_size(entry: Entry, result: msgspec.Raw, limit: int) -> None:
    """Passes a result of at most `limit` bytes.

    Raises:
        ClientError: ``too_large``; the call has taken effect.
    """
    size = len(result)
    if size > limit:
        raise ClientError(
            "too_large",
            f"The result of {entry.exposed} has {size} bytes, over the limit of {limit}; ask for less, or raise "
            f"limits.max_result.",
            entry.server_id,
            entry.tool.name,
            outcome="outcome_unknown",
        )


def output_problem(entry: Entry, result: msgspec.Raw, validators: Validators) -> str | None:
    """What is wrong with a result under its tool's output schema, as one sentence; None where nothing is.

    Results over 1 MiB are not looked into.
    """
    schema = entry.tool.output_schema
    if schema is None or len(result) > _LARGEST_CHECKED:
        return None
    try:
        found = _decode(result)
    except (msgspec.MsgspecError, UnicodeDecodeError, RecursionError):
        return None  # it was looked at as a result already; what is left is nesting, which the caller may take
    if found.isError is True:
        return None
    content = found.structuredContent
    if content is UNSET:
        return "It has no structured content, which the tool's output schema promises."
    if too_deep(content):
        return f"Its structured content is nested deeper than {MAX_DEPTH} levels."
    validator = validators.for_schema(schema)
    if validator.invalid_schema is not None:
        return f"It cannot be checked against the tool's output schema. {validator.invalid_schema}"
    problems = validator.problems(content)
    if not problems:
        return None
    listed = "; ".join(f"{problem.pointer or 'it'} {problem.message}" for problem in problems)
    return f"Its structured content does not fit the tool's output schema: {listed}."
