"""The hand-over from the event loop to a writing thread, with real threads."""

from __future__ import annotations

import threading
import time

from conduit_daemon.telemetry.backlog import Backlog


def _serve(backlog: Backlog[int], gather: float) -> tuple[threading.Thread, list[list[int]]]:
    batches: list[list[int]] = []

    def run() -> None:
        while True:
            backlog.wait(gather)
            while batch := backlog.peek(1000):
                batches.append(batch)
                backlog.drop(len(batch))
            if backlog.closed:
                return

    thread = threading.Thread(target=run)
    thread.start()
    return thread, batches


def test_all_that_is_put_is_written_in_order_while_several_threads_put() -> None:
    backlog = Backlog[int](1_000_000)
    thread, batches = _serve(backlog, 0.0005)

    def put(start: int) -> None:
        for number in range(start, start + 20_000):
            backlog.put(number)
            if number % 97 == 0:
                time.sleep(0)

    putters = [threading.Thread(target=put, args=(start,)) for start in (0, 100_000, 200_000)]
    for putter in putters:
        putter.start()
    for putter in putters:
        putter.join()
    backlog.close()
    thread.join(10)
    written = [number for batch in batches for number in batch]
    assert sorted(written) == [*range(20_000), *range(100_000, 120_000), *range(200_000, 220_000)]
    for start in (0, 100_000, 200_000):
        assert [n for n in written if start <= n < start + 20_000] == list(range(start, start + 20_000))


def test_items_are_gathered_so_that_the_thread_wakes_seldom() -> None:
    backlog = Backlog[int](100_000)
    thread, batches = _serve(backlog, 0.05)
    end = time.monotonic() + 0.5
    count = 0
    while time.monotonic() < end:
        backlog.put(count)
        count += 1
        time.sleep(0.001)
    backlog.close()
    thread.join(10)
    assert sum(map(len, batches)) == count
    assert len(batches) <= 0.5 / 0.05 + 2


def test_nothing_is_lost_between_a_put_and_the_threads_falling_asleep() -> None:
    backlog = Backlog[int](10)
    thread, batches = _serve(backlog, 0.0)
    for number in range(3000):
        assert backlog.put(number)
        end = time.monotonic() + 5
        while len(backlog):
            assert time.monotonic() < end, f"item {number} was never taken"
            time.sleep(0)
    backlog.close()
    thread.join(10)
    assert [number for batch in batches for number in batch] == list(range(3000))


def test_over_the_limit_items_are_refused_and_counted() -> None:
    backlog = Backlog[int](3)
    assert [backlog.put(number) for number in range(5)] == [True, True, True, False, False]
    assert backlog.take_refused() == 2
    assert backlog.take_refused() == 0
    assert backlog.peek(10) == [0, 1, 2]
    backlog.drop(1)
    assert backlog.put(9)
    assert backlog.peek(2) == [1, 2]


def test_hurry_cuts_gathering_short() -> None:
    backlog = Backlog[int](10)
    thread, batches = _serve(backlog, 60.0)
    backlog.put(1)
    backlog.hurry()
    end = time.monotonic() + 5
    while not batches and time.monotonic() < end:
        time.sleep(0.001)
    backlog.close()
    thread.join(5)
    assert batches == [[1]]
