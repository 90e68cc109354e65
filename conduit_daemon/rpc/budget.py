"""What the connections of one socket may hold in memory together, so that no agent takes it all by opening many.

A connection alone is bounded by the longest message, for an unfinished line, for answers that nobody reads and, a few
times over, for large requests that run; of hundreds each could hold as much. Only those count that hold more than a
little.
"""

from __future__ import annotations

from collections import Counter
from typing import Final, Protocol, final

__all__ = ["LITTLE", "SHARES", "Budget", "Holder"]

LITTLE: Final = 1 << 16
"""Bytes that a connection may hold without being looked at."""
SHARES: Final = 4
"""How many of the longest messages all connections of a socket may hold together."""


class Holder(Protocol):
    """A connection, as the budget sees it."""

    @property
    def held(self) -> int:
        """Bytes that it holds now."""

    @property
    def owner(self) -> object:
        """Whose it is: connections of one process are looked at together."""

    def give_up(self, total: int, limit: int) -> None:
        """Holds less from now on, or nothing; `total` bytes are held by all, and `limit` may be."""


@final
class Budget:
    """Looks at those who hold much, and has the greediest give up where it is too much.

    Args:
        limit: Bytes that all may hold together.

    Attributes:
        limit: As given.
    """

    def __init__(self, limit: int) -> None:
        self.limit = limit
        self._holders: set[Holder] = set()

    def look(self, holder: Holder) -> None:
        """To be called when a holder has come to hold more: it, or those of a greedier owner, have to give up.

        Of the greediest owner's it is the holder, if it is one of them; else the one that holds most.
        """
        self._holders.add(holder)
        while True:
            held = {each: size for each in self._holders if (size := each.held) > LITTLE}
            self._holders = set(held)
            total = sum(held.values())
            if total <= self.limit:
                return
            together: Counter[object] = Counter()
            for each, size in held.items():
                together[each.owner] += size
            greediest = max(held, key=lambda each: (together[each.owner], each is holder, held[each]))
            greediest.give_up(total, self.limit)
            if greediest.held >= held[greediest]:
                return  # it is about to end, or has given what it had to

    def leave(self, holder: Holder) -> None:
        """A holder is gone."""
        self._holders.discard(holder)
