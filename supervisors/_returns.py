"""What an actor's functions return to say what happens next.

They mirror the tuples of GenServer: https://hexdocs.pm/elixir/GenServer.html#callbacks.
"""

from __future__ import annotations

from typing import Any, TypeAlias

import msgspec
from msgspec import UNSET

from supervisors._reasons import ExitReason

__all__ = [
    "Continue",
    "Ignore",
    "NoReply",
    "Reply",
    "Stop",
    "Then",
    "Timeout",
    "after",
    "bad_return",
    "reason_of",
]

_ALLOWED = {
    "init": "None, Continue, Timeout, Ignore or Stop",
    "handle_call": "a reply, Reply, NoReply or Stop",
    "then": "a Continue or a Timeout",
}


class Continue(msgspec.Struct, frozen=True):
    """``handle_continue(arg)`` runs next, before any queued message."""

    arg: Any = None


class Timeout(msgspec.Struct, frozen=True):
    """A ``TimedOut`` message comes where no other message does within this many seconds."""

    seconds: float


Then: TypeAlias = Continue | Timeout


class Ignore(msgspec.Struct, frozen=True):
    """``init`` only: the child is not needed. It does not run, and that is no failure."""


class Stop(msgspec.Struct, frozen=True):
    """The actor ends for this reason: ``terminate`` runs, then the caller gets the reply, where there is one."""

    reason: ExitReason
    reply: Any = UNSET


class Reply(msgspec.Struct, frozen=True):
    """``handle_call`` only: the caller gets the value, then ``then`` happens.

    Any other value that ``handle_call`` returns, also None, is the reply itself.
    """

    value: Any
    then: Then | None = None


class NoReply(msgspec.Struct, frozen=True):
    """Nothing is answered now. A caller waits for ``reply(sender, value)``."""

    then: Then | None = None


def after(where: str, result: object) -> Then | Stop | None:
    """Reads what ``handle_cast``, ``handle_info`` or ``handle_continue`` returned.

    Raises:
        TypeError: It may not return that.
    """
    if result is None:
        return None
    if isinstance(result, NoReply):
        return result.then
    if isinstance(result, Stop):
        return result
    raise bad_return(where, result)


def reason_of(stop: Stop) -> ExitReason:
    """Returns the reason of a ``Stop``.

    Raises:
        TypeError: It is none.
    """
    if not isinstance(stop.reason, ExitReason):
        raise TypeError(f"Stop takes an exit reason such as Normal() or Shutdown(), not {stop.reason!r}.")
    return stop.reason


def bad_return(where: str, result: object) -> TypeError:
    """Makes the error for a return that means nothing."""
    return TypeError(f"{where} may give {_ALLOWED.get(where, 'None, NoReply or Stop')}; it gave {result!r}.")
