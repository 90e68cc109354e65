"""Rules 3 to 10 and 34: who is restarted, how often, in which order, and when a supervisor gives up."""

from __future__ import annotations

from typing import Any

import pytest
import trio

from supervisors import (
    Backoff,
    ChildSpec,
    Crashed,
    Killed,
    Normal,
    Shutdown,
    StartError,
    Stop,
    Supervisor,
    SupervisorExit,
    call,
    delete_child,
    events,
    exit,
    open_supervisor,
    restart_child,
    start_child,
    terminate_child,
    whereis,
    which_children,
)

ABC = ("a", "b", "c")


async def states(sup: Any) -> dict[str, str]:
    return {child.id: child.state for child in await which_children(sup)}


# ---- rule 3


@pytest.mark.parametrize(
    ("restart", "reason", "comes_back"),
    [
        ("permanent", Normal(), True),
        ("permanent", Shutdown("done"), True),
        ("permanent", Crashed(OSError()), True),
        ("transient", Normal(), False),
        ("transient", Shutdown(), False),
        ("transient", Shutdown("done"), False),
        ("transient", Crashed(OSError()), True),
        ("transient", Killed(), True),
        ("temporary", Normal(), False),
        ("temporary", Crashed(OSError()), False),
    ],
)
async def test_rule_3_who_is_restarted(stage: Any, restart: Any, reason: Any, comes_back: bool) -> None:
    async with open_supervisor([stage.spec("a", restart=restart), stage.spec("b")]) as root:
        before = whereis("a")
        await stage.end("a", reason)
        after = {child.id: child for child in await which_children(root)}
        if comes_back:
            assert after["a"].ref is whereis("a") is not before
            assert after["a"].ref is not None
        elif restart == "temporary":
            assert "a" not in after
        else:
            assert (after["a"].ref, after["a"].state) == (None, "stopped")
        assert whereis("b") is after["b"].ref
        assert stage.inits().count("b") == 1


async def test_rule_3_a_temporary_goes_with_a_siblings_group_restart(stage: Any) -> None:
    children = [stage.spec("a"), stage.spec("b", restart="temporary"), stage.spec("c")]
    async with open_supervisor(children, strategy="one_for_all") as root:
        await stage.crash("a")
        assert await states(root) == {"a": "running", "c": "running"}
        assert stage.inits() == ["a", "b", "c", "a", "c"]


# ---- rule 4


async def test_rule_4_one_restart_too_many_stops_all_in_reverse_and_exits_shutdown(
    stage: Any, autojump_clock: trio.testing.MockClock
) -> None:
    children = [stage.spec(id, trap=True) for id in ABC]
    with pytest.raises(SupervisorExit) as caught:
        async with open_supervisor(children, max_restarts=2, max_seconds=10):
            for _ in range(3):
                await stage.crash("b")
            await trio.sleep_forever()
    assert caught.value.reason == Shutdown()
    assert stage.ended() == ["b", "b", "b", "c", "a"]
    assert len(stage.seen(events.SupervisorShutdown)) == 1


async def test_rule_4_the_boundary_of_the_window_counts(stage: Any, autojump_clock: trio.testing.MockClock) -> None:
    with pytest.raises(SupervisorExit):
        async with open_supervisor([stage.spec("a")], max_restarts=1, max_seconds=5):
            await stage.crash("a")
            await trio.sleep(5)
            await stage.crash("a")
            await trio.sleep_forever()


async def test_rule_4_older_restarts_do_not_count(stage: Any, autojump_clock: trio.testing.MockClock) -> None:
    async with open_supervisor([stage.spec("a")], max_restarts=1, max_seconds=5):
        for _ in range(5):
            await stage.crash("a")
            await trio.sleep(5.01)
    assert stage.inits() == ["a"] * 6


async def test_rule_4_intensity_is_the_supervisors_not_the_childs(stage: Any) -> None:
    with pytest.raises(SupervisorExit):
        async with open_supervisor([stage.spec(id) for id in ABC], max_restarts=2):
            for id in ABC:
                await stage.crash(id)
            await trio.sleep_forever()


async def test_rule_4_no_restart_at_all_is_allowed_with_zero(stage: Any) -> None:
    with pytest.raises(SupervisorExit):
        async with open_supervisor([stage.spec("a")], max_restarts=0):
            await stage.crash("a")
            await trio.sleep_forever()
    assert stage.inits() == ["a"]


# ---- rules 5 and 34


async def test_rules_5_and_34_a_failed_restart_is_tried_again_and_each_attempt_counts(stage: Any) -> None:
    async with open_supervisor([stage.spec("a")], max_restarts=3):
        stage.fail_init("a", times=2)
        await stage.crash("a")
        assert whereis("a") is not None
    assert stage.inits() == ["a"] * 4
    assert [(event.delay, event.attempt) for event in stage.seen(events.ChildRestarting)] == [(0, 1), (0, 2), (0, 3)]
    assert len(stage.seen(events.StartFailed)) == 2


async def test_rule_5_a_restart_that_keeps_failing_exceeds_the_intensity(stage: Any) -> None:
    with pytest.raises(SupervisorExit):
        async with open_supervisor([stage.spec("a")], max_restarts=3):
            stage.fail_init("a")
            await stage.crash("a")
            await trio.sleep_forever()
    assert stage.inits() == ["a"] * 4  # the first start and three restarts; the fourth is one too many


@pytest.mark.parametrize("strategy", ["one_for_one", "one_for_all", "rest_for_one"])
async def test_rule_5_other_requests_are_served_between_attempts(stage: Any, strategy: Any) -> None:
    async with open_supervisor([stage.spec("a")], strategy=strategy, max_restarts=1_000_000) as root:
        stage.fail_init("a")
        await_crash = stage.Do(lambda _: 1 / 0)
        with pytest.raises(Exception, match="before it answered"):
            await call("a", await_crash)
        await start_child(root, stage.spec("b"))
        await terminate_child(root, "a")
        assert await states(root) == {"a": "stopped", "b": "running"}
        tried = len(stage.inits())
        await trio.testing.wait_all_tasks_blocked()
        assert len(stage.inits()) == tried


async def test_rule_5_a_group_restart_counts_once(stage: Any) -> None:
    async with open_supervisor([stage.spec(id) for id in ABC], strategy="one_for_all", max_restarts=1):
        await stage.crash("b")
    assert stage.inits() == [*ABC, *ABC]


async def test_rule_5_a_manual_restart_never_counts(stage: Any) -> None:
    async with open_supervisor([stage.spec("a")], max_restarts=0) as root:
        for _ in range(5):
            await terminate_child(root, "a")
            assert await restart_child(root, "a") is whereis("a")


async def test_rule_5_members_that_crash_together_are_one_restart(stage: Any) -> None:
    async with open_supervisor([stage.spec(id) for id in ABC], strategy="one_for_all", max_restarts=1):
        for ref in (whereis("a"), whereis("b")):
            assert ref is not None
            exit(ref, Killed())
        await trio.testing.wait_all_tasks_blocked()
        assert stage.inits() == [*ABC, *ABC]


async def test_rule_34_attempts_are_counted_since_it_last_ran(stage: Any) -> None:
    async with open_supervisor([stage.spec("a")]):
        await stage.crash("a")
        await stage.crash("a")
    assert [event.attempt for event in stage.seen(events.ChildRestarting)] == [1, 1]


# ---- rule 6


async def test_rule_6_starts_serially_in_order_and_stops_in_reverse_one_by_one(
    stage: Any, autojump_clock: trio.testing.MockClock
) -> None:
    for id in ABC:
        stage.script[id].init = lambda _: trio.sleep(1)
        stage.script[id].terminate = lambda me, _reason: note_end(me)

    async def note_end(me: Any) -> None:
        await trio.sleep(1)
        stage.journal.append(("down", me.id))

    async with open_supervisor([stage.spec(id, trap=True) for id in ABC]):
        pass
    assert stage.journal == [
        ("init", "a"),
        ("up", "a"),
        ("init", "b"),
        ("up", "b"),
        ("init", "c"),
        ("up", "c"),
        ("terminate", "c"),
        ("down", "c"),
        ("terminate", "b"),
        ("down", "b"),
        ("terminate", "a"),
        ("down", "a"),
    ]


async def test_rule_6_start_child_is_serial_too(stage: Any, autojump_clock: trio.testing.MockClock) -> None:
    stage.script["a"].init = lambda _: trio.sleep(1)
    async with open_supervisor([]) as root, trio.open_nursery() as nursery:
        nursery.start_soon(start_child, root, stage.spec("a"))
        await trio.sleep(0.5)
        nursery.start_soon(start_child, root, stage.spec("b"))
    assert stage.journal[:3] == [("init", "a"), ("up", "a"), ("init", "b")]


# ---- rule 7


async def test_rule_7_a_failing_init_stops_the_started_and_raises_with_their_names_free(stage: Any) -> None:
    stage.fail_init("c", error=OSError("no disk"))
    with pytest.raises(StartError) as caught:
        async with open_supervisor([stage.spec(id, trap=True) for id in (*ABC, "d")]):
            raise AssertionError("the body must not run")
    assert caught.value.id == "c"
    assert isinstance(caught.value.cause, OSError)
    assert stage.ended() == ["b", "a"]
    assert "d" not in stage.inits()
    assert [whereis(id) for id in (*ABC, "d")] == [None] * 4


async def test_rule_7_names_are_free_when_start_child_raises(stage: Any) -> None:
    async with open_supervisor([]) as root:
        stage.fail_init("a", times=1)
        with pytest.raises(StartError):
            await start_child(root, stage.spec("a"))
        assert whereis("a") is None
        assert await start_child(root, stage.spec("a")) is whereis("a")


async def test_rules_7_and_36_a_nested_start_error_holds_the_inner_one(stage: Any) -> None:
    stage.fail_init("b")
    inner = ChildSpec(id="inner", start=lambda: Supervisor([stage.spec("a", trap=True), stage.spec("b")]))
    with pytest.raises(StartError) as caught:
        async with open_supervisor([inner]):
            raise AssertionError("the body must not run")
    assert caught.value.id == "inner"
    assert isinstance(caught.value.cause, StartError)
    assert caught.value.cause.id == "b"
    assert stage.ended() == ["a"]


# ---- rule 8


async def test_rule_8_one_for_all_starts_every_retained_specification(stage: Any) -> None:
    children = [stage.spec("a"), stage.spec("b", restart="transient"), stage.spec("c"), stage.spec("d", trap=True)]
    async with open_supervisor(children, strategy="one_for_all") as root:
        await stage.end("b")
        await terminate_child(root, "c")
        assert await states(root) == {"a": "running", "b": "stopped", "c": "stopped", "d": "running"}
        await stage.crash("a")
        assert set((await states(root)).values()) == {"running"}
        assert stage.inits()[4:] == ["a", "b", "c", "d"]
        assert stage.ended() == ["b", "a", "d"]


async def test_rule_8_rest_for_one_restarts_only_those_behind(stage: Any) -> None:
    children = [stage.spec(id, trap=True) for id in ("a", "b", "c", "d")]
    async with open_supervisor(children, strategy="rest_for_one"):
        first = whereis("a")
        await stage.crash("b")
        assert whereis("a") is first
        assert stage.ended() == ["b", "d", "c"]
        assert stage.inits()[4:] == ["b", "c", "d"]


async def test_rule_8_one_for_all_retries_all_after_a_failing_member(stage: Any) -> None:
    async with open_supervisor(
        [stage.spec(id, trap=True) for id in ABC], strategy="one_for_all", max_restarts=2
    ) as root:
        stage.fail_init("b", times=1)
        await stage.crash("c")
        assert set((await states(root)).values()) == {"running"}
    assert stage.inits() == [*ABC, "a", "b", *ABC]
    assert stage.ended()[:4] == ["c", "b", "a", "a"]


async def test_rule_8_rest_for_one_retries_from_the_failed_member_only(stage: Any) -> None:
    children = [stage.spec(id, trap=True) for id in ("a", "b", "c", "d")]
    async with open_supervisor(children, strategy="rest_for_one", max_restarts=2):
        stage.fail_init("c", times=1)
        await stage.crash("b")
        assert stage.inits() == ["a", "b", "c", "d", "b", "c", "c", "d"]


async def test_rule_8_a_crash_while_the_group_restarts_is_a_restart_of_its_own(
    stage: Any, autojump_clock: trio.testing.MockClock
) -> None:
    async with open_supervisor([stage.spec("a"), stage.spec("b")], strategy="one_for_all") as root:
        stage.script["b"].init = lambda _: trio.sleep(1)
        await stage.crash("a")
        await stage.crash("a")  # while b is in its init
        await trio.sleep(3)
        assert set((await states(root)).values()) == {"running"}
        assert stage.inits() == ["a", "b"] * 3


async def test_rule_8_a_member_terminated_between_attempts_stays_down_and_the_others_come_up(stage: Any) -> None:
    async with open_supervisor([stage.spec(id) for id in ABC], strategy="one_for_all", max_restarts=1_000_000) as root:
        stage.fail_init("b")
        with pytest.raises(Exception, match="before it answered"):
            await call("c", stage.Do(lambda _: 1 / 0))
        await terminate_child(root, "b")
        await trio.testing.wait_all_tasks_blocked()
        assert await states(root) == {"a": "running", "b": "stopped", "c": "running"}


@pytest.mark.parametrize("strategy", ["one_for_all", "rest_for_one"])
async def test_rule_8_a_member_deleted_between_attempts_leaves_the_others_restarted(stage: Any, strategy: Any) -> None:
    async with open_supervisor([stage.spec(id) for id in ABC], strategy=strategy, max_restarts=1_000_000) as root:
        stage.fail_init("b")
        with pytest.raises(Exception, match="before it answered"):
            await call("b", stage.Do(lambda _: 1 / 0))
        await start_child(root, stage.spec("d"))
        await terminate_child(root, "b")
        await delete_child(root, "b")
        await trio.testing.wait_all_tasks_blocked()
        assert await states(root) == {"a": "running", "c": "running", "d": "running"}


# ---- rule 9


async def test_rule_9_an_unexpected_reason_while_stopping_is_a_report(stage: Any) -> None:
    stage.script["a"].terminate = lambda *_: 1 / 0
    async with open_supervisor([stage.spec("a", trap=True), stage.spec("b", trap=True)]):
        pass
    (report,) = stage.seen(events.ShutdownError)
    assert (report.id, type(report.reason.error)) == ("a", ZeroDivisionError)


async def test_rule_9_expected_reasons_are_silent(stage: Any) -> None:
    stage.script["a"].info = lambda *_: Stop(Normal())
    children = [stage.spec("a", trap=True), stage.spec("b", shutdown="brutal_kill"), stage.spec("c")]
    async with open_supervisor(children):
        pass
    assert stage.seen((events.ShutdownError, events.ChildTerminated, events.ActorCrashed)) == []


# ---- rule 10


@pytest.mark.parametrize(
    ("restart", "reason", "ends"),
    [
        ("transient", Normal(), True),
        ("transient", Shutdown(), True),
        ("transient", Crashed(OSError()), False),
        ("temporary", Normal(), True),
        ("temporary", Crashed(OSError()), True),
    ],
)
async def test_rule_10_any_significant(
    stage: Any, restart: Any, reason: Any, ends: bool, autojump_clock: trio.testing.MockClock
) -> None:
    children = [stage.spec("a", significant=True, restart=restart), stage.spec("b", trap=True)]
    body_ended = False
    try:
        async with open_supervisor(children, auto_shutdown="any_significant"):
            await stage.end("a", reason)
            await trio.sleep(1)
            body_ended = True
    except SupervisorExit:
        pass
    assert body_ended is not ends
    assert stage.ended()[-1] == "b"


async def test_rule_10_all_significant_waits_for_the_last(stage: Any) -> None:
    options: dict[str, Any] = {"significant": True, "restart": "transient"}
    children = [stage.spec("a", **options), stage.spec("b", **options), stage.spec("c")]
    with pytest.raises(SupervisorExit):
        async with open_supervisor(children, auto_shutdown="all_significant") as root:
            await stage.end("a")
            assert await states(root) == {"a": "stopped", "b": "running", "c": "running"}
            await stage.end("b")
            await trio.sleep_forever()


@pytest.mark.parametrize("auto_shutdown", ["any_significant", "all_significant"])
async def test_rule_10_never_for_what_the_supervisor_stopped(stage: Any, auto_shutdown: Any) -> None:
    children = [stage.spec("a", significant=True, restart="transient"), stage.spec("b")]
    async with open_supervisor(children, auto_shutdown=auto_shutdown, strategy="one_for_all") as root:
        await terminate_child(root, "a")
        await stage.crash("b")
        assert await states(root) == {"a": "running", "b": "running"}


async def test_rule_10_a_nested_supervisors_auto_shutdown_is_a_normal_end(stage: Any) -> None:
    child = stage.spec("a", significant=True, restart="transient")
    inner = ChildSpec(
        id="inner", restart="transient", start=lambda: Supervisor([child], auto_shutdown="any_significant")
    )
    async with open_supervisor([inner]) as root:
        await stage.end("a")
        assert await states(root) == {"inner": "stopped"}


# ---- trees


async def test_a_nested_supervisor_that_gives_up_is_restarted_with_its_first_children(stage: Any) -> None:
    inner = ChildSpec(id="inner", start=lambda: Supervisor([stage.spec("a")], max_restarts=0, name="inner"))
    async with open_supervisor([inner, stage.spec("b")]) as root:
        await start_child("inner", stage.spec("extra"))
        await stage.crash("a")
        assert await states("inner") == {"a": "running"}
        assert await states(root) == {"inner": "running", "b": "running"}


async def test_a_killed_supervisor_takes_its_subtree_along_and_comes_back(stage: Any) -> None:
    inner = ChildSpec(id="inner", start=lambda: Supervisor([stage.spec("a", trap=True)], name="inner"))
    async with open_supervisor([inner]):
        before, old = whereis("a"), whereis("inner")
        assert old is not None
        exit(old, Killed())
        await trio.testing.wait_all_tasks_blocked()
        assert whereis("a") not in (None, before)
        assert stage.ended() == []
    assert stage.ended() == ["a"]


async def test_a_backoff_child_may_live_beside_others_in_one_for_one(stage: Any) -> None:
    async with open_supervisor([stage.spec("a", backoff=Backoff()), stage.spec("b")], max_restarts=0) as root:
        await stage.crash("a")
        assert await states(root) == {"a": "restarting", "b": "running"}
