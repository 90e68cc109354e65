"""Rule 41 and the reports: looking into a running tree."""

from __future__ import annotations

from typing import Any

import pytest
import trio

from supervisors import (
    Actor,
    CallTimeout,
    ChildSpec,
    DynamicSupervisor,
    NoProcess,
    NoReply,
    ServerExit,
    Shutdown,
    Supervisor,
    call,
    cast,
    cast_nowait,
    events,
    exit,
    open_supervisor,
    reply,
    send,
    stop,
    sys,
    terminate_child,
    whereis,
)


class Counter(Actor):
    name = "counter"

    async def init(self) -> None:
        self.total = 0

    async def handle_call(self, request: Any, sender: Any) -> Any:
        self.total += 1
        return self.total

    async def handle_cast(self, message: Any) -> None:
        self.total += message


COUNTER = ChildSpec(id="counter", start=Counter)


# ---- get_state and replace_state


async def test_rule_41_get_state_is_a_copy_of_the_attributes_and_sees_earlier_casts() -> None:
    async with open_supervisor([COUNTER]):
        cast_nowait("counter", 5)
        state = await sys.get_state("counter")
        assert state == {"total": 5}
        state["total"] = 99
        assert await sys.get_state("counter") == {"total": 5}


async def test_rule_41_get_state_may_be_overridden() -> None:
    class Private(Counter):
        def get_state(self) -> Any:
            return self.total

        def set_state(self, state: Any) -> None:
            self.total = state

    async with open_supervisor([ChildSpec(id="counter", start=Private)]):
        assert await sys.get_state("counter") == 0
        assert await sys.replace_state("counter", lambda total: total + 7) == 7
        assert await sys.get_state("counter") == 7


async def test_rule_41_replace_state_and_a_raise_that_leaves_it() -> None:
    async with open_supervisor([COUNTER]):
        ref = whereis("counter")
        assert await sys.replace_state("counter", lambda state: {"total": state["total"] + 10}) == {"total": 10}
        with pytest.raises(ZeroDivisionError):
            await sys.replace_state("counter", lambda state: state.update(total=1 / 0))
        with pytest.raises(TypeError):
            await sys.replace_state("counter", lambda _: 5)
        assert await sys.get_state("counter") == {"total": 10}
        assert whereis("counter") is ref
        assert await call("counter", object()) == 11  # type: ignore[arg-type]


async def test_rule_41_a_busy_actor_answers_state_late_or_not_at_all(
    stage: Any, autojump_clock: trio.testing.MockClock
) -> None:
    async with open_supervisor([stage.spec("a")]):
        await cast("a", stage.Do(lambda _: trio.sleep(3)))
        with pytest.raises(CallTimeout):
            await sys.get_state("a", timeout=1)
        assert (await sys.get_state("a"))["id"] == "a"
        assert trio.current_time() == pytest.approx(3)


async def test_rule_41_of_the_dead_and_of_others(stage: Any) -> None:
    async with open_supervisor([COUNTER], name="root") as root:
        with pytest.raises(NoProcess):
            await sys.get_state("nobody")
        with pytest.raises(NoProcess):
            await sys.get_state(root)
        assert (await sys.statistics(root)).messages_in == 0


# ---- suspend and resume


async def test_suspend_queues_user_messages_and_serves_system_ones(
    stage: Any, autojump_clock: trio.testing.MockClock
) -> None:
    async with open_supervisor([COUNTER]):
        await sys.suspend("counter")
        cast_nowait("counter", 5)
        send("counter", "info")
        with pytest.raises(CallTimeout):
            await call("counter", object(), timeout=1)  # type: ignore[arg-type]
        assert await sys.get_state("counter") == {"total": 0}
        assert (await sys.statistics("counter")).mailbox_len == 2
        await sys.resume("counter")
        assert await sys.get_state("counter") == {"total": 5}


@pytest.mark.parametrize("trap", [True, False])
async def test_suspend_still_serves_exits(stage: Any, trap: bool) -> None:
    async with open_supervisor([stage.spec("a", trap=trap), stage.spec("b")]) as root:
        for id in ("a", "b"):
            await sys.suspend(id)
            cast_nowait(id, stage.Note("never handled"))
        await terminate_child(root, "a")
        await stop("b", Shutdown("x"))
        assert stage.reasons["b"] == [Shutdown("x")]
        assert stage.reasons["a"] == ([Shutdown()] if trap else [])


# ---- statistics


async def test_rule_41_statistics(stage: Any, autojump_clock: trio.testing.MockClock) -> None:
    await trio.sleep(1)
    async with open_supervisor([stage.spec("a"), COUNTER]):
        await trio.sleep(1)
        await stage.do("a", lambda _: call("counter", object()))  # type: ignore[arg-type]
        await cast("a", stage.Do(lambda _: trio.sleep(10)))
        await trio.sleep(2)
        cast_nowait("a", stage.Note("waits"))
        figures = await sys.statistics("a")
        assert figures == sys.statistics("a")  # the answer is there at once, and may be awaited
        assert figures.started_at == pytest.approx(1)
        assert (figures.messages_in, figures.messages_out, figures.mailbox_len) == (2, 2, 1)
        assert figures.busy_since == pytest.approx(2)
        await trio.sleep(10)
        assert (await sys.statistics("a")).busy_since is None


# ---- trace and log


async def test_rule_41_trace_shows_what_comes_in_goes_out_and_ends(stage: Any) -> None:
    seen: list[Any] = []
    async with open_supervisor([stage.spec("a", restart="temporary"), COUNTER]):
        trace = sys.trace("a", seen.append)
        ref = whereis("a")
        request = stage.Do(lambda _: cast("counter", 3))
        await call("a", request)
        send("a", "info")
        await stop("a", Shutdown())
        assert [(event.kind, event.message) for event in seen] == [
            ("in", request),
            ("out", 3),
            ("reply", None),
            ("in", "info"),
            ("terminate", Shutdown()),
        ]
        assert {event.ref for event in seen} == {ref}
        trace.stop()


async def test_rule_41_a_trace_stops_and_one_that_raises_harms_nobody() -> None:
    seen: list[Any] = []
    async with open_supervisor([COUNTER]):
        trace = await sys.trace("counter", seen.append)
        sys.trace("counter", lambda _: 1 / 0)
        await call("counter", object())  # type: ignore[arg-type]
        trace.stop()
        trace.stop()
        assert await call("counter", object()) == 2  # type: ignore[arg-type]
        assert [event.kind for event in seen] == ["in", "reply"]


async def test_rule_41_log_gives_the_last_events() -> None:
    async with open_supervisor([COUNTER]):
        for number in range(100):
            await cast("counter", number)
        await trio.testing.wait_all_tasks_blocked()
        assert [event.message for event in await sys.log("counter", 3)] == [97, 98, 99]
        assert len(sys.log("counter", 1000)) == Counter.log_size
        assert sys.log("counter", 0) == []
        with pytest.raises(ValueError, match="0 or more"):
            sys.log("counter", -1)


async def test_an_actor_may_remember_nothing() -> None:
    class Secret(Counter):
        log_size = 0

    async with open_supervisor([ChildSpec(id="counter", start=Secret)]):
        assert await call("counter", object()) == 1  # type: ignore[arg-type]
        assert sys.log("counter", 5) == []


# ---- tree


async def test_tree_is_the_whole_tree_as_plain_data(stage: Any) -> None:
    inner = ChildSpec(
        id="inner",
        start=lambda: Supervisor([stage.spec("a"), ChildSpec(id="t", start=lambda: trio.sleep_forever)]),
        type="supervisor",
    )
    children = [inner, ChildSpec(id="pool", start=lambda: DynamicSupervisor(name="pool")), stage.spec("b")]
    async with open_supervisor(children, strategy="rest_for_one", name="top") as root:
        await terminate_child(root, "b")
        picture = await sys.tree(root)
        assert (picture.id, picture.name, picture.kind) == ("root", "top", "supervisor")
        assert picture.strategy == "rest_for_one"
        assert [(child.id, child.kind, child.state) for child in picture.children] == [
            ("inner", "supervisor", "running"),
            ("pool", "supervisor", "running"),
            ("b", None, "stopped"),
        ]
        assert [(child.id, child.kind, child.name) for child in picture.children[0].children] == [
            ("a", "actor", "a"),
            ("t", "task", None),
        ]
        assert picture.children[0].children[0].ref is whereis("a")
        assert sys.tree("a").children == ()


# ---- events


async def test_crash_reports_name_the_ancestors_and_the_message_but_no_state(stage: Any) -> None:
    inner = ChildSpec(id="inner", start=lambda: Supervisor([stage.spec("a")], name="middle"))
    async with open_supervisor([inner]):
        await stage.do("a", lambda me: setattr(me, "password", "hunter2"))
        ref = whereis("a")
        bad = stage.Do(lambda _: cast_nowait("a", stage.Note("waits")) or 1 / 0)
        with pytest.raises(ServerExit):
            await call("a", bad)
        (report,) = stage.seen(events.ActorCrashed)
        assert (report.ref, report.name, report.last_message, report.mailbox_len) == (ref, "a", bad, 1)
        assert report.ancestors == ("middle", "root")
        assert not any("hunter2" in repr(event) for event in stage.events)


async def test_a_handler_that_raises_is_detached_and_harms_nobody(stage: Any) -> None:
    calls = []

    def bad(event: Any) -> None:
        calls.append(event)
        raise OSError("listener")

    token = events.attach(bad)
    async with open_supervisor([stage.spec("a"), stage.spec("b")]):
        pass
    assert len(calls) == 1
    assert len(stage.seen(events.ChildStarted)) == 2
    events.detach(token)


async def test_a_detached_handler_hears_nothing(stage: Any) -> None:
    heard: list[Any] = []
    token = events.attach(heard.append)
    events.detach(token)
    events.detach(token)
    async with open_supervisor([stage.spec("a")]):
        pass
    assert heard == []


async def test_messages_to_what_has_no_mailbox_are_reported(stage: Any) -> None:
    async with open_supervisor([ChildSpec(id="t", start=lambda: trio.sleep_forever)], name="root") as root:
        await cast(root, "cast")
        send(root, "info")
        assert [event.message for event in stage.seen(events.UnexpectedMessage)] == ["cast", "info"]
        with pytest.raises(NoProcess):
            await call(root, object())  # type: ignore[arg-type]


async def test_a_pending_reply_is_counted_and_traced_too(stage: Any) -> None:
    seen: list[Any] = []
    async with open_supervisor([stage.spec("a")]), trio.open_nursery() as nursery:
        sys.trace("a", seen.append)
        nursery.start_soon(stage.do, "a", lambda _: NoReply())
        await trio.testing.wait_all_tasks_blocked()
        reply((await sys.get_state("a"))["sender"], "late")
        assert [event.kind for event in seen] == ["in", "reply"]


async def test_a_childs_end_by_a_signal_is_reported_once(stage: Any) -> None:
    async with open_supervisor([stage.spec("a")]):
        ref = whereis("a")
        assert ref is not None
        exit(ref, Shutdown("x"))
        await trio.testing.wait_all_tasks_blocked()
        (report,) = stage.seen(events.ChildTerminated)
        assert report == events.ChildTerminated(report.supervisor, "a", ref, Shutdown("x"))
        assert stage.seen(events.ActorCrashed) == []
