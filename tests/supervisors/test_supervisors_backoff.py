"""Rules 26, 29, 30 and 33: restarts that wait."""

from __future__ import annotations

from typing import Any

import pytest
import trio

from supervisors import (
    AlreadyPresent,
    Backoff,
    ChildSpec,
    DynamicSupervisor,
    Ignore,
    Restarting,
    StartError,
    count_children,
    delete_child,
    events,
    open_supervisor,
    restart_child,
    start_child,
    terminate_child,
    whereis,
    which_children,
)

STEADY = Backoff(initial=1, factor=2, maximum=8, jitter=0, reset_after=10)


async def info(sup: Any, id: str = "a") -> Any:
    return next(child for child in await which_children(sup) if child.id == id)


def delays(stage: Any) -> list[float]:
    return [event.delay for event in stage.seen(events.ChildRestarting)]


async def test_rule_29_each_failure_waits_longer_up_to_the_maximum_and_never_takes_the_supervisor_down(
    stage: Any, autojump_clock: trio.testing.MockClock
) -> None:
    async with open_supervisor([stage.spec("a", backoff=STEADY)], max_restarts=0) as root:
        stage.fail_init("a", times=6)
        await stage.crash("a")
        assert (await info(root)).state == "restarting"
        assert (await info(root)).retry_in == pytest.approx(1)
        await trio.sleep(0.25)
        assert (await info(root)).retry_in == pytest.approx(0.75)
        await trio.sleep(1000)
        assert (await info(root)).state == "running"
        assert (await info(root)).retry_in is None
        assert (await info(root)).restarts == 7
    assert delays(stage) == [1, 2, 4, 8, 8, 8, 8]
    assert [event.attempt for event in stage.seen(events.ChildRestarting)] == [1, 2, 3, 4, 5, 6, 7]


async def test_rule_29_stable_uptime_resets_a_successful_start_does_not(
    stage: Any, autojump_clock: trio.testing.MockClock
) -> None:
    async with open_supervisor([stage.spec("a", backoff=STEADY)]):
        for _ in range(3):
            await stage.crash("a")
            await trio.sleep(9)  # so it ran for less than 10 s
        assert delays(stage) == [1, 2, 4]
        await trio.sleep(10)
        await stage.crash("a")
        assert delays(stage) == [1, 2, 4, 1]


def test_rule_29_the_wait_is_drawn_from_the_jitters_range() -> None:
    backoff = Backoff(initial=4, factor=2, maximum=16, jitter=0.5)
    for attempt, full in ((1, 4), (2, 8), (3, 16), (4, 16), (10_000, 16)):
        drawn = [backoff.delay(attempt) for _ in range(500)]
        assert full * 0.5 <= min(drawn) < full * 0.6
        assert full * 0.9 < max(drawn) <= full
    assert Backoff(initial=0).delay(5) == 0


async def test_rule_29_siblings_without_a_backoff_still_count(stage: Any, autojump_clock: Any) -> None:
    async with open_supervisor([stage.spec("a", backoff=STEADY), stage.spec("b")], max_restarts=1):
        for _ in range(5):
            await stage.crash("a")
            await trio.sleep(20)
        await stage.crash("b")
        assert whereis("b") is not None


async def test_rule_30_restart_child_tries_now(stage: Any, autojump_clock: trio.testing.MockClock) -> None:
    async with open_supervisor([stage.spec("a", backoff=STEADY)]) as root:
        await stage.crash("a")
        before = trio.current_time()
        assert await restart_child(root, "a") is whereis("a")
        assert trio.current_time() == before
        await trio.sleep(100)
        assert stage.inits() == ["a", "a"]  # the timer was taken back


async def test_rule_33_a_failed_try_now_raises_and_rearms(stage: Any, autojump_clock: trio.testing.MockClock) -> None:
    for kind in ("static", "dynamic"):
        inner = ChildSpec(id="d", start=lambda: DynamicSupervisor(name="d"))
        async with open_supervisor([inner]) as root:
            sup: Any = root if kind == "static" else "d"
            await start_child(sup, stage.spec("a", backoff=STEADY))
            stage.fail_init("a", times=1)
            await stage.crash("a")
            with pytest.raises(StartError):
                await restart_child(sup, "a")
            assert (await info(sup)).state == "restarting"
            assert (await info(sup)).retry_in == pytest.approx(2)
            await trio.sleep(3)
            assert (await info(sup)).state == "running"


async def test_rule_33_a_failing_first_start_is_a_failure_like_any_other(
    stage: Any, autojump_clock: trio.testing.MockClock
) -> None:
    inner = ChildSpec(id="d", start=lambda: DynamicSupervisor(name="d"))
    stage.fail_init("a", times=2)
    stage.fail_init("x", times=1)
    children = [stage.spec("a", backoff=STEADY), stage.spec("b", trap=True), inner]
    async with open_supervisor(children) as root:
        assert (await info(root)).state == "restarting"
        assert whereis("b") is not None
        assert await start_child("d", stage.spec("x", backoff=STEADY)) is None
        assert (await info("d", "x")).state == "restarting"
        with pytest.raises(AlreadyPresent):
            await start_child("d", stage.spec("x"))
        await trio.sleep(1.1)
        assert (await info("d", "x")).state == "running"
        await trio.sleep(3)
        assert (await info(root)).state == "running"


async def test_rule_33_a_failing_first_start_of_a_temporary_is_an_error(stage: Any) -> None:
    stage.fail_init("a")
    with pytest.raises(StartError):
        async with open_supervisor([stage.spec("a", backoff=STEADY, restart="temporary")]):
            raise AssertionError("it must not get up")


@pytest.mark.parametrize(("restart", "waits"), [("permanent", True), ("transient", False)])
async def test_rule_33_normal_exits_of_a_permanent_one_wait_too(stage: Any, restart: Any, waits: bool) -> None:
    async with open_supervisor([stage.spec("a", backoff=STEADY, restart=restart)]) as root:
        await stage.end("a")
        assert (await info(root)).state == ("restarting" if waits else "stopped")


async def test_rule_26_a_waiting_child_blocks_nothing_and_can_be_taken_away(
    stage: Any, autojump_clock: trio.testing.MockClock
) -> None:
    long = Backoff(initial=1000, maximum=1000, jitter=0)
    async with open_supervisor([stage.spec("a", backoff=long), stage.spec("b")]) as root:
        await stage.crash("a")
        before = trio.current_time()
        await start_child(root, stage.spec("c"))
        await stage.crash("b")
        assert (await count_children(root)).active == 2
        with pytest.raises(Restarting):
            await delete_child(root, "a")
        await terminate_child(root, "a")
        assert trio.current_time() == before
        await delete_child(root, "a")
        await trio.sleep(2000)
        assert stage.inits().count("a") == 1


async def test_rule_26_a_waiting_child_does_not_hold_up_the_shutdown(
    stage: Any, autojump_clock: trio.testing.MockClock
) -> None:
    async with open_supervisor([stage.spec("a", backoff=STEADY)]):
        await stage.crash("a")
        before = trio.current_time()
    assert trio.current_time() == before


async def test_an_init_that_hangs_under_backoff_holds_nobody_else_up(
    stage: Any, autojump_clock: trio.testing.MockClock
) -> None:
    async with open_supervisor([stage.spec("a", backoff=STEADY), stage.spec("b")]) as root:
        stage.hang_init("a")
        await stage.crash("a")
        await trio.sleep(2)
        assert (await info(root)).state == "starting"
        await stage.crash("b")
        assert (await info(root, "b")).state == "running"
        with pytest.raises(Restarting):
            await restart_child(root, "a")
        before = trio.current_time()
    assert trio.current_time() == before


async def test_ignoring_a_restart_under_backoff_ends_it(stage: Any, autojump_clock: trio.testing.MockClock) -> None:
    async with open_supervisor([stage.spec("a", backoff=STEADY)]) as root:
        stage.script["a"].init = lambda _: Ignore()
        await stage.crash("a")
        await trio.sleep(100)
        assert (await info(root)).state == "stopped"
        assert stage.inits() == ["a", "a"]
