"""OpenAI's strict form of a schema, and the nulls that it makes a model send (pure).

Strict mode wants every property required, so that an optional one becomes nullable; the paths of those are
kept, and a null there is taken out of the arguments before they are sent.
Rules: https://platform.openai.com/docs/guides/structured-outputs (supported schemas).
"""

from __future__ import annotations

from typing import Any

import msgspec

from conduit_daemon.adapters._schema import Schema
from conduit_daemon.adapters.strict_convert import StrictConversion
from conduit_daemon.adapters.strict_inline import Fallback, tree
from conduit_daemon.adapters.strict_limits import check_limits

__all__ = ["Fallback", "NullPath", "StrictForm", "strict_form", "strip_nulls"]

NullPath = list[str | None]
"""Where a null stands for an absent property: a string is a key, None is every element of an array."""


class StrictForm(msgspec.Struct, frozen=True):
    """A schema in strict form.

    Attributes:
        schema: Closed throughout, with every property required.
        null_paths: The properties that are optional in the original and refuse null there.
    """

    schema: Schema
    null_paths: list[NullPath]


def strict_form(schema: Schema, max_description_chars: int | None = None) -> StrictForm:
    """The strict form of a lifted and cleaned object schema.

    Whatever is valid under it and has its nulls stripped is valid under the original, but for the
    assertions that strict mode lacks and that are told in descriptions instead.

    Args:
        schema: In draft 2020-12.
        max_description_chars: The most characters of a description.

    Raises:
        Fallback: There is none; its reason is a stable word, with detail after a colon.

    Example:
        >>> strict_form({"type": "object", "properties": {"n": {"type": "integer"}}}).null_paths
        [['n']]
    """
    conversion = StrictConversion(max_description_chars)
    try:
        made = conversion.root(tree(schema))
    except RecursionError:
        raise Fallback("limits: it is nested too deeply") from None
    check_limits(made)
    return StrictForm(made, [list(path) for path in conversion.null_paths()])


def strip_nulls(arguments: dict[str, Any], null_paths: list[NullPath]) -> dict[str, Any]:
    """A copy of the arguments without the nulls at these paths.

    A path that does not fit the arguments is passed over; elements of arrays are never taken out.

    Example:
        >>> strip_nulls({"f": [{"k": 1, "op": None}], "g": None}, [["f", None, "op"]])
        {'f': [{'k': 1}], 'g': None}
    """
    made = _copied(arguments)
    for path in null_paths:
        if path:
            _strip(made, path, 0)
    return made  # type: ignore[no-any-return] # a copy of a dict is a dict


def _strip(value: Any, path: NullPath, at: int) -> None:
    step = path[at]
    last = at == len(path) - 1
    if step is None:
        if isinstance(value, list) and not last:
            for element in value:
                _strip(element, path, at + 1)
    elif isinstance(value, dict) and step in value:
        if not last:
            _strip(value[step], path, at + 1)
        elif value[step] is None:
            del value[step]


def _copied(value: Any) -> Any:
    if isinstance(value, dict):
        return {key: _copied(child) for key, child in value.items()}
    if isinstance(value, list):
        return [_copied(child) for child in value]
    return value
