"""Supervised functions that run once: a supervisor for them, and their results."""

from __future__ import annotations

from functools import partial
from itertools import count
from typing import TYPE_CHECKING, Any, Generic, TypeVar, cast

from trio.lowlevel import checkpoint

from supervisors._child import Child
from supervisors._current import CURRENT
from supervisors._errors import MaxChildren, TaskExit
from supervisors._function_process import FunctionProcess
from supervisors._intensity import Intensity
from supervisors._process import Owner, Process
from supervisors._reasons import ExitReason, Normal, described
from supervisors._specs import ChildSpec, check_limit
from supervisors._supervision import SupervisorProcess
from supervisors._target import supervisor_of
from supervisors._waiter import Waiter

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable

    from supervisors._ref import Ref

__all__ = ["Task", "TaskSupervisor", "async_nolink", "async_task", "start_task"]

T = TypeVar("T")

_SECONDS_TO_STOP = 5.0


class TaskSupervisor:
    """Runs functions as temporary children: none is started again, each has 5 seconds to stop.

    It is Elixir's: https://hexdocs.pm/elixir/Task.Supervisor.html.

    Args:
        max_children: So many at a time; None for any number.
        name: What it is registered under while it runs.

    Raises:
        InvalidChildSpec: An option that cannot work.
    """

    def __init__(self, *, max_children: int | None = None, name: str | None = None) -> None:
        check_limit(max_children)
        self._max_children = max_children
        self._name = name

    def process(self, owner: Owner, label: str) -> SupervisorProcess:
        """Makes one life of it; for supervisors, not for users."""
        return _TaskSupervisorProcess(owner, label, self._name, self._max_children)


class _TaskSupervisorProcess(SupervisorProcess):
    """One life of a ``TaskSupervisor``."""

    __slots__ = ("_max_children", "_serial")

    def __init__(self, owner: Owner, label: str, name: str | None, max_children: int | None) -> None:
        super().__init__(owner, label, name, Intensity(0, 1.0))  # nothing is ever restarted
        self._max_children = max_children
        self._serial = count(1)

    def make(self, spec: ChildSpec) -> Process:
        """Makes a process of the function itself."""
        return FunctionProcess(self, spec.id, spec.start)

    async def start_child(self, spec: ChildSpec) -> Ref | None:
        """Refuses: what it runs are functions.

        Raises:
            TypeError: Always.
        """
        raise TypeError(
            f"{self.ref!r} is a TaskSupervisor; it runs functions, by start_task, async_task or async_nolink."
        )

    def run_function(
        self, fn: Callable[..., Awaitable[Any]], args: tuple[Any, ...], began: Waiter[None]
    ) -> FunctionProcess:
        """Starts a function; ``began`` is settled when it runs, or never will.

        Raises:
            MaxChildren: There are as many as there may be.
        """
        if self._max_children is not None and len(self.children) >= self._max_children:
            raise MaxChildren(f"Supervisor {self.label!r} runs its {self._max_children} tasks; wait for one to end.")
        id = f"{getattr(fn, '__name__', type(fn).__name__)}-{next(self._serial)}"
        child = Child(ChildSpec(id=id, start=partial(fn, *args), restart="temporary", shutdown=_SECONDS_TO_STOP))
        self.children[id] = child
        self.launch(child, lambda _child, _settlement: began.settle(None))
        return cast("FunctionProcess", child.process)


class Task(Generic[T]):
    """A function that runs under a ``TaskSupervisor``.

    Attributes:
        ref: Its process.
    """

    __slots__ = ("_process", "_reason", "_waiters", "ref")

    def __init__(self, process: FunctionProcess) -> None:
        self._process = process
        self._reason: ExitReason | None = None
        self._waiters: list[Waiter[ExitReason]] = []
        self.ref = process.ref
        process.watch(self, self._ended)

    def _ended(self, reason: ExitReason) -> None:
        self._reason = reason
        waiters, self._waiters = self._waiters, []
        for waiter in waiters:
            waiter.settle(reason)

    async def result(self) -> T:
        """Waits for the end and returns what the function returned; also later, and as often as wanted.

        Raises:
            TaskExit: It raised, was cancelled or was killed; the reason says which.
        """
        reason = self._reason
        if reason is None:
            waiter: Waiter[ExitReason] = Waiter()
            self._waiters.append(waiter)
            try:
                reason = await waiter.wait()
            except BaseException:
                self._waiters.remove(waiter)
                raise
        else:
            await checkpoint()
        if not isinstance(reason, Normal):
            raise TaskExit(reason, f"Task {self._process.label!r} {described(reason)}.")
        return cast("T", self._process.result)


async def start_task(sup: Ref | str, fn: Callable[..., Awaitable[Any]], *args: Any) -> Ref:
    """Runs ``fn(*args)`` under a ``TaskSupervisor``, one-way: nobody waits for what it returns.

    Returns:
        Its process.

    Raises:
        MaxChildren: The supervisor is full.
        NoProcess: There is no such supervisor.
        ServerExit: The supervisor is ending.
    """
    began: Waiter[None] = Waiter()
    ref = _runner(sup).run_function(fn, args, began).ref
    await began.wait()
    return ref


async def async_task(sup: Ref | str, fn: Callable[..., Awaitable[T]], *args: Any) -> Task[T]:
    """Runs ``fn(*args)`` under a ``TaskSupervisor``, linked to the calling actor: if one crashes, so does the other.

    Called outside an actor it links nothing.

    Example:
        >>> task = await async_task("tasks", fetch, url)
        >>> page = await task.result()

    Raises:
        MaxChildren: The supervisor is full.
        NoProcess: There is no such supervisor.
        ServerExit: The supervisor is ending.
    """
    began: Waiter[None] = Waiter()
    process = _runner(sup).run_function(fn, args, began)
    caller = CURRENT.get()
    if caller is not None:
        caller.link(process)
    task: Task[T] = Task(process)
    await began.wait()
    return task


async def async_nolink(sup: Ref | str, fn: Callable[..., Awaitable[T]], *args: Any) -> Task[T]:
    """Like ``async_task``, and links nothing: its crash is seen where ``result`` is awaited, and there alone.

    Raises:
        MaxChildren: The supervisor is full.
        NoProcess: There is no such supervisor.
        ServerExit: The supervisor is ending.
    """
    began: Waiter[None] = Waiter()
    task: Task[T] = Task(_runner(sup).run_function(fn, args, began))
    await began.wait()
    return task


def _runner(sup: Ref | str) -> _TaskSupervisorProcess:
    process = supervisor_of(sup)
    if not isinstance(process, _TaskSupervisorProcess):
        raise TypeError(f"{process.ref!r} is no TaskSupervisor; it starts children, by start_child.")
    return process
