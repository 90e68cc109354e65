"""The way from the event loop to a thread that writes: bounded, in batches, never waiting.

The loop's side costs an append and, at most once a batch, the waking of the thread. What is put stays
here until the thread says that it is written, so that a writer which crashed, or a disk that is full,
loses nothing that the bound allows to keep.
"""

from __future__ import annotations

import threading
from collections import deque
from itertools import islice
from typing import Generic, TypeVar, final

__all__ = ["Backlog"]

T = TypeVar("T")


@final
class Backlog(Generic[T]):
    """Items in order, put by any thread and taken in batches by one.

    Args:
        limit: How many are kept; further ones are refused and counted.
    """

    __slots__ = ("_closed", "_hurry", "_items", "_lock", "_refused", "_wake", "_woken", "limit")

    def __init__(self, limit: int) -> None:
        self.limit = limit
        self._items: deque[T] = deque()
        self._refused = 0
        self._lock = threading.Lock()
        self._woken = False
        self._wake = threading.Event()
        self._hurry = threading.Event()
        self._closed = False

    def __len__(self) -> int:
        return len(self._items)

    def put(self, item: T) -> bool:
        """Appends `item`; False where there is no room and it was refused."""
        if len(self._items) >= self.limit:
            with self._lock:
                self._refused += 1
            return False
        self._items.append(item)
        if not self._woken:
            self._woken = True
            self._wake.set()
        return True

    @property
    def refused(self) -> int:
        """How many items were refused since `take_refused` was last asked."""
        return self._refused

    def take_refused(self) -> int:
        """How many items were refused since the last time that this was asked."""
        with self._lock:
            refused, self._refused = self._refused, 0
        return refused

    def hurry(self) -> None:
        """Has the thread write at once what is here, without gathering more first."""
        self._hurry.set()
        self._wake.set()

    def close(self) -> None:
        """Tells the thread to write what is here and end."""
        self._closed = True
        self.hurry()

    def reopen(self) -> None:
        """Lets a new thread serve it after ``close``."""
        self._closed = False
        self._hurry.clear()

    @property
    def closed(self) -> bool:
        """Whether the thread is to end once all is written."""
        return self._closed

    def wait(self, gather: float, timeout: float | None = None) -> None:
        """Sleeps, in the thread, until there is something to write and then `gather` seconds more.

        Args:
            gather: For how long items are gathered into one batch. ``hurry`` and ``close`` cut it short.
            timeout: Returns after so many seconds even where nothing was put.
        """
        if self._wake.wait(timeout):
            self._hurry.wait(gather)
        self._hurry.clear()
        self._wake.clear()
        # Last, for an item put in between sees that it must wake, and wakes for the batch after.
        self._woken = False
        if self._closed:
            self._hurry.set()
            self._wake.set()

    def peek(self, count: int) -> list[T]:
        """The first items, at most `count`, which stay until they are dropped."""
        while True:
            try:
                return list(islice(self._items, count))
            except RuntimeError:  # another thread appended meanwhile
                continue

    def drop(self, count: int) -> None:
        """Forgets the first `count` items: they are written."""
        for _ in range(count):
            self._items.popleft()
