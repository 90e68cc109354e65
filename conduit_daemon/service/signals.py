"""The signals that a daemon answers to."""

from __future__ import annotations

import signal
from collections.abc import AsyncIterator, Callable, Iterator
from contextlib import contextmanager

import trio

__all__ = ["Signals", "answer_signals", "caught"]

Signals = AsyncIterator[int]
"""The signals as they come."""


@contextmanager
def caught() -> Iterator[Signals]:
    """Catches TERM, INT and HUP from now on, so that one that comes during the start is answered after it."""
    with trio.open_signal_receiver(signal.SIGTERM, signal.SIGINT, signal.SIGHUP) as received:
        yield received


async def answer_signals(signals: Signals, stop: Callable[[str], None], reload: Callable[[], None]) -> None:
    """Answers signals until cancelled.

    Args:
        signals: From `caught`.
        stop: Called with the signal's name for TERM and INT; may be called again, which means at once.
        reload: Called for HUP.
    """
    async for number in signals:
        if number == signal.SIGHUP:
            reload()
        else:
            stop(signal.Signals(number).name)
