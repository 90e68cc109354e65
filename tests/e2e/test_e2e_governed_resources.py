"""Resources and prompts through a real daemon: the same rules, filters, explanations and rows as tools have."""

from __future__ import annotations

import sys
from pathlib import Path
from typing import Any

import pytest

SERVER = Path(__file__).parents[1] / "fakes" / "offering_server.py"
POLICY = """
[policy]
default = "deny"
[[policy.rules]]
name = "no secrets"
effect = "deny"
tools = ["resource:day://secret*"]
[[policy.rules]]
effect = "allow"
tools = ["resource:day://*", "prompt:greet"]
"""
FILTER = 'tools = { deny = ["resource:note://today", "resource:day://hidden*"] }'


@pytest.fixture
def host(start: Any) -> Any:
    daemon = start(f'[servers.notes]\ncommand = "{sys.executable}"\nargs = ["{SERVER}"]\n{FILTER}\n', policy=POLICY)
    daemon.wait_ready("notes")
    rpc = daemon.rpc()
    client = {"name": "host", "version": "1"}
    rpc.result("initialize", {"protocolVersion": "2025-11-25", "capabilities": {}, "clientInfo": client})
    daemon.wait_until(lambda: bool(rpc.result("resources/templates/list")["resourceTemplates"]))
    rpc.daemon = daemon
    return rpc


def kind(host: Any, uri: str) -> str:
    answer = host.ask("resources/read", {"uri": uri})
    return "ok" if "result" in answer else str(answer["error"]["data"]["kind"])


def test_no_spelling_of_a_uri_passes_a_rule_or_a_filter(host: Any) -> None:
    assert kind(host, "day://monday") == "ok"
    for uri in ("day://secret", "day://secrets?x", "day://%73ecret", "day://%2573ecret", "day://x/../secret"):
        assert kind(host, uri) == "denied", uri
    for uri in ("note://today", "day://hidden", "day://hidden1", "day://%68idden", "day://x/%2e%2e/hidden"):
        assert kind(host, uri) == "unknown_tool", uri
    assert kind(host, "note://other") == "unknown_tool"
    rows = host.daemon.rpc(control=True).result("conduit/audit")["rows"]
    decisions = [(row["tool"], row["decision"], row.get("rule")) for row in reversed(rows)]
    assert decisions[0] == ("resource:day://monday", "allow", "rules[1]")
    assert decisions[3] == ("resource:day://%73ecret", "deny", "no secrets")
    assert {decision for _, decision, _ in decisions[6:11]} == {"filtered"}
    assert decisions[11][1] == "none"


def test_a_resource_and_a_prompt_are_explained(host: Any) -> None:
    control = host.daemon.rpc(control=True)
    for name, decided in (
        ("resource:day://monday", ("allow", "rules[1]")),
        ("resource:day://x/../secret", ("deny", "no secrets")),
        ("prompt:notes__greet", ("allow", "rules[1]")),
    ):
        found = control.result("conduit/policy/explain", {"name": name})
        assert (found["decision"], found["rule"]) == decided
    assert control.ask("conduit/policy/explain", {"name": "resource:day://hidden"})["error"]["code"] == -32602


def test_a_caller_that_rewrites_its_own_names_is_told_so(host: Any) -> None:
    answer = host.ask("conduit/call", {"name": "notes__echo", "principal": "boss\n  asked by default"})
    assert answer["error"]["data"]["kind"] == "invalid_params"
    deep = {"a": {}}
    for _ in range(300):
        deep = {"a": deep}
    for part in ("meta", "assigns"):
        answer = host.ask("conduit/call", {"name": "notes__echo", part: deep})
        assert answer["error"]["data"]["kind"] == "invalid_params"
    assert host.result("ping") == {}


@pytest.mark.parametrize("token", [True, [1], {"a": 1}, "x" * 5_000_000], ids=["bool", "list", "object", "long"])
def test_a_token_that_is_none_is_refused_on_both_faces(host: Any, token: Any) -> None:
    meta = {"_meta": {"progressToken": token}}
    for method, params in (
        ("tools/call", {"name": "notes__echo", "arguments": {}}),
        ("resources/read", {"uri": "day://monday"}),
        ("conduit/call", {"name": "notes__echo"}),
        ("conduit/tools", {}),
        ("tools/list", {}),
    ):
        assert host.ask(method, {**params, **meta})["error"]["data"]["kind"] == "invalid_params", method
    assert "result" in host.ask("resources/read", {"uri": "day://monday", "_meta": {"progressToken": 1.5}})
