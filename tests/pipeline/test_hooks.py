"""The operator's code around calls: what it may change, and what its failures cost."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from pathlib import Path
from typing import Any

import msgspec
import pytest
import trio

from conduit_daemon.config import Config, HooksConfig, LimitsConfig, PolicyConfig, PolicyRule
from conduit_daemon.errors import ClientError, DaemonError
from conduit_daemon.model import Call, Outcome, Tool
from conduit_daemon.pipeline import Answer, Refusal, start
from conduit_daemon.pipeline.background import Background, Interrupted, settled
from conduit_daemon.pipeline.hooks import Hooks, load_hooks

Make = Callable[..., Any]
ALLOW = Config(policy=PolicyConfig(default="allow"))
SCHEMA = {"type": "object", "properties": {"to": {"type": "string"}}}
TOOLS = [Tool(name="send", input_schema=SCHEMA)]


def with_arguments(call: Call, **arguments: Any) -> Call:
    return msgspec.structs.replace(call, arguments=arguments)


async def test_each_hook_sees_what_the_one_before_it_made(pipeline: Make) -> None:
    seen: list[Any] = []

    def first(call: Call) -> Call:
        return with_arguments(call, to="first")

    async def second(call: Call) -> None:
        seen.append(call.arguments)

    def third(call: Call) -> Call:
        return with_arguments(call, to=call.arguments["to"] + " third")

    made = pipeline(ALLOW, TOOLS, hooks=Hooks(before=[first, second, third]))
    outcome = await made.run(arguments={"to": "ann"})
    assert outcome.kind == "ok"
    assert seen == [{"to": "first"}]
    assert made.server.received == [("send", {"to": "first third"})]
    assert outcome.call.arguments == {"to": "first third"}


async def test_only_what_is_returned_counts_and_only_arguments_and_meta_of_it(pipeline: Make) -> None:
    def sneaky(call: Call) -> None:
        call.arguments["to"] = "eve"
        call.arguments["list"].append(2)

    def other(call: Call) -> Call:
        return msgspec.structs.replace(call, name="s__list", principal=None, id="forged", meta={"k": 1})

    made = pipeline(ALLOW, [Tool(name="send"), Tool(name="list")], hooks=Hooks(before=[sneaky, other]))
    outcome = await made.run(arguments={"to": "ann", "list": [1]})
    assert made.server.received == [("send", {"to": "ann", "list": [1]})]
    assert outcome.call.id != "forged"
    assert outcome.call.principal.name == "ann"
    assert outcome.call.meta == {"k": 1}


async def test_changed_arguments_are_validated_and_decided_again(pipeline: Make) -> None:
    target: dict[str, Any] = {"to": 7}

    def change(call: Call) -> Call:
        return with_arguments(call, **target)

    made = pipeline(ALLOW, TOOLS, hooks=Hooks(before=[change]))
    outcome = await made.run()
    assert (outcome.kind, outcome.decision) == ("invalid_arguments", "invalid")
    target["to"] = "eve"
    made.rules(PolicyRule(effect="deny", when="has(args.to) && args.to == 'eve'"), default="allow")
    assert (await made.run()).kind == "denied"
    target["to"] = "ann"
    assert (await made.run()).kind == "ok"
    assert made.server.received == [("send", {"to": "ann"})]


async def test_a_person_is_asked_once_about_a_call_that_a_hook_changes(pipeline: Make) -> None:
    made = pipeline(tools=TOOLS, hooks=Hooks(before=[lambda call: with_arguments(call, to="changed")]))
    asked: list[Any] = []

    def approve(question: Any) -> Answer:
        asked.append(question.arguments)
        return Answer(decision="approve")

    made.approvals.register("test", approve)
    assert (await made.run(arguments={"to": "ann"})).decision == "approve"
    assert asked == [{"to": "ann"}]
    assert made.server.received == [("send", {"to": "changed"})]


@pytest.mark.parametrize("wrong", ["text", 7, {"arguments": {}}])
async def test_refusals_failures_and_nonsense(pipeline: Make, wrong: Any) -> None:
    answers: list[Any] = [Refusal("Not on Sundays."), RuntimeError("secret-of-the-hook"), wrong, None]

    def hook(call: Call) -> Any:
        answer = answers.pop(0)
        if isinstance(answer, Exception):
            raise answer
        return answer

    made = pipeline(ALLOW, TOOLS, hooks=Hooks(before=[hook]))
    refused = await made.run()
    assert (refused.kind, refused.decision, refused.error.message) == ("denied", "deny", "Not on Sundays.")
    for _ in range(2):
        failed = await made.run()
        assert (failed.kind, failed.sent) == ("internal", "not_sent")
        assert "secret-of-the-hook" not in failed.error.message
    assert (await made.run()).kind == "ok"
    assert len(made.server.received) == 1
    assert made.types().count("internal.error") == 2
    assert "RuntimeError" in next(e for e in made.events if e.type == "internal.error").fields["traceback"]


async def test_a_hook_that_hangs_ends_with_the_call(pipeline: Make, autojump_clock: trio.testing.MockClock) -> None:
    ended: list[str] = []

    async def hang(*_: Any) -> None:
        try:
            await trio.sleep_forever()
        finally:
            ended.append("ended")

    config = Config(policy=PolicyConfig(default="allow"), limits=LimitsConfig(call_timeout=20))
    made = pipeline(config, TOOLS, hooks=Hooks(before=[hang]))
    outcome = await made.run(timeout=5)
    assert (outcome.kind, outcome.sent, outcome.duration) == ("timeout", "not_sent", pytest.approx(5))
    outcome = await made.run()
    assert (outcome.kind, outcome.duration) == ("timeout", pytest.approx(20))
    outcomes: list[Outcome] = []
    flight = start(made.call(), made.context, outcomes.append)
    await trio.sleep(1)
    flight.cancel()
    assert (outcomes[0].kind, outcomes[0].sent) == ("cancelled", "not_sent")
    await trio.sleep(0.1)
    assert ended == ["ended"] * 3
    made = pipeline(config, TOOLS, hooks=Hooks(after=[hang]))
    outcome = await made.run(timeout=5)
    assert (outcome.kind, outcome.sent) == ("timeout", "outcome_unknown")
    assert made.gate.slots.taken == 0
    assert not made.gate.flights


async def test_what_after_hooks_may_change(pipeline: Make) -> None:
    def shout(call: Call, outcome: Outcome) -> Outcome:
        raw = msgspec.Raw(b'{"content": [],\n "isError": true}')
        return msgspec.structs.replace(outcome, result=raw, server="forged", decision="none")

    made = pipeline(ALLOW, TOOLS, hooks=Hooks(after=[shout]))
    outcome = await made.run()
    assert (outcome.kind, outcome.server, outcome.decision) == ("tool_error", "s", "allow")
    assert bytes(outcome.result) == b'{"content":[],"isError":true}'
    assert made.context.taint == {"s"}

    async def refuse(call: Call, outcome: Outcome) -> Outcome:
        return msgspec.structs.replace(outcome, error=ClientError("denied", "The result is not for you."))

    made = pipeline(ALLOW, TOOLS, hooks=Hooks(after=[refuse]))
    outcome = await made.run()
    assert (outcome.kind, outcome.sent) == ("denied", "failed")
    assert bytes(outcome.result) == b""
    assert made.context.taint == frozenset()


async def test_whoever_fails_at_an_outcome_keeps_no_slot(pipeline: Make) -> None:
    made = pipeline(ALLOW, TOOLS)
    calls: list[Outcome] = []

    def broken(outcome: Outcome) -> None:
        calls.append(outcome)
        raise RuntimeError("cannot take it")

    made.gate.slots.resize(1)
    start(made.call(arguments={"to": 7}), made.context, broken)
    assert len(calls) == 1
    assert made.gate.slots.taken == 0
    assert made.types().count("internal.error") == 1
    assert (await made.run()).kind == "ok"


@pytest.mark.parametrize("result", [b"not json", b"[]", b'{"content": ["\xff"]}', b"{}\n{}"])
async def test_what_cannot_be_a_result_fails_its_call_alone(pipeline: Make, result: bytes) -> None:
    def broken(call: Call, outcome: Outcome) -> Outcome:
        return msgspec.structs.replace(outcome, result=msgspec.Raw(result))

    made = pipeline(ALLOW, TOOLS, hooks=Hooks(after=[broken]))
    outcome = await made.run()
    assert (outcome.kind, outcome.sent) == ("internal", "outcome_unknown")


def test_hooks_are_found_in_the_configurations_folder_and_said_where_they_are_not(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("sys.path", [*__import__("sys").path])
    (tmp_path / "found_hooks.py").write_text(
        "class A:\n    @staticmethod\n    def f(call): ...\nx = 1\n1 / 0 if x - 1 else 0\n"
    )
    (tmp_path / "broken_hooks.py").write_text("raise RuntimeError('at import')\n")
    (tmp_path / "leaving_hooks.py").write_text("import sys\nsys.exit('not today')\n")
    found = load_hooks(HooksConfig(before_call=("found_hooks:A.f",)), tmp_path)
    assert len(found.before) == 1
    for wrong, why in [
        ("nowhere_hooks:f", "No module named"),
        ("found_hooks:g", "no attribute 'g'"),
        ("found_hooks:x", "which cannot be called"),
        ("broken_hooks:f", "at import"),
        ("leaving_hooks:f", "not today"),
    ]:
        with pytest.raises(DaemonError, match=why):
            load_hooks(HooksConfig(after_call=(wrong,)), tmp_path)


async def test_work_whose_runner_ends_is_interrupted_and_work_before_it_begins_waits(nursery: trio.Nursery) -> None:
    background, done = Background(), []

    async def forever() -> Any:
        return await settled(trio.sleep_forever())

    async def at_once() -> Any:
        return await settled(5)

    assert background.start(at_once(), lambda *result: done.append(result)) is None
    assert done == [(5, None)]
    assert background.start(forever(), lambda *result: done.append(result)) is not None
    stopped = background.start(forever(), lambda *result: done.append(result))
    assert stopped is not None
    stopped()
    with trio.move_on_after(0.05):
        await background.run()
    assert [type(error) for _, error in done[1:]] == [Interrupted]

    async def brief() -> Any:
        await settled(trio.sleep(0))
        return "later"

    background.start(brief(), lambda *result: done.append(result))
    nursery.start_soon(background.run)
    await trio.sleep(0.01)
    assert done[-1] == ("later", None)


def leaving(call: Call) -> None:
    raise SystemExit(3)


async def leaving_later(call: Call) -> None:
    await trio.sleep(0.001)
    raise SystemExit(3)


async def cancelled_elsewhere(call: Call) -> None:
    await trio.sleep(0.001)
    raise asyncio.CancelledError


async def several(call: Call) -> None:
    async with trio.open_nursery() as nursery:
        nursery.start_soon(leaving_later, call)
        nursery.start_soon(trio.sleep_forever)


@pytest.mark.parametrize("hook", [leaving, leaving_later, cancelled_elsewhere, several], ids=lambda hook: hook.__name__)
@pytest.mark.parametrize("where", ["before", "after"])
async def test_no_hook_ends_the_daemon(pipeline: Make, hook: Any, where: str) -> None:
    called = hook if where == "before" else lambda call, outcome: hook(call)
    made = pipeline(Config(policy=PolicyConfig(default="allow")), hooks=Hooks(**{where: (called,)}))
    outcome = await made.run()
    assert (outcome.kind, outcome.sent) == ("internal", "not_sent" if where == "before" else "outcome_unknown")
    assert "internal.error" in made.types()


async def test_no_approver_ends_the_daemon(pipeline: Make) -> None:
    made = pipeline()
    made.approvals.register("rude", leaving)
    made.approvals.register("kind", lambda question: Answer(decision="approve"))
    assert (await made.run()).kind == "ok"
    assert "internal.error" in made.types()


async def test_what_a_hook_does_to_a_call_in_place_counts_for_nothing(pipeline: Make) -> None:
    def spoil(call: Call, outcome: Outcome | None = None) -> None:
        for one in (call, call if outcome is None else outcome.call):
            one.arguments["to"].append("eve")
            one.meta["x"] = one.assigns["admin"] = True

    hooks = Hooks(before=(spoil,), after=(spoil,))
    made = pipeline(Config(policy=PolicyConfig(default="allow")), hooks=hooks)
    outcome = await made.run(arguments={"to": ["ann"]})
    assert (outcome.kind, outcome.call.arguments) == ("ok", {"to": ["ann"]})
    assert outcome.call.meta == outcome.call.assigns == {}
    assert made.server.received == [("send", {"to": ["ann"]})]


async def test_a_tool_that_changes_while_a_hook_works_is_asked_about_again(pipeline: Make) -> None:
    def change(call: Call) -> Call:
        made.offer(Tool(name="send", description="Sends to everybody."))
        return msgspec.structs.replace(call, arguments={"to": "bob"})

    made = pipeline(hooks=Hooks(before=(change,)))
    asked: list[Any] = []
    made.approvals.register("ann", lambda question: asked.append(question.arguments) or Answer(decision="approve"))
    assert (await made.run(arguments={"to": "ann"})).kind == "ok"
    assert asked == [{"to": "ann"}, {"to": "bob"}]


@pytest.mark.parametrize("part", ["meta", "assigns"])
async def test_what_is_too_deep_to_be_copied_is_refused(pipeline: Make, part: str) -> None:
    deep: dict[str, Any] = {}
    for _ in range(900):
        deep = {"a": deep}
    made = pipeline(Config(policy=PolicyConfig(default="allow")), hooks=Hooks(before=(lambda call: None,)))
    assert (await made.run(**{part: deep})).kind == "invalid_params"
    assert (await made.run(**{part: {"a": [1]}})).kind == "ok"
