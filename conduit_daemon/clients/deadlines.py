"""One timer heap for many deadlines, so that a deadline costs a call no task and no task switch."""

from __future__ import annotations

import heapq
import math
from collections.abc import Callable
from typing import Final, final

import trio

__all__ = ["Deadline", "Deadlines"]

_SLACK: Final = 64


@final
class Deadline:
    """A point in time at which `expire` is called, unless it is moved or cancelled before.

    Attributes:
        at: The time, on trio's clock.
    """

    __slots__ = ("_queued_at", "at", "expire")

    def __init__(self, at: float, expire: Callable[[], None]) -> None:
        self.at = at
        self._queued_at = at
        self.expire: Callable[[], None] | None = expire

    def __lt__(self, other: Deadline) -> bool:
        return self._queued_at < other._queued_at


@final
class Deadlines:
    """A heap of deadlines and the one task that serves it.

    Moving a deadline later and cancelling one only mark it: the heap is put right when the old time comes,
    and rebuilt when the dead outnumber the living. So a call that is answered in time costs one push.
    """

    __slots__ = ("_dead", "_heap", "_scope")

    def __init__(self) -> None:
        self._heap: list[Deadline] = []
        self._dead = 0
        self._scope: trio.CancelScope | None = None

    def __len__(self) -> int:
        return len(self._heap)

    def add(self, at: float, expire: Callable[[], None]) -> Deadline:
        """Has `expire` called at time `at` (trio's clock); it must not raise."""
        deadline = Deadline(at, expire)
        self._push(deadline)
        return deadline

    @staticmethod
    def extend(deadline: Deadline, at: float) -> None:
        """Moves a deadline later; a time before its present one changes nothing."""
        deadline.at = max(deadline.at, at)  # seen when the time it is queued for comes

    def cancel(self, deadline: Deadline) -> None:
        """Forgets a deadline; harmless when it has come already."""
        if deadline.expire is None:
            return
        deadline.expire = None
        self._dead += 1
        if self._dead > _SLACK and self._dead * 2 > len(self._heap):
            self._heap = [entry for entry in self._heap if entry.expire is not None]
            heapq.heapify(self._heap)
            self._dead = 0

    async def run(self) -> None:
        """Serves the heap until cancelled."""
        while True:
            with trio.CancelScope(deadline=self._heap[0]._queued_at if self._heap else math.inf) as scope:
                self._scope = scope
                await trio.sleep_forever()
            self._scope = None
            self._expire_due(trio.current_time())

    def _push(self, deadline: Deadline) -> None:
        heapq.heappush(self._heap, deadline)
        if self._scope is not None and deadline._queued_at < self._scope.deadline:
            self._scope.deadline = deadline._queued_at

    def _expire_due(self, now: float) -> None:
        while self._heap and self._heap[0]._queued_at <= now:
            deadline = heapq.heappop(self._heap)
            expire = deadline.expire
            if expire is None:
                self._dead -= 1
            elif deadline.at > now:
                deadline._queued_at = deadline.at
                heapq.heappush(self._heap, deadline)
            else:
                deadline.expire = None
                expire()
