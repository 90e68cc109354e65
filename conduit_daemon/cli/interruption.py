"""Ending in good order: whatever signal ends a command, what it has begun is undone first."""

from __future__ import annotations

import signal
from collections.abc import Iterator
from contextlib import contextmanager
from typing import NoReturn

__all__ = ["Interruptions", "ended_in_order", "undisturbed"]

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


@contextmanager
def undisturbed() -> Iterator[None]:
    """Has a signal that ends the command wait for the end of this, so that what is made here is known and undone."""
    came: list[int] = []
    before = {number: signal.signal(number, lambda number, _: came.append(number)) for number in _ENDS}
    try:
        yield
    finally:
        for number, handler in before.items():
            signal.signal(number, handler)
        if came:
            signal.raise_signal(came[0])


class Interruptions:
    """Ends a command where it can be ended well: in a wait, and not amid a drawing.

    As a context it takes SIGINT, SIGTERM and SIGHUP; what comes outside of `allowed` waits for the next such place.
    """

    def __init__(self) -> None:
        self._asked = False
        self._open = False
        self._before: dict[signal.Signals, object] = {}

    def __enter__(self) -> Interruptions:
        self._before = {number: signal.signal(number, self._note) for number in _ENDS}
        return self

    def __exit__(self, *error: object) -> None:
        for number, handler in self._before.items():
            signal.signal(number, handler)  # type: ignore[arg-type]  # what signal.signal gave

    @contextmanager
    def allowed(self) -> Iterator[None]:
        """A place in which the command may be ended.

        Raises:
            KeyboardInterrupt: It is to end.
        """
        self._open = True
        try:
            if self._asked:
                raise KeyboardInterrupt
            yield
        finally:
            self._open = False

    def _note(self, number: int, frame: object) -> None:
        self._asked = True
        if self._open:
            self._open = False
            raise KeyboardInterrupt
