"""One task that waits for one answer."""

from __future__ import annotations

from typing import TYPE_CHECKING, Generic, TypeVar, cast

from trio.lowlevel import Abort, Task, checkpoint, current_task, reschedule, wait_task_rescheduled

if TYPE_CHECKING:
    from collections.abc import Callable

__all__ = ["Waiter"]

T = TypeVar("T")


class Waiter(Generic[T]):
    """A slot for one answer or error, and for the one task that waits for it.

    The first of ``settle`` and ``fail`` counts, later ones are dropped; so is any after the wait was cancelled.
    """

    __slots__ = ("_error", "_task", "_value", "settled")

    def __init__(self) -> None:
        self.settled = False
        self._task: Task | None = None
        self._error: BaseException | None = None
        self._value: object = None

    def settle(self, value: T) -> None:
        """Answers, unless it is settled."""
        if not self.settled:
            self.settled = True
            self._value = value
            self._wake()

    def fail(self, error: BaseException) -> None:
        """Makes the wait raise, unless it is settled."""
        if not self.settled:
            self.settled = True
            self._error = error
            self._wake()

    async def wait(self) -> T:
        """Waits for the answer and returns it.

        Raises:
            BaseException: What ``fail`` was given.
        """
        if self.settled:
            await checkpoint()
        else:
            self._task = current_task()
            await wait_task_rescheduled(self._abort)
        if self._error is not None:
            error, self._error = self._error, None
            try:
                raise error
            finally:
                del error  # else its own traceback would hold it, through this frame
        return cast("T", self._value)

    def withdraw(self) -> None:
        """Called where the wait was cancelled: the answer is not wanted any more."""
        self.settled = True

    def _abort(self, _raise_cancel: Callable[[], None]) -> Abort:
        self._task = None
        self.withdraw()
        return Abort.SUCCEEDED

    def _wake(self) -> None:
        task, self._task = self._task, None
        if task is not None:
            reschedule(task)
