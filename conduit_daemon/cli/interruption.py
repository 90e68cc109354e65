"""Ending in good order: whatever signal ends a command, what it has begun is undone first."""

from __future__ import annotations

import signal
from collections.abc import Iterator
from contextlib import contextmanager
from typing import NoReturn

__all__ = ["ended_in_order"]

_ENDS = (signal.SIGINT, signal.SIGTERM, signal.SIGHUP)


@contextmanager
def ended_in_order() -> Iterator[None]:
    """Lets SIGTERM and SIGHUP end a command as Ctrl-C does, so that it clears up, and does so undisturbed."""
    before = {number: signal.signal(number, _interrupt) for number in _ENDS}
    try:
        yield
    finally:
        for number, handler in before.items():
            signal.signal(number, handler)


def _interrupt(number: int, frame: object) -> NoReturn:
    # A second signal must not end the clearing up that the first one has begun.
    for each in _ENDS:
        signal.signal(each, signal.SIG_IGN)
    raise KeyboardInterrupt
