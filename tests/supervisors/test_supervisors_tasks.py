"""Rule 43, and supervisors of tasks: functions as children, beside actors, and on demand."""

from __future__ import annotations

from functools import partial
from typing import Any

import pytest
import trio

from supervisors import (
    ChildSpec,
    Crashed,
    Killed,
    MaxChildren,
    NoProcess,
    NotInActor,
    ServerExit,
    Shutdown,
    StartError,
    TaskExit,
    TaskSupervisor,
    async_nolink,
    async_task,
    call,
    cast,
    count_children,
    events,
    exit,
    open_supervisor,
    restart_child,
    self_ref,
    start_child,
    start_task,
    stop,
    terminate_child,
    whereis,
    which_children,
)

TASKS = ChildSpec(id="tasks", start=lambda: TaskSupervisor(name="tasks"), type="supervisor")


async def give(value: Any) -> Any:
    await trio.lowlevel.checkpoint()
    return value


async def fail(error: BaseException) -> None:
    await trio.lowlevel.checkpoint()
    raise error


# ---- rule 43: tasks of an actor


async def test_rule_43_a_task_of_an_actor_runs_beside_its_mailbox_and_may_call_it(stage: Any) -> None:
    async def work(me: Any, text: str) -> None:
        me.seen.append(await call(self_ref(), stage.Do(lambda _: text)))

    async with open_supervisor([stage.spec("a")]):
        await stage.do("a", lambda me: me.start_task(work, me, "hello"))
        await trio.testing.wait_all_tasks_blocked()
        assert await stage.do("a", lambda me: me.seen) == ["hello"]


async def test_rule_43_a_raise_crashes_the_actor(stage: Any) -> None:
    async with open_supervisor([stage.spec("a"), stage.spec("b")]):
        before = whereis("a")
        await cast("a", stage.Do(lambda me: (me.start_task(fail, OSError("task")), trio.sleep_forever())[1]))
        await trio.testing.wait_all_tasks_blocked()
        assert whereis("a") not in (None, before)
        (reason,) = stage.reasons["a"]
        assert isinstance(reason, Crashed)
        assert isinstance(reason.error, OSError)
        assert len(stage.seen(events.ActorCrashed)) == 1


async def test_rule_43_its_exit_and_restart_wait_for_it(stage: Any, autojump_clock: trio.testing.MockClock) -> None:
    async def slow_to_end() -> None:
        try:
            await trio.sleep_forever()
        finally:
            with trio.CancelScope(shield=True):
                await trio.sleep(3)
            stage.journal.append(("task over", "a"))

    async with open_supervisor([stage.spec("a")]):
        await stage.do("a", lambda me: me.start_task(slow_to_end))
        with pytest.raises(ServerExit):
            await stage.do("a", lambda _: 1 / 0)
        assert trio.current_time() == pytest.approx(3)
        await trio.testing.wait_all_tasks_blocked()
        assert stage.journal == [
            ("init", "a"),
            ("up", "a"),
            ("task over", "a"),
            ("terminate", "a"),
            ("init", "a"),
            ("up", "a"),
        ]


async def test_rule_43_a_handle_cancels_and_that_is_no_crash(stage: Any) -> None:
    async with open_supervisor([stage.spec("a")]):
        before = whereis("a")
        handle = await stage.do("a", lambda me: me.start_task(trio.sleep_forever))
        await trio.testing.wait_all_tasks_blocked()
        handle.cancel()
        handle.cancel()
        await trio.testing.wait_all_tasks_blocked()
        assert whereis("a") is before


@pytest.mark.parametrize("how", ["stop", "kill", "exit", "terminate", "crash", "leave"])
async def test_rule_43_an_actor_that_ended_owns_no_running_task(stage: Any, how: str) -> None:
    running: set[int] = set()

    async def work(number: int) -> None:
        running.add(number)
        try:
            await trio.sleep_forever()
        finally:
            running.remove(number)

    stage.script["a"].init = lambda me: [me.start_task(work, number) for number in range(3)] and None
    stage.script["a"].terminate = lambda me, _: me.start_task(work, 3) and None
    async with open_supervisor([stage.spec("a", restart="temporary")]) as root:
        await trio.testing.wait_all_tasks_blocked()
        assert running == {0, 1, 2}
        ref = whereis("a")
        assert ref is not None
        if how == "stop":
            await stop("a")
        elif how == "kill":
            exit(ref, Killed())
        elif how == "exit":
            exit(ref, Shutdown())
        elif how == "terminate":
            await terminate_child(root, "a")
        elif how == "crash":
            await stage.crash("a")
        if how != "leave":
            await trio.testing.wait_all_tasks_blocked()
            assert whereis("a") is None
            assert running == set()
    assert running == set()


async def test_rule_43_a_task_that_fails_while_the_actor_starts_fails_the_start(stage: Any) -> None:
    def init(me: Any) -> Any:
        me.start_task(fail, OSError("early"))
        return trio.sleep_forever()

    stage.script["a"].init = init
    with pytest.raises(StartError) as caught:
        async with open_supervisor([stage.spec("a")]):
            raise AssertionError("it must not get up")
    assert isinstance(caught.value.cause, OSError)


async def test_rule_43_a_failing_cleanup_of_a_task_is_the_reason(stage: Any) -> None:
    async def bad_cleanup() -> None:
        try:
            await trio.sleep_forever()
        finally:
            raise OSError("cleanup")

    stage.script["a"].init = lambda me: me.start_task(bad_cleanup) and None
    async with open_supervisor([stage.spec("a", trap=True)]):
        await trio.testing.wait_all_tasks_blocked()
    (report,) = stage.seen(events.ShutdownError)
    assert isinstance(report.reason, Crashed)
    assert isinstance(report.reason.error, OSError)


async def test_rule_43_a_killed_terminate_leaves_no_task(stage: Any) -> None:
    running = []

    async def work() -> None:
        running.append(1)
        try:
            await trio.sleep_forever()
        finally:
            running.pop()

    async def terminate(me: Any, _: Any) -> None:
        me.start_task(work)
        await trio.sleep_forever()

    stage.script["a"].terminate = terminate
    async with open_supervisor([stage.spec("a", restart="temporary")]):
        ref = whereis("a")
        assert ref is not None
        await stage.end("a")
        assert running == [1]
        exit(ref, Killed())
        await trio.testing.wait_all_tasks_blocked()
        assert running == []
        assert whereis("a") is None


async def test_rule_22_a_task_beside_an_actor_feels_its_backpressure(stage: Any) -> None:
    class Narrow(stage.Puppet):  # type: ignore[misc,name-defined]
        mailbox_size = 2

    sent = []

    async def produce() -> None:
        for number in range(10):
            await cast(self_ref(), stage.Note(str(number)))
            sent.append(number)

    gate = trio.Event()
    async with open_supervisor([ChildSpec(id="a", start=lambda: Narrow(stage, "a", "a"))]):
        await cast("a", stage.Do(lambda me: (me.start_task(produce), gate.wait())[1]))
        await trio.testing.wait_all_tasks_blocked()
        assert len(sent) == 2
        gate.set()
        await trio.testing.wait_all_tasks_blocked()
        assert len(sent) == 10


async def test_rule_43_tasks_need_a_running_actor(stage: Any) -> None:
    actor = stage.Puppet(stage, "a", "a")
    with pytest.raises(NotInActor):
        actor.start_task(trio.sleep_forever)
    async with open_supervisor([ChildSpec(id="a", start=lambda: actor)]):
        pass
    with pytest.raises(NotInActor):
        actor.start_task(trio.sleep_forever)


# ---- rule 43: a function as a child


async def test_rule_43_a_plain_async_function_is_a_child(stage: Any) -> None:
    runs: list[str] = []
    gate = trio.Event()

    async def worker() -> None:
        runs.append("run")
        if len(runs) == 1:
            raise OSError("first")
        try:
            await gate.wait()
        finally:
            runs.append("over")

    async with open_supervisor([ChildSpec(id="w", start=lambda: worker)]) as root:
        await trio.testing.wait_all_tasks_blocked()
        assert runs == ["run", "run"]
        (child,) = await which_children(root)
        assert (child.state, child.restarts) == ("running", 1)
        (report,) = stage.seen(events.ActorCrashed)
        assert isinstance(report.error, OSError)
        assert child.ref is not None
        with pytest.raises(NoProcess):
            await call(child.ref, stage.Do(lambda _: 1))
    assert runs == ["run", "run", "over"]


async def test_rule_43_partials_and_callable_objects_are_functions_too() -> None:
    got = []

    class Worker:
        async def __call__(self) -> None:
            got.append("object")

    async def named(name: str) -> None:
        got.append(name)

    children = [
        ChildSpec(id="p", start=lambda: partial(named, "partial"), restart="temporary"),
        ChildSpec(id="o", start=Worker, restart="temporary"),
    ]
    async with open_supervisor(children):
        await trio.testing.wait_all_tasks_blocked()
    assert sorted(got) == ["object", "partial"]


async def test_rule_43_a_function_that_returns_ended_normally_and_one_that_is_stopped_in_shutdown(stage: Any) -> None:
    async def forever() -> None:
        await trio.sleep_forever()

    children = [
        ChildSpec(id="once", start=lambda: partial(give, 1), restart="transient"),
        ChildSpec(id="forever", start=lambda: forever),
    ]
    async with open_supervisor(children) as root:
        await trio.testing.wait_all_tasks_blocked()
        assert [child.state for child in await which_children(root)] == ["stopped", "running"]
        (_, child) = await which_children(root)
        assert child.ref is not None
        await stop(child.ref, Shutdown("x"))
        (report,) = stage.seen(events.ChildTerminated)
        assert report.reason == Shutdown("x")
        assert await restart_child(root, "once") is not None


# ---- supervisors of tasks


async def test_start_task_is_one_way_temporary_and_never_restarted(
    stage: Any, autojump_clock: trio.testing.MockClock
) -> None:
    got = []

    async def work(value: int) -> None:
        got.append(value)
        raise OSError("once")

    async with open_supervisor([TASKS]):
        ref = await start_task("tasks", work, 5)
        await trio.testing.wait_all_tasks_blocked()
        assert got == [5]
        assert await which_children("tasks") == []
        assert [event.ref for event in stage.seen(events.ActorCrashed)] == [ref]
        await start_task("tasks", trio.sleep_forever)
        (child,) = await which_children("tasks")
        assert (child.restart, child.state) == ("temporary", "running")

        async def stubborn() -> None:
            with trio.CancelScope(shield=True):
                await trio.sleep(20)

        await start_task("tasks", stubborn)
        await trio.testing.wait_all_tasks_blocked()
    assert trio.current_time() == pytest.approx(20)
    assert [report.reason for report in stage.seen(events.ShutdownError)] == [Killed()]


async def test_results_and_task_exits(stage: Any) -> None:
    async with open_supervisor([TASKS]):
        for start in (async_task, async_nolink):
            task = await start("tasks", give, 7)
            assert await task.result() == 7
            assert await task.result() == 7
            failed = await start("tasks", fail, OSError("no"))
            with pytest.raises(TaskExit) as caught:
                await failed.result()
            assert isinstance(caught.value.reason, Crashed)
            assert isinstance(caught.value.reason.error, OSError)
            killed = await start("tasks", trio.sleep_forever)
            exit(killed.ref, Killed())
            with pytest.raises(TaskExit) as gone:
                await killed.result()
            assert gone.value.reason == Killed()


async def test_a_linked_task_and_its_caller_end_together(stage: Any) -> None:
    async with open_supervisor([TASKS, stage.spec("a", restart="temporary"), stage.spec("b", restart="temporary")]):
        await stage.do("a", lambda _: async_task("tasks", fail, OSError("boom")))
        await trio.testing.wait_all_tasks_blocked()
        assert whereis("a") is None
        await stage.do("b", lambda _: async_task("tasks", trio.sleep_forever))
        await stage.crash("b")
        assert (await count_children("tasks")).active == 0


async def test_an_unlinked_task_harms_its_caller_only_where_it_is_awaited(stage: Any) -> None:
    async with open_supervisor([TASKS, stage.spec("a")]):
        before = whereis("a")
        task = await stage.do("a", lambda _: async_nolink("tasks", fail, OSError("boom")))
        await trio.testing.wait_all_tasks_blocked()
        assert whereis("a") is before
        with pytest.raises(TaskExit):
            await task.result()


async def test_a_cancelled_wait_for_a_result_leaves_nothing(stage: Any) -> None:
    async with open_supervisor([TASKS]):
        task = await async_task("tasks", trio.sleep_forever)
        with trio.move_on_after(0.01):
            await task.result()
        assert task._waiters == []


async def test_max_children_of_tasks(stage: Any) -> None:
    children = [ChildSpec(id="t", start=lambda: TaskSupervisor(name="t", max_children=1))]
    async with open_supervisor(children):
        ref = await start_task("t", trio.sleep_forever)
        with pytest.raises(MaxChildren):
            await start_task("t", trio.sleep_forever)
        await terminate_child("t", ref)
        await start_task("t", give, 1)


async def test_task_supervisors_start_no_children_and_others_no_tasks(stage: Any) -> None:
    async with open_supervisor([TASKS]) as root:
        with pytest.raises(TypeError):
            await start_child("tasks", stage.spec("a"))
        with pytest.raises(TypeError):
            await start_task(root, give, 1)
        with pytest.raises(NoProcess):
            await start_task("nobody", give, 1)
