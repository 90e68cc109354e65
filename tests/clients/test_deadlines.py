"""One heap for many deadlines, on a clock of its own."""

from __future__ import annotations

import trio
from trio.testing import MockClock

from conduit_daemon.clients.deadlines import Deadlines


async def test_deadlines_come_in_their_order_and_cancelled_ones_do_not(autojump_clock: MockClock) -> None:
    deadlines, came = Deadlines(), []
    start = trio.current_time()
    async with trio.open_nursery() as nursery:
        nursery.start_soon(deadlines.run)
        await trio.testing.wait_all_tasks_blocked()
        for seconds in (3, 1, 2, 4):
            deadlines.add(start + seconds, lambda seconds=seconds: came.append((seconds, trio.current_time() - start)))
        gone = deadlines.add(start + 1.5, lambda: came.append(("gone", 0.0)))
        deadlines.cancel(gone)
        deadlines.cancel(gone)
        await trio.sleep(10)
        nursery.cancel_scope.cancel()
    assert came == [(1, 1.0), (2, 2.0), (3, 3.0), (4, 4.0)]


async def test_an_extended_deadline_comes_later_and_only_once(autojump_clock: MockClock) -> None:
    deadlines, came = Deadlines(), []
    start = trio.current_time()
    async with trio.open_nursery() as nursery:
        nursery.start_soon(deadlines.run)
        deadline = deadlines.add(start + 1, lambda: came.append(trio.current_time() - start))
        await trio.sleep(0.9)
        deadlines.extend(deadline, start + 5)
        deadlines.extend(deadline, start + 2)
        await trio.sleep(20)
        nursery.cancel_scope.cancel()
    assert came == [5.0]


async def test_answered_calls_leave_no_heap_behind(autojump_clock: MockClock) -> None:
    deadlines = Deadlines()
    for _ in range(10_000):
        deadlines.cancel(deadlines.add(trio.current_time() + 60, lambda: None))
    assert len(deadlines) < 200
