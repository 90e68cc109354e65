"""The timers of a tree: one heap, one task, no task for each timer."""

from __future__ import annotations

from heapq import heapify, heappop, heappush
from itertools import count
from math import inf
from typing import TYPE_CHECKING

import trio

if TYPE_CHECKING:
    from collections.abc import Callable

__all__ = ["TimerRef", "Timers"]

_FEW = 64
"""So many cancelled timers may lie in the heap before it is worth a sweep."""


class TimerRef:
    """A timer that was set, as ``send_after`` returns it."""

    __slots__ = ("_action", "_timers", "deadline")

    def __init__(self, timers: Timers, deadline: float, action: Callable[[], object] | None) -> None:
        self._timers = timers
        self._action = action
        self.deadline = deadline

    def cancel(self) -> bool:
        """Takes the timer back.

        Returns:
            True if that came in time; False if it had fired or was cancelled before.
        """
        if self._action is None:
            return False
        self._action = None
        self._timers.forget_one()
        return True

    def fire(self) -> None:
        """Does what the timer was set for, unless it was cancelled."""
        action, self._action = self._action, None
        if action is not None:
            action()

    @property
    def pending(self) -> bool:
        """Whether it has neither fired nor been cancelled."""
        return self._action is not None


class Timers:
    """All the timers of one tree, on trio's clock."""

    __slots__ = ("_cancelled", "_heap", "_scope", "_serial", "_stopped")

    def __init__(self) -> None:
        self._heap: list[tuple[float, int, TimerRef]] = []
        self._serial = count()
        self._cancelled = 0
        self._scope: trio.CancelScope | None = None
        self._stopped = False

    def after(self, seconds: float, action: Callable[[], object]) -> TimerRef:
        """Calls ``action`` in so many seconds, from the timers' own task."""
        deadline = trio.current_time() + (seconds if seconds > 0 else 0)  # not a number is at once, too
        timer = TimerRef(self, deadline, action)
        heap = self._heap
        heappush(heap, (deadline, next(self._serial), timer))
        if heap[0][2] is timer and self._scope is not None:
            self._scope.deadline = deadline
        return timer

    def forget_one(self) -> None:
        """Counts a cancelled timer, and sweeps the heap where most of it is cancelled."""
        self._cancelled += 1
        if self._cancelled > _FEW and self._cancelled * 2 > len(self._heap):
            self._heap = [entry for entry in self._heap if entry[2].pending]
            heapify(self._heap)
            self._cancelled = 0

    def stop(self) -> None:
        """Ends ``run``; timers that have not fired never will."""
        self._stopped = True
        if self._scope is not None:
            self._scope.cancel()

    async def run(self) -> None:
        """Fires the timers as they come due, until ``stop``."""
        while not self._stopped:
            with trio.CancelScope(deadline=self._heap[0][0] if self._heap else inf) as self._scope:
                await trio.sleep_forever()
            self._scope = None
            now = trio.current_time()
            while self._heap and self._heap[0][0] <= now and not self._stopped:
                timer = heappop(self._heap)[2]
                if timer.pending:
                    timer.fire()
                else:
                    self._cancelled -= 1
