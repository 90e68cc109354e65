"""Rules 20, 21, 25, 26, 31, 32, 38: what structured concurrency makes of it all."""

from __future__ import annotations

import gc
from contextlib import suppress
from contextvars import ContextVar
from typing import Any

import pytest
import trio

import supervisors
from supervisors import (
    ChildSpec,
    Crashed,
    DynamicSupervisor,
    Killed,
    NoProcess,
    ServerExit,
    Shutdown,
    StartError,
    Stop,
    Supervisor,
    SupervisorExit,
    cast,
    events,
    exit,
    open_supervisor,
    start_child,
    stop,
    terminate_child,
    whereis,
    which_children,
)


async def shielded(seconds: float) -> None:
    with trio.CancelScope(shield=True):
        await trio.sleep(seconds)


# ---- rule 20


async def test_rule_20_a_crash_never_cancels_a_sibling(stage: Any) -> None:
    async with open_supervisor([stage.spec("a"), stage.spec("b")]):
        b = whereis("b")
        await stage.crash("a", ExceptionGroup("both", [OSError(), ValueError()]))
        assert whereis("b") is b
        assert await stage.do("b", lambda _: 1) == 1


@pytest.mark.parametrize("error", [KeyboardInterrupt, SystemExit])
@pytest.mark.parametrize("where", ["handler", "group", "init", "terminate", "task", "helper", "factory"])
async def test_rule_20_interrupts_always_propagate_and_the_tree_still_ends_in_order(
    stage: Any, error: type[BaseException], where: str
) -> None:
    def interrupt(*_: Any) -> None:
        if where == "group":
            raise BaseExceptionGroup("several", [error(), OSError()])
        raise error

    async def task() -> None:
        await trio.lowlevel.checkpoint()
        interrupt()

    spec = stage.spec("a", trap=True)
    if where == "init":
        stage.script["a"].init = interrupt
    elif where == "terminate":
        stage.script["a"].terminate = interrupt
        stage.script["a"].init = lambda _: supervisors.cast_nowait("a", stage.Do(lambda _: Stop(Shutdown())))
    elif where == "helper":
        stage.script["a"].init = lambda me: (me.start_task(task), None)[1]
    elif where == "factory":
        spec = ChildSpec(id="a", start=interrupt)
    elif where == "task":
        spec = ChildSpec(id="a", start=lambda: task)
    else:
        stage.script["a"].init = lambda _: supervisors.cast_nowait("a", stage.Do(interrupt))
    inner = ChildSpec(id="inner", start=lambda: Supervisor([stage.spec("i", trap=True), spec]))
    with pytest.raises(error):
        async with open_supervisor([stage.spec("b", trap=True), inner]):
            await trio.sleep_forever()
    assert [id for id in stage.ended() if id != "a"] == ["i", "b"]
    assert whereis("b") is None


async def test_rule_20_an_outer_cancellation_is_no_crash_no_restart_no_report(
    stage: Any, autojump_clock: trio.testing.MockClock
) -> None:
    children = [stage.spec("a", trap=True), stage.spec("b"), ChildSpec(id="f", start=lambda: trio.sleep_forever)]
    with trio.move_on_after(1) as scope:
        async with open_supervisor(children):
            await trio.sleep_forever()
    assert scope.cancelled_caught
    assert stage.inits() == ["a", "b"]
    assert stage.ended() == ["a"]
    assert stage.reasons["a"] == [Shutdown()]
    assert {type(event) for event in stage.events} == {events.ChildStarted}


# ---- rule 21


async def test_rule_21_a_group_of_one_is_unwrapped_for_the_reason_and_kept_for_the_report(stage: Any) -> None:
    async def nested(_: Any) -> None:
        async with trio.open_nursery() as nursery:
            nursery.start_soon(trio.sleep_forever)
            raise OSError("leaf")

    async with open_supervisor([stage.spec("a")]):
        with pytest.raises(ServerExit) as caught:
            await stage.do("a", nested)
        assert isinstance(caught.value.reason, Crashed)
        assert isinstance(caught.value.reason.error, OSError)
        (report,) = stage.seen(events.ActorCrashed)
        assert isinstance(report.error, ExceptionGroup)


async def test_rule_21_the_own_cancellation_is_gone_from_the_group(stage: Any) -> None:
    async def messy(_: Any) -> None:
        async with trio.open_nursery() as nursery:
            nursery.start_soon(trio.sleep_forever)
            nursery.start_soon(raise_when_cancelled)
            await trio.sleep_forever()

    async with open_supervisor([stage.spec("a", restart="temporary")]):
        ref = whereis("a")
        assert ref is not None
        await cast("a", stage.Do(messy))
        await trio.testing.wait_all_tasks_blocked()
        exit(ref, Shutdown())
        await trio.testing.wait_all_tasks_blocked()
        (ended,) = stage.seen(events.ChildTerminated)
        assert isinstance(ended.reason, Crashed)
        assert isinstance(ended.reason.error, OSError)


async def raise_when_cancelled() -> None:
    try:
        await trio.sleep_forever()
    finally:
        raise OSError("cleanup")


# ---- rules 25 and 38


async def test_rule_25_terminate_is_shielded_until_shutdown_is_over(
    stage: Any, autojump_clock: trio.testing.MockClock
) -> None:
    stage.script["a"].terminate = lambda *_: trio.sleep(100)
    started = trio.current_time()
    async with open_supervisor([stage.spec("a", trap=True, shutdown=3)]):
        pass
    assert trio.current_time() - started == pytest.approx(3)
    (report,) = stage.seen(events.ShutdownError)
    assert report.reason == Killed()


async def test_rule_25_an_outer_cancellation_waits_for_terminate(
    stage: Any, autojump_clock: trio.testing.MockClock
) -> None:
    async def slow(me: Any, _: Any) -> None:
        await trio.sleep(2)
        stage.journal.append(("cleaned", me.id))

    stage.script["a"].terminate = slow
    with trio.move_on_after(1):
        async with open_supervisor([stage.spec("a", trap=True)]):
            await trio.sleep_forever()
    assert stage.journal[-1] == ("cleaned", "a")
    assert trio.current_time() == pytest.approx(3)


@pytest.mark.parametrize("shutdown", [2, "brutal_kill"])
async def test_rules_25_and_38_a_child_that_shields_itself_is_reported_and_waited_for(
    stage: Any, autojump_clock: trio.testing.MockClock, shutdown: Any
) -> None:
    reports = []
    token = events.attach(
        lambda event: reports.append(trio.current_time()) if isinstance(event, events.ChildUnresponsive) else None
    )
    async with open_supervisor([stage.spec("a", shutdown=shutdown)]):
        await cast("a", stage.Do(lambda _: shielded(30)))
        await trio.testing.wait_all_tasks_blocked()
    events.detach(token)
    assert trio.current_time() == pytest.approx(30)
    assert reports == [pytest.approx(1 if shutdown == "brutal_kill" else 3)]


@pytest.mark.parametrize("what", ["handler", "draining", "terminate", "helper"])
async def test_rule_38_shutdown_covers_everything(
    stage: Any, autojump_clock: trio.testing.MockClock, what: str
) -> None:
    def init(me: Any) -> None:
        if what == "helper":
            me.start_task(until_killed)
        for _ in range({"handler": 1, "draining": 30}.get(what, 0)):
            supervisors.cast_nowait("a", stage.Do(lambda _: trio.sleep(100 if what == "handler" else 0.5)))

    async def until_killed() -> None:
        try:
            await trio.sleep_forever()
        finally:
            await shielded(4)

    stage.script["a"].init = init
    if what == "terminate":
        stage.script["a"].terminate = lambda *_: trio.sleep(100)
    async with open_supervisor([stage.spec("a", trap=True)]):
        await trio.testing.wait_all_tasks_blocked()
    assert trio.current_time() == pytest.approx(4 if what == "helper" else 5)


async def test_rule_38_infinity_waits(stage: Any, autojump_clock: trio.testing.MockClock) -> None:
    stage.script["a"].terminate = lambda *_: trio.sleep(1000)
    async with open_supervisor([stage.spec("a", trap=True, shutdown="infinity")]):
        pass
    assert trio.current_time() == pytest.approx(1000)


async def test_rule_25_a_supervisors_time_is_infinite_by_default_and_bounded_where_said(
    stage: Any, autojump_clock: trio.testing.MockClock
) -> None:
    for id in ("a", "b"):
        stage.script[id].terminate = lambda *_: trio.sleep(50)
    patient = ChildSpec(
        id="patient", start=lambda: Supervisor([stage.spec("a", trap=True, shutdown=60)]), type="supervisor"
    )
    undeclared = ChildSpec(id="undeclared", start=lambda: Supervisor([stage.spec("b", trap=True, shutdown=60)]))
    async with open_supervisor([patient, undeclared]):
        pass
    assert trio.current_time() == pytest.approx(100)
    bounded = ChildSpec(id="bounded", start=lambda: Supervisor([stage.spec("a", trap=True, shutdown=60)]), shutdown=7)
    async with open_supervisor([bounded]):
        pass
    assert trio.current_time() == pytest.approx(107)
    assert [(report.id, report.reason) for report in stage.seen(events.ShutdownError)] == [("bounded", Killed())]


async def test_killed_in_terminate(stage: Any, autojump_clock: trio.testing.MockClock) -> None:
    stage.script["a"].terminate = lambda *_: trio.sleep_forever()
    async with open_supervisor([stage.spec("a", restart="temporary")]) as root:
        ref = whereis("a")
        assert ref is not None
        await cast("a", stage.Do(lambda _: Stop(Shutdown())))
        await trio.sleep(100)
        exit(ref, Shutdown())
        await trio.sleep(100)
        assert whereis("a") is ref
        exit(ref, Killed())
        await trio.testing.wait_all_tasks_blocked()
        assert await which_children(root) == []


async def test_a_message_is_not_begun_after_the_kill(stage: Any) -> None:
    done: list[int] = []
    async with open_supervisor([stage.spec("a", restart="temporary")]):
        ref = whereis("a")
        assert ref is not None
        supervisors.cast_nowait(ref, stage.Do(lambda _: done.append(1)))
        exit(ref, Killed())
        await trio.testing.wait_all_tasks_blocked()
    assert done == []


async def test_a_handler_that_swallows_its_cancellation_is_still_ended(stage: Any) -> None:
    async def swallow(_: Any) -> None:
        with suppress(trio.Cancelled):
            await trio.sleep_forever()

    async with open_supervisor([stage.spec("a", restart="temporary")]):
        ref = whereis("a")
        assert ref is not None
        await cast("a", stage.Do(swallow))
        await cast("a", stage.Note("not begun"))
        await trio.testing.wait_all_tasks_blocked()
        exit(ref, Shutdown())
        await trio.testing.wait_all_tasks_blocked()
        assert whereis("a") is None


# ---- rule 31


async def test_rule_31_leaving_ends_the_tree_and_the_bodys_error_is_bare(stage: Any) -> None:
    with pytest.raises(ZeroDivisionError):
        async with open_supervisor([stage.spec("a", trap=True)]):
            raise ZeroDivisionError
    assert stage.ended() == ["a"]
    with pytest.raises(NoProcess):
        await stage.do("a", lambda _: 1)


async def test_rule_31_supervisor_exit_is_bare_and_cancels_the_body(stage: Any) -> None:
    cancelled = False
    with pytest.raises(SupervisorExit):
        async with open_supervisor([stage.spec("a")], max_restarts=0):
            supervisors.cast_nowait("a", stage.Do(lambda _: 1 / 0))
            try:
                await trio.sleep_forever()
            except trio.Cancelled:
                cancelled = True
                raise
    assert cancelled


async def test_rule_31_an_error_the_body_made_of_its_cancellation_wins(stage: Any) -> None:
    with pytest.raises(LookupError):
        async with open_supervisor([stage.spec("a")], max_restarts=0):
            supervisors.cast_nowait("a", stage.Do(lambda _: 1 / 0))
            try:
                await trio.sleep_forever()
            finally:
                raise LookupError("cleanup of the body")


async def test_rule_31_a_call_that_fails_with_the_tree_is_a_supervisor_exit(stage: Any) -> None:
    with pytest.raises(SupervisorExit) as caught:
        async with open_supervisor([stage.spec("a")], max_restarts=0):
            await stage.do("a", lambda _: 1 / 0)
    assert isinstance(caught.value.__cause__, ServerExit)


async def test_rule_31_a_cancelled_entering_stops_what_had_started(
    stage: Any, autojump_clock: trio.testing.MockClock
) -> None:
    stage.hang_init("b")
    with trio.move_on_after(1) as scope:
        async with open_supervisor([stage.spec("a", trap=True), stage.spec("b")]):
            raise AssertionError("it must not get up")
    assert scope.cancelled_caught
    assert stage.ended() == ["a"]
    assert stage.seen(events.StartFailed) == []


async def test_rule_31_stopping_the_root_from_within(stage: Any) -> None:
    with pytest.raises(SupervisorExit) as caught:
        async with open_supervisor([stage.spec("a", trap=True)]) as root:
            await stop(root, Shutdown("by hand"))
            await trio.sleep_forever()
    assert caught.value.reason == Shutdown("by hand")
    assert stage.ended() == ["a"]


async def test_rule_31_killing_the_root(stage: Any) -> None:
    with pytest.raises(SupervisorExit) as caught:
        async with open_supervisor([stage.spec("a", trap=True)]) as root:
            exit(root, Killed())
            await trio.sleep_forever()
    assert caught.value.reason == Killed()
    assert stage.ended() == []


async def test_rule_31_a_tree_within_a_tree(stage: Any) -> None:
    async def inner(_: Any) -> Any:
        async with open_supervisor([stage.spec("i")]):
            return await stage.do("i", lambda _: "deep")

    async with open_supervisor([stage.spec("a")]):
        assert await stage.do("a", inner) == "deep"


# ---- rule 32


async def test_rule_32_administration_works_from_any_task(stage: Any) -> None:
    async with open_supervisor([stage.spec("a")]) as root, trio.open_nursery() as nursery:

        async def outside() -> None:
            await start_child(root, stage.spec("b"))
            await cast("b", stage.Note("x"))
            supervisors.send("b", "y")
            await terminate_child(root, "b")
            await stop("a")

        nursery.start_soon(outside)


async def test_a_childs_context_is_its_supervisors_not_its_starters(stage: Any) -> None:
    variable: ContextVar[str] = ContextVar("variable", default="nobody")
    got = []
    stage.script["b"].init = lambda _: got.append(variable.get())
    variable.set("opener")
    async with open_supervisor([ChildSpec(id="d", start=lambda: DynamicSupervisor(name="d"))]):
        variable.set("starter")
        await start_child("d", stage.spec("b"))
        await stage.crash("b")
    assert got == ["opener", "opener"]


async def test_nothing_is_left_after_the_tree(stage: Any) -> None:
    before = trio.lowlevel.current_statistics().tasks_living
    children = [stage.spec("a"), ChildSpec(id="d", start=lambda: DynamicSupervisor(name="d"))]
    async with open_supervisor(children):
        for number in range(20):
            await start_child("d", stage.spec(str(number)))
    assert trio.lowlevel.current_statistics().tasks_living == before
    with pytest.raises(StartError):
        async with open_supervisor([stage.spec("a"), ChildSpec(id="x", start=lambda: 1)]):
            raise AssertionError("it must not get up")
    assert trio.lowlevel.current_statistics().tasks_living == before


@pytest.mark.parametrize("kind", ["actor", "task", "trapping", "helper", "call", "linked", "restart fails"])
async def test_a_life_that_ended_is_freed_without_the_garbage_collector(stage: Any, kind: str) -> None:
    """A crash storm must not feed the collector: its full runs stop the whole process."""

    async def fail() -> None:
        await trio.lowlevel.checkpoint()
        raise OSError("task")

    async def once() -> None:
        match kind:
            case "helper":
                supervisors.cast_nowait("a", stage.Do(lambda me: me.start_task(fail) and None))
            case "call":
                with suppress(ServerExit):
                    await stage.do("a", lambda _: 1 / 0)
            case "task":
                task = await supervisors.async_nolink("tasks", fail)
                with suppress(supervisors.TaskExit):
                    await task.result()
            case "linked":
                await stage.do("a", lambda _: supervisors.async_task("tasks", fail))
            case "restart fails":
                stage.fail_init("a", times=1)
                supervisors.cast_nowait("a", stage.Do(lambda _: 1 / 0))
            case _:
                supervisors.cast_nowait("a", stage.Do(lambda _: 1 / 0))
        await trio.testing.wait_all_tasks_blocked()
        stage.events.clear()
        stage.reasons.clear()
        stage.journal.clear()

    children = [
        stage.spec("a", trap=kind == "trapping"),
        ChildSpec(id="tasks", start=lambda: supervisors.TaskSupervisor(name="tasks")),
    ]
    async with open_supervisor(children, max_restarts=1_000_000):
        await once()
        gc.collect()
        gc.disable()
        try:
            for _ in range(50):
                await once()
            found = gc.collect()
        finally:
            gc.enable()
        assert found < 50, found
