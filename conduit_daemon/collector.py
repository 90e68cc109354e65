"""Python's garbage collector, kept from stopping the event loop over large data that live long.

A full collection looks at every container there is: with ten thousand tools in memory that is 0.1 to 0.4 s (measured),
in whichever thread, and nothing else runs meanwhile. Listings and what is made of them hold no cycles, so there is
nothing to be found: counting references frees them. They are taken out of the collector's sight. The price: a cycle
that was alive at that moment is never collected, which is why what is garbage already is collected first.

What a call makes is freed by counting too, though some of it waits for the log and the audit to be written. A look for
cycles among so little finds nothing, so it is taken less often than Python's default.
"""

from __future__ import annotations

import gc
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Final

__all__ = ["large_data", "settle"]

_YOUNG: Final = 5_000
"""Objects made and not freed after which there is a look at them: more than wait at any time under load."""


def settle() -> None:
    """What lives now lives as long as the process: collections do not look at it any more."""
    gc.set_threshold(_YOUNG)
    gc.collect()
    gc.freeze()


@contextmanager
def large_data() -> Iterator[None]:
    """Around the making of large data that live long: no collection meanwhile, and none over them afterwards."""
    if not gc.isenabled():
        yield  # somebody else is at it, and settles for both
        return
    gc.collect()
    gc.disable()
    try:
        yield
    finally:
        gc.freeze()
        gc.enable()
