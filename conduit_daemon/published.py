"""A value that one writes and all may read, at any time and without a message: what ETS is to the BEAM."""

from __future__ import annotations

from collections.abc import Callable
from typing import Generic, TypeVar, final

import trio

__all__ = ["Published"]

T = TypeVar("T")


@final
class Published(Generic[T]):
    """The current value of something immutable; each new one replaces it whole."""

    __slots__ = ("_changed", "_watchers", "current")

    def __init__(self, value: T) -> None:
        self.current = value
        self._changed = trio.Event()
        self._watchers: list[Callable[[T], None]] = []

    def publish(self, value: T) -> None:
        """Replaces the value, wakes those who wait and calls the watchers."""
        self.current = value
        changed, self._changed = self._changed, trio.Event()
        changed.set()
        for watcher in tuple(self._watchers):
            watcher(value)

    async def changed(self) -> T:
        """Waits for the next value and returns it."""
        await self._changed.wait()
        return self.current

    def next_change(self) -> trio.Event:
        """Set at the next change; to be taken before `current` is read, so that none is missed."""
        return self._changed

    def watch(self, watcher: Callable[[T], None]) -> Callable[[], None]:
        """Calls `watcher` with each new value, until the returned function is called. It must not raise."""
        self._watchers.append(watcher)
        return lambda: self._watchers.remove(watcher)
