"""Questions to people: who is asked, what an answer holds for, and what time does to it."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import msgspec
import pytest
import trio

from conduit_daemon.config import PolicyRule
from conduit_daemon.errors import ClientError
from conduit_daemon.model import Outcome, Tool
from conduit_daemon.pipeline import Answer, Question, start
from conduit_daemon.pipeline.question import Change, Remember

YES, NO = Answer(decision="approve", approver="root"), Answer(decision="deny", approver="root")
Make = Callable[..., Any]


class Watching:
    """Somebody who watches, and decides by the question's place."""

    def __init__(self, made: Any) -> None:
        self.changes: list[Change] = []
        self.made = made
        self.stop = made.approvals.watch(self.changes.append)

    @property
    def asked(self) -> list[Question]:
        return [change.question for change in self.changes if change.type == "requested"]

    def decide(self, place: int, answer: Answer = YES, **remember: Any) -> Any:
        kept = Remember(**remember) if remember else None
        return self.made.approvals.decide(self.asked[place].id, answer, kept)


def begun(made: Any, name: str = "s__send", **more: Any) -> tuple[Any, list[Outcome]]:
    outcomes: list[Outcome] = []
    return start(made.call(name, **more), made.context, outcomes.append), outcomes


async def test_a_call_that_waits_for_a_person_takes_no_task(pipeline: Make) -> None:
    made = pipeline()
    watching = Watching(made)
    await trio.testing.wait_all_tasks_blocked()
    before = trio.lowlevel.current_statistics().tasks_living
    flights = [begun(made, arguments={"n": n}) for n in range(100)]
    assert trio.lowlevel.current_statistics().tasks_living == before
    for n in range(100):
        watching.decide(n)
    await trio.sleep(0.01)
    assert [outcomes[0].kind for _, outcomes in flights] == ["ok"] * 100
    assert not made.gate.flights


async def test_nobody_in_time_is_a_denial_and_a_late_word_holds_ten_minutes_once(
    pipeline: Make, autojump_clock: trio.testing.MockClock
) -> None:
    made = pipeline()
    watching = Watching(made)
    began = trio.current_time()
    told: list[dict[str, Any]] = []
    outcome = await made.run(on_progress=lambda raw: told.append(msgspec.json.decode(raw)))
    assert trio.current_time() - began == pytest.approx(300)
    assert (outcome.kind, outcome.sent, outcome.decision) == ("approval_timeout", "not_sent", "deny")
    assert [one["progress"] for one in told] == pytest.approx([10 * n for n in range(30)])
    assert made.server.received == []
    assert watching.decide(0).late is True
    with pytest.raises(ClientError, match="has decided it already"):
        watching.decide(0)
    _, other = begun(made, principal="bob")
    _, different = begun(made, arguments={"n": 1})
    assert (other, different) == ([], [])
    assert (await made.run()).kind == "ok"
    _, again = begun(made)
    assert again == []


async def test_a_late_word_is_forgotten_after_ten_minutes(pipeline: Make) -> None:
    made = pipeline()
    now = 1000.0
    made.governance._remembered._clock = lambda: now
    watching = Watching(made)
    flight, outcomes = begun(made)
    flight.cancel()
    assert outcomes[0].kind == "cancelled"
    watching.decide(0)
    now += 601
    _, again = begun(made)
    assert again == []
    assert len(watching.asked) == 2


async def test_the_callers_own_time_limit_ends_the_question_too(
    pipeline: Make, autojump_clock: trio.testing.MockClock
) -> None:
    made = pipeline()
    watching = Watching(made)
    outcome = await made.run(timeout=5)
    assert outcome.kind == "approval_timeout"
    assert outcome.duration == pytest.approx(5)
    assert [change.type for change in watching.changes] == ["requested", "withdrawn"]
    assert watching.decide(0).late is True
    assert (await made.run(timeout=5)).kind == "ok"


async def test_progress_goes_on_growing_when_the_server_begins_its_own(
    pipeline: Make, autojump_clock: trio.testing.MockClock, nursery: trio.Nursery
) -> None:
    made = pipeline()
    made.server.progress = (0.5, 1.0)
    watching = Watching(made)

    async def decide() -> None:
        await trio.sleep(25)
        watching.decide(0)

    nursery.start_soon(decide)
    told: list[float] = []
    outcome = await made.run(on_progress=lambda raw: told.append(msgspec.json.decode(raw)["progress"]))
    assert outcome.kind == "ok"
    assert told == pytest.approx([0, 10, 20, 25.5, 26])


async def test_what_a_remembered_answer_is_bound_to(pipeline: Make) -> None:
    made = pipeline()
    watching = Watching(made)
    _, first = begun(made, arguments={"to": "ann"})
    watching.decide(0, scope="args")
    await trio.sleep(0.01)
    assert first[0].kind == "ok"

    async def asks_again(**call: Any) -> bool:
        known = len(watching.asked)
        flight, outcomes = begun(made, **call)
        await trio.sleep(0.01)
        if outcomes:
            assert outcomes[0].kind == "ok"
        flight.cancel()
        return len(watching.asked) > known

    same = {"arguments": {"to": "ann"}}
    assert not await asks_again(**same)
    assert await asks_again(arguments={"to": "bob"})
    assert await asks_again(principal="bob", **same)
    assert await asks_again(name="s__list", **same)
    made.offer(Tool(name="send", description="Another one."), Tool(name="list"))
    assert await asks_again(**same)
    made.offer(Tool(name="send"), Tool(name="list"))
    assert not await asks_again(**same)
    made.rules(PolicyRule(effect="approve", tools=("send",)))
    assert await asks_again(**same)
    made.rules()
    assert not await asks_again(**same)


async def test_remembered_denials_hold_and_answers_for_the_tool_hold_for_all_arguments(pipeline: Make) -> None:
    made = pipeline()
    watching = Watching(made)
    begun(made, arguments={"n": 1})
    watching.decide(0, Answer(decision="deny", approver="root", reason="no", halt=True), scope="tool")
    outcome = await made.run(arguments={"n": 2})
    assert (outcome.kind, outcome.halt, outcome.decision) == ("denied", True, "deny")
    assert outcome.error is not None
    assert "denied by root (remembered): no. Stop now." in outcome.error.message


async def test_remembered_answers_end_and_survive(pipeline: Make, tmp_path: Path) -> None:
    made = pipeline(folder=tmp_path)
    watching = Watching(made)
    begun(made, arguments={"n": 1})
    watching.decide(0, scope="args", seconds=3600)
    assert await made.approvals.saved()
    again = pipeline(folder=tmp_path)
    assert (await again.run(arguments={"n": 1})).kind == "ok"
    assert (await again.run(arguments={"n": 2})).kind == "denied"
    third = pipeline(folder=tmp_path)
    third.governance._remembered._clock = lambda: 4e9
    third.governance.load()
    assert (await third.run(arguments={"n": 1})).kind == "denied"


async def test_what_changed_while_it_waited_is_decided_anew(pipeline: Make) -> None:
    made = pipeline()
    watching = Watching(made)
    _, denied = begun(made)
    made.rules(default="deny")
    watching.decide(0)
    assert denied[0].kind == "denied"

    made.rules()
    _, outcomes = begun(made)
    made.offer(Tool(name="send", description="Sends everything to Eve."))
    watching.decide(1)
    assert outcomes == []
    assert len(watching.asked) == 3
    watching.decide(2, NO)
    assert outcomes[0].kind == "denied"

    _, outcomes = begun(made)
    made.offer()
    watching.decide(3)
    assert outcomes[0].kind == "unknown_tool"
    assert made.server.received == []


async def test_approvers_in_the_process(pipeline: Make, autojump_clock: trio.testing.MockClock) -> None:
    made = pipeline()
    seen: list[Question] = []

    def undecided(question: Question) -> None:
        seen.append(question)

    async def slow(question: Question) -> Answer | None:
        await trio.sleep(3)
        return Answer(decision="approve" if question.arguments.get("n") == 1 else "deny")

    def broken(question: Question) -> Answer:
        raise RuntimeError("no idea")

    def wrong(question: Question) -> str:
        return "yes"

    stops = [made.approvals.register(each.__name__, each) for each in (undecided, broken, wrong, slow)]
    assert made.approvals.somebody
    outcome = await made.run(arguments={"n": 1})
    assert (outcome.kind, outcome.decision) == ("ok", "approve")
    assert made.events[-1].fields["approver"] == "slow"
    assert (await made.run(arguments={"n": 2})).kind == "denied"
    assert made.types().count("internal.error") == 4
    assert len(seen) == 2
    made.approvals.register("quick", lambda question: Answer(decision="deny"))
    began = trio.current_time()
    outcome = await made.run(arguments={"n": 1})
    assert (outcome.kind, trio.current_time()) == ("denied", began)
    for stop in stops:
        stop()
    assert made.approvals.somebody


async def test_an_approver_that_comes_later_is_asked_about_what_is_open(pipeline: Make) -> None:
    made = pipeline()
    stop = Watching(made).stop
    _, outcomes = begun(made)
    stop()
    assert outcomes == []
    made.approvals.register("policy engine", lambda question: Answer(decision="approve"))
    await trio.sleep(0.01)
    assert outcomes[0].kind == "ok"


async def test_a_withdrawn_question_is_no_longer_an_approvers_work(pipeline: Make) -> None:
    made = pipeline()
    ended: list[str] = []

    async def slow(question: Question) -> Answer | None:
        try:
            await trio.sleep_forever()
        finally:
            ended.append(question.id)
        return None

    made.approvals.register("slow", slow)
    flight, outcomes = begun(made)
    await trio.sleep(0.01)
    flight.cancel()
    await trio.sleep(0.01)
    assert len(ended) == 1
    assert outcomes[0].kind == "cancelled"


async def test_a_thousand_open_questions_are_enough(pipeline: Make) -> None:
    made = pipeline()
    Watching(made)
    flights = [begun(made, arguments={"n": n}, principal=f"user{n // 100}") for n in range(1001)]
    assert flights[1000][1][0].kind == "rate_limited"
    assert all(outcomes == [] for _, outcomes in flights[:1000])
    for flight, _ in flights:
        flight.cancel()
    assert made.approvals.pending == {}


async def test_one_agent_has_a_hundred_and_leaves_room_for_others(pipeline: Make) -> None:
    made = pipeline()
    watching = Watching(made)
    flights = [begun(made, arguments={"n": n}, principal="greedy") for n in range(101)]
    refused = flights[100][1][0].error
    assert refused.kind == "rate_limited"
    assert "100 calls of this agent wait for approval already" in refused.message
    _, other = begun(made, principal="modest")
    assert other == []
    watching.decide(0)
    await trio.sleep(0.01)
    _, again = begun(made, arguments={"n": 500}, principal="greedy")
    assert again == []
    assert len(made.approvals.pending) == 101


async def test_approved_and_without_a_server_is_unavailable(pipeline: Make) -> None:
    made = pipeline()
    watching = Watching(made)
    _, outcomes = begun(made)
    del made.gate.ports["s"]
    watching.decide(0)
    assert outcomes[0].kind == "unavailable"
    assert outcomes[0].sent == "not_sent"


async def test_a_watcher_that_fails_is_reported_and_the_question_goes_to_the_others(pipeline: Make) -> None:
    made = pipeline()

    def broken(change: Change) -> None:
        raise RuntimeError("gone")

    made.approvals.watch(broken)
    watching = Watching(made)
    _, outcomes = begun(made)
    watching.decide(0)
    await trio.sleep(0.01)
    assert outcomes[0].kind == "ok"
    assert made.types().count("internal.error") == 2


async def test_a_daemon_that_stops_refuses_what_waits_for_a_person_at_once(pipeline: Make) -> None:
    made = pipeline()
    watching = Watching(made)
    _, waiting = begun(made)
    made.rules(default="allow")
    made.server.delay = 0.05
    _, running = begun(made)
    made.gate.stop()
    assert (waiting[0].kind, waiting[0].sent) == ("shutting_down", "not_sent")
    assert (await made.run()).kind == "shutting_down"
    await made.gate.quiet()
    assert running[0].kind == "ok"
    assert watching.changes[-1].type == "withdrawn"
