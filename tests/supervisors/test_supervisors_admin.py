"""Rules 11, 30, 35, 36 and 37: asking supervisors, and giving them orders."""

from __future__ import annotations

from typing import Any

import pytest
import trio

from supervisors import (
    AlreadyPresent,
    AlreadyRegistered,
    AlreadyStarted,
    CallingSelf,
    ChildCounts,
    ChildSpec,
    DynamicSupervisor,
    Ignore,
    InvalidChildSpec,
    MaxChildren,
    NoProcess,
    Normal,
    NotFound,
    Restarting,
    Running,
    ServerExit,
    Shutdown,
    StartError,
    Stop,
    Supervisor,
    count_children,
    delete_child,
    events,
    open_supervisor,
    restart_child,
    start_child,
    sys,
    terminate_child,
    whereis,
    which_children,
)


def pool(**options: Any) -> ChildSpec:
    return ChildSpec(id="pool", start=lambda: DynamicSupervisor(name="pool", **options), type="supervisor")


async def states(sup: Any) -> dict[str, str]:
    return {child.id: child.state for child in await which_children(sup)}


# ---- rule 11


async def test_rule_11_start_child(stage: Any) -> None:
    async with open_supervisor([stage.spec("a")]) as root:
        with pytest.raises(AlreadyStarted) as caught:
            await start_child(root, stage.spec("a"))
        assert caught.value.ref is whereis("a")
        await terminate_child(root, "a")
        with pytest.raises(AlreadyPresent):
            await start_child(root, stage.spec("a"))
        stage.fail_init("b", error=OSError("no"))
        with pytest.raises(StartError) as failed:
            await start_child(root, stage.spec("b"))
        assert isinstance(failed.value.cause, OSError)
        assert await states(root) == {"a": "stopped"}


@pytest.mark.parametrize("strategy", ["one_for_one", "one_for_all", "rest_for_one"])
async def test_rule_11_terminate_restart_delete(stage: Any, strategy: Any) -> None:
    async with open_supervisor([stage.spec("a")], strategy=strategy) as root:
        with pytest.raises(Running):
            await restart_child(root, "a")
        with pytest.raises(Running):
            await delete_child(root, "a")
        await terminate_child(root, "a")
        await terminate_child(root, "a")
        assert await states(root) == {"a": "stopped"}
        assert await restart_child(root, "a") is whereis("a")
        ref = whereis("a")
        assert ref is not None
        await terminate_child(root, ref)
        await delete_child(root, "a")
        assert await states(root) == {}
        for order in (terminate_child, restart_child, delete_child):
            with pytest.raises(NotFound):
                await order(root, "a")


async def test_rule_11_restarting_is_an_error_of_its_own(stage: Any) -> None:
    async with open_supervisor([stage.spec("a")]) as root:
        stage.hang_init("a")
        await stage.crash("a")
        assert await states(root) == {"a": "starting"}
        with pytest.raises(Restarting):
            await restart_child(root, "a")
        with pytest.raises(Restarting):
            await delete_child(root, "a")
        await terminate_child(root, "a")
        assert await states(root) == {"a": "stopped"}


async def test_rule_11_a_failed_manual_restart_keeps_the_specification(stage: Any) -> None:
    async with open_supervisor([stage.spec("a")]) as root:
        await terminate_child(root, "a")
        stage.fail_init("a", times=1)
        with pytest.raises(StartError):
            await restart_child(root, "a")
        assert await states(root) == {"a": "stopped"}
        assert await restart_child(root, "a") is not None


async def test_rule_11_dynamic_terminates_by_ref_once(stage: Any) -> None:
    async with open_supervisor([pool()]):
        ref = await start_child("pool", stage.spec("a"))
        assert ref is not None
        await terminate_child("pool", ref)
        with pytest.raises(NotFound):
            await terminate_child("pool", ref)
        assert await which_children("pool") == []


async def test_rule_11_restarting_children_count_toward_max_children(stage: Any) -> None:
    async with open_supervisor([pool(max_children=1)]):
        await start_child("pool", stage.spec("a"))
        with pytest.raises(MaxChildren):
            await start_child("pool", stage.spec("b"))
        stage.hang_init("a")
        await stage.crash("a")
        with pytest.raises(MaxChildren):
            await start_child("pool", stage.spec("b"))
        await terminate_child("pool", "a")
        assert await start_child("pool", stage.spec("b")) is not None


async def test_rule_11_count_children(stage: Any) -> None:
    async with open_supervisor([pool(), stage.spec("a"), stage.spec("b")]) as root:
        await terminate_child(root, "b")
        assert await count_children(root) == ChildCounts(specs=3, active=2, supervisors=1, workers=2)


# ---- rules 12 and 35


async def test_rule_12_an_ignored_child_is_kept_by_a_supervisor_and_forgotten_by_a_dynamic_one(stage: Any) -> None:
    stage.script["a"].init = lambda _: Ignore()
    async with open_supervisor([stage.spec("a"), stage.spec("t", restart="temporary"), pool()]) as root:
        assert (await states(root))["a"] == "stopped"
        assert await restart_child(root, "a") is None
        stage.script["b"].init = lambda _: Ignore()
        assert await start_child(root, stage.spec("b")) is None
        assert (await states(root))["b"] == "stopped"
        assert await start_child("pool", stage.spec("b")) is None
        assert await states("pool") == {}
        assert whereis("a") is whereis("b") is None
    assert stage.ended() == []


async def test_rule_12_an_ignored_temporary_leaves_no_specification(stage: Any) -> None:
    stage.script["t"].init = lambda _: Ignore()
    async with open_supervisor([stage.spec("t", restart="temporary")]) as root:
        assert await states(root) == {}


async def test_rule_35_dynamic_ids_are_unique_and_functions_take_id_or_ref(stage: Any) -> None:
    async with open_supervisor([pool()]):
        ref = await start_child("pool", stage.spec("a"))
        with pytest.raises(AlreadyStarted) as caught:
            await start_child("pool", stage.spec("a"))
        assert caught.value.ref is ref
        await terminate_child("pool", "a")
        with pytest.raises(NotFound):
            await terminate_child("pool", "a")


async def test_rule_35_a_dynamic_transient_that_finished_is_dropped(stage: Any) -> None:
    async with open_supervisor([pool()]):
        await start_child("pool", stage.spec("a", restart="transient"))
        await stage.end("a")
        assert await states("pool") == {}
        await start_child("pool", stage.spec("a", restart="transient"))
        await stage.crash("a")
        assert await states("pool") == {"a": "running"}


async def test_rule_35_terminate_child_drops_a_temporary(stage: Any) -> None:
    async with open_supervisor([stage.spec("a", restart="temporary")]) as root:
        await terminate_child(root, "a")
        assert await states(root) == {}


async def test_rule_35_dynamic_children_start_side_by_side_and_stop_all_at_once(
    stage: Any, autojump_clock: trio.testing.MockClock
) -> None:
    async with open_supervisor([pool()]):
        stage.hang_init("slow")
        async with trio.open_nursery() as nursery:
            nursery.start_soon(_swallow_start_error, start_child, "pool", stage.spec("slow"))
            await trio.testing.wait_all_tasks_blocked()
            for id in ("a", "b", "c"):
                stage.script[id].terminate = lambda *_: trio.sleep(2)
                await start_child("pool", stage.spec(id, trap=True))
            assert (await states("pool"))["slow"] == "starting"
            await terminate_child("pool", "slow")
        started = trio.current_time()
    assert trio.current_time() - started == pytest.approx(2)


async def _swallow_start_error(fn: Any, *args: Any) -> None:
    with pytest.raises(StartError):
        await fn(*args)


# ---- rule 36


async def test_rule_36_causes(stage: Any) -> None:
    async with open_supervisor([stage.spec("a"), stage.spec("b")]) as root:
        with pytest.raises(StartError) as taken:
            await start_child(root, stage.spec("c", name="a"))
        assert isinstance(taken.value.cause, AlreadyRegistered)
        assert taken.value.cause.ref is whereis("a")
        stage.script["d"].init = lambda _: Stop(Shutdown("not today"))
        with pytest.raises(StartError) as stopped:
            await start_child(root, stage.spec("d"))
        assert isinstance(stopped.value.cause, ServerExit)
        assert stopped.value.cause.reason == Shutdown("not today")
        error = ExceptionGroup("several", [ExceptionGroup("one", [OSError("leaf")])])
        stage.fail_init("e", error=error)
        with pytest.raises(StartError) as raised:
            await start_child(root, stage.spec("e"))
        assert isinstance(raised.value.cause, OSError)
        assert await states(root) == {"a": "running", "b": "running"}


@pytest.mark.parametrize("made", [None, 3, lambda: None, DynamicSupervisor])
async def test_rule_36_a_factory_that_makes_nothing_useful(made: Any) -> None:
    async with open_supervisor([]) as root:
        with pytest.raises(StartError) as caught:
            await start_child(root, ChildSpec(id="a", start=lambda: made))
        assert isinstance(caught.value.cause, TypeError)


async def test_rule_36_a_factory_that_is_itself_the_async_function() -> None:
    async def worker() -> None:
        await trio.sleep_forever()

    async with open_supervisor([]) as root:
        with pytest.raises(StartError, match="async function itself"):
            await start_child(root, ChildSpec(id="a", start=worker))


async def test_rule_36_an_actor_lives_only_once(stage: Any) -> None:
    actor = stage.Puppet(stage, "a", "a")
    async with open_supervisor([ChildSpec(id="a", start=lambda: actor)]) as root:
        await terminate_child(root, "a")
        with pytest.raises(StartError, match="each life of a child needs a new one"):
            await restart_child(root, "a")


async def test_rule_36_a_raising_factory_is_retried_like_a_failing_init(stage: Any) -> None:
    made = stage.spec("a")
    tries = []

    def start() -> Any:
        tries.append(1)
        if 1 < len(tries) < 4:
            raise OSError("factory")
        return made.start()

    async with open_supervisor([ChildSpec(id="a", start=start)]):
        await stage.crash("a")
        assert whereis("a") is not None
    assert len(tries) == 4
    assert len(stage.seen(events.StartFailed)) == 2


# ---- rule 37 and rules 27, 28


async def test_rule_37_answers_during_a_slow_init(stage: Any) -> None:
    stage.hang_init("b")
    children = [stage.spec("a"), stage.spec("b"), stage.spec("c")]
    inner = ChildSpec(id="inner", start=lambda: Supervisor(children, name="inner"))
    async with trio.open_nursery() as nursery:

        async def tree() -> None:
            async with open_supervisor([inner], name="root"):
                raise AssertionError("it must not get up")

        nursery.start_soon(tree)
        await trio.testing.wait_all_tasks_blocked()
        assert await states("inner") == {"a": "running", "b": "starting", "c": "starting"}
        assert (await count_children("inner")).active == 2
        assert (await sys.statistics("a")).messages_in == 0
        picture = await sys.tree("root")
        assert [child.state for child in picture.children[0].children] == ["running", "starting", "starting"]
        nursery.cancel_scope.cancel()


@pytest.mark.parametrize(
    "ask",
    [
        lambda sup: start_child(sup, ChildSpec(id="x", start=lambda: None)),
        lambda sup: terminate_child(sup, "a"),
        lambda sup: restart_child(sup, "a"),
        lambda sup: delete_child(sup, "a"),
        which_children,
        count_children,
    ],
)
async def test_rules_27_and_37_calling_the_own_supervisor_in_init_is_an_error(stage: Any, ask: Any) -> None:
    stage.script["a"].init = lambda _: ask("root")
    with pytest.raises(StartError) as caught:
        async with open_supervisor([stage.spec("a")], name="root"):
            raise AssertionError("it must not get up")
    assert isinstance(caught.value.cause, CallingSelf)


async def test_rule_27_a_grandparent_that_waits_is_found_too(stage: Any) -> None:
    stage.script["a"].init = lambda _: terminate_child("root", "x")
    inner = ChildSpec(id="inner", start=lambda: Supervisor([stage.spec("a")]))
    with pytest.raises(StartError) as caught:
        async with open_supervisor([inner], name="root"):
            raise AssertionError("it must not get up")
    assert isinstance(caught.value.cause, StartError)
    assert isinstance(caught.value.cause.cause, CallingSelf)


async def test_rule_27_a_task_beside_an_init_may_ask(stage: Any) -> None:
    got = []

    async def ask() -> None:
        got.extend(await which_children("root"))

    async def init(me: Any) -> None:
        me.start_task(ask)
        await trio.testing.wait_all_tasks_blocked()

    stage.script["a"].init = init
    async with open_supervisor([stage.spec("a")], name="root"):
        assert [(child.id, child.state) for child in got] == [("a", "starting")]


async def test_a_start_and_a_stop_in_the_same_moment_leave_nobody_waiting(stage: Any) -> None:
    gate = trio.Event()
    stage.script["a"].init = lambda _: gate.wait()
    inner = ChildSpec(id="inner", start=lambda: Supervisor([stage.spec("a")]))
    outcomes: list[Any] = []

    async def start() -> None:
        try:
            outcomes.append(await start_child("pool", inner))
        except StartError as error:
            outcomes.append(error)

    async with open_supervisor([pool()]), trio.open_nursery() as nursery:
        nursery.start_soon(start)
        await trio.testing.wait_all_tasks_blocked()
        nursery.start_soon(terminate_child, "pool", "inner")
        gate.set()
        await trio.testing.wait_all_tasks_blocked()
        assert len(outcomes) == 1
        assert await states("pool") == {}


async def test_rule_27_after_init_it_may_ask(stage: Any) -> None:
    async with open_supervisor([stage.spec("a")], name="root"):
        children = await stage.do("a", lambda _: which_children("root"))
        assert [child.id for child in children] == ["a"]
        await stage.do("a", lambda _: start_child("root", stage.spec("b")))
        assert whereis("b") is not None


async def test_rule_28_a_blocked_handler_blocks_nobody_else(stage: Any, autojump_clock: trio.testing.MockClock) -> None:
    async with open_supervisor([stage.spec("a")]) as root, trio.open_nursery() as nursery:
        nursery.start_soon(_swallow, stage.do, "a", lambda _: trio.sleep_forever())
        await trio.testing.wait_all_tasks_blocked()
        await trio.sleep(3)
        figures = await sys.statistics("a")
        assert figures.busy_since == pytest.approx(trio.current_time() - 3)
        assert await states(root) == {"a": "running"}
        await terminate_child(root, "a")
        assert await states(root) == {"a": "stopped"}


async def _swallow(fn: Any, *args: Any) -> None:
    with pytest.raises(ServerExit):
        await fn(*args)


async def test_an_init_that_hangs_can_be_called_off(stage: Any) -> None:
    async with open_supervisor([]) as root, trio.open_nursery() as nursery:
        stage.hang_init("a")
        nursery.start_soon(_swallow_start_error, start_child, root, stage.spec("a"))
        await trio.testing.wait_all_tasks_blocked()
        await terminate_child(root, "a")
        assert await states(root) == {}
        assert whereis("a") is None


async def test_a_cancelled_order_is_still_carried_out(stage: Any, autojump_clock: trio.testing.MockClock) -> None:
    stage.script["a"].terminate = lambda *_: trio.sleep(2)
    async with open_supervisor([stage.spec("a", trap=True)]) as root:
        with trio.move_on_after(1):
            await terminate_child(root, "a")
        assert await states(root) == {"a": "running"}
        await trio.sleep(1.5)
        assert await states(root) == {"a": "stopped"}


@pytest.mark.parametrize("strategy", ["one_for_one", "one_for_all"])
async def test_orders_that_make_no_sense_harm_only_who_gave_them(stage: Any, strategy: Any) -> None:
    async with open_supervisor([stage.spec("a")], strategy=strategy) as root:
        with pytest.raises(TypeError):
            await which_children("a")
        with pytest.raises(NoProcess):
            await which_children("nobody")
        with pytest.raises(InvalidChildSpec):
            await start_child(root, "a")  # type: ignore[arg-type]
        for order in (terminate_child, restart_child, delete_child):
            with pytest.raises(TypeError):
                await order(root, 5)  # type: ignore[arg-type]
    with pytest.raises(NoProcess):
        await which_children(root)


async def test_waiting_orders_fail_when_the_supervisor_ends(stage: Any) -> None:
    stage.hang_init("a")
    inner = ChildSpec(id="inner", start=lambda: Supervisor([], name="inner"))

    async def order(id: str, errors: list[BaseException]) -> None:
        try:
            await start_child("inner", stage.spec(id))
        except (ServerExit, StartError) as error:
            errors.append(error)

    errors: list[BaseException] = []
    async with open_supervisor([inner]) as root, trio.open_nursery() as nursery:
        nursery.start_soon(order, "a", errors)
        await trio.testing.wait_all_tasks_blocked()
        nursery.start_soon(order, "b", errors)
        await trio.testing.wait_all_tasks_blocked()
        await terminate_child(root, "inner")
        await trio.testing.wait_all_tasks_blocked()
        assert len(errors) == 2
    assert all(isinstance(error, ServerExit) and error.reason == Shutdown() for error in errors)


async def test_normal_exits_are_silent_except_of_permanent_children(stage: Any) -> None:
    async with open_supervisor([stage.spec("a"), stage.spec("b", restart="transient")]):
        await stage.end("b")
        assert stage.seen(events.ChildTerminated) == []
        await stage.end("a")
        (report,) = stage.seen(events.ChildTerminated)
        assert (report.id, report.reason) == ("a", Normal())
