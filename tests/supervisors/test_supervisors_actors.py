"""Rules 12 to 17, 22, 23, 24, 39 and 40: what an actor does with its messages, and how it ends."""

from __future__ import annotations

import math
from contextlib import suppress
from typing import Any

import pytest
import trio

import supervisors
from supervisors import (
    Actor,
    Call,
    CallingSelf,
    CallTimeout,
    ChildSpec,
    Continue,
    Crashed,
    Exit,
    Ignore,
    Killed,
    MailboxFull,
    NoProcess,
    NoReply,
    Normal,
    Reply,
    ServerExit,
    Shutdown,
    StartError,
    Stop,
    TimedOut,
    Timeout,
    call,
    cast,
    cast_nowait,
    events,
    exit,
    open_supervisor,
    reply,
    self_ref,
    send,
    send_after,
    start_child,
    stop,
    terminate_child,
    whereis,
)


def bounded(stage: Any, size: int) -> ChildSpec:
    class Bounded(stage.Puppet):  # type: ignore[misc,name-defined]
        mailbox_size = size

    return ChildSpec(id="a", start=lambda: Bounded(stage, "a", "a"))


async def seen(stage: Any, id: str = "a") -> list[Any]:
    result: list[Any] = await stage.do(id, lambda me: list(me.seen))
    return result


# ---- rule 12


@pytest.mark.parametrize("outcome", [lambda _: Ignore(), lambda _: Stop(Normal()), lambda _: 1 / 0, lambda _: 5])
async def test_rule_12_an_init_that_does_not_go_well_never_runs_terminate_and_frees_the_name(
    stage: Any, outcome: Any
) -> None:
    stage.script["a"].init = outcome
    async with open_supervisor([]) as root:
        with suppress(StartError):
            assert await start_child(root, stage.spec("a", trap=True)) is None
        assert whereis("a") is None
    assert stage.ended() == []


async def test_rule_12_continue_runs_before_any_queued_message(stage: Any) -> None:
    def init(_: Any) -> Continue:
        cast_nowait("a", stage.Note("queued"))
        return Continue("go")

    stage.script["a"].init = init
    async with open_supervisor([stage.spec("a")]):
        assert await seen(stage) == [("continue", "go"), stage.Note("queued")]


async def test_rule_12_continue_after_a_message_and_after_a_continue(stage: Any) -> None:
    stage.script["a"].resume = lambda _, arg: NoReply(Continue(arg - 1)) if arg else None
    async with open_supervisor([stage.spec("a")]):
        assert await stage.do("a", lambda _: Reply("first", then=Continue(2))) == "first"
        assert await seen(stage) == [("continue", 2), ("continue", 1), ("continue", 0)]


async def test_rule_12_the_reply_comes_before_the_continue(stage: Any, autojump_clock: trio.testing.MockClock) -> None:
    stage.script["a"].resume = lambda *_: trio.sleep(10)
    async with open_supervisor([stage.spec("a")]):
        started = trio.current_time()
        await stage.do("a", lambda _: Reply(1, then=Continue()))
        assert trio.current_time() == started


# ---- rule 13


async def test_rule_13_a_timeout_comes_where_no_message_does(
    stage: Any, autojump_clock: trio.testing.MockClock
) -> None:
    stage.script["a"].init = lambda _: Timeout(2)
    async with open_supervisor([stage.spec("a")]):
        await trio.sleep(1.9)
        assert await seen(stage) == []  # and this message clears it
        await trio.sleep(10)
        assert await seen(stage) == []
        await stage.do("a", lambda _: Reply(None, then=Timeout(2)))
        await trio.sleep(2.1)
        assert await seen(stage) == [TimedOut()]
        await trio.sleep(10)
        assert await seen(stage) == [TimedOut()]


async def test_rule_13_a_system_message_does_not_clear_it(stage: Any, autojump_clock: trio.testing.MockClock) -> None:
    stage.script["a"].init = lambda _: Timeout(2)
    async with open_supervisor([stage.spec("a")]):
        await trio.sleep(1)
        await supervisors.sys.get_state("a")
        await trio.sleep(1.1)
        assert await seen(stage) == [TimedOut()]


# ---- rule 14


async def test_rule_14_call_times_out_after_five_seconds_and_the_server_goes_on(
    stage: Any, autojump_clock: trio.testing.MockClock
) -> None:
    async with open_supervisor([stage.spec("a")]):
        ref = whereis("a")
        started = trio.current_time()
        with pytest.raises(CallTimeout) as caught:
            await stage.do("a", lambda _: trio.sleep(7))
        assert isinstance(caught.value, TimeoutError)
        assert trio.current_time() - started == pytest.approx(5)
        assert await stage.do("a", lambda _: 1) == 1
        assert whereis("a") is ref


async def test_rule_14_a_late_reply_is_never_seen_by_a_later_call(
    stage: Any, autojump_clock: trio.testing.MockClock
) -> None:
    async def slow(_: Any) -> str:
        await trio.sleep(2)
        return "late"

    async with open_supervisor([stage.spec("a")]):
        with pytest.raises(CallTimeout):
            await stage.do("a", slow, timeout=1)
        assert await stage.do("a", lambda _: "mine") == "mine"


async def test_rule_14_failures_raise_in_the_caller(stage: Any) -> None:
    async with open_supervisor([stage.spec("a")]):
        ref = whereis("a")
        assert ref is not None
        with pytest.raises(ServerExit) as caught:
            await stage.do("a", lambda _: 1 / 0)
        assert isinstance(caught.value.reason, Crashed)
        assert isinstance(caught.value.reason.error, ZeroDivisionError)
        with pytest.raises(NoProcess):
            await stage.do(ref, lambda _: 1)
        with pytest.raises(NoProcess):
            await stage.do("nobody", lambda _: 1)
        assert await stage.do("a", lambda me: calling_self(me, stage)) == "found"


async def calling_self(me: Any, stage: Any) -> str:
    for server in (self_ref(), me.id):
        with pytest.raises(CallingSelf):
            await stage.do(server, lambda _: 1)
        with pytest.raises(CallingSelf):
            await stop(server)
        with pytest.raises(CallingSelf):
            await supervisors.sys.get_state(server)
    return "found"


async def test_rule_14_one_way_messages_to_the_dead_are_silent(stage: Any) -> None:
    async with open_supervisor([stage.spec("a", restart="temporary")]):
        ref = whereis("a")
        await stage.end("a")
        for target in (ref, "a", "nobody"):
            await cast(target, stage.Note("x"))
            cast_nowait(target, stage.Note("x"))
            send(target, "x")
            send_after(target, "x", 0)
        await trio.testing.wait_all_tasks_blocked()
    assert stage.seen(events.ActorCrashed) == []


async def test_what_is_no_address_is_said_to_be_none() -> None:
    for send_to in (cast_nowait, send):
        with pytest.raises(TypeError, match="whereis"):
            send_to(whereis("nobody"), "x")  # type: ignore[arg-type]
    with pytest.raises(TypeError):
        await call(None, "x")  # type: ignore[arg-type]


# ---- rule 15


async def test_rule_15_terminate_runs_before_the_last_reply(stage: Any) -> None:
    async with open_supervisor([stage.spec("a", restart="temporary")]):
        stage.script["a"].terminate = lambda *_: trio.testing.wait_all_tasks_blocked()
        assert await stage.do("a", lambda _: Stop(Normal(), "bye")) == "bye"
        assert stage.reasons["a"] == [Normal()]


async def test_rule_15_a_stop_without_a_reply_fails_the_caller(stage: Any) -> None:
    async with open_supervisor([stage.spec("a", restart="temporary")]):
        with pytest.raises(ServerExit) as caught:
            await stage.do("a", lambda _: Stop(Shutdown("enough")))
        assert caught.value.reason == Shutdown("enough")


async def test_rule_15_none_is_a_last_reply_too(stage: Any) -> None:
    async with open_supervisor([stage.spec("a", restart="temporary")]):
        assert await stage.do("a", lambda _: Stop(Normal(), None)) is None


# ---- rule 16


class Bare(Actor):
    name = "bare"


async def test_rule_16_no_handler_is_a_crash_and_unexpected_info_is_reported(stage: Any) -> None:
    class Question(Call[int], frozen=True):
        pass

    async with open_supervisor([ChildSpec(id="bare", start=Bare)]):
        ref = whereis("bare")
        send("bare", "hm")
        await trio.testing.wait_all_tasks_blocked()
        assert whereis("bare") is ref
        assert [event.message for event in stage.seen(events.UnexpectedMessage)] == ["hm"]
        with pytest.raises(ServerExit) as caught:
            await call("bare", Question())
        assert isinstance(caught.value.reason, Crashed)
        assert isinstance(caught.value.reason.error, NotImplementedError)
        await trio.testing.wait_all_tasks_blocked()
        before = whereis("bare")
        await cast("bare", Question())
        await trio.testing.wait_all_tasks_blocked()
        assert whereis("bare") is not before


@pytest.mark.parametrize("value", [5, "text", Reply(1), Continue(), Timeout(1), Ignore()])
async def test_rule_16_a_bad_return_is_a_crash(stage: Any, value: Any) -> None:
    async with open_supervisor([stage.spec("a")]):
        await cast("a", stage.Do(lambda _: value))
        await trio.testing.wait_all_tasks_blocked()
        (report,) = stage.seen(events.ActorCrashed)
        assert isinstance(report.error, TypeError)
        assert len(stage.reasons["a"]) == 1


@pytest.mark.parametrize("value", [Continue(), Timeout(1), Ignore(), Reply(1, then=5), Stop("why")])  # type: ignore[arg-type]
async def test_rule_16_a_bad_return_of_handle_call(stage: Any, value: Any) -> None:
    async with open_supervisor([stage.spec("a")]):
        try:
            await stage.do("a", lambda _: value)
        except ServerExit as error:
            assert isinstance(error.reason, Crashed)  # noqa: PT017
        await trio.testing.wait_all_tasks_blocked()
        (report,) = stage.seen(events.ActorCrashed)
        assert isinstance(report.error, TypeError)


# ---- rule 17


async def test_rule_17_when_terminate_runs(stage: Any) -> None:
    children = [stage.spec("a"), stage.spec("t", trap=True), stage.spec("u", trap=True)]
    async with open_supervisor(children, max_restarts=99):
        await stage.end("a", Shutdown("x"))
        await stage.crash("a", OSError("y"))
        await cast("a", stage.Do(lambda _: 5))
        await trio.testing.wait_all_tasks_blocked()
        kinds = [type(reason) for reason in stage.reasons["a"]]
        assert kinds == [Shutdown, Crashed, Crashed]
        for id in ("a", "t"):
            ref = whereis(id)
            assert ref is not None
            exit(ref, Killed())
        await trio.testing.wait_all_tasks_blocked()
        ref = whereis("a")
        assert ref is not None
        exit(ref, Shutdown())
        await trio.testing.wait_all_tasks_blocked()
        assert len(stage.reasons["a"]) == 3
        assert stage.reasons["t"] == []
    assert len(stage.reasons["a"]) == 3  # it does not trap, so its supervisor's stop ran no terminate
    assert stage.reasons["t"] == stage.reasons["u"] == [Shutdown()]


async def test_rule_17_a_raise_in_terminate_replaces_the_reason(stage: Any) -> None:
    stage.script["a"].terminate = lambda *_: 1 / 0
    async with open_supervisor([stage.spec("a", restart="temporary")]):
        with pytest.raises(ServerExit) as caught:
            await stage.do("a", lambda _: Stop(Normal(), "never sent"))
        assert isinstance(caught.value.reason, Crashed)
        assert isinstance(caught.value.reason.error, ZeroDivisionError)


async def test_rule_17_a_trapping_actor_drains_what_came_before_the_exit(
    stage: Any, autojump_clock: trio.testing.MockClock
) -> None:
    async with open_supervisor([stage.spec("a", trap=True)]) as root:
        await cast("a", stage.Do(lambda _: trio.sleep(1)))
        await cast("a", stage.Do(lambda me: stage.journal.append(("drained", me.id))))
        async with trio.open_nursery() as nursery:
            nursery.start_soon(terminate_child, root, "a")
            await trio.sleep(0.5)
            cast_nowait("a", stage.Do(lambda me: stage.journal.append(("too late", me.id))))
    assert stage.journal == [("init", "a"), ("up", "a"), ("drained", "a"), ("terminate", "a")]


# ---- rule 22


async def test_rule_22_call_and_cast_wait_for_room_and_cast_nowait_raises(stage: Any) -> None:
    gate = trio.Event()
    async with open_supervisor([bounded(stage, 2)]), trio.open_nursery() as nursery:
        await cast("a", stage.Do(lambda _: gate.wait()))
        await trio.testing.wait_all_tasks_blocked()
        await cast("a", stage.Note("1"))
        await cast("a", stage.Note("2"))
        with pytest.raises(MailboxFull):
            cast_nowait("a", stage.Note("x"))
        nursery.start_soon(cast, "a", stage.Note("3"))
        await trio.testing.wait_all_tasks_blocked()
        nursery.start_soon(stage.do, "a", lambda me: me.seen.append("call"))
        await trio.testing.wait_all_tasks_blocked()
        nursery.start_soon(cast, "a", stage.Note("4"))
        await trio.testing.wait_all_tasks_blocked()
        assert (await supervisors.sys.statistics("a")).mailbox_len == 2
        gate.set()
        await trio.testing.wait_all_tasks_blocked()
        note = stage.Note
        assert await seen(stage) == [note("1"), note("2"), note("3"), "call", note("4")]
        cast_nowait("a", stage.Note("5"))


async def test_rule_22_what_bypasses_the_bound(stage: Any, autojump_clock: trio.testing.MockClock) -> None:
    async with open_supervisor([bounded(stage, 1), stage.spec("b", restart="temporary")]):

        async def busy(me: Any) -> None:
            ref = whereis("b")
            assert ref is not None
            supervisors.monitor(ref)
            send_after(self_ref(), "timer", 1)
            for number in range(3):
                cast_nowait(self_ref(), stage.Note(f"self {number}"))
                await cast(self_ref(), stage.Note(f"self again {number}"))
            await trio.sleep(5)

        await cast("a", stage.Do(busy))
        await trio.testing.wait_all_tasks_blocked()
        await cast("a", stage.Note("fills it"))
        send("a", "info")
        await stage.end("b")
        with pytest.raises(MailboxFull):
            cast_nowait("a", stage.Note("x"))
        await trio.sleep(2)
        state = await supervisors.sys.get_state("a")
        assert [type(item).__name__ for item in state["seen"]] == ["Note"] * 7 + ["str", "Down", "str"]


async def test_rule_22_a_dead_mailbox_lets_go_of_who_waits_for_room(stage: Any) -> None:
    async with open_supervisor([bounded(stage, 1)]), trio.open_nursery() as nursery:
        await cast("a", stage.Do(lambda _: trio.sleep_forever()))
        await trio.testing.wait_all_tasks_blocked()
        await cast("a", stage.Note("1"))
        nursery.start_soon(cast, "a", stage.Note("2"))
        nursery.start_soon(fails_with, Killed, stage.do, "a", lambda _: 1)
        await trio.testing.wait_all_tasks_blocked()
        ref = whereis("a")
        assert ref is not None
        exit(ref, Killed())


async def fails_with(reason: type, fn: Any, *args: Any) -> None:
    with pytest.raises(ServerExit) as caught:
        await fn(*args)
    assert isinstance(caught.value.reason, reason)


async def test_a_mailbox_needs_room_for_one(stage: Any) -> None:
    with pytest.raises(StartError):
        async with open_supervisor([bounded(stage, 0)]):
            raise AssertionError("it must not get up")


# ---- rule 23


@pytest.mark.parametrize("size", [1, 1000])
async def test_rule_23_a_call_that_waits_is_withdrawn(
    stage: Any, autojump_clock: trio.testing.MockClock, size: int
) -> None:
    done = []
    async with open_supervisor([bounded(stage, size)]):
        await cast("a", stage.Do(lambda _: trio.sleep(10)))
        await trio.testing.wait_all_tasks_blocked()
        with pytest.raises(CallTimeout):
            await stage.do("a", lambda _: done.append("timed out"), timeout=1)
        with trio.move_on_after(1):
            await stage.do("a", lambda _: done.append("cancelled"))
        with trio.move_on_after(1):
            await cast("a", stage.Note("kept"))
            with trio.move_on_after(0.5):
                await cast("a", stage.Do(lambda _: done.append("cast cancelled")))
        await trio.sleep(10)
        assert await seen(stage) == [stage.Note("kept")]
        assert done == ([] if size == 1 else ["cast cancelled"])


async def test_rule_23_a_running_call_goes_on_and_its_reply_is_dropped(
    stage: Any, autojump_clock: trio.testing.MockClock
) -> None:
    done = []

    async def work(_: Any) -> str:
        await trio.sleep(2)
        done.append("ran")
        return "dropped"

    async with open_supervisor([stage.spec("a")]):
        with trio.move_on_after(1):
            await stage.do("a", work)
        assert await stage.do("a", lambda _: "next") == "next"
        assert done == ["ran"]


# ---- rule 24


async def test_rule_24_nobody_is_left_waiting(stage: Any) -> None:
    async with open_supervisor([bounded(stage, 2)]), trio.open_nursery() as nursery:
        await cast("a", stage.Do(lambda _: NoReply()))
        nursery.start_soon(fails_with, Crashed, stage.do, "a", lambda _: NoReply())
        await trio.testing.wait_all_tasks_blocked()
        nursery.start_soon(fails_with, Crashed, stage.do, "a", lambda _: fail_soon())
        await trio.testing.wait_all_tasks_blocked()
        for _ in range(5):
            nursery.start_soon(fails_with, Crashed, stage.do, "a", lambda _: 1)
        nursery.start_soon(fails_with, Crashed, supervisors.sys.get_state, "a")
        await trio.testing.wait_all_tasks_blocked()
        GATE.set()


GATE = trio.Event()


async def fail_soon() -> None:
    await GATE.wait()
    raise OSError("gone")


# ---- replies


async def test_a_reply_may_come_later_and_from_elsewhere_and_only_once(stage: Any) -> None:
    got: list[Any] = []

    async def ask() -> None:
        got.append(await stage.do("a", lambda _: NoReply()))

    async with open_supervisor([stage.spec("a")]), trio.open_nursery() as nursery:
        nursery.start_soon(ask)
        await trio.testing.wait_all_tasks_blocked()
        kept = (await supervisors.sys.get_state("a"))["sender"]
        reply(kept, "answer")
        reply(kept, "again")
        await trio.testing.wait_all_tasks_blocked()
        assert got == ["answer"]


async def test_rule_40_none_is_a_reply(stage: Any) -> None:
    async with open_supervisor([stage.spec("a")]):
        assert await stage.do("a", lambda _: None) is None


async def test_a_call_may_wait_for_ever(stage: Any, autojump_clock: trio.testing.MockClock) -> None:
    async with open_supervisor([stage.spec("a")]):
        assert await stage.do("a", lambda _: trio.sleep(10_000), timeout=math.inf) is None


# ---- rule 39


async def test_rule_39_stop_keeps_the_queues_order_and_runs_terminate(stage: Any) -> None:
    async with open_supervisor([stage.spec("a", restart="temporary"), stage.spec("b", restart="temporary")]):
        await cast("a", stage.Do(lambda me: stage.journal.append(("handled", me.id))))
        await stop("a", Shutdown("enough"))
        assert stage.journal[-2:] == [("handled", "a"), ("terminate", "a")]
        assert stage.reasons["a"] == [Shutdown("enough")]
        await stop("b")
        assert stage.reasons["b"] == [Normal()]
        with pytest.raises(NoProcess):
            await stop("a")


async def test_rule_39_stop_times_out_and_the_actor_goes_on(stage: Any, autojump_clock: trio.testing.MockClock) -> None:
    async with open_supervisor([stage.spec("a")]):
        ref = whereis("a")
        await cast("a", stage.Do(lambda _: trio.sleep(2)))
        with pytest.raises(CallTimeout):
            await stop("a", timeout=1)
        await trio.sleep(5)
        assert whereis("a") is ref
        assert await stage.do("a", lambda _: 1) == 1


async def test_rule_39_stop_tells_of_another_end(stage: Any) -> None:
    stage.script["a"].terminate = lambda *_: 1 / 0
    async with open_supervisor([stage.spec("a", restart="temporary")]):
        with pytest.raises(ServerExit):
            await stop("a")


# ---- timers


async def test_send_after_and_cancel(stage: Any, autojump_clock: trio.testing.MockClock) -> None:
    async with open_supervisor([stage.spec("a")]) as root:
        timer = send_after("a", "one", 1)
        other = send_after("a", "two", 2)
        assert other.cancel() is True
        assert other.cancel() is False
        await trio.sleep(3)
        assert timer.cancel() is False
        assert await seen(stage) == ["one"]
        for number in range(1000):
            send_after("a", number, 5).cancel()
        assert len(root._process.timers._heap) < 200
        await trio.sleep(6)
        assert await seen(stage) == ["one"]
        with pytest.raises(ValueError, match="0 seconds or later"):
            send_after("a", "x", -1)


async def test_send_after_to_a_name_reaches_who_has_it_then(stage: Any, autojump_clock: trio.testing.MockClock) -> None:
    async with open_supervisor([stage.spec("a")]):
        send_after("a", "hello", 2)
        await stage.crash("a")
        await trio.sleep(3)
        assert await seen(stage) == ["hello"]


async def test_an_exit_message_is_no_stranger(stage: Any) -> None:
    async with open_supervisor([stage.spec("a", trap=True)]):
        ref = whereis("a")
        assert ref is not None
        exit(ref, Shutdown("hey"))
        assert await seen(stage) == [Exit(None, Shutdown("hey"))]
