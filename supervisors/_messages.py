"""The shapes of messages: what users derive from, and what the library itself sends."""

from __future__ import annotations

from typing import Generic, TypeVar

import msgspec

from supervisors._reasons import ExitReason
from supervisors._ref import MonitorRef, Ref

__all__ = ["Call", "Cast", "Down", "Exit", "TimedOut"]

R = TypeVar("R")


class Call(msgspec.Struct, Generic[R], frozen=True):
    """The base of requests; its parameter is the type of the reply.

    Example:
        >>> class Add(Call[int], frozen=True):
        ...     amount: int

        ``await call(counter, Add(2))`` is an ``int`` to mypy and to pyright.
    """


class Cast(msgspec.Struct, frozen=True):
    """The base of one-way messages."""


class Down(msgspec.Struct, frozen=True):
    """A monitored process ended; exactly one for each monitor.

    Attributes:
        monitor: What ``monitor`` returned.
        ref: The process that ended.
        reason: Why; ``NoProc`` where it was dead already.
    """

    monitor: MonitorRef
    ref: Ref
    reason: ExitReason


class Exit(msgspec.Struct, frozen=True):
    """An exit signal, as an actor with ``trap_exit`` receives it.

    Attributes:
        ref: Who ended or who called ``exit``; None where no process did.
        reason: Why.
    """

    ref: Ref | None
    reason: ExitReason


class TimedOut(msgspec.Struct, frozen=True):
    """No message came within the seconds of the last ``Timeout``."""
