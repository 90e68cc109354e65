"""How many restarts are too many."""

from __future__ import annotations

from collections import deque

__all__ = ["Intensity"]


class Intensity:
    """At most ``max_restarts`` within the last ``max_seconds``; OTP's rule, the boundary included.

    Source: add_restart/1 in https://github.com/erlang/otp/blob/master/lib/stdlib/src/supervisor.erl.
    """

    __slots__ = ("_max_restarts", "_max_seconds", "_times")

    def __init__(self, max_restarts: int, max_seconds: float) -> None:
        self._max_restarts = max_restarts
        self._max_seconds = max_seconds
        self._times: deque[float] = deque()

    def allows(self, now: float) -> bool:
        """Counts one restart at ``now`` and says whether that is still in order."""
        times = self._times
        while times and times[0] < now - self._max_seconds:
            times.popleft()
        times.append(now)
        return len(times) <= self._max_restarts
