"""How many calls run at a time: slots, and a queue of those who wait for one."""

from __future__ import annotations

from collections import deque
from collections.abc import Callable
from typing import final

import trio

__all__ = ["Slots", "Waiting"]


@final
class Waiting:
    """A place in the queue for a slot."""

    __slots__ = ("on_slot",)

    def __init__(self, on_slot: Callable[[], None]) -> None:
        self.on_slot: Callable[[], None] | None = on_slot


@final
class Slots:
    """A number of slots, given in the order of asking. Waiting for one costs no task.

    Args:
        limit: How many may be taken at a time.
    """

    __slots__ = ("_idle", "_queue", "limit", "taken")

    def __init__(self, limit: int) -> None:
        self.limit = limit
        self.taken = 0
        self._idle: trio.Event | None = None
        self._queue: deque[Waiting] = deque()

    def take_now(self) -> bool:
        """Takes a slot if one is free and nobody waits for it; tells whether it did."""
        if self.taken < self.limit and not self._queue:
            self.taken += 1
            return True
        return False

    def queue(self, on_slot: Callable[[], None]) -> Waiting:
        """Waits for a slot: `on_slot` is called when it is given. For when `take_now` had none."""
        waiting = Waiting(on_slot)
        self._queue.append(waiting)
        return waiting

    def leave(self, waiting: Waiting) -> None:
        """Leaves the queue; the place must not have been given a slot."""
        waiting.on_slot = None
        self._queue.remove(waiting)

    def give_back(self) -> None:
        """Gives a slot back; the first in the queue has it at once."""
        self.taken -= 1
        self._serve()
        if not self.taken and self._idle is not None:
            self._idle.set()

    async def idle(self) -> None:
        """Waits until no slot is taken."""
        while self.taken:
            self._idle = trio.Event()
            await self._idle.wait()

    def resize(self, limit: int) -> None:
        """Changes how many may be taken at a time; those taken stay taken."""
        self.limit = limit
        self._serve()

    def _serve(self) -> None:
        while self._queue and self.taken < self.limit:
            on_slot = self._queue.popleft().on_slot
            if on_slot is not None:
                self.taken += 1
                on_slot()
