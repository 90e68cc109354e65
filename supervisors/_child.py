"""A supervisor's record of one child, and what it tells of it."""

from __future__ import annotations

from typing import TYPE_CHECKING, Literal, TypeAlias

import msgspec
import trio

from supervisors._ref import Ref
from supervisors._specs import ChildSpec, Restart

if TYPE_CHECKING:
    from collections.abc import Callable

    from supervisors._process import Process
    from supervisors._timers import TimerRef

__all__ = ["Aborted", "Child", "ChildCounts", "ChildInfo", "Failed", "Ignored", "Settlement", "Started", "State"]

State: TypeAlias = Literal["starting", "running", "restarting", "stopped"]


class ChildInfo(msgspec.Struct, frozen=True):
    """One child, as ``which_children`` shows it.

    Attributes:
        id: Its id.
        ref: Its process; None while it has none.
        type: As its specification says.
        restart: As its specification says.
        state: ``starting`` while ``init`` runs, ``running``, ``restarting`` while it waits for that, ``stopped``.
        restarts: How often it was restarted automatically, failed attempts included.
        retry_in: Seconds until the next attempt, where it waits for one; else None.
    """

    id: str
    ref: Ref | None
    type: Literal["worker", "supervisor"]
    restart: Restart
    state: State
    restarts: int
    retry_in: float | None


class ChildCounts(msgspec.Struct, frozen=True):
    """How many children there are: specifications, live ones, and of which type they are declared."""

    specs: int
    active: int
    supervisors: int
    workers: int


class Started(msgspec.Struct, frozen=True):
    """A start went well."""

    ref: Ref


class Ignored(msgspec.Struct, frozen=True):
    """A start was declined by the child itself."""


class Failed(msgspec.Struct, frozen=True):
    """A start failed; ``retried`` says that a backoff goes on."""

    cause: BaseException
    retried: bool = False


class Aborted(msgspec.Struct, frozen=True):
    """A start was called off by the supervisor."""


Settlement: TypeAlias = Started | Ignored | Failed | Aborted


class Child:
    """One child.

    Attributes:
        spec: Its specification.
        state: See ``ChildInfo``.
        process: Its current life.
        ref: Its current or last handle.
        stopping: Whether its supervisor is ending it.
        settle: Who is told how the current start went.
        attempt: How many restarts were tried since it last ran well.
        restarts: How many were tried at all.
        timer: The next attempt, or the end of its time to stop.
    """

    __slots__ = ("attempt", "process", "ref", "restarts", "settle", "spec", "state", "stopping", "timer")

    def __init__(self, spec: ChildSpec) -> None:
        self.spec = spec
        self.state: State = "stopped"
        self.process: Process | None = None
        self.ref: Ref | None = None
        self.stopping = False
        self.settle: Callable[[Child, Settlement], object] | None = None
        self.attempt = 0
        self.restarts = 0
        self.timer: TimerRef | None = None

    @property
    def id(self) -> str:
        """Its id."""
        return self.spec.id

    def drop_timer(self) -> None:
        """Cancels what was to happen to it."""
        if self.timer is not None:
            self.timer.cancel()
            self.timer = None

    def info(self) -> ChildInfo:
        """What is told of it."""
        waits = self.state == "restarting" and self.timer is not None
        return ChildInfo(
            id=self.spec.id,
            ref=None if self.process is None else self.process.ref,
            type=self.spec.type,
            restart=self.spec.restart,
            state=self.state,
            restarts=self.restarts,
            retry_in=max(0.0, self.timer.deadline - trio.current_time()) if waits and self.timer else None,
        )
