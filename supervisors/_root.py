"""The root of a tree, opened as a context in the caller's task."""

from __future__ import annotations

from contextlib import asynccontextmanager
from typing import TYPE_CHECKING

import trio

from supervisors._errors import ActorError, AlreadyRegistered, ServerExit, StartError, SupervisorExit
from supervisors._reasons import Crashed, ExitReason, Shutdown, described
from supervisors._supervisor import Supervisor
from supervisors._timers import Timers
from supervisors._waiter import Waiter

if TYPE_CHECKING:
    from collections.abc import AsyncGenerator, Awaitable, Callable, Sequence

    from supervisors._process import Process
    from supervisors._ref import Ref
    from supervisors._specs import AutoShutdown, ChildSpec, Strategy

__all__ = ["open_supervisor"]

_LABEL = "root"


class _Opener:
    """Who owns the root: the task that opened it."""

    def __init__(self) -> None:
        self.timers = Timers()
        self.body = trio.CancelScope()
        self.started: Waiter[None] = Waiter()
        self.ended: Waiter[ExitReason] = Waiter()

    def child_ready(self, process: Process) -> None:
        """The root runs."""
        self.started.settle(None)

    def child_ended(self, process: Process, reason: ExitReason) -> None:
        """The root ended: the body must not go on without it."""
        if not process.ready:
            cause = reason.error if isinstance(reason, Crashed) else ServerExit(reason, "It was stopped in its start.")
            self.started.fail(cause if isinstance(cause, StartError) else StartError(process.label, cause))
        self.ended.settle(reason)
        self.timers.stop()
        self.body.cancel()

    def spawn(self, process: Process, task: Callable[[], object]) -> None:
        """Never asked for: the root is a supervisor, which spawns in a nursery of its own."""
        raise AssertionError(f"The opener of {process.label!r} has no tasks.")

    def lineage(self) -> tuple[str, ...]:
        """Nobody is above the root."""
        return ()


@asynccontextmanager
async def open_supervisor(
    children: Sequence[ChildSpec],
    *,
    strategy: Strategy = "one_for_one",
    max_restarts: int = 3,
    max_seconds: float = 5.0,
    auto_shutdown: AutoShutdown = "never",
    name: str | None = None,
) -> AsyncGenerator[Ref, None]:
    """Runs a tree as long as the body of an ``async with``; the options are those of ``Supervisor``.

    Entering waits until all children have started. Leaving stops them in order; so does a cancellation from outside,
    which waits for the tree as long as the children's ``shutdown`` allows.

    Yields:
        The root supervisor.

    Raises:
        InvalidChildSpec: Options or children that cannot work.
        StartError: A child could not be started; those before it were stopped.
        SupervisorExit: The root ended by itself; the body was cancelled.

    Example:
        >>> async with open_supervisor([ChildSpec(id="counter", start=Counter)]) as root:
        ...     print(await which_children(root))
    """
    supervisor = Supervisor(
        children,
        strategy=strategy,
        max_restarts=max_restarts,
        max_seconds=max_seconds,
        auto_shutdown=auto_shutdown,
        name=name,
    )
    opener = _Opener()
    try:
        root = supervisor.process(opener, _LABEL)
    except AlreadyRegistered as error:
        raise StartError(_LABEL, error) from error
    ref = root.ref
    failure: BaseException | None = None
    async with trio.open_nursery() as nursery:
        nursery.start_soon(_shielded, opener.timers.run, name="supervisors: timers")
        nursery.start_soon(_shielded, root.run, name="supervisors: root")
        try:
            await opener.started.wait()
            with opener.body:
                yield ref
        except BaseException as error:  # noqa: BLE001  (raised again below, outside the nursery, so bare)
            failure = error
        by_itself = not root.alive or root.stop_reason is not None
        root.request_stop(Shutdown())
        with trio.CancelScope(shield=True):
            reason = await opener.ended.wait()
    try:
        if root.fatal is not None:
            raise root.fatal
        if by_itself and root.ready and (failure is None or isinstance(failure, ActorError)):
            raise SupervisorExit(reason, f"The root supervisor {described(reason)}, by itself.") from failure
        if failure is not None:
            raise failure
    finally:
        del failure  # else its own traceback would hold it, through this frame


async def _shielded(task: Callable[[], Awaitable[None]]) -> None:
    with trio.CancelScope(shield=True):
        await task()
