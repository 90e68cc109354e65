"""What all supervisors do: start children, hear of their ends, restart them, stop them.

Nothing here waits. A child's task tells how its start and its end went; a timer tells that a delay or a time to stop is
over; each is answered at once. So administration is answered at all times, whatever a child's ``init`` is doing. What
must happen one after the other (the first start, groups, an ordered stop) is a sequence of awaits over these steps.
"""

from __future__ import annotations

from contextvars import Context, copy_context
from functools import partial
from typing import TYPE_CHECKING

import trio

from supervisors import events
from supervisors._child import Aborted, Child, Failed, Ignored, Settlement, Started
from supervisors._current import ASIDE
from supervisors._errors import ServerExit, StartError
from supervisors._intensity import Intensity
from supervisors._process import Owner, Process
from supervisors._reasons import Crashed, ExitReason, Killed, Normal, Shutdown, described, is_normal
from supervisors._ref import Ref
from supervisors._waiter import Waiter

if TYPE_CHECKING:
    from collections.abc import Callable

    from supervisors._specs import ChildSpec, Strategy

__all__ = ["Lifecycle"]

_PATIENCE = 1.0
"""Seconds after a kill until a child that still runs is reported."""


class Lifecycle(Process):
    """One life of a supervisor, without what it answers to others.

    Attributes:
        children: By id, in the order in which they were added.
        stop_reason: Why it is ending; None while it is not.
    """

    __slots__ = ("_context", "_intensity", "_nursery", "_start_error", "_work", "children", "stop_reason", "timers")

    kind = "supervisor"
    traps = True
    strategy: Strategy = "one_for_one"

    def __init__(self, owner: Owner, label: str, name: str | None, intensity: Intensity) -> None:
        super().__init__(owner, label, name)
        self.timers = owner.timers
        self.children: dict[str, Child] = {}
        self.stop_reason: ExitReason | None = None
        self._intensity = intensity
        self._start_error: StartError | None = None
        self._work: trio.CancelScope | None = None
        self._nursery: trio.Nursery
        self._context: Context

    # ---- its task

    async def live(self) -> ExitReason:
        """Starts the children, supervises until there is a reason to stop, stops them."""
        ASIDE.set(False)  # a tree may be opened in a task beside an actor
        self._context = copy_context()
        async with trio.open_nursery() as self._nursery:
            with trio.CancelScope() as self._work:
                if self.stop_reason is None:
                    await self.supervise()
            await self.stop_children()
        if self.fatal is not None:
            raise self.fatal
        if self._start_error is not None:
            raise self._start_error
        return self.stop_reason or Shutdown()

    async def supervise(self) -> None:
        """Whatever it does until it is stopped."""
        self.became_ready()
        await trio.sleep_forever()

    async def stop_children(self) -> None:
        """Ends all children; the nursery waits for the last."""
        for child in list(self.children.values()):
            self.begin_stop(child)

    def request_stop(self, reason: ExitReason) -> None:
        """Lets it end, children first; the first reason counts."""
        if self.stop_reason is None and self.alive:
            self.stop_reason = reason
            if self._work is not None:
                self._work.cancel()

    def give_up(self) -> None:
        """Ends it by its own decision."""
        reason = Shutdown()
        if self.stop_reason is None:
            events.emit(events.SupervisorShutdown(self.ref, self.name, reason))
        self.request_stop(reason)

    # ---- signals

    def signal(self, reason: ExitReason, sender: Process | None) -> None:
        """A supervisor heeds no one's exit signals but its own supervisor's."""

    def interrupt(self, reason: ExitReason) -> None:
        """Ends it in good order."""
        self.request_stop(reason)

    def kill(self) -> None:
        """Kills the whole subtree at once."""
        if self.alive:
            self._killed = True
            self.request_stop(Killed())
            for child in list(self.children.values()):
                if child.process is not None:
                    child.process.kill()

    # ---- what children tell

    def lineage(self) -> tuple[str, ...]:
        """Its name or id, and those of its own supervisors."""
        return (self.name or self.label, *self.owner.lineage())

    def spawn(self, process: Process, task: Callable[[], object]) -> None:
        """Runs a task beside its children; the caller's context is inherited."""
        self._nursery.start_soon(task, name=f"{process.label}: task")  # type: ignore[arg-type]

    def child_ready(self, process: Process) -> None:
        """A child's ``init`` is done."""
        child = self.children[process.label]
        child.state = "running"
        if child.spec.backoff is None:
            child.attempt = 0
        if events.attached():
            events.emit(events.ChildStarted(self.ref, child.id, process.ref))
        self._settle(child, Started(process.ref))

    def child_ended(self, process: Process, reason: ExitReason) -> None:
        """A child's task is over."""
        child = self.children[process.label]
        child.process = None
        child.drop_timer()
        stopping, child.stopping = child.stopping, False
        if process.fatal is not None:
            self.fatal = process.fatal
            self.request_stop(reason)
        if process.ready and not stopping:
            self._exited(child, process, reason)
        elif process.ready:
            self._report_stop(child, process.ref, reason)
            self.rest(child)
        elif process.ignored:
            self.rest(child)
            self._settle(child, Ignored())
        elif stopping or self.stop_reason is not None:
            self.rest(child)
            self._settle(child, Aborted())
        else:
            cause = reason.error if isinstance(reason, Crashed) else None
            self._start_failed(
                child, cause or process.refusal or ServerExit(reason, f"It {described(reason)}, in its init.")
            )

    def _exited(self, child: Child, process: Process, reason: ExitReason) -> None:
        restart = child.spec.restart
        wanted = restart == "permanent" or (restart == "transient" and not is_normal(reason))
        if restart == "permanent" or not is_normal(reason):
            events.emit(events.ChildTerminated(self.ref, child.id, process.ref, reason))
        if not wanted or self.stop_reason is not None:
            self.rest(child)
            if child.spec.significant:
                self.significant_ended()
            return
        backoff = child.spec.backoff
        if backoff is not None and trio.current_time() - process.started_at >= backoff.reset_after:
            child.attempt = 0
        self.restart_wanted(child)

    def _report_stop(self, child: Child, ref: Ref, reason: ExitReason) -> None:
        expected = (
            isinstance(reason, Shutdown)
            or (isinstance(reason, Normal) and child.spec.restart != "permanent")
            or (isinstance(reason, Killed) and (self._killed or child.spec.shutdown == "brutal_kill"))
        )
        if not expected:
            events.emit(events.ShutdownError(self.ref, child.id, ref, reason))

    def _start_failed(self, child: Child, cause: BaseException) -> None:
        events.emit(events.StartFailed(self.ref, child.id, cause))
        retried = child.spec.backoff is not None and child.spec.restart != "temporary"
        if retried:
            self._wait_to_restart(child)
        else:
            child.state = "stopped"
        self._settle(child, Failed(cause, retried))

    def _settle(self, child: Child, settlement: Settlement) -> None:
        settle, child.settle = child.settle, None
        if settle is not None:
            settle(child, settlement)

    def significant_ended(self) -> None:
        """A significant child ended for good."""

    # ---- starting

    def launch(self, child: Child, settle: Callable[[Child, Settlement], object]) -> None:
        """Starts one life of a child; ``settle`` is told how it went, once."""
        child.drop_timer()
        child.settle = settle
        if self.stop_reason is not None:
            self.rest(child)
            self._settle(child, Aborted())
            return
        child.state = "starting"
        try:
            process = self._context.run(self.make, child.spec)
        except Exception as error:  # noqa: BLE001  (the user's factory raised, or a name is taken)
            self._start_failed(child, error)
            return
        except (KeyboardInterrupt, SystemExit) as error:
            self.fatal = error
            self.request_stop(Crashed(error))
            self.rest(child)
            self._settle(child, Aborted())
            return
        child.process = process
        child.ref = process.ref
        self._context.run(partial(self._nursery.start_soon, process.run, name=child.id))

    def make(self, spec: ChildSpec) -> Process:
        """Calls the factory and makes a process of what it returned."""
        from supervisors._birth import process_for  # noqa: PLC0415  (supervisors are among what it makes)

        return process_for(self, spec.id, spec.start())

    async def start(self, child: Child) -> Settlement:
        """Launches a child and waits for its ``init``."""
        waiter: Waiter[Settlement] = Waiter()
        self.launch(child, lambda _, settlement: waiter.settle(settlement))
        return await waiter.wait()

    # ---- restarting

    def restart_wanted(self, child: Child) -> None:
        """A child has to be started again."""
        if child.spec.backoff is not None:
            self._wait_to_restart(child)
        else:
            self._restart_at_once(child)

    def count_restart(self) -> bool:
        """Counts a restart toward the intensity; gives up where it is one too many."""
        if self._intensity.allows(trio.current_time()):
            return True
        self.give_up()
        return False

    def _restart_at_once(self, child: Child) -> None:
        child.timer = None
        child.state = "restarting"
        if self.count_restart():
            child.attempt += 1
            events.emit(events.ChildRestarting(self.ref, child.id, 0.0, child.attempt))
            self._restart(child)

    def _wait_to_restart(self, child: Child) -> None:
        assert child.spec.backoff is not None  # noqa: S101
        child.state = "restarting"
        child.attempt += 1
        delay = child.spec.backoff.delay(child.attempt)
        child.timer = self.timers.after(delay, partial(self._restart, child))
        events.emit(events.ChildRestarting(self.ref, child.id, delay, child.attempt))

    def _restart(self, child: Child) -> None:
        child.restarts += 1
        self.launch(child, self._restarted)

    def _restarted(self, child: Child, settlement: Settlement) -> None:
        if isinstance(settlement, Failed) and not settlement.retried:
            child.state = "restarting"
            child.timer = self.timers.after(0, partial(self._restart_at_once, child))

    # ---- stopping

    def begin_stop(self, child: Child) -> None:
        """Ends a child: in good order, by force when its time is over; calls a start off."""
        process = child.process
        if child.stopping:
            return
        child.drop_timer()
        if process is None:
            self.rest(child)
            return
        child.stopping = True
        seconds = child.spec.seconds_to_stop(process.kind == "supervisor")
        if seconds == "brutal_kill":
            self._overdue(child)
            return
        if not isinstance(seconds, str) and seconds < float("inf"):
            child.timer = self.timers.after(seconds, partial(self._overdue, child))
        process.shut_down(Shutdown())

    async def stop(self, child: Child) -> None:
        """Ends a child and waits for that."""
        process = child.process
        self.begin_stop(child)
        if process is not None:
            waiter: Waiter[ExitReason] = Waiter()
            process.watch(waiter, waiter.settle)
            await waiter.wait()

    def _overdue(self, child: Child) -> None:
        if child.process is not None:
            child.timer = self.timers.after(_PATIENCE, partial(self._unresponsive, child))
            child.process.kill()

    def _unresponsive(self, child: Child) -> None:
        child.timer = None
        if child.process is not None:
            events.emit(events.ChildUnresponsive(self.ref, child.id, child.process.ref))

    def keeps(self, child: Child) -> bool:
        """Whether the specification of a child that ended for good stays."""
        return child.spec.restart != "temporary"

    def rest(self, child: Child) -> None:
        """A child does not run and will not by itself."""
        child.state = "stopped"
        if not self.keeps(child):
            self.forget(child)

    def forget(self, child: Child) -> None:
        """Drops a child's specification."""
        if self.children.get(child.id) is child:
            del self.children[child.id]
