"""Unix seconds on which durations can be counted: nobody who sets the system's clock makes them longer or shorter."""

from __future__ import annotations

import time
from collections.abc import Callable
from functools import partial
from typing import Final

__all__ = ["steady_clock"]

_ELAPSED: Final[Callable[[], float]] = (
    # Goes on while the machine sleeps, as the hour does for which somebody allowed something (clock_gettime(2)).
    partial(time.clock_gettime, time.CLOCK_BOOTTIME) if hasattr(time, "CLOCK_BOOTTIME") else time.monotonic
)


def steady_clock(wall: Callable[[], float] = time.time, elapsed: Callable[[], float] = _ELAPSED) -> Callable[[], float]:
    """A clock that agrees with `wall` now, and from then on goes as `elapsed` does.

    Args:
        wall: Unix seconds, which may jump.
        elapsed: Seconds since whenever, which never do.
    """
    began = wall() - elapsed()
    return lambda: began + elapsed()
