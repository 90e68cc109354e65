"""What runs at the moment, one by one: whose call, of what, since when, and what it waits for."""

from __future__ import annotations

import sys
import time
from pathlib import Path
from typing import Any

OFFERING = Path(__file__).parents[1] / "fakes" / "offering_server.py"

POLICY = """
[policy]
default = "allow"
[[policy.rules]]
effect = "approve"
tools = ["add"]
"""


def running(control: Any, **params: Any) -> dict[str, dict[str, Any]]:
    """The calls that run, by server and tool."""
    found = control.result("conduit/running", params)["running"]
    return {f"{call.get('server')}/{call.get('tool')}": call for call in found}


def test_each_running_call_is_told_with_where_it_is(start: Any, fake_server: Any) -> None:
    daemon = start(
        fake_server("s", max_in_flight="1"),
        fake_server("t", rate="{ calls = 1, per = 60 }"),
        policy=POLICY,
    )
    daemon.wait_ready("s", "t")
    agent, control, watcher = daemon.rpc(), daemon.rpc(control=True), daemon.rpc(control=True)
    watcher.send("conduit/approvals", {"watch": True})
    assert control.result("conduit/running") == {"running": [], "total": 0}
    before = time.time()
    agent.send("tools/call", {"name": "s__sleep", "arguments": {"seconds": 30}})
    daemon.wait_until(lambda: len(running(control)) == 1)
    agent.send("tools/call", {"name": "s__echo", "arguments": {"text": "x"}})
    agent.send("conduit/call", {"name": "t__add", "arguments": {"a": 1, "b": 2}, "principal": "researcher"})
    agent.result("tools/call", {"name": "t__echo", "arguments": {"text": "x"}})
    agent.send("tools/call", {"name": "t__echo", "arguments": {"text": "x"}})
    daemon.wait_until(lambda: len(running(control)) == 4)
    found = running(control)
    phases = {name: call["phase"] for name, call in found.items()}
    assert phases == {"s/sleep": "server", "s/echo": "slot", "t/add": "approval", "t/echo": "rate"}
    assert next(iter(found)) == "s/sleep"  # the oldest first
    assert all(before - 0.01 <= call["since"] <= time.time() + 0.01 for call in found.values())
    assert found["t/add"]["principal"].endswith("/researcher")
    assert found["t/add"]["name"] == "t__add"
    logged = {call["id"] for call in found.values()}
    assert len(logged) == 4
    assert not any("arguments" in call for call in found.values())
    assert set(running(control, server="s")) == {"s/sleep", "s/echo"}
    assert control.result("conduit/running", {"limit": 1})["total"] == 4
    assert len(control.result("conduit/running", {"limit": 1})["running"]) == 1
    told = control.result("conduit/servers/explain", {"server": "s"})
    assert [call["tool"] for call in told["running"]] == ["sleep", "echo"]
    assert agent.ask("conduit/running")["error"]["data"]["kind"] == "forbidden"
    agent.close()
    daemon.wait_until(lambda: running(control) == {})


def test_a_call_that_starts_its_server_waits_for_that(start: Any, fake_server: Any) -> None:
    daemon = start(fake_server("lazy", start='"lazy"'))
    daemon.wait_until(lambda: daemon.state("lazy") == "idle")
    control = daemon.rpc(control=True)
    agent = daemon.rpc()
    agent.send("tools/call", {"name": "lazy__sleep", "arguments": {"seconds": 30}})
    phases: list[str] = []
    daemon.wait_until(
        lambda: (
            phases.extend(call["phase"] for call in running(control).values() if call["phase"] not in phases)
            or "server" in phases
        )
    )
    assert phases == ["start", "server"]


def test_a_long_name_is_shown_short(start: Any) -> None:
    table = f'[servers.o]\ncommand = "{sys.executable}"\nargs = ["{OFFERING}", "slow_read"]\n'
    daemon = start(table)
    daemon.wait_ready("o")
    agent, control = daemon.rpc(), daemon.rpc(control=True)
    daemon.wait_until(lambda: bool(agent.result("resources/templates/list")["resourceTemplates"]))
    agent.send("resources/read", {"uri": "day://" + "x" * 8000})
    daemon.wait_until(lambda: len(running(control)) == 1)
    (call,) = running(control).values()
    assert call["tool"] == "resource:day://" + "x" * 241 + "…"
