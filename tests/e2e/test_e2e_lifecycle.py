"""Lazy servers, servers of a connection's own, and what a restarted daemon still knows."""

from __future__ import annotations

import os
import signal
import time
from pathlib import Path
from typing import Any

import pytest


def text(result: dict[str, Any]) -> str:
    found: str = result["content"][0]["text"]
    return found


def alive(pid: int) -> bool:
    try:
        return Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0] != "Z"
    except (FileNotFoundError, ProcessLookupError):
        return False


def again(start: Any, daemon: Any, *tables: str) -> Any:
    """Another daemon in the same folder, with its state."""
    return type(daemon)(daemon.folder, '[policy]\ndefault = "allow"\n' + "\n".join(tables))


def test_a_lazy_server_is_listed_from_what_was_kept_and_started_by_a_call(start: Any, fake_server: Any) -> None:
    table = fake_server("a", start='"lazy"', idle_timeout="0.5")
    daemon = start(table)
    daemon.wait_until(lambda: daemon.state("a") == "idle")
    rpc = daemon.rpc()
    assert len(rpc.result("conduit/tools", {"timeout": 0})["tools"]) == 9
    assert daemon.status()["health"] == "ok"
    assert daemon.stop() == 0
    second = again(start, daemon, table)
    try:
        assert second.state("a") == "idle"
        rpc = second.rpc()
        listing = rpc.result("conduit/tools", {"timeout": 0})
        assert len(listing["tools"]) == 9
        assert listing["missing"] == []
        assert second.pid("a") == 0
        assert rpc.call("a__echo", {"text": "woken"})["content"][0]["text"] == "woken"
        assert second.state("a") == "ready"
        second.wait_until(lambda: second.state("a") == "idle", 5)
        rpc.result("ping")
        assert "hub.toolset_changed" not in [
            line["event"] for line in second.log() if line.get("removed")
        ]  # its tools were offered all the time
    finally:
        assert second.stop() == 0


def test_names_of_a_server_that_does_not_come_up_are_known_after_a_restart_of_the_daemon(
    start: Any, fake_server: Any
) -> None:
    daemon = start(fake_server("a"))
    daemon.wait_ready("a")
    assert daemon.stop() == 0
    second = again(start, daemon, fake_server("a", env='{ FAKE_BEHAVIOURS = "hang" }', connect_timeout="0.5"))
    try:
        rpc = second.rpc()
        assert rpc.result("conduit/tools", {"timeout": 0})["tools"] == []
        began = time.monotonic()
        error = rpc.ask("conduit/call", {"name": "a__echo", "arguments": {"text": "x"}})["error"]
        assert time.monotonic() - began < 0.3
        assert (error["data"]["kind"], error["data"]["outcome"]) == ("unavailable", "not_sent")
        assert error["data"]["retry_after"] >= 0
        assert rpc.ask("conduit/call", {"name": "a__nothing"})["error"]["data"]["kind"] == "unknown_tool"
    finally:
        assert second.stop() == 0


def test_each_connection_has_a_server_of_its_own_that_ends_with_it(start: Any, fake_server: Any) -> None:
    daemon = start(fake_server("a", scope='"connection"', max_instances="2"))
    daemon.wait_until(lambda: daemon.state("a") == "idle")
    first, second, third = daemon.rpc(), daemon.rpc(), daemon.rpc()
    assert len(first.result("conduit/tools")["tools"]) == 9
    one, two = text(first.call("a__pid")), text(second.call("a__pid"))
    assert one != two
    assert (text(first.call("a__pid")), text(second.call("a__pid"))) == (one, two)
    assert daemon.status()["servers"]["a"]["instances"] == 2
    refused = third.ask("conduit/call", {"name": "a__pid"})["error"]
    assert (refused["data"]["kind"], refused["data"]["outcome"]) == ("unavailable", "not_sent")
    assert "max_instances" in refused["message"]
    first.close()
    daemon.wait_until(lambda: not alive(int(one)), 5)
    daemon.wait_until(lambda: daemon.status()["servers"]["a"]["instances"] == 1)
    assert text(second.call("a__pid")) == two
    assert text(third.call("a__pid")) not in (one, two)
    os.kill(int(two), signal.SIGKILL)
    daemon.wait_until(lambda: "client.down" in daemon.events())
    until = time.monotonic() + 5
    while "error" in (answer := second.ask("conduit/call", {"name": "a__pid"})):
        assert time.monotonic() < until
        time.sleep(0.05)
    assert text(answer["result"]) not in (one, two)
    assert daemon.stop() == 0
    assert not any(alive(int(pid)) for pid in (one, two))


@pytest.mark.parametrize("order", ["stop", "restart"])
def test_orders_to_a_server_reach_each_connections_own(start: Any, fake_server: Any, order: str) -> None:
    daemon = start(fake_server("a", scope='"connection"'))
    daemon.wait_until(lambda: daemon.state("a") == "idle")
    rpc, control = daemon.rpc(), daemon.rpc(control=True)
    pid = text(rpc.call("a__pid"))
    control.result(f"conduit/servers/{order}", {"server": "a"})
    daemon.wait_until(lambda: not alive(int(pid)), 5)
    if order == "stop":
        assert rpc.ask("conduit/call", {"name": "a__pid"})["error"]["data"]["kind"] == "unavailable"
        control.result("conduit/servers/start", {"server": "a"})
        daemon.wait_until(lambda: daemon.state("a") in ("idle", "ready"))
    assert text(rpc.call("a__pid")) != pid


def test_a_changed_table_gives_a_connection_another_server_of_its_own(start: Any, fake_server: Any) -> None:
    daemon = start(fake_server("a", scope='"connection"'))
    daemon.wait_until(lambda: daemon.state("a") == "idle")
    rpc, control = daemon.rpc(), daemon.rpc(control=True)
    pid = text(rpc.call("a__pid"))
    daemon.config.write_text(daemon.config.read_text().replace("scope =", "call_timeout = 50\nscope ="))
    control.result("conduit/reload")
    daemon.wait_until(lambda: not alive(int(pid)), 10)
    daemon.wait_until(lambda: daemon.state("a") == "idle")
    assert text(rpc.call("a__pid")) != pid
    assert daemon.status()["servers"]["a"]["instances"] == 1


def test_servers_of_connections_that_come_and_go_leave_nothing(start: Any, fake_server: Any) -> None:
    daemon = start(fake_server("a", scope='"connection"', max_instances="4"))
    daemon.wait_until(lambda: daemon.state("a") == "idle")
    daemon.rpc().call("a__echo", {"text": "the first warms up"})
    daemon.connections.pop().close()
    daemon.wait_until(lambda: daemon.status()["servers"]["a"]["instances"] == 0)
    descriptors = len(os.listdir(f"/proc/{daemon.process.pid}/fd"))
    pids = []
    for _ in range(5):
        rpcs = [daemon.rpc() for _ in range(4)]
        pids += [int(text(rpc.call("a__pid"))) for rpc in rpcs]
        for rpc in rpcs:
            rpc.close()
        daemon.wait_until(lambda: daemon.status()["servers"]["a"]["instances"] == 0, 10)
    assert len(set(pids)) == 20
    assert not any(map(alive, pids))
    daemon.wait_until(lambda: len(os.listdir(f"/proc/{daemon.process.pid}/fd")) <= descriptors, 5)
