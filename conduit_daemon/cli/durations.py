"""Durations as people type them."""

from __future__ import annotations

from conduit_daemon.cli.exits import UsageError

__all__ = ["seconds"]

_UNITS = {"s": 1, "m": 60, "h": 3600, "d": 86_400}


def seconds(text: str) -> float:
    """The seconds that ``90``, ``30m``, ``12h`` or ``7d`` mean.

    Raises:
        UsageError: It is no duration.
    """
    unit = _UNITS.get(text[-1:].lower())
    try:
        return float(text[:-1]) * unit if unit else float(text)
    except ValueError as error:
        raise UsageError(f"{text!r} is no duration; write 90, 30m, 12h or 7d.") from error
