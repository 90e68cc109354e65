"""How many calls run at a time: slots, and a queue of those who wait for one."""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Hashable
from typing import final

import trio

__all__ = ["Slots", "Waiting"]


@final
class Waiting:
    """A place in the queue for a slot."""

    __slots__ = ("on_slot", "whose")

    def __init__(self, on_slot: Callable[[], None], whose: Hashable) -> None:
        self.on_slot = on_slot
        self.whose = whose


@final
class Slots:
    """A number of slots. Waiting for one costs no task.

    Those who wait are served in turn, one call each, and each one's calls in the order of asking: however many calls
    somebody has waiting, the next one's first call waits for one of them.

    Args:
        limit: How many may be taken at a time.
    """

    __slots__ = ("_idle", "_queues", "limit", "taken")

    def __init__(self, limit: int) -> None:
        self.limit = limit
        self.taken = 0
        self._idle: trio.Event | None = None
        self._queues: dict[Hashable, deque[Waiting]] = {}  # whose turn is next stands first

    def take_now(self) -> bool:
        """Takes a slot if one is free and nobody waits for it; tells whether it did."""
        if self.taken < self.limit and not self._queues:
            self.taken += 1
            return True
        return False

    def queue(self, on_slot: Callable[[], None], whose: Hashable = None) -> Waiting:
        """Waits for a slot: `on_slot` is called when it is given. For when `take_now` had none.

        Args:
            on_slot: Called once, unless the place is left before.
            whose: Who waits; calls of different ones take turns.
        """
        waiting = Waiting(on_slot, whose)
        self._queues.setdefault(whose, deque()).append(waiting)
        return waiting

    def leave(self, waiting: Waiting) -> None:
        """Leaves the queue; the place must not have been given a slot."""
        queue = self._queues[waiting.whose]
        queue.remove(waiting)
        if not queue:
            del self._queues[waiting.whose]

    def give_back(self) -> None:
        """Gives a slot back; the next in turn has it at once."""
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
        while self._queues and self.taken < self.limit:
            whose = next(iter(self._queues))
            queue = self._queues.pop(whose)
            waiting = queue.popleft()
            if queue:
                self._queues[whose] = queue
            self.taken += 1
            waiting.on_slot()
