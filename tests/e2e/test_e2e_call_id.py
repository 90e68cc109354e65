"""One id of a call, from the answer through the events, the log, the audit, the approval and the hooks to the span."""

from __future__ import annotations

import json
from typing import Any

import pytest

HOOKS = """
def before(call):
    print("HOOK", call.id, flush=True)
"""


def next_notification(rpc: Any) -> dict[str, Any]:
    message: dict[str, Any] = rpc.notifications.pop(0) if rpc.notifications else rpc.receive()
    found: dict[str, Any] = message["params"]
    return found


def test_one_id_leads_through_everything_that_is_said_of_a_call(
    start: Any, fake_server: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("OTEL_TRACES_EXPORTER", "console")
    rule = '[policy]\ndefault = "allow"\n[[policy.rules]]\neffect = "approve"\ntools = ["fail"]\n'
    daemon = start(fake_server("s"), policy=rule)
    daemon.wait_ready("s")
    (daemon.folder / "watched_hooks.py").write_text(HOOKS)
    daemon.config.write_text(daemon.config.read_text() + '\n[hooks]\nbefore_call = ["watched_hooks:before"]\n')
    control, agent, watcher, events = (daemon.rpc(control=True) for _ in range(4))
    control.result("conduit/reload")
    watcher.send("conduit/approvals", {"watch": True})
    events.send("conduit/events", {"types": ["approval.*", "call.*"]})
    for connection in (watcher, events):
        for _ in range(2):  # after the second answer whatever was asked before is under way
            connection.result("ping")
    running = agent.send("conduit/call", {"name": "s__fail", "arguments": {"kind": "error"}})
    asked = next_notification(watcher)["approval"]
    control.result("conduit/approvals/decide", {"id": asked["id"], "decision": "approve"})
    answer = agent.wait(running)
    call = answer["error"]["data"]["call"]
    assert answer["error"]["data"]["kind"] == "server_error"

    told = [next_notification(events) for _ in range(3)]
    assert [event["type"] for event in told] == ["approval.requested", "approval.decided", "call.finished"]
    (row,) = control.result("conduit/audit", {"tool": "fail"})["rows"]
    assert {call} == {asked["call"], row["call"], *(event["call"] for event in told)}
    daemon.wait_until(lambda: daemon.events().count("call.finished") == 1)
    logged = {line["event"] for line in daemon.log() if line.get("call") == call}
    assert logged >= {"approval.requested", "approval.decided", "call.finished"}
    assert daemon.stop() == 0
    said = daemon.log_path.read_text()
    assert f"HOOK {call}" in said
    assert f'"conduit.call": "{call}"' in said, "the span has it"


def test_a_host_finds_the_id_in_the_result_that_tells_of_a_failure(start: Any, fake_server: Any) -> None:
    daemon = start(fake_server("s"))
    daemon.wait_ready("s")
    rpc, control = daemon.rpc(), daemon.rpc(control=True)
    failed = rpc.call("s__add", {"a": "one"})
    assert failed["isError"] is True
    unknown = rpc.ask("tools/call", {"name": "s__nothing"})["error"]["data"]
    rows = control.result("conduit/audit")["rows"]
    assert [row["call"] for row in rows] == [unknown["call"], failed["_meta"]["conduit"]["call"]]
    assert len({row["call"] for row in rows}) == 2
    assert "call" not in json.dumps(rpc.call("s__echo", {"text": "x"})), "a server's result is passed as it is"
