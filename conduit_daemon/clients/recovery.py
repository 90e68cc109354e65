"""When a client tries again: backoff with jitter, and a circuit that opens after failures in a row. Pure."""

from __future__ import annotations

import random
from collections.abc import Callable
from typing import Final, Literal, final

import msgspec

from conduit_daemon.config.model import BackoffConfig

__all__ = ["Pause", "Recovery"]

_FAILURES_TO_OPEN: Final = 5
_OPEN: Final = 30.0
_OPEN_MAXIMUM: Final = 300.0
_JITTER: Final = 0.5
_SPREAD: Final = 5.0


class Pause(msgspec.Struct, frozen=True):
    """What to do after a failure.

    Attributes:
        seconds: How long to wait before the next attempt.
        circuit: ``closed``: the attempt is one of a series; ``open``: it is a probe after a long pause.
        failures: How many failures there were in a row.
    """

    seconds: float
    circuit: Literal["closed", "open"]
    failures: int


@final
class Recovery:
    """Counts failures of one client and says how long to pause.

    Five failures in a row open the circuit for 30 s, doubling to 300 s; each later failure is one of a probe.
    A connection that held for `reset_after` seconds makes the next failure the first.

    Args:
        config: The server's ``backoff``.
        uniform: Draws a number between two others; random.uniform unless a test gives its own.
    """

    def __init__(self, config: BackoffConfig, uniform: Callable[[float, float], float] = random.uniform) -> None:
        self._config = config
        self._uniform = uniform
        self.failures = 0

    def failed(self, ready_for: float, *, after_sleep: bool = False) -> Pause:
        """Notes a failure.

        Args:
            ready_for: Seconds for which the connection had been ready; 0 where it never was.
            after_sleep: The machine has just slept, which ends many connections at once and says nothing about
                any server: it is not counted, and all of them come back spread over some seconds.
        """
        if after_sleep:
            self.failures = 0
            return Pause(self._uniform(0.0, _SPREAD), "closed", 0)
        if ready_for >= self._config.reset_after:
            self.failures = 0
        self.failures += 1
        over = self.failures - _FAILURES_TO_OPEN
        if over >= 0:
            pause = min(_OPEN * 2.0 ** min(over, 10), _OPEN_MAXIMUM)
            return Pause(self._uniform(pause * (1 - _JITTER / 5), pause), "open", self.failures)
        config = self._config
        pause = min(config.initial * config.factor ** (self.failures - 1), config.maximum)
        return Pause(self._uniform(pause * (1 - _JITTER), pause), "closed", self.failures)

    def forget(self) -> None:
        """Makes the next failure the first: someone asked for an attempt now."""
        self.failures = 0
