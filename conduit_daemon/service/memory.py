"""Memory that is free is given back to the system, which the C library does not do by itself.

Results of megabytes come and go between small things that stay, and what glibc has freed in between stays the process'.
Measured under a mixed load: what is in use did not grow, while the resident memory grew by 2 KB a call.
"""

from __future__ import annotations

import ctypes
from collections.abc import Callable
from typing import Any, Final

import trio

__all__ = ["give_back", "trimmer"]

_EVERY: Final = 30.0


def trimmer() -> Callable[[int], Any] | None:
    """glibc's ``malloc_trim``; None where the C library is another."""
    try:
        found: Callable[[int], Any] = ctypes.CDLL(None).malloc_trim
    except (OSError, AttributeError):
        return None
    return found


async def give_back(done: Callable[[], int], trim: Callable[[int], Any] | None) -> None:
    """Gives free memory back twice a minute, until cancelled; not while the daemon idles.

    Args:
        done: How much was done so far; where it is as before there is nothing to give back.
        trim: `trimmer`.
    """
    if trim is None:
        await trio.sleep_forever()
        return
    before = done()
    while True:
        await trio.sleep(_EVERY)
        if done() != before:
            before = done()
            await trio.to_thread.run_sync(trim, 0)  # it lets go of the interpreter, and so of the event loop
