"""Why a process ended: the five exit reasons, and how an exception becomes one.

They mirror the Erlang exit reasons ``normal``, ``shutdown`` and ``{shutdown, Detail}``, ``killed``, an error
with its stack, and ``noproc`` (https://www.erlang.org/doc/system/ref_man_processes.html#errors).
"""

from __future__ import annotations

from typing import Any, TypeAlias

import msgspec

__all__ = [
    "Crashed",
    "ExitReason",
    "Killed",
    "NoProc",
    "Normal",
    "Shutdown",
    "described",
    "in_words",
    "is_normal",
    "single_leaf",
]


class Normal(msgspec.Struct, frozen=True):
    """It finished its work."""


class Shutdown(msgspec.Struct, frozen=True):
    """It was asked to end, or ended itself in good order.

    Attributes:
        detail: Anything that says why; a supervisor's own shutdowns carry None.
    """

    detail: Any = None


class Killed(msgspec.Struct, frozen=True):
    """It was killed: no ``terminate`` ran, and no cleanup beyond its ``finally`` blocks."""


class Crashed(msgspec.Struct, frozen=True):
    """An exception ended it.

    Attributes:
        error: The exception; where a group held a single one, that one.
    """

    error: BaseException


class NoProc(msgspec.Struct, frozen=True):
    """There was no such process when it was monitored or linked."""


ExitReason: TypeAlias = Normal | Shutdown | Killed | Crashed | NoProc


def is_normal(reason: ExitReason) -> bool:
    """Whether a ``transient`` child that ends for this reason is left alone."""
    return isinstance(reason, Normal | Shutdown)


def described(reason: ExitReason) -> str:
    """Says in words why a process ended, to stand after "it"; never raises, whatever the exception's own words do."""
    match reason:
        case Normal():
            return "ended normally"
        case Shutdown(None):
            return "was shut down"
        case Shutdown(detail):
            return f"was shut down ({in_words(detail)})"
        case Killed():
            return "was killed"
        case Crashed(error):
            return f"crashed with {type(error).__name__}: {in_words(error)}"
        case NoProc():
            return "did not exist"


def in_words(value: object) -> str:
    """Returns ``str(value)``; never raises, whatever the value's own words do."""
    try:
        return str(value)
    except Exception:  # noqa: BLE001  (a message about an end must not prevent it)
        return f"a {type(value).__name__} that cannot be shown"


def single_leaf(error: BaseException) -> BaseException:
    """Returns the only exception inside nested groups, or the error itself where there are several."""
    while isinstance(error, BaseExceptionGroup) and len(error.exceptions) == 1:
        error = error.exceptions[0]
    return error
