"""Rules 18 and 19 and half of 39: monitors, links, exit signals, names."""

from __future__ import annotations

from typing import Any

import pytest
import trio

import supervisors
from supervisors import (
    AlreadyRegistered,
    ChildSpec,
    Crashed,
    Down,
    DynamicSupervisor,
    Exit,
    Killed,
    NoProc,
    Normal,
    NotInActor,
    Ref,
    Shutdown,
    StartError,
    demonitor,
    exit,
    link,
    monitor,
    open_supervisor,
    self_ref,
    start_child,
    terminate_child,
    unlink,
    whereis,
)


def ref_of(name: str) -> Ref:
    ref = whereis(name)
    assert ref is not None, f"{name} does not run"
    return ref


async def seen(stage: Any, id: str = "a") -> list[Any]:
    result: list[Any] = await stage.do(id, lambda me: list(me.seen))
    return result


def pair(stage: Any, **options: Any) -> list[ChildSpec]:
    return [stage.spec("a", restart="temporary", **options), stage.spec("b", restart="temporary")]


# ---- rule 18: exit signals


async def test_rule_18_a_normal_exit_signal_is_ignored_others_kill(stage: Any) -> None:
    async with open_supervisor(pair(stage)):
        exit(ref_of("a"), Normal())
        assert await stage.do("a", lambda _: 1) == 1
        exit(ref_of("a"), Shutdown("go"))
        await trio.testing.wait_all_tasks_blocked()
        assert whereis("a") is None
    assert stage.ended() == []


async def test_rule_18_trapped_signals_are_messages_and_killed_is_untrappable(stage: Any) -> None:
    error = OSError()
    async with open_supervisor(pair(stage, trap=True)):
        for reason in (Normal(), Shutdown(), Crashed(error)):
            exit(ref_of("a"), reason)
        assert await seen(stage) == [Exit(None, Normal()), Exit(None, Shutdown()), Exit(None, Crashed(error))]
        await stage.do("b", lambda _: exit(ref_of("a"), Shutdown()))
        assert (await seen(stage))[-1] == Exit(ref_of("b"), Shutdown())
        exit(ref_of("a"), Killed())
        await trio.testing.wait_all_tasks_blocked()
        assert whereis("a") is None
    assert stage.ended() == []


async def test_rule_18_an_actor_may_end_itself_by_a_signal(stage: Any) -> None:
    async with open_supervisor(pair(stage)):
        with pytest.raises(supervisors.ServerExit) as caught:
            await stage.do("a", lambda _: exit_and_wait())
        assert caught.value.reason == Normal()


async def exit_and_wait() -> None:
    exit(self_ref(), Normal())
    await trio.sleep_forever()


async def test_rule_18_a_signal_ends_a_handler_that_hangs(stage: Any) -> None:
    async with open_supervisor(pair(stage)):
        await supervisors.cast("a", stage.Do(lambda _: trio.sleep_forever()))
        await trio.testing.wait_all_tasks_blocked()
        exit(ref_of("a"), Crashed(OSError()))
        await trio.testing.wait_all_tasks_blocked()
        assert whereis("a") is None


async def test_rule_18_a_supervisor_heeds_only_a_kill(stage: Any) -> None:
    inner = ChildSpec(id="d", start=lambda: DynamicSupervisor(name="d"))
    async with open_supervisor([inner]):
        ref = ref_of("d")
        exit(ref, Shutdown())
        await trio.testing.wait_all_tasks_blocked()
        assert ref_of("d") is ref
        exit(ref, Killed())
        await trio.testing.wait_all_tasks_blocked()
        assert ref_of("d") is not ref


# ---- rule 18: links


@pytest.mark.parametrize("first", ["a", "b"])
async def test_rule_18_links_are_bidirectional(stage: Any, first: str) -> None:
    async with open_supervisor(pair(stage)):
        await stage.do("a", lambda _: link(ref_of("b")))
        await stage.crash(first)
        assert whereis("a") is whereis("b") is None


async def test_rules_18_and_39_a_linked_peers_end_is_trapped_or_harmless_where_normal(stage: Any) -> None:
    children = [
        stage.spec("a", restart="temporary", trap=True),
        *(stage.spec(id, restart="temporary") for id in ("b", "c", "d")),
    ]
    async with open_supervisor(children):
        refs = {id: ref_of(id) for id in ("b", "c", "d")}
        for id in ("b", "c"):
            await stage.do("a", lambda _, id=id: link(refs[id]))
        await stage.do("d", lambda _: link(refs["c"]))
        await stage.end("b")
        await stage.end("c", Shutdown("x"))
        assert await seen(stage) == [Exit(refs["b"], Normal()), Exit(refs["c"], Shutdown("x"))]
        assert whereis("d") is None

    async with open_supervisor(pair(stage, name="x")):
        await stage.do("b", lambda _: link(ref_of("x")))
        await stage.end("x")
        assert await stage.do("b", lambda _: 1) == 1


async def test_rule_18_a_killed_peer_is_a_trappable_signal(stage: Any) -> None:
    async with open_supervisor(pair(stage, trap=True)):
        b = ref_of("b")
        await stage.do("a", lambda _: link(b))
        exit(b, Killed())
        await trio.testing.wait_all_tasks_blocked()
        assert await seen(stage) == [Exit(b, Killed())]


async def test_rule_18_unlink_and_linking_the_dead(stage: Any) -> None:
    async with open_supervisor([*pair(stage), stage.spec("c", trap=True)]):
        b = ref_of("b")
        await stage.do("a", lambda _: link(b))
        await stage.do("a", lambda _: unlink(b))
        await stage.crash("b")
        assert await stage.do("a", lambda _: 1) == 1
        await stage.do("c", lambda _: link(b))
        assert await seen(stage, "c") == [Exit(b, NoProc())]
        supervisors.cast_nowait("a", stage.Do(lambda _: link(b)))
        await trio.testing.wait_all_tasks_blocked()
        assert whereis("a") is None


# ---- rule 18: monitors


async def test_rule_18_exactly_one_down_with_the_reason(stage: Any) -> None:
    async with open_supervisor(pair(stage)):
        b = ref_of("b")
        monitors = [await stage.do("a", lambda _: monitor(b)) for _ in range(2)]
        await stage.end("b", Shutdown("done"))
        assert sorted(await seen(stage), key=lambda down: monitors.index(down.monitor)) == [
            Down(monitors[0], b, Shutdown("done")),
            Down(monitors[1], b, Shutdown("done")),
        ]


async def test_rule_18_monitoring_the_dead(stage: Any) -> None:
    async with open_supervisor(pair(stage)):
        b = ref_of("b")
        await stage.end("b")
        made = await stage.do("a", lambda _: monitor(b))
        assert await seen(stage) == [Down(made, b, NoProc())]


async def test_rule_18_demonitor(stage: Any) -> None:
    async with open_supervisor([*pair(stage), stage.spec("c", restart="temporary")], name="root"):
        b, c = ref_of("b"), ref_of("c")
        made = await stage.do("a", lambda _: monitor(b))
        await stage.do("a", lambda _: demonitor(made))
        await stage.end("b")
        assert await seen(stage) == []

        async def flush(_: Any) -> None:
            flushed, kept = monitor(c), monitor(c)
            await terminate_child("root", "c")
            demonitor(flushed, flush=True)
            demonitor(kept)

        await stage.do("a", flush)
        assert [type(message) for message in await seen(stage)] == [Down]


async def test_rule_18_a_dead_watcher_leaves_nothing_behind(stage: Any) -> None:
    async with open_supervisor([stage.spec("a"), stage.spec("b")], max_restarts=1000):
        b = ref_of("b")
        for _ in range(20):
            await stage.do("a", lambda _: monitor(b))
            await stage.crash("a")
        assert not b._process._watchers


async def test_rule_18_a_dead_peer_leaves_nothing_behind(stage: Any) -> None:
    async with open_supervisor([stage.spec("a", restart="transient"), stage.spec("b")]) as root:
        b = ref_of("b")
        for _ in range(5):
            await stage.do("a", lambda _: link(b))
            await stage.end("a")
            await supervisors.restart_child(root, "a")
        assert not b._process._links


async def test_rule_18_supervisors_and_tasks_can_be_monitored(stage: Any) -> None:
    async def worker() -> None:
        await trio.sleep_forever()

    inner = ChildSpec(id="d", start=lambda: DynamicSupervisor(name="d"))
    async with open_supervisor([stage.spec("a"), inner]) as root:
        task = await start_child("d", ChildSpec(id="t", start=lambda: worker))
        assert task is not None
        pool = ref_of("d")
        await stage.do("a", lambda _: (monitor(task), monitor(pool)))
        await terminate_child(root, "d")
        assert [(down.ref, down.reason) for down in await seen(stage)] == [(task, Shutdown()), (pool, Shutdown())]


# ---- rule 19


async def test_rule_19_names_are_unique_and_freed_on_death(stage: Any) -> None:
    async with open_supervisor([stage.spec("a", restart="temporary")]) as root:
        with pytest.raises(StartError) as caught:
            await start_child(root, stage.spec("b", name="a"))
        assert isinstance(caught.value.cause, AlreadyRegistered)
        assert caught.value.cause.ref is whereis("a")
        await stage.end("a")
        assert whereis("a") is None
        assert await start_child(root, stage.spec("b", name="a")) is whereis("a")
        with pytest.raises(StartError) as second_root:
            async with open_supervisor([], name="a"):
                raise AssertionError("it must not open")
        assert isinstance(second_root.value.cause, AlreadyRegistered)
    assert whereis("a") is None


async def test_rule_19_a_name_is_a_string(stage: Any) -> None:
    async with open_supervisor([]) as root:
        with pytest.raises(StartError) as caught:
            await start_child(root, stage.spec("b", name=7))
        assert isinstance(caught.value.cause, TypeError)


def test_rule_19_outside_trio_nobody_has_a_name() -> None:
    assert whereis("a") is None


async def test_rule_19_names_of_supervisors(stage: Any) -> None:
    async with open_supervisor([], name="top") as root:
        assert whereis("top") is root


# ---- rule 32


async def test_rule_32_what_needs_an_actor(stage: Any) -> None:
    async with open_supervisor([stage.spec("a")]):
        for fn in (self_ref, lambda: monitor(ref_of("a")), lambda: link(ref_of("a")), lambda: unlink(ref_of("a"))):
            with pytest.raises(NotInActor):
                fn()

        async def worker() -> Ref:
            with pytest.raises(NotInActor):
                monitor(ref_of("a"))
            return self_ref()

        async with open_supervisor([ChildSpec(id="t", start=lambda: supervisors.TaskSupervisor(name="t"))]):
            task = await supervisors.async_task("t", worker)
            assert await task.result() is task.ref
