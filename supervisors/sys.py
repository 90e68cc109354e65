"""Looking into a running tree, and into one actor; OTP's ``sys`` module (https://www.erlang.org/doc/apps/stdlib/sys.html).

What only looks (``statistics``, ``tree``, ``log``, ``trace``) is answered at once, whatever a handler does; its answers
may be awaited like all others of this library, or used as they are. What touches the actor (``get_state``,
``replace_state``, ``suspend``, ``resume``) takes its turn between two messages.
"""

from __future__ import annotations

import math
from collections.abc import Generator
from functools import partial
from typing import TYPE_CHECKING, Any, Literal, TypeVar

import msgspec
from trio.lowlevel import checkpoint

from supervisors._actor_process import ActorProcess
from supervisors._child import State
from supervisors._current import ASIDE, CURRENT
from supervisors._errors import CallingSelf, CallTimeout
from supervisors._mailbox import SystemRequest
from supervisors._ref import Ref
from supervisors._specs import Restart, Strategy
from supervisors._supervision import SupervisorProcess
from supervisors._target import actor_of, present
from supervisors._tracing import TraceEvent, Tracer

if TYPE_CHECKING:
    from collections.abc import Callable

    from supervisors._child import Child
    from supervisors._process import Process

__all__ = [
    "Log",
    "Statistics",
    "Trace",
    "TraceEvent",
    "Tree",
    "get_state",
    "log",
    "replace_state",
    "resume",
    "statistics",
    "suspend",
    "trace",
    "tree",
]

T = TypeVar("T")
Answer = TypeVar("Answer", bound="_AtOnce")


class _AtOnce:
    """An answer that is there already; awaiting it is a checkpoint and gives the answer itself."""

    __slots__ = ()

    def __await__(self: Answer) -> Generator[Any, Any, Answer]:
        yield from checkpoint().__await__()  # noqa: ASYNC105
        return self


class Statistics(_AtOnce, msgspec.Struct, frozen=True):
    """The figures of one process.

    Attributes:
        started_at: Since when it runs, in seconds of trio's clock.
        messages_in: How many messages it took.
        messages_out: How many it sent, replies included.
        mailbox_len: How many wait.
        busy_since: Since when its handler runs, in seconds of trio's clock; None where none does.
    """

    started_at: float
    messages_in: int
    messages_out: int
    mailbox_len: int
    busy_since: float | None


class Tree(_AtOnce, msgspec.Struct, frozen=True):
    """A process and all below it.

    Attributes:
        id: Its child id; the root's is ``"root"``.
        ref: Its handle; None while it has no process.
        name: Its registered name.
        kind: What it is; None while it has no process.
        state: As ``which_children`` shows it.
        restart: Its restart type; None for the process that was asked for.
        restarts: How often it was restarted automatically.
        retry_in: Seconds until the next attempt, where it waits for one.
        strategy: A supervisor's; else None.
        children: In the order of their specifications.
    """

    id: str
    ref: Ref | None
    name: str | None
    kind: Literal["actor", "task", "supervisor"] | None
    state: State
    restart: Restart | None
    restarts: int
    retry_in: float | None
    strategy: Strategy | None
    children: tuple[Tree, ...]


class Log(_AtOnce, list[TraceEvent]):
    """The last events of an actor, the oldest first."""


class Trace(_AtOnce):
    """A running trace."""

    __slots__ = ("_process", "_tracer")

    def __init__(self, process: ActorProcess, tracer: Tracer) -> None:
        self._process = process
        self._tracer = tracer

    def stop(self) -> None:
        """Ends it; again does nothing."""
        self._process.tracers = tuple(tracer for tracer in self._process.tracers if tracer is not self._tracer)


async def get_state(ref: Ref | str, *, timeout: float = 5.0) -> Any:
    """Returns ``actor.get_state()``: a shallow copy of its attributes, unless overridden.

    It takes its turn in the mailbox, so it also shows what every earlier cast did.

    Raises:
        CallTimeout: The actor did not come to it in time.
        ServerExit: The actor ended before.
        NoProcess: There is no such actor.
        CallingSelf: An actor asks itself.
    """
    process = actor_of(ref)
    return await _between_messages(process, process.actor.get_state, timeout)


async def replace_state(ref: Ref | str, fn: Callable[[Any], Any], *, timeout: float = 5.0) -> Any:
    """Gives the actor the state ``fn(actor.get_state())``.

    Returns:
        The new state.

    Raises:
        Exception: What ``fn`` raised; the state is as it was.
        CallTimeout: The actor did not come to it in time.
        ServerExit: The actor ended before.
        NoProcess: There is no such actor.
        CallingSelf: An actor asks itself.
    """
    process = actor_of(ref)

    def replace() -> Any:
        state = fn(process.actor.get_state())
        process.actor.set_state(state)
        return state

    return await _between_messages(process, replace, timeout)


async def suspend(ref: Ref | str, *, timeout: float = 5.0) -> None:
    """Stops the handling of messages until ``resume``; they queue. These functions, ``stop`` and exits still work.

    Raises:
        CallTimeout: The actor did not come to it in time.
        ServerExit: The actor ended before.
        NoProcess: There is no such actor.
        CallingSelf: An actor suspends itself.
    """
    process = actor_of(ref)
    await _between_messages(process, partial(setattr, process.mailbox, "suspended", True), timeout)


async def resume(ref: Ref | str, *, timeout: float = 5.0) -> None:
    """Ends ``suspend``.

    Raises:
        CallTimeout: The actor did not come to it in time.
        ServerExit: The actor ended before.
        NoProcess: There is no such actor.
        CallingSelf: An actor resumes itself.
    """
    process = actor_of(ref)
    await _between_messages(process, partial(setattr, process.mailbox, "suspended", False), timeout)


async def _between_messages(process: ActorProcess, work: Callable[[], T], timeout: float) -> T:
    if CURRENT.get() is process and not ASIDE.get():
        raise CallingSelf(f"{process.ref!r} asked about itself, and would wait for itself for ever.")
    request = SystemRequest(process.mailbox, work)
    process.mailbox.put(request)
    if timeout == math.inf:
        return await request.wait()

    def late() -> None:
        request.fail(CallTimeout(f"{process.ref!r} did not come to a system request within {timeout:g} s."))
        process.mailbox.remove(request)

    timer = process.owner.timers.after(timeout, late)
    try:
        return await request.wait()
    finally:
        timer.cancel()


def statistics(ref: Ref | str) -> Statistics:
    """Returns the figures of a process, also while a handler blocks.

    Raises:
        NoProcess: There is no such process.
    """
    process = present(ref)
    if not isinstance(process, ActorProcess):
        return Statistics(process.started_at, 0, 0, 0, None)
    return Statistics(
        started_at=process.started_at,
        messages_in=process.messages_in,
        messages_out=process.messages_out,
        mailbox_len=len(process.mailbox),
        busy_since=process.busy_since,
    )


def trace(ref: Ref | str, on_event: Callable[[TraceEvent], object]) -> Trace:
    """Calls ``on_event`` with each message an actor takes, sends and answers, and with its end.

    It is called at once, in the actor's task, so it must be quick. Where it raises, the trace ends, and nothing else.

    Raises:
        NoProcess: There is no such actor.
    """
    process = actor_of(ref)

    def tracer(event: TraceEvent) -> None:
        try:
            on_event(event)
        except Exception:  # noqa: BLE001  (the watcher's bug is no reason to harm who is watched)
            made.stop()

    made = Trace(process, tracer)
    process.tracers = (*process.tracers, tracer)
    return made


def log(ref: Ref | str, n: int) -> Log:
    """Returns the last ``n`` events of an actor; it remembers ``Actor.log_size`` of them.

    Raises:
        NoProcess: There is no such actor.
        ValueError: ``n`` is negative.
    """
    if n < 0:
        raise ValueError(f"The last n events can be had for n of 0 or more, not {n}.")
    events = actor_of(ref).recent()
    return Log(events[max(0, len(events) - n) :])


def tree(root: Ref | str) -> Tree:
    """Returns a process and all below it, as plain data.

    Raises:
        NoProcess: There is no such process.
    """
    process = present(root)
    return _branch(process, process.label, "running" if process.ready else "starting", None)


def _branch(process: Process | None, id: str, state: State, child: Child | None) -> Tree:
    supervisor = process if isinstance(process, SupervisorProcess) else None
    info = None if child is None else child.info()
    children = () if supervisor is None else tuple(supervisor.children.values())
    return Tree(
        id=id,
        ref=None if process is None else process.ref,
        name=None if process is None else process.name,
        kind=None if process is None else process.kind,
        state=state,
        restart=None if info is None else info.restart,
        restarts=0 if info is None else info.restarts,
        retry_in=None if info is None else info.retry_in,
        strategy=None if supervisor is None else supervisor.strategy,
        children=tuple(_branch(below.process, below.id, below.state, below) for below in children),
    )
