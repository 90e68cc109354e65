"""The tasks that run beside an actor's mailbox and belong to it."""

from __future__ import annotations

from typing import TYPE_CHECKING

import trio

from supervisors._current import ASIDE, CURRENT
from supervisors._waiter import Waiter

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable

    from supervisors._actor_process import ActorProcess

__all__ = ["TaskHandle", "TasksAside"]


class TaskHandle:
    """A task of an actor, as ``Actor.start_task`` returns it."""

    __slots__ = ("_scope",)

    def __init__(self) -> None:
        self._scope = trio.CancelScope()

    def cancel(self) -> None:
        """Cancels the task; that is no crash. Its cleanup still runs in its own time."""
        self._scope.cancel()


class TasksAside:
    """All the tasks of one actor."""

    __slots__ = ("_handles", "_over", "_process")

    def __init__(self, process: ActorProcess) -> None:
        self._process = process
        self._handles: set[TaskHandle] = set()
        self._over: Waiter[None] | None = None

    def add(self) -> TaskHandle:
        """Registers a task that is about to run."""
        handle = TaskHandle()
        self._handles.add(handle)
        return handle

    async def run(self, handle: TaskHandle, fn: Callable[..., Awaitable[object]], args: tuple[object, ...]) -> None:
        """The task."""
        CURRENT.set(self._process)
        ASIDE.set(True)
        try:
            with handle._scope:
                await fn(*args)
        except trio.Cancelled:
            raise
        except BaseException as error:  # noqa: BLE001
            self._process.fault(error)
        finally:
            self._handles.discard(handle)
            if not self._handles and self._over is not None:
                self._over.settle(None)

    async def end(self) -> None:
        """Cancels what runs and waits until nothing does."""
        while self._handles:
            for handle in self._handles:
                handle.cancel()
            self._over = Waiter()
            with trio.CancelScope(shield=True):
                await self._over.wait()
