"""Resources, templates, prompts and completion of many servers: named, listed, governed and kept up to date."""

from __future__ import annotations

import json
import sys
from pathlib import Path
from typing import Any

import pytest

FAKE = Path(__file__).parents[1] / "fakes" / "offering_server.py"
PREFIX = "io.modelcontextprotocol/"
SHAKE = {"protocolVersion": "2025-11-25", "clientInfo": {"name": "test", "version": "0"}, "capabilities": {}}


def offering(name: str, *words: str) -> str:
    return f'[servers.{name}]\ncommand = "{sys.executable}"\nargs = {json.dumps([str(FAKE), *words])}\n'


def names(rpc: Any, method: str, member: str) -> list[str]:
    return [entry["name"] for entry in rpc.result(method)[member]]


def test_everything_is_listed_under_names_that_tell_servers_apart(start: Any) -> None:
    daemon = start(offering("a", "text=of a", "shared"), offering("b", "bare", "shared", "modern"))
    daemon.wait_ready("a", "b")
    rpc = daemon.rpc()
    assert names(rpc, "prompts/list", "prompts") == ["a__greet", "b__greet"]
    # Both list note://today, day://{date} and note://shared: of these none is anybody's.
    assert rpc.result("resources/list")["resources"] == []
    assert rpc.result("resources/templates/list")["resourceTemplates"] == []
    error = rpc.ask("resources/read", {"uri": "note://today"})["error"]
    assert (error["code"], error["data"]["uri"]) == (-32002, "note://today")
    got = rpc.result("prompts/get", {"name": "b__greet", "arguments": {"who": "Ann"}})
    assert got == {"messages": [{"role": "user", "content": {"type": "text", "text": "Hello Ann"}}]}


def test_resources_are_read_under_their_uris_and_templates_make_further_ones(start: Any) -> None:
    daemon = start(offering("a", "text=kept"))
    daemon.wait_ready("a")
    rpc = daemon.rpc()
    (listed,) = rpc.result("resources/list")["resources"]
    assert listed == {
        "uri": "note://today",
        "name": "a__today",
        "description": "A note.",
        "mimeType": "text/plain",
    }
    (template,) = rpc.result("resources/templates/list")["resourceTemplates"]
    assert (template["uriTemplate"], template["name"]) == ("day://{date}", "a__day")
    for uri in ("note://today", "day://2026-11-29"):
        contents = rpc.result("resources/read", {"uri": uri})["contents"]
        assert contents[0]["text"] == f"{uri}: kept"
    assert rpc.ask("resources/read", {"uri": "day:/"})["error"]["code"] == -32002
    for ref in ({"type": "ref/prompt", "name": "a__greet"}, {"type": "ref/resource", "uri": "day://{date}"}):
        params = {"ref": ref, "argument": {"name": "who", "value": "A"}}
        assert rpc.result("completion/complete", params)["completion"]["values"] == [f"{ref['type']}:A!"]
    assert rpc.ask("completion/complete", {"ref": {"type": "x"}, "argument": {}})["error"]["code"] == -32602
    seen = json.loads(rpc.call("a__seen")["content"][0]["text"])
    assert {"type": "ref/prompt", "name": "greet"} in [one["params"].get("ref") for one in seen]


def test_they_go_through_the_policy_the_taint_and_the_audit(start: Any) -> None:
    policy = """
[policy]
default = "allow"
[[policy.rules]]
name = "no days"
effect = "deny"
tools = ["resource:day://*"]
[[policy.rules]]
name = "nothing after notes"
effect = "deny"
tools = ["prompt:*"]
tainted_by = ["a"]
"""
    daemon = start(offering("a"), policy=policy)
    daemon.wait_ready("a")
    rpc, control = daemon.rpc(), daemon.rpc(control=True)
    assert rpc.result("prompts/get", {"name": "a__greet", "arguments": {"who": "B"}})["messages"]
    error = rpc.ask("resources/read", {"uri": "day://monday"})["error"]
    assert (error["code"], error["data"]["rule"]) == (-31001, "no days")
    other = daemon.rpc()
    assert other.result("resources/read", {"uri": "note://today"})["contents"]
    error = other.ask("prompts/get", {"name": "a__greet", "arguments": {"who": "B"}})["error"]
    assert error["data"]["rule"] == "nothing after notes"
    daemon.wait_until(lambda: len(control.result("conduit/audit", {})["rows"]) == 4)
    rows = control.result("conduit/audit", {})["rows"]
    assert [row["tool"] for row in rows] == [
        "prompt:greet",
        "resource:note://today",
        "resource:day://monday",
        "prompt:greet",
    ]


def test_what_a_filter_hides_is_neither_listed_nor_read(start: Any) -> None:
    daemon = start(offering("a") + '[servers.a.tools]\ndeny = ["resource:note://*", "prompt:greet"]\n')
    daemon.wait_ready("a")
    rpc = daemon.rpc()
    assert rpc.result("resources/list")["resources"] == []
    assert rpc.result("prompts/list")["prompts"] == []
    assert len(rpc.result("resources/templates/list")["resourceTemplates"]) == 1
    assert "error" in rpc.ask("resources/read", {"uri": "note://today"})
    assert "error" in rpc.ask("prompts/get", {"name": "a__greet"})


def test_a_confined_host_sees_the_selected_ones_alone(start: Any) -> None:
    daemon = start(offering("a"), '[toolsets.notes]\nservers = ["a"]\ntools = ["resource:note:*"]\n')
    daemon.wait_ready("a")
    rpc = daemon.rpc()
    rpc.result("conduit/use", {"set": "notes"})
    assert names(rpc, "resources/list", "resources") == ["a__today"]
    assert names(rpc, "prompts/list", "prompts") == []
    assert rpc.result("resources/read", {"uri": "note://today"})["contents"]
    assert "error" in rpc.ask("prompts/get", {"name": "a__greet"})
    assert "error" in rpc.ask(
        "completion/complete", {"ref": {"type": "ref/prompt", "name": "a__greet"}, "argument": {}}
    )


def test_changes_are_told_and_a_server_that_is_down_keeps_its_names(start: Any) -> None:
    daemon = start(offering("a"))
    daemon.wait_ready("a")
    rpc = daemon.rpc()
    rpc.result("initialize", SHAKE)
    assert names(rpc, "prompts/list", "prompts") == ["a__greet"]
    rpc.call("a__reveal")
    daemon.wait_until(lambda: names(rpc, "prompts/list", "prompts") == ["a__greet", "a__extra"])
    daemon.wait_until(
        lambda: (
            rpc.result("ping") == {}
            and {note["method"] for note in rpc.notifications}
            >= {"notifications/resources/list_changed", "notifications/prompts/list_changed"}
        )
    )
    assert names(rpc, "resources/list", "resources") == ["a__today", "a__extra"]
    daemon.rpc(control=True).result("conduit/servers/stop", {"server": "a"})
    daemon.wait_until(lambda: daemon.state("a") == "stopped")
    assert names(rpc, "resources/list", "resources") == []
    error = rpc.ask("resources/read", {"uri": "note://today"})["error"]
    assert error["data"]["kind"] == "unavailable"


MODERN = {f"{PREFIX}protocolVersion": "2026-07-28", f"{PREFIX}clientCapabilities": {}}


@pytest.mark.parametrize("words", [(), ("modern",)])
def test_a_host_is_told_of_resources_that_it_subscribed_to(start: Any, words: tuple[str, ...]) -> None:
    daemon = start(offering("a", *words))
    daemon.wait_ready("a")
    older, newer, other = daemon.rpc(), daemon.rpc(), daemon.rpc()
    older.result("initialize", SHAKE)
    daemon.wait_until(lambda: bool(older.result("resources/list")["resources"]))
    assert older.result("resources/subscribe", {"uri": "note://today"}) == {}
    wanted = {"resourceSubscriptions": ["day://x", "nowhere://x"]}
    listening = newer.send("subscriptions/listen", {"notifications": wanted, "_meta": MODERN})
    assert newer.receive()["params"]["notifications"] == {"resourceSubscriptions": ["day://x"]}
    assert "error" in older.ask("resources/subscribe", {"uri": "nowhere://x"})

    def touched() -> list[str]:
        uris: list[str] = json.loads(other.call("a__touch")["content"][0]["text"])
        return uris

    daemon.wait_until(lambda: touched() == ["day://x", "note://today"])
    mark = {"_meta": {f"{PREFIX}subscriptionId": listening}}
    assert newer.receive()["params"] == {"uri": "day://x", **mark}
    told = older.receive()
    while told["method"].endswith("list_changed"):
        told = older.receive()
    assert told["params"] == {"uri": "note://today"}
    assert other.result("ping") == {}
    assert other.notifications == []
    daemon.rpc(control=True).result("conduit/servers/restart", {"server": "a"})
    daemon.wait_until(lambda: daemon.status()["servers"]["a"]["restarts"] == 1 and daemon.state("a") == "ready")
    daemon.wait_until(lambda: touched() == ["day://x", "note://today"])  # the new process is subscribed to again
    assert older.result("resources/unsubscribe", {"uri": "note://today"}) == {}
    daemon.wait_until(lambda: touched() == ["day://x"])


def test_logs_reach_the_host_that_called_from_the_level_on_that_it_set(start: Any) -> None:
    daemon = start(offering("a"))
    daemon.wait_ready("a")
    older, newer, agent = daemon.rpc(), daemon.rpc(), daemon.rpc()
    older.result("initialize", SHAKE)
    older.result("logging/setLevel", {"level": "info"})
    for rpc, meta in ((older, {}), (newer, {**MODERN, f"{PREFIX}logLevel": "debug"}), (agent, {})):
        rpc.result("tools/call", {"name": "a__log", "_meta": meta})
    logs = [note["params"] for note in older.notifications if note["method"] == "notifications/message"]
    assert logs == [{"level": "warning", "data": "warning", "logger": "a"}]
    assert [note["params"]["level"] for note in newer.notifications] == ["debug", "warning"]
    assert agent.notifications == []


@pytest.mark.parametrize("lazy", [True, False])
def test_they_are_known_again_after_a_restart_of_the_daemon(start: Any, lazy: bool) -> None:
    table = offering("a") + ('start = "lazy"\n' if lazy else "")
    first = start(table)
    first.wait_until(lambda: first.state("a") == ("idle" if lazy else "ready"))
    first.wait_until(lambda: names(first.rpc(), "prompts/list", "prompts") == ["a__greet"])
    kept = first.folder / "state" / "listings" / "a.json"
    first.wait_until(lambda: kept.exists() and b"note://today" in kept.read_bytes())
    assert first.stop() == 0
    second = type(first)(first.folder, '[policy]\ndefault = "allow"\n' + table)
    try:
        rpc = second.rpc()
        # A lazy one is listed from what was kept, and not started for that; of another its start is waited for.
        assert names(rpc, "resources/list", "resources") == ["a__today"]
        assert names(rpc, "prompts/list", "prompts") == ["a__greet"]
        assert second.state("a") == ("idle" if lazy else "ready")
        assert rpc.result("resources/read", {"uri": "day://x"})["contents"]
        assert second.state("a") == "ready"
        rpc.close()
    finally:
        assert second.stop() == 0
