"""Whatever happens in whatever order: each call ends once, nothing runs that was not let through, nothing is left."""

from __future__ import annotations

from typing import Any

import msgspec
import trio
import trio.testing
from hypothesis import given, settings
from hypothesis import strategies as st

from conduit_daemon.config import Config, LimitsConfig, PolicyConfig, PolicyRule, RateConfig, ServerConfig
from conduit_daemon.model import Call, Outcome, Tool
from conduit_daemon.pipeline import Answer, Refusal, start
from conduit_daemon.pipeline.hooks import Hooks
from conduit_daemon.pipeline.question import Remember

CONFIG = Config(
    policy=PolicyConfig(default="approve", approval_timeout=60),
    limits=LimitsConfig(max_in_flight=3, call_timeout=20, rate=RateConfig(calls=4, per=10)),
    servers={"s": ServerConfig(command="x", max_in_flight=2, pin=True)},
)
TOOLS = [Tool(name="send"), Tool(name="list"), Tool(name="read")]
RULES = (PolicyRule(effect="allow", tools=("read",)), PolicyRule(effect="deny", when="has(args.n) && args.n == 0"))

steps = st.one_of(
    st.tuples(
        st.just("call"),
        st.sampled_from(["s__send", "s__list", "s__read", "s__nothing"]),
        st.integers(0, 2),
        st.sampled_from([None, 1.0, 15.0]),
        st.sampled_from(["ann", "bob"]),
    ),
    st.tuples(st.just("decide"), st.integers(0, 5), st.booleans(), st.sampled_from([None, "args", "tool"])),
    st.tuples(st.just("cancel"), st.integers(0, 5)),
    st.tuples(st.just("wait"), st.sampled_from([0.0, 0.5, 5.0, 30.0, 100.0])),
    st.tuples(st.just("policy"), st.sampled_from(["approve", "deny", "allow"])),
    st.tuples(st.just("tool"), st.integers(0, 2)),
    st.tuples(st.just("watch")),
    st.tuples(st.just("server"), st.sampled_from([0.0, 3.0, 50.0])),
)


async def hook(call: Call) -> Any:
    match call.arguments.get("n"):
        case 1:
            await trio.sleep(2)
            return msgspec.structs.replace(call, arguments={**call.arguments, "hooked": True})
        case 2 if call.name == "s__list":
            return Refusal("Not this one.")
    return None


async def play(make: Any, script: list[Any]) -> None:
    made = make(None, CONFIG, TOOLS, Hooks(before=[hook]))
    made.rules(*RULES)
    flights: list[tuple[Any, list[Outcome]]] = []
    async with trio.open_nursery() as nursery:
        nursery.start_soon(made.gate.deadlines.run)
        nursery.start_soon(made.governance.run)
        made.approvals.watch(lambda change: None)
        for step in script:
            match step:
                case ("call", name, n, timeout, who):
                    outcomes: list[Outcome] = []
                    call = made.call(name, principal=who, arguments={"n": n}, timeout=timeout)
                    flights.append((start(call, made.context, outcomes.append), outcomes))
                case ("decide", place, yes, scope):
                    open_questions = list(made.approvals.pending)
                    if open_questions:
                        answer = Answer(decision="approve" if yes else "deny", approver="root")
                        remember = None if scope is None else Remember(scope=scope)
                        made.approvals.decide(open_questions[place % len(open_questions)], answer, remember)
                case ("cancel", place) if flights:
                    flights[place % len(flights)][0].cancel()
                case ("wait", seconds):
                    await trio.sleep(seconds)
                case ("policy", default):
                    made.rules(*RULES, default=default)
                case ("tool", version):
                    made.offer(*(Tool(name=tool.name, description=f"Version {version}.") for tool in TOOLS))
                case ("watch",):
                    made.approvals.watch(lambda change: None)()
                case ("server", delay):
                    made.server.delay = delay
        await trio.sleep(1000)
        nursery.cancel_scope.cancel()
    assert all(len(outcomes) == 1 for _, outcomes in flights)
    ended = [outcomes[0] for _, outcomes in flights]
    assert [e.fields for e in made.events if e.type == "internal.error"] == []
    assert len(made.server.received) == sum(outcome.sent != "not_sent" for outcome in ended)
    for outcome in ended:
        if outcome.sent != "not_sent":
            assert outcome.decision in {"allow", "approve"}
            assert outcome.call.arguments["n"] != 0 or outcome.tool == "read"
            assert outcome.call.arguments.get("hooked", False) is (outcome.call.arguments["n"] == 1)
        if outcome.decision == "deny":
            assert outcome.sent == "not_sent"
    assert not made.gate.flights
    assert made.gate.slots.taken == made.gate.server_slots["s"].taken == 0
    assert made.approvals.pending == {}
    finished = [event.call for event in made.events if event.type == "call.finished"]
    assert sorted(finished) == sorted(outcome.call.id for outcome in ended)


def test_laws_of_calls(pipeline_class: Any) -> None:
    @settings(max_examples=300, deadline=None)
    @given(st.lists(steps, max_size=25))
    def hold(script: list[Any]) -> None:
        trio.run(play, pipeline_class, script, clock=trio.testing.MockClock(autojump_threshold=0))

    hold()
