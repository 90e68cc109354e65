"""What every process is: a task with an end, and others that want to know of it.

A process is one trio task in its supervisor's nursery. Signals (exit, kill, shutdown) are cancellations of a scope of
its own, with a reason beside it; what comes out of the task becomes an exit reason, outside that scope.
"""

from __future__ import annotations

import weakref
from itertools import count
from typing import TYPE_CHECKING, ClassVar, Literal, Protocol

import trio

from supervisors import _names, events
from supervisors._current import CURRENT
from supervisors._messages import Exit
from supervisors._reasons import Crashed, ExitReason, Killed, NoProc, Normal, Shutdown, single_leaf
from supervisors._ref import Ref

if TYPE_CHECKING:
    from collections.abc import Callable

    from supervisors._timers import Timers

__all__ = ["Owner", "Process"]


_numbers = count(1)


class Owner(Protocol):
    """Who started a process and is told of it: its supervisor, or the opener of the root."""

    timers: Timers

    def child_ready(self, process: Process) -> None:
        """Its ``init`` is done."""

    def child_ended(self, process: Process, reason: ExitReason) -> None:
        """Its task is over, its name is free, and everyone else was told."""

    def spawn(self, process: Process, task: Callable[[], object]) -> None:
        """Runs a task in the nursery the process is in."""

    def lineage(self) -> tuple[str, ...]:
        """The owner's label and those of its own owners, the nearest first."""


class Process:
    """One life of an actor, a task or a supervisor.

    Attributes:
        label: What people call it: its child id.
        name: What it is registered under.
        ready: Whether its ``init`` is done.
        number: What tells its handle apart.
        alive: Whether its task is not over.
        ignored: Whether ``init`` returned Ignore.
        refusal: The error of an ``init`` that returned Stop.
        fatal: A KeyboardInterrupt or SystemExit that has to leave the tree.
    """

    __slots__ = (
        "_killed",
        "_links",
        "_ref",
        "_scope",
        "_signal",
        "_watchers",
        "alive",
        "fatal",
        "ignored",
        "label",
        "name",
        "number",
        "owner",
        "ready",
        "refusal",
        "started_at",
    )

    kind: ClassVar[Literal["actor", "task", "supervisor"]] = "task"
    traps: ClassVar[bool] = False

    def __init__(self, owner: Owner, label: str, name: str | None = None) -> None:
        self.owner = owner
        self.label = label
        self.name = name
        self.number = next(_numbers)
        self.alive = True
        self.ready = False
        self._ref: weakref.ref[Ref] | None = None
        self.ignored = False
        self.refusal: BaseException | None = None
        self.fatal: BaseException | None = None
        self.started_at = trio.current_time()
        self._scope = trio.CancelScope()
        self._signal: ExitReason | None = None
        self._killed = False
        self._links: set[Process] | None = None
        self._watchers: dict[object, Callable[[ExitReason], object]] | None = None
        if name is not None:
            _names.register(name, self)

    @property
    def ref(self) -> Ref:
        """Its public handle. It is only weakly held, so that a dead process is freed at once, without a cycle."""
        ref = None if self._ref is None else self._ref()
        if ref is None:
            ref = Ref(self)
            self._ref = weakref.ref(ref)
        return ref

    # ---- its task

    async def run(self) -> None:
        """The whole life, as a task; raises nothing but trio's Cancelled."""
        CURRENT.set(self)
        reason: ExitReason = Shutdown()
        try:
            try:
                with self._scope:
                    reason = await self.live()
            except trio.Cancelled:
                raise
            except BaseException as error:  # noqa: BLE001
                reason = self.crash(error)
            else:
                reason = self._signal or reason
            reason = await self.wind_up(Killed() if self._killed else reason)
        finally:
            self._end(reason)
            # The traceback of a crash holds this frame: without this, the error would hold itself.
            del reason

    async def live(self) -> ExitReason:
        """What the process does, in its scope; returns why it ended."""
        raise NotImplementedError

    async def wind_up(self, reason: ExitReason) -> ExitReason:
        """What is left to do when the scope is closed; returns the final reason."""
        return reason

    def crash(self, error: BaseException) -> ExitReason:
        """Makes an exit reason of what the task raised, and reports it.

        Raises:
            BaseException: A Cancelled that is not the process's own, so that it passes.
        """
        if isinstance(error, BaseExceptionGroup):
            foreign = error.split(trio.Cancelled)[0]
            if foreign is not None:
                raise error
            interrupts = error.split((KeyboardInterrupt, SystemExit))[0]
            if interrupts is not None:
                self.fatal = single_leaf(interrupts)
        elif not isinstance(error, Exception):
            self.fatal = error
        if self.ready and not self._killed and isinstance(error, Exception):
            self.report_crash(error)
        return Crashed(single_leaf(error))

    def report_crash(self, error: BaseException) -> None:
        """Tells the listeners about an exception."""
        if events.attached():
            last, waiting = self.last_words()
            events.emit(
                events.ActorCrashed(
                    ref=self.ref,
                    name=self.name,
                    error=error,
                    last_message=last,
                    mailbox_len=waiting,
                    ancestors=self.owner.lineage(),
                )
            )

    def last_words(self) -> tuple[object, int]:
        """What it worked on, and how many messages waited."""
        return None, 0

    def became_ready(self) -> None:
        """Marks the end of ``init``."""
        self.ready = True
        self.started_at = trio.current_time()
        self.owner.child_ready(self)

    def _end(self, reason: ExitReason) -> None:
        self.alive = False
        if self.name is not None:
            _names.unregister(self.name, self)
        self.ended(reason)
        watchers, self._watchers = self._watchers, None
        for watcher in (watchers or {}).values():
            watcher(reason)
        links, self._links = self._links, None
        for peer in links or ():
            peer.unlink(self)
            peer.signal(reason, self)
        self._signal = None
        self.owner.child_ended(self, reason)

    def ended(self, reason: ExitReason) -> None:
        """Lets go of what the process held; its callers are told here."""

    # ---- others

    def watch(self, key: object, watcher: Callable[[ExitReason], object]) -> None:
        """Calls ``watcher`` with the reason at the end of this process, which must live."""
        if self._watchers is None:
            self._watchers = {}
        self._watchers[key] = watcher

    def unwatch(self, key: object) -> None:
        """Takes that back."""
        if self._watchers is not None:
            self._watchers.pop(key, None)

    def link(self, peer: Process) -> None:
        """Links both ways; a dead peer is an exit signal NoProc at once."""
        if peer is self:
            return
        if not peer.alive:
            self.signal(NoProc(), peer)
            return
        for one, other in ((self, peer), (peer, self)):
            if one._links is None:
                one._links = set()
            one._links.add(other)

    def unlink(self, peer: Process) -> None:
        """Takes a link back, both ways."""
        for one, other in ((self, peer), (peer, self)):
            if one._links is not None:
                one._links.discard(other)

    # ---- signals

    def signal(self, reason: ExitReason, sender: Process | None) -> None:
        """An exit signal of a linked process, or of ``exit``."""
        if not self.alive:
            return
        if self.traps:
            self.inform(Exit(sender.ref if sender is not None else None, reason))
        elif not isinstance(reason, Normal) or sender is self:
            self.interrupt(reason)

    def interrupt(self, reason: ExitReason) -> None:
        """Cancels what it does; it ends for this reason without ``terminate``."""
        if self._signal is None:
            self._signal = reason
            self._scope.cancel()

    def kill(self) -> None:
        """Cancels whatever it does, also its ``terminate``."""
        if self.alive:
            self._killed = True
            self._scope.cancel()

    def shut_down(self, reason: ExitReason) -> None:
        """Its supervisor wants it to end."""
        self.interrupt(reason)

    def stop_request(self, reason: ExitReason) -> Callable[[], object]:
        """Somebody wants it to end in good order; returns how to take that back."""
        self.shut_down(reason)
        return lambda: None

    def inform(self, message: object) -> None:
        """An info message; a process without a mailbox has no use for any."""
        if events.attached():
            events.emit(events.UnexpectedMessage(self.ref, self.name, message))
