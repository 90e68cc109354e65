"""A system clock that is set makes no approval last longer and removes no row of the audit."""

from __future__ import annotations

import sqlite3
import time
from collections.abc import Callable
from contextlib import closing
from pathlib import Path
from typing import Any

import pytest
import trio

from conduit_daemon.config.model import AuditConfig
from conduit_daemon.model import Call, Outcome, Principal
from conduit_daemon.pipeline import Answer, _audit_writer
from conduit_daemon.pipeline.audit import Audit
from conduit_daemon.pipeline.remembered import Binding, Remembered
from conduit_daemon.steady_clock import steady_clock
from conduit_daemon.telemetry.events import EventBus
from conduit_daemon.telemetry.masking import Masker

YES = Answer(decision="approve", approver="root")
ASKED = Binding(principal="ann", server="s", tool="t", arguments="a", definition="d", policy="p", rule="r")


def test_a_clock_that_nobody_sets() -> None:
    wall, elapsed = 1e9, 50.0
    clock = steady_clock(lambda: wall, lambda: elapsed)
    assert clock() == 1e9
    wall, elapsed = 2e9, 60.0
    assert clock() == 1e9 + 10
    wall = 0.0
    assert clock() == 1e9 + 10
    assert abs(steady_clock()() - time.time()) < 0.1


@pytest.mark.parametrize("jump", [-86_400 * 365, 86_400 * 365])
def test_an_hour_is_an_hour_whatever_the_clock_is_set_to(monkeypatch: pytest.MonkeyPatch, jump: float) -> None:
    remembered = Remembered(None, EventBus())
    remembered.keep(ASKED, YES, "args", 3600)
    now = time.time() + jump
    monkeypatch.setattr(time, "time", lambda: now)
    assert remembered.recall(ASKED) == YES
    remembered._clock = steady_clock(lambda: time.time() - jump + 3601)
    assert remembered.recall(ASKED) is None


@pytest.mark.parametrize(("later", "holds"), [(10, True), (3590, True), (3601, False), (-30, True), (-61, False)])
async def test_what_would_hold_for_longer_than_it_was_given_for_is_not_believed(
    tmp_path: Path, nursery: trio.Nursery, later: float, holds: bool
) -> None:
    before = Remembered(tmp_path, EventBus(), lambda: 1e9)
    nursery.start_soon(before.file.run)
    before.keep(ASKED, YES, "tool", 3600)
    assert await before.file.saved()
    after = Remembered(tmp_path, EventBus(), lambda: 1e9 + later)
    after.load()
    assert after.recall(ASKED) == (YES if holds else None)


@pytest.fixture
def clocks(monkeypatch: pytest.MonkeyPatch) -> Callable[[float, float], None]:
    """Sets the writer's clocks to so many seconds ahead: the system's, and the one that nobody sets."""
    wall, monotonic = time.time, time.monotonic
    ahead = [0.0, 0.0]
    steady = _audit_writer.steady_clock

    def anchored() -> Callable[[], float]:
        began = ahead[1]
        clock = steady(lambda: wall() + ahead[0])
        return lambda: clock() + ahead[1] - began

    monkeypatch.setattr(_audit_writer.time, "time", lambda: wall() + ahead[0])
    monkeypatch.setattr(_audit_writer.time, "monotonic", lambda: monotonic() + ahead[1])
    monkeypatch.setattr(_audit_writer, "steady_clock", anchored)

    def set_ahead(system: float, elapsed: float) -> None:
        ahead[:] = system, elapsed

    return set_ahead


async def test_a_clock_set_forward_removes_nothing_until_it_has_been_so_for_a_day(
    tmp_path: Path, clocks: Callable[[float, float], None]
) -> None:
    audit = Audit(tmp_path, AuditConfig(retention_days=7), EventBus(), Masker(()))

    def calls() -> list[Any]:
        with closing(sqlite3.connect(audit.path)) as connection:
            return [call for (call,) in connection.execute("SELECT call FROM calls ORDER BY id")]

    async def record(number: int) -> None:
        call = Call(id=f"c{number}", name="t", arguments={}, principal=Principal("ann"))
        audit.record(Outcome(call=call, kind="ok"))
        await audit.query()
        await trio.sleep(0.1)

    year, day = 365 * 86_400, 86_401
    async with trio.open_nursery() as nursery:
        nursery.start_soon(audit.run)
        await record(1)
        clocks(year, 10)  # somebody sets it forward
        await record(2)
        clocks(year + day, day)  # the daily look: not believed yet
        await record(3)
        assert calls() == ["c1", "c2", "c3"]
        clocks(2 * day, 2 * day)  # set right: nothing was lost
        await record(4)
        assert calls() == ["c1", "c2", "c3", "c4"]
        clocks(year + 3 * day, 3 * day)
        await record(5)
        clocks(year + 4 * day, 4 * day)  # it stays so
        await record(6)
        with trio.fail_after(5):
            while "c1" in calls():
                await trio.sleep(0.01)
        assert "c6" in calls()
        nursery.cancel_scope.cancel()
