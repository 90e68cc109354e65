"""A changed file: only what it changes is touched, and a bad one touches nothing."""

from __future__ import annotations

import json
import os
import re
import signal
import subprocess
import sys
import time
from pathlib import Path
from typing import Any

import psutil
import pytest

CONDUIT = Path(sys.executable).with_name("conduit")


def rewrite(daemon: Any, *tables: str, policy: str = '[policy]\ndefault = "allow"\n') -> None:
    head = daemon.config.read_text().split("[policy]")[0]
    beside = daemon.config.with_name("new.toml")
    beside.write_text(head + "\n".join([policy, *tables]))
    beside.rename(daemon.config)


@pytest.mark.parametrize("how", ["command", "signal"])
def test_only_changed_servers_restart_and_the_rest_applies_at_once(start: Any, fake_server: Any, how: str) -> None:
    daemon = start(fake_server("kept"), fake_server("changed"), fake_server("gone"))
    daemon.wait_ready("kept", "changed", "gone")
    rpc, control = daemon.rpc(), daemon.rpc(control=True)
    before = {server: daemon.pid(server) for server in ("kept", "changed")}
    running = rpc.send("conduit/call", {"name": "changed__sleep", "arguments": {"seconds": 0.6}})
    time.sleep(0.1)
    policy = '[policy]\ndefault = "allow"\n[[policy.rules]]\neffect = "deny"\ntools = ["echo"]\nservers = ["kept"]\n'
    filters = fake_server("kept"), fake_server("changed", "tools=2"), fake_server("new")
    rewrite(daemon, *filters, policy=policy)
    said = {"added": ["new"], "removed": ["gone"], "changed": ["changed"], "unchanged": ["kept"]}
    if how == "command":
        assert control.result("conduit/reload") == said
    else:
        daemon.process.send_signal(signal.SIGHUP)
        daemon.wait_until(lambda: "config.reloaded" in daemon.events())
        (line,) = (line for line in daemon.log() if line["event"] == "config.reloaded")
        assert {key: line[key] for key in said} == said
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


def test_what_takes_its_place_and_is_no_file_is_said_in_time(start: Any, fake_server: Any) -> None:
    daemon = start(fake_server("a"))
    daemon.wait_ready("a")
    control = daemon.rpc(control=True)
    good, pid = daemon.config.read_text(), daemon.pid("a")
    said = []
    for make in (os.mkfifo, Path.mkdir, lambda path: path.symlink_to("/dev/zero"), lambda path: path.symlink_to(path)):
        daemon.config.unlink()
        make(daemon.config)
        error = control.ask("conduit/reload")["error"]
        assert error["data"]["kind"] == "invalid_config"
        said.append(error["data"]["problems"][0]["message"])
        (daemon.config.rmdir if daemon.config.is_dir() else daemon.config.unlink)()
        daemon.config.write_text(good)
        control.result("conduit/reload")
    assert [words in message for words, message in zip(("pipe", "directory", "16 MiB", "symbolic"), said, strict=True)]
    assert daemon.pid("a") == pid


def test_what_governs_a_servers_calls_changes_without_its_restart(start: Any, fake_server: Any) -> None:
    rules = """[policy]
default = "deny"
[[policy.rules]]
effect = "allow"
annotations = { destructiveHint = true }
"""
    daemon = start(fake_server("a", "tools=2"), policy=rules)
    daemon.wait_ready("a")
    rpc, control = daemon.rpc(), daemon.rpc(control=True)
    pid = daemon.pid("a")
    assert rpc.ask("conduit/call", {"name": "a__pid"})["error"]["data"]["kind"] == "denied"
    assert "a__tool_1" in {tool["name"] for tool in rpc.result("tools/list")["tools"]}
    tools = '{ deny = ["tool_1"], describe = { echo = "Says it again." } }'
    rewrite(
        daemon,
        fake_server("a", "tools=2", trusted="true", tools=tools, rate="{ calls = 1, per = 3600 }", max_in_flight="1"),
        policy=rules,
    )
    assert control.result("conduit/reload")["changed"] == ["a"]
    assert rpc.ask("conduit/call", {"name": "a__tool_1", "arguments": {"value": "x"}})["error"]["data"]["kind"] in (
        "denied",
        "unknown_tool",
    )
    assert rpc.call("a__pid")["content"][0]["text"] == str(pid), "trusted now"
    again = rpc.ask("conduit/call", {"name": "a__pid", "timeout": 1})
    assert again["error"]["data"]["kind"] == "rate_limited"
    daemon.wait_until(
        lambda: (
            {tool["name"]: tool["description"] for tool in rpc.result("tools/list")["tools"]}["a__echo"]
            == "Says it again."
        )
    )
    assert "a__tool_1" not in {tool["name"] for tool in rpc.result("tools/list")["tools"]}
    rewrite(daemon, fake_server("a", "tools=2"), policy='[policy]\ndefault = "allow"\n')
    control.result("conduit/reload")
    assert rpc.call("a__pid")["content"][0]["text"] == str(pid)
    assert rpc.call("a__pid")["content"][0]["text"] == str(pid)
    assert daemon.pid("a") == pid


def test_a_limit_on_results_is_none_on_listings_and_grows_for_servers_that_run(start: Any, fake_server: Any) -> None:
    daemon = start("[limits]\nmax_result = 500\n", fake_server("a"))
    daemon.wait_ready("a")
    rpc, control = daemon.rpc(), daemon.rpc(control=True)
    pid = daemon.pid("a")
    assert len(rpc.result("tools/list")["tools"]) == 9

    def big(size: int) -> Any:
        answer = rpc.ask("conduit/call", {"name": "a__big", "arguments": {"size": size}})
        return answer["error"]["data"]["kind"] if "error" in answer else len(answer["result"]["content"][0]["text"])

    assert [big(400), big(600)] == [400, "too_large"]
    rewrite(daemon, "[limits]\nmax_result = '30MiB'\n", fake_server("a"))
    control.result("conduit/reload")
    assert big(20_000_000) == 20_000_000
    rewrite(daemon, "[limits]\nmax_result = '1MiB'\n", fake_server("a"))
    control.result("conduit/reload")
    assert [big(900_000), big(2_000_000), big(20_000_000)] == [900_000, "too_large", "too_large"]
    assert daemon.pid("a") == pid


def conduit(daemon: Any, *words: str) -> str:
    command = [CONDUIT, *words, "--socket", str(daemon.agent)]
    return subprocess.run(command, capture_output=True, text=True, timeout=30, check=False).stdout


def test_a_rejected_file_stands_in_the_status_until_it_is_right(
    start: Any, fake_server: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("MY_TOKEN", "a-secret-that-nobody-sees")
    secret = fake_server("a", env='{ TOKEN = "${env:MY_TOKEN}" }')
    daemon = start(secret)
    good = daemon.config.read_text()
    assert "rejected" not in daemon.status()["config"]
    rewrite(daemon, secret.replace("env =", "cwd = 7\nheaders = { Authorization = 'another-secret' }\nenv ="))
    daemon.process.send_signal(signal.SIGHUP)
    daemon.wait_until(lambda: "rejected" in daemon.status()["config"])
    (problem,) = daemon.status()["config"]["rejected"]["problems"]
    assert problem == {
        "file": str(daemon.config),
        "key": "servers.a.cwd",
        "message": "expected a path, found a whole number",
    }
    assert "the changed configuration is rejected" in conduit(daemon, "top", "--once")
    shown = conduit(daemon, "status")
    assert "cannot be used; the one from" in shown
    assert f"  {daemon.config}: servers.a.cwd: expected a path, found a whole number" in shown.splitlines()
    assert json.loads(conduit(daemon, "status", "--json"))["config"]["rejected"]["problems"] == [problem]
    daemon.config.write_text("[hooks]\nbefore_call = ['telltale:hook']\n" + good)
    (daemon.folder / "telltale.py").write_text("import os; raise ValueError(os.environ['MY_TOKEN'])")
    answer = daemon.rpc(control=True).ask("conduit/reload")["error"]
    assert "telltale:hook cannot be loaded" in daemon.status()["config"]["rejected"]["problems"][0]["message"]
    for said in (
        json.dumps(answer),
        json.dumps(daemon.status()),
        conduit(daemon, "status"),
        daemon.log_path.read_text(),
    ):
        assert "secret" not in said
    daemon.config.write_text(good)
    daemon.process.send_signal(signal.SIGHUP)
    daemon.wait_until(lambda: "rejected" not in daemon.status()["config"])
    assert "cannot be used" not in conduit(daemon, "status")


def test_what_takes_a_restart_is_named_until_it_was(start: Any, fake_server: Any) -> None:
    daemon = start(fake_server("a"), "[metrics]\nlisten = '127.0.0.1:59464'\n")
    daemon.wait_ready("a")
    pid, text = daemon.pid("a"), daemon.config.read_text()
    control = daemon.rpc(control=True)
    assert "needs_restart" not in daemon.status()["config"]
    fixed = {
        "rpc.agent_socket": (f'"{daemon.agent}"', f'"{daemon.folder}/other.sock"'),
        "rpc.control_socket": ("[rpc]", f'[rpc]\ncontrol_socket = "{daemon.folder}/c.sock"'),
        "rpc.socket_mode": ("[rpc]", '[rpc]\nsocket_mode = "0600"'),
        "rpc.socket_group": ("[rpc]", '[rpc]\nsocket_group = "nogroup"'),
        "rpc.control_group": ("[rpc]", '[rpc]\ncontrol_group = "nogroup"'),
        "state.directory": (f'"{daemon.folder}/state"', f'"{daemon.folder}/elsewhere"'),
        "metrics.listen": ("59464", "59465"),
        "log.format": ('"json"', '"console"'),
    }
    for key, (old, new) in fixed.items():
        daemon.config.write_text(text.replace(old, new, 1))
        assert control.result("conduit/reload")["needs_restart"] == [key]
        assert daemon.status()["config"]["needs_restart"] == [key]
    for old, new in fixed.values():
        daemon.config.write_text(daemon.config.read_text().replace(old, new, 1))
    for _ in range(2):  # also where nothing has changed since the last time
        assert control.result("conduit/reload")["needs_restart"] == list(fixed)
    assert f"Needs a restart: {', '.join(fixed)}." in conduit(daemon, "reload").splitlines()
    assert f"Needs a restart: {', '.join(fixed)}." in conduit(daemon, "status").splitlines()
    warned = [line["reason"] for line in daemon.log() if line["event"] == "config.warning"]
    assert "Needs a restart: log.format." in warned
    daemon.config.write_text(text)
    assert "needs_restart" not in control.result("conduit/reload")
    assert "needs_restart" not in daemon.status()["config"]
    assert daemon.pid("a") == pid


def test_a_storm_of_signals_and_commands_ends_as_the_last_file_says(start: Any, fake_server: Any) -> None:
    daemon = start(fake_server("kept"))
    daemon.wait_ready("kept")
    pid = daemon.pid("kept")
    controls = [daemon.rpc(control=True) for _ in range(4)]
    agent = daemon.rpc()
    asked: list[tuple[Any, int]] = []
    for count in range(1000):
        daemon.process.send_signal(signal.SIGHUP)
        if count % 50 == 0:
            others = [fake_server("other", f"tools={count % 3}")] if count % 100 else []
            rewrite(daemon, fake_server("kept"), *others)
            asked += [(control, control.send("conduit/reload")) for control in controls]
            assert agent.call("kept__echo", {"text": str(count)})["content"][0]["text"] == str(count)
    for control, request in asked:
        answer = control.wait(request)
        assert set(answer["result"]) == {"added", "removed", "changed", "unchanged"}, answer
    rewrite(daemon, fake_server("kept"), fake_server("last"))
    controls[0].result("conduit/reload")
    daemon.wait_until(lambda: daemon.status()["servers"].keys() == {"kept", "last"})
    daemon.wait_ready("kept", "last")
    assert daemon.pid("kept") == pid
    daemon.wait_until(lambda: len(psutil.Process(daemon.process.pid).children()) == 3)
    assert "internal.error" not in daemon.events()
    assert daemon.stop() == 0


def test_signals_while_it_starts_are_no_end_and_while_it_stops_no_beginning(start: Any, fake_server: Any) -> None:
    daemon = start(fake_server("a"), wait=False)
    process = Path(f"/proc/{daemon.process.pid}/status")
    daemon.wait_until(lambda: int(re.findall(r"SigIgn:\t(\w+)", process.read_text())[0], 16) & 1 == 1)
    while not daemon.control.exists():
        daemon.process.send_signal(signal.SIGHUP)
        time.sleep(0.01)
    daemon.wait_ready("a")
    control, agent = daemon.rpc(control=True), daemon.rpc()
    running = agent.send("conduit/call", {"name": "a__sleep", "arguments": {"seconds": 1}})
    time.sleep(0.2)
    daemon.process.send_signal(signal.SIGTERM)
    daemon.wait_until(lambda: "daemon.stopping" in daemon.events())
    rewrite(daemon, fake_server("b"))
    reloads = daemon.events().count("config.reloaded")
    daemon.process.send_signal(signal.SIGHUP)
    assert control.ask("conduit/reload")["error"]["data"]["kind"] == "shutting_down"
    assert agent.wait(running)["result"]["content"][0]["text"] == "slept"
    while daemon.process.poll() is None:
        daemon.process.send_signal(signal.SIGHUP)
        time.sleep(0.01)
    assert daemon.process.returncode == 0
    assert daemon.events().count("config.reloaded") == reloads
