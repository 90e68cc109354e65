"""Whether the machine has just slept, seen as a gap between a clock that counts sleep and one that does not.

Linux counts it in CLOCK_BOOTTIME and not in CLOCK_MONOTONIC; elsewhere the time of day stands in, which also
jumps when somebody sets it: then connections that end meanwhile come back a little later, and nothing else.
"""

from __future__ import annotations

import time
from collections.abc import Callable
from typing import Final, final

import trio

__all__ = ["SleepWatch"]

_GAP: Final = 2.0
_RECENT: Final = 30.0
_LOOK: Final = 5.0


def _counts_sleep() -> float:
    return time.clock_gettime(time.CLOCK_BOOTTIME) if hasattr(time, "CLOCK_BOOTTIME") else time.time()


@final
class SleepWatch:
    """Tells sleep from waking.

    Args:
        whole: A clock that goes on while the machine sleeps, in seconds.
        awake: One that stands still meanwhile.
    """

    def __init__(self, whole: Callable[[], float] = _counts_sleep, awake: Callable[[], float] = time.monotonic) -> None:
        self._whole = whole
        self._awake = awake
        self._gap = whole() - awake()
        self._woke_at: float | None = None

    def just_woke(self) -> bool:
        """Whether a sleep has been noticed within the last 30 s (of being awake)."""
        now = self._awake()
        gap = self._whole() - now
        if gap - self._gap > _GAP:
            self._woke_at = now
        self._gap = gap
        return self._woke_at is not None and now - self._woke_at < _RECENT

    async def run(self) -> None:
        """Looks now and then until cancelled, so that a sleep is noticed when it ends and not when it matters."""
        while True:
            self.just_woke()
            await trio.sleep(_LOOK)
