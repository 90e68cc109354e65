"""What a tree tells about itself: typed reports, and who listens.

No logging library is inside: attach a handler and do with the reports what you like. Handlers are called at once, in
the task where it happened, so a handler must be quick and must not wait. One that raises is detached and harms nothing.

Normal exits are silent, except those of permanent children. No report carries an actor's state.

Example:
    >>> token = attach(print)
    >>> detach(token)
"""

from __future__ import annotations

from itertools import count
from typing import TYPE_CHECKING, Any, NewType, TypeAlias

import msgspec

from supervisors._reasons import ExitReason
from supervisors._ref import Ref

if TYPE_CHECKING:
    from collections.abc import Callable

__all__ = [
    "ActorCrashed",
    "ChildRestarting",
    "ChildStarted",
    "ChildTerminated",
    "ChildUnresponsive",
    "Event",
    "ShutdownError",
    "StartFailed",
    "SupervisorShutdown",
    "Token",
    "UnexpectedMessage",
    "attach",
    "attached",
    "detach",
    "emit",
]

Token = NewType("Token", int)


class ChildStarted(msgspec.Struct, frozen=True):
    """A child runs: its ``init`` is done."""

    supervisor: Ref
    id: str
    ref: Ref


class ChildTerminated(msgspec.Struct, frozen=True):
    """A child ended by itself: abnormally, or in any way where it is permanent."""

    supervisor: Ref
    id: str
    ref: Ref
    reason: ExitReason


class ChildRestarting(msgspec.Struct, frozen=True):
    """A child will be started again in ``delay`` seconds; ``attempt`` counts from 1 since it last ran."""

    supervisor: Ref
    id: str
    delay: float
    attempt: int


class StartFailed(msgspec.Struct, frozen=True):
    """A start of a child failed: the first one, a restart, or a ``start_child``."""

    supervisor: Ref
    id: str
    cause: BaseException


class ShutdownError(msgspec.Struct, frozen=True):
    """A child that was being stopped ended for another reason than that; ``Killed`` where its time was over."""

    supervisor: Ref
    id: str
    ref: Ref
    reason: ExitReason


class ChildUnresponsive(msgspec.Struct, frozen=True):
    """A killed child still runs after a second: it shields itself. The supervisor keeps waiting for it."""

    supervisor: Ref
    id: str
    ref: Ref


class SupervisorShutdown(msgspec.Struct, frozen=True):
    """A supervisor gave up: too many restarts, or ``auto_shutdown``."""

    supervisor: Ref
    name: str | None
    reason: ExitReason


class ActorCrashed(msgspec.Struct, frozen=True):
    """An exception ended an actor or a task.

    Attributes:
        ref: Which.
        name: Its registered name.
        error: The exception as it came, a group as a group.
        last_message: What it worked on, None where on none.
        mailbox_len: How many messages waited.
        ancestors: The names (else ids) of its supervisors, the nearest first.
    """

    ref: Ref
    name: str | None
    error: BaseException
    last_message: Any
    mailbox_len: int
    ancestors: tuple[str, ...]


class UnexpectedMessage(msgspec.Struct, frozen=True):
    """An actor without a ``handle_info`` for it received a message, or a process without a mailbox did."""

    ref: Ref
    name: str | None
    message: Any


Event: TypeAlias = (
    ChildStarted
    | ChildTerminated
    | ChildRestarting
    | StartFailed
    | ShutdownError
    | ChildUnresponsive
    | SupervisorShutdown
    | ActorCrashed
    | UnexpectedMessage
)

_handlers: dict[Token, Callable[[Event], object]] = {}
_tokens = count(1)


def attach(handler: Callable[[Event], object]) -> Token:
    """Calls ``handler`` with each report of each tree of this interpreter from now on.

    Returns:
        What ``detach`` takes.
    """
    token = Token(next(_tokens))
    _handlers[token] = handler
    return token


def detach(token: Token) -> None:
    """Ends that; a token that is not known does nothing."""
    _handlers.pop(token, None)


def attached() -> bool:
    """Whether anybody listens, so that a report is worth making."""
    return bool(_handlers)


def emit(event: Event) -> None:
    """Calls every handler. One that raises an Exception is detached."""
    for token, handler in list(_handlers.items()):
        try:
            handler(event)
        except Exception:  # noqa: BLE001  (a listener's bug is no reason to harm who is listened to)
            detach(token)
