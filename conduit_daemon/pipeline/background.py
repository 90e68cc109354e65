"""Coroutines that run at once as far as they go, and become a task only where they must wait.

The stages of the pipeline are plain function calls. What may wait for something of somebody else's (a hook, an
approver) is a coroutine; most of these never wait, and then cost no task and no task switch.
"""

from __future__ import annotations

import types
from collections.abc import Awaitable, Callable, Coroutine, Generator
from functools import partial
from typing import Any, Final, final

import trio

__all__ = ["Background", "Interrupted", "settled"]

OnDone = Callable[[Any, Exception | None], None]

_A_TASK_IS_NEEDED: Final = object()


class Interrupted(Exception):
    """The work was ended before it was done, because the part of the daemon that ran it ended."""


async def settled(value: Any) -> Any:
    """`value`, awaited where it is to be awaited; for use inside a coroutine given to `Background.start`.

    Raises:
        Exception: What awaiting it raises.
    """
    if isinstance(value, Awaitable):
        await _into_a_task()
        return await value
    return value


@types.coroutine
def _into_a_task() -> Generator[Any, Any, None]:
    yield _A_TASK_IS_NEEDED


@types.coroutine
def _rest_of(coroutine: Coroutine[Any, Any, Any]) -> Generator[Any, Any, Any]:
    return (yield from coroutine)


def _contained(error: BaseException) -> Exception:
    """What other people's code raised, as an exception that fails its call alone: ``sys.exit()``, or a cancellation
    of asyncio's that came up in it, must not end the daemon.

    Raises:
        BaseException: It is not that code's: trio's cancellation, an interrupt, the end of a generator.
    """
    if isinstance(error, Exception):
        return error
    passing = (trio.Cancelled, KeyboardInterrupt, GeneratorExit)
    if isinstance(error, passing) or (isinstance(error, BaseExceptionGroup) and error.subgroup(passing) is not None):
        raise error
    contained = RuntimeError(f"{type(error).__name__}: {error}")
    contained.__cause__ = error
    return contained


@final
class Background:
    """Runs coroutines whose end is told by a function call. Owned by whoever has `run` supervised."""

    def __init__(self) -> None:
        self._nursery: trio.Nursery | None = None
        self._waiting: list[Callable[[trio.Nursery], None]] = []

    def start(self, coroutine: Coroutine[Any, Any, Any], on_done: OnDone) -> Callable[[], None] | None:
        """Runs `coroutine`; where it asks for a task (`settled`), the rest of it becomes one.

        Args:
            coroutine: It may await `settled` values, and once it has awaited one that waits, anything of trio's.
            on_done: Called exactly once with its result or its error, unless it is cancelled. Must not raise.

        Returns:
            None where it is done already; else what cancels it, after which `on_done` is not called.
        """
        try:
            coroutine.send(None)
        except StopIteration as stop:
            on_done(stop.value, None)
            return None
        except BaseException as error:  # noqa: BLE001 - passed on to who can tell what it means
            on_done(None, _contained(error))
            return None
        work = _Work(coroutine, on_done)
        begin = partial(_begin, work)
        if self._nursery is None:
            self._waiting.append(begin)
        else:
            begin(self._nursery)
        return work.cancel

    async def run(self) -> None:
        """Runs what needs a task until cancelled; whatever is unfinished then ends with `Interrupted`."""
        async with trio.open_nursery() as nursery:
            self._nursery = nursery
            waiting, self._waiting = self._waiting, []
            for begin in waiting:
                begin(nursery)
            try:
                await trio.sleep_forever()
            finally:
                self._nursery = None


def _begin(work: _Work, nursery: trio.Nursery) -> None:
    nursery.start_soon(work.run)


@final
class _Work:
    """A coroutine that became a task."""

    __slots__ = ("_coroutine", "_on_done", "_scope")

    def __init__(self, coroutine: Coroutine[Any, Any, Any], on_done: OnDone) -> None:
        self._coroutine = coroutine
        self._on_done: OnDone | None = on_done
        self._scope = trio.CancelScope()

    def cancel(self) -> None:
        self._on_done = None
        self._scope.cancel()

    async def run(self) -> None:
        value: Any = None
        failure: Exception | None = Interrupted("the daemon is ending the part that ran it")
        try:
            with self._scope:
                value = await _rest_of(self._coroutine)
                failure = None
        except BaseException as error:  # noqa: BLE001 - as in start
            failure = _contained(error)
        finally:
            on_done, self._on_done = self._on_done, None
            if on_done is not None:
                on_done(value, failure)
