"""A changed file: only what it changes is touched, and a bad one touches nothing."""

from __future__ import annotations

import signal
import time
from typing import Any

import psutil


def rewrite(daemon: Any, *tables: str, policy: str = '[policy]\ndefault = "allow"\n') -> None:
    head = daemon.config.read_text().split("[policy]")[0]
    daemon.config.write_text(head + "\n".join([policy, *tables]))


def test_only_changed_servers_restart_and_the_rest_applies_at_once(start: Any, fake_server: Any) -> None:
    daemon = start(fake_server("kept"), fake_server("changed"), fake_server("gone"))
    daemon.wait_ready("kept", "changed", "gone")
    rpc, control = daemon.rpc(), daemon.rpc(control=True)
    before = {server: daemon.pid(server) for server in ("kept", "changed")}
    running = rpc.send("conduit/call", {"name": "changed__sleep", "arguments": {"seconds": 0.6}})
    time.sleep(0.1)
    policy = '[policy]\ndefault = "allow"\n[[policy.rules]]\neffect = "deny"\ntools = ["echo"]\nservers = ["kept"]\n'
    filters = fake_server("kept"), fake_server("changed", "tools=2"), fake_server("new")
    rewrite(daemon, *filters, policy=policy)
    assert control.result("conduit/reload") == {
        "added": ["new"],
        "removed": ["gone"],
        "changed": ["changed"],
        "unchanged": ["kept"],
    }
    denied = rpc.ask("conduit/call", {"name": "kept__echo", "arguments": {"text": "x"}})["error"]
    assert denied["data"]["kind"] == "denied"
    assert rpc.wait(running)["result"]["content"][0]["text"] == "slept"
    daemon.wait_until(lambda: daemon.status()["servers"].keys() == {"kept", "changed", "new"})
    daemon.wait_ready("kept", "changed", "new")
    daemon.wait_until(lambda: daemon.pid("changed") != before["changed"])
    daemon.wait_ready("changed")
    assert daemon.pid("kept") == before["kept"]
    names = {tool["name"] for tool in rpc.result("tools/list")["tools"]}
    assert "changed__tool_1" in names
    assert not any(name.startswith("gone__") for name in names)
    assert rpc.call("new__echo", {"text": "x"})["content"][0]["text"] == "x"
    unknown = rpc.ask("tools/call", {"name": "gone__echo", "arguments": {"text": "x"}})["error"]
    assert unknown["data"]["kind"] == "unknown_tool"


def test_a_signal_reloads_and_a_bad_file_changes_nothing(start: Any, fake_server: Any) -> None:
    daemon = start(fake_server("a"))
    daemon.wait_ready("a")
    rpc, control = daemon.rpc(), daemon.rpc(control=True)
    pid = daemon.pid("a")
    rewrite(daemon, fake_server("a"), "[servers.b]\ncomand = 'x'\n")
    error = control.ask("conduit/reload")["error"]
    assert (error["code"], error["data"]["kind"]) == (-31013, "invalid_config")
    assert any(problem["key"] == "servers.b.comand" for problem in error["data"]["problems"])
    daemon.process.send_signal(signal.SIGHUP)
    daemon.wait_until(lambda: daemon.events().count("config.rejected") == 2)
    assert rpc.call("a__echo", {"text": "x"})["content"][0]["text"] == "x"
    assert daemon.pid("a") == pid
    rewrite(daemon, fake_server("a"), fake_server("b"))
    daemon.process.send_signal(signal.SIGHUP)
    daemon.wait_until(lambda: "config.reloaded" in daemon.events())
    daemon.wait_ready("a", "b")
    assert daemon.pid("a") == pid
    assert daemon.stop() == 0


def test_many_reloads_in_a_row_end_as_the_last_one_says(start: Any, fake_server: Any) -> None:
    daemon = start(fake_server("a"))
    control = daemon.rpc(control=True)
    for i in range(8):
        servers = [fake_server("a", f"tools={i}")] if i % 3 else [fake_server("b", f"tools={i}")]
        rewrite(daemon, *servers, fake_server("c"))
        control.result("conduit/reload")
    daemon.wait_until(lambda: daemon.status()["servers"].keys() == {"a", "c"})
    daemon.wait_ready("a", "c", seconds=30)
    daemon.wait_until(lambda: daemon.status()["servers"]["a"]["tools"] == 9 + 7, 20)
    process = psutil.Process(daemon.process.pid)
    daemon.wait_until(lambda: len(process.children()) == 3, 20)  # two servers and the guardian
    assert daemon.stop() == 0


def test_limits_and_filters_apply_without_a_restart(start: Any, fake_server: Any) -> None:
    daemon = start("[limits]\ncall_timeout = 60\n", fake_server("a"))
    daemon.wait_ready("a")
    rpc, control = daemon.rpc(), daemon.rpc(control=True)
    pid = daemon.pid("a")
    rewrite(daemon, "[limits]\ncall_timeout = 0.3\nmax_result = 5000\n", fake_server("a"))
    assert control.result("conduit/reload")["unchanged"] == ["a"]
    slow = rpc.ask("conduit/call", {"name": "a__sleep", "arguments": {"seconds": 20}})["error"]
    assert slow["data"]["kind"] == "timeout"
    large = rpc.ask("conduit/call", {"name": "a__big", "arguments": {"size": 9000}})["error"]
    assert large["data"]["kind"] == "too_large"
    assert daemon.pid("a") == pid
