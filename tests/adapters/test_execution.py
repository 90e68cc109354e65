"""The agent's side inside the daemon's process: a real hub and real servers, listed and called as a library."""

from __future__ import annotations

import json
import os
import sys
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import pytest
import trio
from in_process import NoWarden

import supervisors
from conduit_daemon import adapters
from conduit_daemon.clients.actor import Client, new_port, new_timeline
from conduit_daemon.clients.connection import Settings
from conduit_daemon.config import Config, PolicyConfig, PolicyRule, ServerConfig, ToolFilter, ToolsetConfig
from conduit_daemon.errors import ClientError, StrictSchemaError
from conduit_daemon.hub.actor import Hub
from conduit_daemon.hub.catalogue import Catalogue
from conduit_daemon.hub.toolset import ToolSet
from conduit_daemon.messages import ClientChanged
from conduit_daemon.model import ToolCall
from conduit_daemon.pipeline.gate import Gate
from conduit_daemon.pipeline.policy import compile_policy
from conduit_daemon.published import Published
from conduit_daemon.telemetry.events import Event, EventBus
from supervisors import ChildSpec

FAKE = Path(__file__).parents[1] / "fakes" / "stdio_server.py"


@asynccontextmanager
async def hub(*, rules: tuple[PolicyRule, ...] = (), **servers: ServerConfig) -> AsyncIterator[list[Event]]:
    """A supervised hub and clients, as the daemon has them, registered under their names."""
    config = Config(servers=servers, policy=PolicyConfig(default="allow", rules=rules))
    bus, events = EventBus(), []
    bus.attach(events.append)
    catalogue, announced = Published(Catalogue()), Published(ToolSet())
    gate = Gate(
        catalogue=catalogue,
        policy=Published(compile_policy(config.policy)),
        ports={server: new_port(server) for server in servers},
        limits=config.limits,
        bus=bus,
    )
    children = [
        ChildSpec(id="timers", start=lambda: gate.deadlines.run),
        ChildSpec(id="hub", start=lambda: Hub(Published(config), gate.ports, catalogue, announced, gate, bus)),
    ]
    for server, wanted in servers.items():
        gate.configure_server(server, wanted)
        settings = Settings(
            server=server, config=wanted, limits=Published(config.limits), version="0", environ=os.environ, clean=str
        )

        def start(settings: Settings = settings, server: str = server) -> Client:
            return Client(
                settings,
                gate.ports[server],
                NoWarden(),
                bus,
                new_timeline(),
                lambda changed: supervisors.send("hub", ClientChanged(changed)),
            )

        children.append(ChildSpec(id=server, start=start, shutdown=10.0))
    async with supervisors.open_supervisor(children, strategy="one_for_one"):
        yield events


def fake(*behaviours: str, **keys: Any) -> ServerConfig:
    return ServerConfig(command=sys.executable, args=(str(FAKE), *behaviours), **keys)


def blocks(*calls: tuple[str, str, Any]) -> list[dict[str, Any]]:
    return [{"type": "tool_use", "id": i, "name": name, "input": arguments} for i, name, arguments in calls]


async def test_a_hub_lists_and_runs_by_its_name() -> None:
    async with hub(a=fake(), b=fake()):
        listing = await adapters.tools("hub", "anthropic")
        assert {"a__echo", "b__echo"} <= {tool["name"] for tool in listing.tools}
        done = await adapters.execute_tool_calls(
            "hub",
            "anthropic",
            blocks(
                ("1", "a__sleep", {"seconds": 0.2}),
                ("2", "b__echo", {"text": "hi"}),
                ("3", "c__echo", {}),
                ("4", "a__add", {"a": "x", "b": 1}),
                ("5", "a__echo", "no object"),
            ),
            toolset=listing.toolset,
            taint=["earlier"],
        )
        assert done.status == "ok"
        assert [result["tool_use_id"] for result in done.results] == ["1", "2", "3", "4", "5"]
        assert [result.get("is_error", False) for result in done.results] == [False, False, True, True, True]
        assert [report.kind for report in done.outcomes] == [
            "ok",
            "ok",
            "unknown_tool",
            "invalid_arguments",
            "invalid_arguments",
        ]
        assert done.taint == ("a", "b", "earlier")


async def test_one_client_by_its_name_has_its_tools_own_names() -> None:
    async with hub(a=fake(), b=fake()):
        toolset = await adapters.toolset("client:a")
        assert "echo" in toolset
        assert (await adapters.toolset("client:a", prefix="my_")).resolve("my_echo") is not None
        done = await adapters.execute_tool_calls(
            "client:a", "anthropic", blocks(("1", "echo", {"text": "x"})), toolset=toolset
        )
        assert done.results[0]["content"] == "x"
        assert (
            await adapters.execute_tool_calls("client:a", "anthropic", blocks(("1", "echo", {"text": "y"})))
        ).results[0]["content"] == "y"
        with pytest.raises(ClientError) as raised:
            await adapters.toolset("client:none")
        assert raised.value.kind == "invalid_params"


async def test_calls_already_parsed_are_run_as_they_are() -> None:
    async with hub(a=fake()):
        toolset = await adapters.toolset("hub")
        calls = [ToolCall("1", "a", "echo", "a__echo", {"text": "x"})]
        done = await adapters.execute_tool_calls("hub", "openai", calls, toolset=toolset.id, api="chat")
        assert done.results == [{"role": "tool", "tool_call_id": "1", "content": "x"}]


async def test_a_call_over_its_time_is_cancelled_at_the_server_and_the_others_go_on() -> None:
    async with hub(a=fake()):
        calls = blocks(("1", "a__sleep", {"seconds": 30}), ("2", "a__echo", {"text": "x"}))
        await adapters.toolset("hub")
        done = await adapters.execute_tool_calls("hub", "anthropic", calls, call_timeout=0.3)
        assert [report.kind for report in done.outcomes] == ["timeout", "ok"]
        assert done.outcomes[0].outcome == "outcome_unknown"
        received = await adapters.execute_tool_calls("hub", "anthropic", blocks(("1", "a__received", {})))
        assert len(json.loads(received.results[0]["content"])) == 1


async def test_no_more_calls_run_at_a_time_than_asked_for() -> None:
    async with hub(a=fake()):
        await adapters.toolset("hub")
        calls = blocks(*((str(i), "a__sleep", {"seconds": 0.1}) for i in range(4)))
        began = trio.current_time()
        await adapters.execute_tool_calls("hub", "anthropic", calls, max_concurrency=1)
        one_by_one = trio.current_time() - began
        began = trio.current_time()
        await adapters.execute_tool_calls("hub", "anthropic", calls, max_concurrency=4)
        assert one_by_one >= 0.4 > trio.current_time() - began


async def test_a_denied_call_is_an_answer_and_the_rule_is_named() -> None:
    rules = (PolicyRule(effect="deny", tools=("echo",), name="no echo", reason="echoes are loud"),)
    async with hub(a=fake(), rules=rules):
        await adapters.toolset("hub")
        done = await adapters.execute_tool_calls("hub", "anthropic", blocks(("1", "a__echo", {"text": "x"})))
        assert done.outcomes[0].kind == "denied"
        assert done.results[0]["is_error"] is True
        assert "no echo" in done.results[0]["content"]
        assert "echoes are loud" in done.results[0]["content"]
        assert done.taint == ()


async def test_a_servers_own_error_taints_as_its_results_do() -> None:
    async with hub(a=fake()):
        await adapters.toolset("hub")
        done = await adapters.execute_tool_calls("hub", "anthropic", blocks(("1", "a__fail", {"kind": "error"})))
        assert done.outcomes[0].kind == "server_error"
        assert done.taint == ("a",)


async def test_results_are_shaped_for_a_model_unless_asked_otherwise() -> None:
    async with hub(a=fake()):
        await adapters.toolset("hub")
        calls = blocks(("1", "a__big", {"size": 200_000}))
        shaped = await adapters.execute_tool_calls("hub", "anthropic", calls)
        assert len(shaped.results[0]["content"]) < 60_000
        assert "bytes omitted" in shaped.results[0]["content"]
        whole = await adapters.execute_tool_calls("hub", "anthropic", calls, shape=None)
        assert len(whole.results[0]["content"]) == 200_000


async def test_strict_nulls_are_taken_out_without_being_told_the_paths() -> None:
    async with hub(a=fake()):
        listing = await adapters.tools("hub", "openai", api="chat")
        assert listing.fallbacks == {}
        assert all(tool["function"]["strict"] for tool in listing.tools)
        with pytest.raises(ClientError):
            await adapters.tools("hub", "openai")


async def test_filtered_tools_are_neither_offered_nor_callable() -> None:
    async with hub(a=fake("tools=1", tools=ToolFilter(allow=("tool_*",)))):
        toolset = await adapters.toolset("hub")
        assert [entry.exposed for entry in toolset] == ["a__tool_0"]
        done = await adapters.execute_tool_calls("hub", "anthropic", blocks(("1", "a__echo", {"text": "x"})))
        assert done.outcomes[0].kind == "unknown_tool"


async def test_an_old_toolset_and_a_foreign_response_are_refused() -> None:
    async with hub(a=fake()):
        for given, toolset, kind in (([], "0" * 32, "unknown_toolset"), (5, None, "invalid_params")):
            with pytest.raises(ClientError) as raised:
                await adapters.execute_tool_calls("hub", "anthropic", given, toolset=toolset)
            assert raised.value.kind == kind


async def test_a_tool_that_has_no_strict_form_is_an_error_where_strict_was_insisted_on() -> None:
    async with hub(a=fake("free_form")):
        with pytest.raises(StrictSchemaError):
            await adapters.tools("hub", "openai", api="chat", strict=True)
        listing = await adapters.tools("hub", "openai", api="chat")
        assert listing.fallbacks == {"a__free": "free_form_object"}


async def test_the_hub_starts_again_from_its_servers() -> None:
    async with hub(a=fake()) as events:
        before = await adapters.toolset("hub")
        ref = supervisors.whereis("hub")
        assert ref is not None
        supervisors.exit(ref, supervisors.Killed())
        with trio.fail_after(5):
            while supervisors.whereis("hub") in (None, ref):
                await trio.sleep(0.01)
        assert (await adapters.toolset("hub")).id == before.id
        await trio.sleep(0.2)
        announced = [event.fields for event in events if event.type == "hub.toolset_changed"]
        assert len(announced) == 1
        assert announced[0]["added"] == len(before)


async def test_a_server_that_goes_and_comes_is_announced_once_each_way() -> None:
    async with hub(a=fake(), b=fake()) as events:
        await adapters.toolset("hub")
        await trio.sleep(0.3)
        done = await adapters.execute_tool_calls("hub", "anthropic", blocks(("1", "a__die", {"how": "1"})))
        assert done.outcomes[0].kind == "unavailable"
        assert not any(entry.server_id == "a" for entry in (await adapters.toolset("hub", timeout=0)))
        with trio.fail_after(5):
            while "a__echo" not in await adapters.toolset("hub"):
                await trio.sleep(0.02)
        await trio.sleep(0.3)
        changes = [(e.fields["added"], e.fields["removed"]) for e in events if e.type == "hub.toolset_changed"]
        assert changes[-2:] == [(0, 9), (9, 0)]


async def test_more_tools_than_openai_takes_are_said_and_a_named_set_narrows_them() -> None:
    async with hub(a=fake("tools=130")):
        listing = await adapters.tools("hub", "openai", api="chat")
        assert len(listing.tools) == 139
        (warning,) = listing.warnings
        assert "at most 128" in warning
        assert "set = NAME" in warning
        named = adapters.choose(listing.toolset, named=ToolsetConfig(tools=("tool_1*",)))
        assert {entry.exposed for entry in named} >= {"a__tool_1", "a__tool_129"}
        assert len(named) == 41
        assert adapters.render(named, adapters.ListingOptions(provider="openai", api="chat")).warnings == ()
