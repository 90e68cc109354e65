"""A plain async function as a process: no mailbox, and an end when it returns."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from trio.lowlevel import checkpoint

from supervisors._process import Owner, Process
from supervisors._reasons import ExitReason, Normal

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable

__all__ = ["FunctionProcess"]


class FunctionProcess(Process):
    """One run of a function.

    Attributes:
        result: What it returned, once it did.
    """

    __slots__ = ("_args", "_fn", "result")

    def __init__(self, owner: Owner, label: str, fn: Callable[..., Awaitable[Any]], args: tuple[Any, ...] = ()) -> None:
        super().__init__(owner, label)
        self._fn = fn
        self._args = args
        self.result: Any = None

    async def live(self) -> ExitReason:
        """Runs the function."""
        if self._signal is not None or self._killed:
            await checkpoint()
        self.became_ready()
        self.result = await self._fn(*self._args)
        return Normal()
