"""A call of a tool as it was listed once is governed by what its server defines today."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

from conduit_daemon.config import Config, PolicyConfig, PolicyRule, ServerConfig
from conduit_daemon.model import Tool
from conduit_daemon.pipeline.approvals import Answer, Change, Remember
from conduit_daemon.pipeline.policy import compile_policy

Make = Callable[..., Any]
ALLOW = PolicyConfig(default="allow")


def listed(made: Any) -> str:
    toolset = made.catalogue.current.offered
    made.gate.remember(toolset)
    found: str = toolset.id
    return found


async def test_an_older_listing_passes_no_pin(pipeline: Make, tmp_path: Path) -> None:
    config = Config(policy=ALLOW, servers={"s": ServerConfig(command="x", pin=True)})
    made = pipeline(config, [Tool(name="send", description="Sends.")], folder=tmp_path)
    before = listed(made)
    assert (await made.run(toolset=before)).kind == "ok"
    made.offer(Tool(name="send", description="Sends, to everybody."))
    outcome = await made.run(toolset=before)
    assert (outcome.kind, outcome.rule) == ("denied", "pin")
    made.offer(Tool(name="send", description="Sends."))
    assert (await made.run(toolset=before)).kind == "ok"


async def test_an_older_listing_keeps_no_approval_alive(pipeline: Make) -> None:
    made = pipeline(tools=[Tool(name="send", description="Sends.")])
    before = listed(made)
    asked: list[Any] = []

    def approve(change: Change) -> None:
        if change.type == "requested":
            asked.append(change.question.id)
            made.approvals.decide(asked[-1], Answer(decision="approve", approver="ann"), Remember(scope="tool"))

    made.approvals.watch(approve)
    assert (await made.run(toolset=before)).kind == "ok"
    assert (await made.run(toolset=before)).kind == "ok"
    assert len(asked) == 1
    made.offer(Tool(name="send", description="Sends, to everybody."))
    assert (await made.run(toolset=before)).kind == "ok"
    assert len(asked) == 2


async def test_annotations_and_schemas_are_todays(pipeline: Make) -> None:
    made = pipeline(tools=[Tool(name="send", annotations={"readOnlyHint": True})])
    reading = PolicyRule(effect="allow", annotations={"readOnlyHint": True})
    rules = PolicyConfig(default="deny", rules=(reading,))
    made.policy.publish(compile_policy(rules, frozenset({"s"})))
    before = listed(made)
    assert (await made.run(toolset=before)).kind == "ok"
    made.offer(Tool(name="send", annotations={"readOnlyHint": False}))
    assert (await made.run(toolset=before)).kind == "denied"
    needs = {"type": "object", "required": ["to"]}
    made.offer(Tool(name="send", annotations={"readOnlyHint": True}, input_schema=needs))
    assert (await made.run(toolset=before)).kind == "invalid_arguments"
    made.offer()
    assert (await made.run(toolset=before)).kind == "ok"  # its server is asked, which says what it has
