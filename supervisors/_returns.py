"""What an actor's functions return to say what happens next.

They mirror the tuples of GenServer: https://hexdocs.pm/elixir/GenServer.html#callbacks.
"""

from __future__ import annotations

from typing import Any, TypeAlias

import msgspec
from msgspec import UNSET

from supervisors._reasons import ExitReason

__all__ = ["Continue", "Ignore", "NoReply", "Reply", "Stop", "Then", "Timeout"]


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
