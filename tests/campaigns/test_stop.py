"""Stopping under load, fifty times: inside its time, every caller answered, every call audited, nothing left."""

from __future__ import annotations

from concurrent.futures import ThreadPoolExecutor
from typing import Any, Final

import pytest
from loaded_stop import CONFIG, ENDING, PATIENCE, Stopped, check, stop_under_load

pytestmark = pytest.mark.campaign

ROUNDS: Final = 50
AT_ONCE: Final = 5


def test_fifty_times_of_fifty(measured: Any, fake_server: Any, table: Any) -> None:
    def once(daemon: Any) -> Stopped:
        daemon.wait_until(lambda: "daemon.started" in daemon.events(), 20)
        daemon.wait_ready("fast", "stubborn")
        stopped = stop_under_load(daemon, 2000, release=True)
        check(stopped, daemon)
        assert stopped.rows == stopped.expected_rows, stopped
        return stopped

    tables = CONFIG, fake_server("fast", max_in_flight="64"), fake_server("stubborn", "deaf_to_term")
    found: list[Stopped] = []
    for _ in range(ROUNDS // AT_ONCE):
        daemons = [measured(*tables, wait=False) for _ in range(AT_ONCE)]
        with ThreadPoolExecutor(AT_ONCE) as beside:
            found += beside.map(once, daemons)
    seconds = sorted(stopped.seconds for stopped in found)
    table(
        "stopping under load",
        [
            ("daemons stopped, of them with exit code 0 and nothing left", f"{ROUNDS}, {len(found)}"),
            ("calls running, answered with their result", f"{64 * ROUNDS}, {sum(each.answered for each in found)}"),
            ("calls of the server that never answers, told `outcome_unknown`", sum(each.unknown for each in found)),
            ("calls refused as `shutting_down` meanwhile", sum(each.refused for each in found)),
            (
                "rows of the audit, written and expected",
                f"{sum(e.rows for e in found)}, {sum(e.expected_rows for e in found)}",
            ),
            (
                f"seconds to the end, median and longest ({PATIENCE:g} for calls and {ENDING:g} for the rest allowed)",
                f"{seconds[len(seconds) // 2]:.1f}, {seconds[-1]:.1f}",
            ),
        ],
    )
