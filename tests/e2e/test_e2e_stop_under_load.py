"""Stopping amid everything: inside its time, with every caller answered and nothing left, ten times of ten."""

from __future__ import annotations

from concurrent.futures import ThreadPoolExecutor
from typing import Any

from loaded_stop import CONFIG, check, stop_under_load

FULL = 10_000 + 20_000
"""Rows that the audit keeps while they cannot be written."""


def test_every_caller_is_answered_and_every_call_audited_ten_times_of_ten(start: Any, fake_server: Any) -> None:
    def once(daemon: Any) -> None:
        daemon.wait_until(lambda: "daemon.started" in daemon.events(), 20)
        daemon.wait_ready("fast", "stubborn")
        stopped = stop_under_load(daemon, 2000, release=True)
        check(stopped, daemon)
        assert stopped.rows == stopped.expected_rows, stopped

    tables = CONFIG, fake_server("fast", max_in_flight="64"), fake_server("stubborn", "deaf_to_term")
    daemons = [start(*tables, wait=False) for _ in range(10)]
    with ThreadPoolExecutor(5) as beside:
        assert list(beside.map(once, daemons)) == [None] * 10


def test_an_audit_that_is_full_and_stays_locked_does_not_hold_it_up(start: Any, fake_server: Any) -> None:
    daemon = start(CONFIG, fake_server("fast", max_in_flight="64"), fake_server("stubborn", "deaf_to_term"))
    daemon.wait_ready("fast", "stubborn")
    stopped = stop_under_load(daemon, FULL + 500, release=False)
    check(stopped, daemon)
    assert stopped.rows < stopped.expected_rows
