"""The pipeline as one caller sees it."""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING, final

if TYPE_CHECKING:
    from conduit_daemon.pipeline.gate import Gate

__all__ = ["Context"]


@final
class Context:
    """The gate that all calls pass, and what is in this caller's own context.

    Args:
        gate: The shared parts.
        on_taint: Called with each server's id that is added to the taint.

    Attributes:
        gate: The shared parts.
        taint: Ids of the servers whose results were delivered to this caller.
    """

    __slots__ = ("_on_taint", "gate", "taint")

    def __init__(self, gate: Gate, *, on_taint: Callable[[str], None] | None = None) -> None:
        self.gate = gate
        self.taint: frozenset[str] = frozenset()
        self._on_taint = on_taint

    @property
    def track_taint(self) -> bool:
        """Whether the caller's own taint is added to what a call brings along."""
        return self.gate.track_taint

    def add_taint(self, server: str) -> None:
        """A result of `server` is delivered to this caller."""
        self.taint |= {server}
        if self._on_taint is not None:
            self._on_taint(server)
