"""Computations over large toolsets, in a thread: the event loop goes on meanwhile.

Ten thousand tools take seconds to convert. Python's threads share one interpreter, so this makes nothing faster; it
lets others have their turn every switch interval, which the daemon sets to a millisecond.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Final, TypeVar, final

import trio

from conduit_daemon.collector import large_data

__all__ = ["Aside"]

T = TypeVar("T")

_FEW: Final = 250


@final
class Aside:
    """Runs one large computation at a time; more would only take turns from the event loop."""

    def __init__(self) -> None:
        self._turn = trio.CapacityLimiter(1)

    async def run(self, tools: int, compute: Callable[[], T]) -> T:
        """What `compute` returns, or raises.

        Args:
            tools: Over how many tools it computes; over a few it is done at once, without a thread.
            compute: A function of immutable values alone.
        """
        if tools <= _FEW:
            return compute()

        def apart() -> T:
            with large_data():
                return compute()

        return await trio.to_thread.run_sync(apart, limiter=self._turn)
