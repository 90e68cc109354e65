"""Slots are given in turn, never more than there are, and none is lost."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import trio
from hypothesis import given
from hypothesis import strategies as st

from conduit_daemon.config import Config, LimitsConfig, PolicyConfig, ServerConfig
from conduit_daemon.model import Outcome
from conduit_daemon.pipeline import Context, start
from conduit_daemon.pipeline.limits import Slots, Waiting

STEPS = st.sampled_from(["take", "give", "leave", "more", "fewer"])


@given(st.integers(1, 4), st.lists(st.tuples(STEPS, st.sampled_from("abc")), max_size=60))
def test_slots_whatever_happens(limit: int, steps: list[tuple[str, str]]) -> None:
    slots = Slots(limit)
    holding: list[int] = []
    queue: list[tuple[int, str, Waiting]] = []
    turns: list[str] = []

    def on_slot(number: int, whose: str) -> None:
        assert turns.pop(0) == whose, "not its turn"
        own = [place for place in queue if place[1] == whose]
        assert own[0][0] == number, "not its first"
        queue.remove(own[0])
        if len(own) > 1:
            turns.append(whose)
        holding.append(number)

    for number, (step, whose) in enumerate(steps):
        if step == "take":
            if slots.take_now():
                holding.append(number)
            else:
                place = slots.queue(lambda number=number, whose=whose: on_slot(number, whose), whose)
                queue.append((number, whose, place))
                if whose not in turns:
                    turns.append(whose)
        elif step == "give" and holding:
            holding.pop(0)
            slots.give_back()
        elif step == "leave" and queue:
            _, left, place = queue.pop(len(queue) // 2)
            slots.leave(place)
            if all(other != left for _, other, _ in queue):
                turns.remove(left)
        elif step == "more":
            limit += 1
            slots.resize(limit)
        elif step == "fewer" and limit > 1:
            limit -= 1
            slots.resize(limit)
        assert slots.taken == len(holding)
        assert not queue or slots.taken >= limit, "somebody waits beside a free slot"


async def test_who_floods_a_server_keeps_nobody_else_waiting_for_more_than_one_call(
    pipeline: Callable[..., Any], autojump_clock: trio.testing.MockClock
) -> None:
    config = Config(policy=PolicyConfig(default="allow"), limits=LimitsConfig(max_in_flight=1, call_timeout=100))
    made = pipeline(config)
    made.server.delay = 1.0
    ended: list[str] = []

    def call(who: str, context: Context) -> None:
        start(made.call(principal=who), context, lambda outcome: ended.append(f"{who} {outcome.kind}"))

    greedy, modest = Context(made.gate), Context(made.gate)
    session = made.governance.sessions.context(greedy, "greedy", "another of its conversations")
    for number in range(20):
        call("greedy", session if number % 2 else greedy)
    for _ in range(2):
        call("modest", modest)
    await trio.sleep(4.5)
    assert ended == ["greedy ok", "greedy ok", "modest ok", "greedy ok"]
    await trio.sleep(1)
    assert ended[-1] == "modest ok"


async def test_a_call_that_finds_no_slot_in_its_time_is_rate_limited_and_was_not_sent(
    pipeline: Callable[..., Any], autojump_clock: trio.testing.MockClock
) -> None:
    servers = {"s": ServerConfig(command="x", max_in_flight=1)}
    made = pipeline(Config(policy=PolicyConfig(default="allow"), servers=servers))
    made.server.delay = 30.0
    first: list[Outcome] = []
    start(made.call(), made.context, first.append)
    outcome = await made.run(timeout=2.0)
    assert (outcome.kind, outcome.sent, outcome.duration) == ("rate_limited", "not_sent", 2.0)
    assert outcome.error is not None
    assert outcome.error.retry_after == 1.0
    late = await made.run(timeout=70.0)
    assert (late.kind, first[0].kind) == ("ok", "ok")
    assert len(made.server.received) == 2
