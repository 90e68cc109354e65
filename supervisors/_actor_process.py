"""The life of an actor: init, one message after the other, terminate."""

from __future__ import annotations

from collections import deque
from functools import partial
from typing import TYPE_CHECKING

import trio
from msgspec import UNSET
from trio.lowlevel import checkpoint, current_task, wait_task_rescheduled

from supervisors._aside import TaskHandle, TasksAside
from supervisors._errors import ServerExit
from supervisors._mailbox import Entry, From, Info, Letter, Mailbox, ParentExit, StopRequest, SystemRequest
from supervisors._messages import TimedOut
from supervisors._process import Owner, Process
from supervisors._reasons import Crashed, ExitReason, Killed, Normal, described, single_leaf
from supervisors._returns import Continue, Ignore, NoReply, Reply, Stop, Then, Timeout, after, bad_return, reason_of
from supervisors._tracing import TraceEvent, TraceKind, Tracer

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable

    from supervisors._actor import Actor
    from supervisors._ref import MonitorRef
    from supervisors._timers import TimerRef

__all__ = ["ActorProcess"]


class ActorProcess(Process):
    """One life of an actor.

    Attributes:
        actor: The user's object.
        mailbox: What waits for it.
        messages_in: How many messages it took.
        messages_out: How many it sent, replies included.
        monitors: Its monitors of others.
        busy_since: Since when a handler runs, on trio's clock; None where none does.
        tracers: Who watches its messages.
    """

    __slots__ = (
        "_aside",
        "_cleanup",
        "_doomed",
        "_farewell",
        "_fault",
        "_idle",
        "_log",
        "_pending",
        "_work",
        "actor",
        "busy_since",
        "mailbox",
        "messages_in",
        "messages_out",
        "monitors",
        "tracers",
    )

    kind = "actor"

    def __init__(self, owner: Owner, label: str, actor: Actor) -> None:
        if getattr(actor, "_process", None) is not None:
            raise ValueError(
                f"start returned the same {type(actor).__name__} as before; each life of a child needs a new one."
            )
        if actor.mailbox_size < 1:
            raise ValueError(f"mailbox_size of {type(actor).__name__} is {actor.mailbox_size}; it must be at least 1.")
        super().__init__(owner, label, actor.name)
        actor._process = self
        self.actor = actor
        self.mailbox = Mailbox(actor.mailbox_size)
        self.messages_in = 0
        self.messages_out = 0
        self.monitors: set[MonitorRef] | None = None
        self.busy_since: float | None = None
        self.tracers: tuple[Tracer, ...] = ()
        self._log: deque[tuple[TraceKind, object, float]] | None = None
        self._work: From | Letter | Info | None = None
        self._pending: set[From] | None = None
        self._farewell: tuple[From, object] | None = None
        self._idle: TimerRef | None = None
        self._aside: TasksAside | None = None
        self._cleanup: trio.CancelScope | None = None
        self._fault: BaseException | None = None
        self._doomed = False

    @property
    def traps(self) -> bool:  # type: ignore[override]
        """Whether exit signals become messages."""
        return self.actor.trap_exit

    # ---- the loop

    async def live(self) -> ExitReason:
        """Runs ``init``, then handles messages until there is a reason to end."""
        if self._doomed:
            await checkpoint()
        self.busy_since = trio.current_time()
        result = await self.actor.init()
        self.busy_since = None
        then: Then | None = None
        if isinstance(result, Ignore):
            self.ignored = True
            return Normal()
        if isinstance(result, Stop):
            reason = reason_of(result)
            self.refusal = ServerExit(reason, f"Its init returned Stop({reason!r}).")
            return reason
        if isinstance(result, Continue | Timeout):
            then = result
        elif result is not None:
            raise bad_return("init", result)
        if self._doomed:
            await checkpoint()
        self.became_ready()
        stop = None if then is None else await self._follow(then)
        return stop or await self._serve()

    async def _serve(self) -> ExitReason:
        mailbox = self.mailbox
        task = current_task()
        while True:
            if not mailbox.queue:
                mailbox.parked = task
                await wait_task_rescheduled(mailbox.unpark)
            else:
                await checkpoint()  # one that never runs dry would starve all others
            if self._doomed:
                await checkpoint()
            if mailbox.suspended:
                entry = mailbox.take_system()
                if entry is None:
                    mailbox.parked = task
                    await wait_task_rescheduled(mailbox.unpark)
                    continue
            elif mailbox.queue:
                entry = mailbox.take()
            else:
                continue
            kind = type(entry)
            if kind is From or kind is Letter or kind is Info:
                stop = await self._handle(entry)  # type: ignore[arg-type]
            else:
                stop = self._handle_system(entry)
            if stop is not None:
                return stop

    async def _handle(self, entry: From | Letter | Info) -> ExitReason | None:
        if self._idle is not None:
            self._idle.cancel()
            self._idle = None
        self._work = entry
        self.messages_in += 1
        self.busy_since = now = trio.current_time()
        actor = self.actor
        result: object
        if type(entry) is From:
            request = entry.request
            self._record("in", request, now)
            entry.started = True
            result = await actor.handle_call(request, entry)
            outcome = self._after_call(entry, result)
        elif type(entry) is Letter:
            self._record("in", entry.message, now)
            outcome = after("handle_cast", await actor.handle_cast(entry.message))
        else:
            self._record("in", entry.message, now)  # type: ignore[union-attr]
            outcome = after("handle_info", await actor.handle_info(entry.message))  # type: ignore[union-attr]
        stop = None if outcome is None else await self._follow(outcome)
        if stop is None:
            self._work = None
            self.busy_since = None
        return stop

    def _after_call(self, sender: From, result: object) -> Then | Stop | None:
        kind = type(result)
        if kind is Reply:
            self.answer(sender, result.value)  # type: ignore[attr-defined]
            return result.then  # type: ignore[attr-defined,no-any-return]
        if kind is NoReply:
            if not sender.settled:
                if self._pending is None:
                    self._pending = set()
                self._pending.add(sender)
            return result.then  # type: ignore[attr-defined,no-any-return]
        if kind is Stop:
            return result  # type: ignore[return-value]
        if kind is Continue or kind is Timeout or kind is Ignore:
            raise bad_return("handle_call", result)
        self.answer(sender, result)
        return None

    async def _follow(self, outcome: Then | Stop) -> ExitReason | None:
        """Does what a handler returned, until the next message may come or there is a reason to end."""
        following: Then | Stop | None = outcome
        while following is not None:
            if isinstance(following, Continue):
                if self.busy_since is None:
                    self.busy_since = trio.current_time()
                following = after("handle_continue", await self.actor.handle_continue(following.arg))
            elif isinstance(following, Timeout):
                self._idle = self.owner.timers.after(following.seconds, self._timed_out)
                following = None
            elif isinstance(following, Stop):
                if following.reply is not UNSET and type(self._work) is From:
                    self._farewell = (self._work, following.reply)
                return reason_of(following)
            else:
                raise bad_return("then", following)
        self.busy_since = None
        return None

    def _timed_out(self) -> None:
        self._idle = None
        if not self.mailbox.queue:  # else a message was there in time
            self.mailbox.put(Info(TimedOut()))

    def _handle_system(self, entry: Entry) -> ExitReason | None:
        if isinstance(entry, StopRequest | ParentExit):
            return entry.reason
        if isinstance(entry, SystemRequest):
            try:
                entry.settle(entry.work())
            except Exception as error:  # noqa: BLE001  (the one who asked is told)
                entry.fail(error)
        return None

    # ---- the end

    async def wind_up(self, reason: ExitReason) -> ExitReason:
        """Ends its tasks, then runs ``terminate`` where that is due, then answers the last caller."""
        due = self.ready and self._signal is None and not self._killed
        reason = await self._end_aside(reason)
        if due and not self._killed:
            reason = await self._end_aside(await self._terminate(reason))
        if self._killed:
            return Killed()
        if self._farewell is not None:
            self.answer(*self._farewell)
        return reason

    async def _terminate(self, reason: ExitReason) -> ExitReason:
        try:
            with trio.CancelScope(shield=True) as self._cleanup:
                await self.actor.terminate(reason)
        except trio.Cancelled:
            raise
        except BaseException as error:  # noqa: BLE001
            self._farewell = None  # that caller learns of the crash instead
            return self.crash(error)
        return reason

    async def _end_aside(self, reason: ExitReason) -> ExitReason:
        if self._aside is not None:
            await self._aside.end()
        if self._fault is not None and not isinstance(reason, Crashed):
            return Crashed(single_leaf(self._fault))
        return reason

    def ended(self, reason: ExitReason) -> None:
        """Fails every caller that waits, and drops the state."""
        if self.tracers:
            self._record("terminate", reason, trio.current_time())
        if self._idle is not None:
            self._idle.cancel()
        for monitor in self.monitors or ():
            monitor.ref._process.unwatch(monitor)
        left: list[object] = [self._work, *(self._pending or ()), *self.mailbox.close()]
        for entry in left:
            if isinstance(entry, From | SystemRequest):
                entry.fail(ServerExit(reason, f"{self.ref!r} {described(reason)}, before it answered."))
            elif isinstance(entry, Letter) and entry.sender_waits is not None:
                entry.sender_waits.settle(None)
        self._work = self._pending = self._farewell = self._aside = self._fault = self.busy_since = None
        self.tracers = ()
        self._log = None
        del self.actor  # who keeps a handle of the dead keeps no state with it

    def last_words(self) -> tuple[object, int]:
        """The message whose handler ran, and how many waited."""
        work = self._work
        message = None if work is None else work.request if isinstance(work, From) else work.message
        return message, len(self.mailbox)

    # ---- signals

    def interrupt(self, reason: ExitReason) -> None:
        """Cancels the handler or the wait for a message."""
        self._doomed = True
        super().interrupt(reason)

    def kill(self) -> None:
        """Cancels also ``terminate``."""
        self._doomed = True
        super().kill()
        if self._cleanup is not None:
            self._cleanup.cancel()

    def shut_down(self, reason: ExitReason) -> None:
        """Lets an actor that traps exits come to it in its turn; interrupts any other, and any ``init``."""
        if self.traps and self.ready:
            self.mailbox.put(ParentExit(reason))
        else:
            self.interrupt(reason)

    def stop_request(self, reason: ExitReason) -> Callable[[], object]:
        """Queues the end behind what waits."""
        entry = StopRequest(reason)
        self.mailbox.put(entry)
        return partial(self.mailbox.remove, entry)

    def fault(self, error: BaseException) -> None:
        """One of its tasks raised: it crashes."""
        if self._fault is None:
            self._fault = error
            self.crash(error)
            self._doomed = True
            self._scope.cancel()

    # ---- what others need

    def inform(self, message: object) -> None:
        """Queues an info message, past the bound."""
        self.mailbox.put(Info(message))

    def answer(self, sender: From, value: object) -> None:
        """Replies to a caller, unless nobody waits any more."""
        if sender.settled:
            return
        self.messages_out += 1
        self._record("reply", value, trio.current_time())
        if self._pending is not None:
            self._pending.discard(sender)
        sender.settle(value)

    def abandon(self, sender: From) -> None:
        """A caller does not wait any more."""
        if not sender.started:
            self.mailbox.remove(sender)
        elif self._pending is not None:
            self._pending.discard(sender)

    def sent(self, message: object) -> None:
        """Counts a message that this actor sent."""
        self.messages_out += 1
        self._record("out", message, trio.current_time())

    def recent(self) -> list[TraceEvent]:
        """The last events, the oldest first."""
        return [TraceEvent(kind, self.ref, message, time) for kind, message, time in self._log or ()]

    def _record(self, kind: TraceKind, message: object, now: float) -> None:
        log = self._log
        if log is None:
            log = self._log = deque(maxlen=self.actor.log_size)
        log.append((kind, message, now))
        if self.tracers:
            event = TraceEvent(kind, self.ref, message, now)
            for tracer in self.tracers:
                tracer(event)

    def start_aside(self, fn: Callable[..., Awaitable[object]], args: tuple[object, ...]) -> TaskHandle:
        """Starts a task beside the mailbox."""
        if self._aside is None:
            self._aside = TasksAside(self)
        handle = self._aside.add()
        self.owner.spawn(self, partial(self._aside.run, handle, fn, args))
        return handle
