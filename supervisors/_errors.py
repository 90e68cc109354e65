"""Every error this library raises.

::

    ActorError
    ├─ InvalidChildSpec (also a ValueError)
    ├─ StartError          a child's first start failed
    ├─ AlreadyStarted      start_child: that id runs
    ├─ AlreadyPresent      start_child: that id is known, and does not run
    ├─ NotFound            no such child
    ├─ Running             restart_child, delete_child: it runs
    ├─ Restarting          restart_child, delete_child: it is being restarted
    ├─ MaxChildren         a dynamic supervisor is full
    ├─ AlreadyRegistered   another process has that name
    ├─ CallTimeout (also a TimeoutError)
    ├─ ServerExit          the process ended before it answered
    ├─ NoProcess           nobody is there to answer
    ├─ CallingSelf         an answer that could only come from who waits for it
    ├─ MailboxFull         cast_nowait: no room
    ├─ SupervisorExit      the root ended by itself
    ├─ TaskExit            a task ended without a result
    └─ NotInActor          needs a mailbox, and the caller has none
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from supervisors._reasons import in_words

if TYPE_CHECKING:
    from supervisors._reasons import ExitReason
    from supervisors._ref import Ref

__all__ = [
    "ActorError",
    "AlreadyPresent",
    "AlreadyRegistered",
    "AlreadyStarted",
    "CallTimeout",
    "CallingSelf",
    "InvalidChildSpec",
    "MailboxFull",
    "MaxChildren",
    "NoProcess",
    "NotFound",
    "NotInActor",
    "Restarting",
    "Running",
    "ServerExit",
    "StartError",
    "SupervisorExit",
    "TaskExit",
]


class ActorError(Exception):
    """The base of all errors of this library."""


class InvalidChildSpec(ActorError, ValueError):
    """A child specification, or a supervisor's options, cannot work."""


class StartError(ActorError):
    """A child could not be started.

    Attributes:
        id: The child's id.
        cause: The exception of its ``init``; a ``ServerExit`` where ``init`` returned ``Stop``; a nested
            ``StartError`` where the child is a supervisor; an ``AlreadyRegistered`` where its name was taken.
    """

    def __init__(self, id: str, cause: BaseException) -> None:
        super().__init__(id, cause)
        self.id = id
        self.cause = cause

    def __str__(self) -> str:
        return f"Child {self.id!r} could not be started: {type(self.cause).__name__}: {in_words(self.cause)}"


class _AboutRef(ActorError):
    """An error about one process, which it carries as ``ref``."""

    def __init__(self, ref: Ref, message: str) -> None:
        super().__init__(message)
        self.ref = ref


class AlreadyStarted(_AboutRef):
    """``start_child``: a child of that id runs already.

    Attributes:
        ref: That child.
    """


class AlreadyPresent(ActorError):
    """``start_child``: a child of that id is known and does not run; restart or delete it."""


class AlreadyRegistered(_AboutRef):
    """A name belongs to another process.

    Attributes:
        ref: Whose it is.
    """


class NotFound(ActorError):
    """The supervisor has no such child."""


class Running(ActorError):
    """``restart_child`` and ``delete_child`` need a child that does not run; terminate it first."""


class Restarting(ActorError):
    """The child is just being started again; terminate it first, or wait."""


class MaxChildren(ActorError):
    """A dynamic supervisor has as many children as it may."""


class CallTimeout(ActorError, TimeoutError):
    """No answer came in time. The server goes on; an answer that comes later is dropped."""


class _WithReason(ActorError):
    """An error that carries the exit reason it is about."""

    def __init__(self, reason: ExitReason, message: str) -> None:
        super().__init__(message)
        self.reason = reason


class ServerExit(_WithReason):
    """The process that should have answered ended.

    Attributes:
        reason: Why it ended.
    """


class NoProcess(ActorError):
    """There is no process of that name, it is dead, or it takes no messages."""


class CallingSelf(ActorError):
    """The caller waits for an answer that only the caller could give: a deadlock, found before it happens."""


class MailboxFull(ActorError):
    """``cast_nowait`` found no room in the mailbox; ``cast`` would have waited."""


class SupervisorExit(_WithReason):
    """The root supervisor ended by itself, so the body of ``open_supervisor`` was cancelled.

    Attributes:
        reason: Why it ended.
    """


class TaskExit(_WithReason):
    """A task ended without a result.

    Attributes:
        reason: Why it ended.
    """


class NotInActor(ActorError):
    """The function answers to the calling actor, and no actor calls it."""
