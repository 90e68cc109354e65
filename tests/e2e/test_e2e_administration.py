"""What an administrator changes while the daemon runs, and who may not."""

from __future__ import annotations

import re
import sys
import time
from pathlib import Path
from typing import Any

RPC = Path(__file__).parents[2] / "conduit_daemon" / "rpc"
README = Path(__file__).parents[2] / "README.md"
FAKE = str(Path(__file__).parents[1] / "fakes" / "stdio_server.py")


def test_a_server_is_added_called_and_removed(start: Any, fake_server: Any) -> None:
    daemon = start(fake_server("a"))
    daemon.wait_ready("a")
    control, host = daemon.rpc(control=True), daemon.rpc()
    table = {"command": sys.executable, "args": [FAKE]}
    added = control.result("conduit/servers/add", {"server": "b", "config": table})
    assert added["state"] in {"connecting", "ready"}
    assert added["transport"] == "stdio"
    daemon.wait_ready("b")
    daemon.wait_until(lambda: any(t["name"] == "b__echo" for t in host.result("tools/list")["tools"]))
    assert host.call("b__echo", {"text": "new"})["content"][0]["text"] == "new"
    pid = daemon.pid("b")
    assert "already" in control.ask("conduit/servers/add", {"server": "b", "config": table})["error"]["message"]
    assert control.result("conduit/servers/remove", {"server": "b"})["state"] == "stopped"
    daemon.wait_until(lambda: "b" not in daemon.status()["servers"] and not Path(f"/proc/{pid}").exists())
    assert host.ask("tools/call", {"name": "b__echo", "arguments": {"text": "x"}})["error"]["code"] == -32602
    assert host.call("a__echo", {"text": "old"})["content"][0]["text"] == "old"
    assert daemon.status()["servers"]["a"]["restarts"] == 0


def test_a_server_removed_and_added_again_is_coming_and_not_stopped(start: Any, fake_server: Any) -> None:
    daemon = start(fake_server("a"))
    control = daemon.rpc(control=True)
    table = {"command": sys.executable, "args": [FAKE, "deaf_to_term"]}  # takes its time to end
    control.result("conduit/servers/add", {"server": "b", "config": table})
    daemon.wait_ready("b")
    control.result("conduit/servers/remove", {"server": "b"})
    seen = [control.result("conduit/servers/add", {"server": "b", "config": table})["state"]]
    daemon.wait_until(lambda: seen.append(daemon.state("b")) or seen[-1] == "ready")
    assert set(seen) <= {"connecting", "ready"}
    control.result("conduit/servers/remove", {"server": "b"})
    control.result("conduit/servers/add", {"server": "b", "config": {**table, "enabled": False}})
    assert daemon.state("b") == "stopped"


def test_a_table_that_cannot_be_used_adds_nothing_and_says_why(start: Any, fake_server: Any) -> None:
    daemon = start(fake_server("a"))
    control = daemon.rpc(control=True)
    for table, word in (({"comand": "x"}, "command"), ({}, "command"), ({"command": "x", "url": "y"}, "url")):
        error = control.ask("conduit/servers/add", {"server": "b", "config": table})["error"]
        assert error["code"] == -31013
        assert word in error["message"]
        assert error["data"]["problems"]
    assert "b" not in daemon.status()["servers"]
    assert control.ask("conduit/servers/remove", {"server": "zz"})["error"]["data"]["kind"] == "invalid_params"


def test_the_agents_socket_refuses_every_control_method(start: Any, fake_server: Any) -> None:
    rpc = start(fake_server("a")).rpc()
    control = [method for method, of_control in documented().items() if of_control]
    assert len(control) >= 18
    for method in control:
        error = rpc.ask(method)["error"]
        assert (error["code"], error["data"]["kind"]) == (-31009, "forbidden"), method
    assert rpc.ask("conduit/nothing")["error"]["code"] == -32601


def documented() -> dict[str, bool]:
    """Every method beyond MCP of the README's table, and whether it is the control socket's alone."""
    methods: dict[str, bool] = {}
    for line in README.read_text().splitlines():
        if line.startswith("| `conduit/"):
            cell = line.split("|")[1]
            family = cell.partition("`")[2].partition("`")[0].rpartition("/")[0]
            for name in cell.split("`")[1::2]:
                methods[name if name.startswith("conduit/") else f"{family}/{name}"] = "(control)" in cell
    return methods


def test_the_readme_has_every_method() -> None:
    served: set[str] = set()
    for file in (*RPC.rglob("*.py"), RPC.parent / "app.py"):
        served.update(re.findall(r'"(conduit/[a-z_/]+)":', file.read_text()))
    assert set(documented()) == served


def test_every_method_refuses_an_unknown_parameter_by_its_name(start: Any, fake_server: Any) -> None:
    daemon = start(fake_server("a"))
    control = daemon.rpc(control=True)
    needed: dict[str, dict[str, Any]] = {
        "conduit/execute": {"provider": "anthropic"},
        "conduit/log_level": {"level": "info"},
        "conduit/servers/add": {"server": "a", "config": {}},
        "conduit/servers/accept": {"server": "a", "tool": "echo"},
        "conduit/approvals/decide": {"id": "x", "decision": "deny"},
        "conduit/policy/explain": {"name": "a__echo"},
        "conduit/use": {"set": None},
    }
    needed |= {f"conduit/servers/{do}": {"server": "a"} for do in ("restart", "start", "stop", "explain", "remove")}
    for method in documented():
        answer = control.ask(method, {**needed.get(method, {}), "unheardOf": 1})
        error = answer["error"]
        assert (error["code"], error["data"]["kind"]) == (-32602, "invalid_params"), (method, error)
        assert "unheardOf" in error["message"], (method, error)
    assert daemon.process.poll() is None
    assert daemon.state("a") in {"connecting", "ready"}  # none of it was done


def test_the_log_level_is_changed_and_the_old_one_told(start: Any, fake_server: Any) -> None:
    daemon = start(fake_server("a"))
    control = daemon.rpc(control=True)
    assert control.result("conduit/log_level", {"level": "warning"}) == {"level": "debug"}
    assert control.result("conduit/log_level", {"level": "info", "server": "a"}) == {"level": "warning"}
    assert control.result("conduit/log_level", {"level": "debug"}) == {"level": "warning"}
    assert "loud" in control.ask("conduit/log_level", {"level": "loud"})["error"]["message"]


def test_shutdown_waits_for_calls_unless_told_not_to(start: Any, fake_server: Any) -> None:
    for drain in (True, False):
        daemon = start(fake_server("a"))
        daemon.wait_ready("a")
        host, control = daemon.rpc(), daemon.rpc(control=True)
        call = host.send("tools/call", {"name": "a__sleep", "arguments": {"seconds": 1.5}})
        assert host.result("ping") == {}
        began = time.monotonic()
        assert control.result("conduit/shutdown", {"drain": drain}) == {}
        result = host.wait(call)
        assert daemon.process.wait(15) == 0
        if drain:
            assert result["result"]["content"][0]["text"] == "slept"
        else:
            assert result["error"]["data"]["kind"] == "shutting_down"
            assert time.monotonic() - began < 5


def test_refresh_has_the_servers_list_again(start: Any, fake_server: Any) -> None:
    daemon = start(fake_server("a", "silent_change"))
    daemon.wait_ready("a")
    rpc = daemon.rpc()
    rpc.call("a__reveal")

    def names(**params: Any) -> set[str]:
        return {tool["name"] for tool in rpc.result("conduit/tools", params)["tools"]}

    assert "a__late" not in names()  # the server does not say that it changed
    assert "a__late" in names(refresh=True)
    assert "a__late" in names()
