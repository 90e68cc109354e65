"""The daemon from outside, while things go wrong around it."""

from __future__ import annotations

import json
import os
import signal
import socket
import time
from pathlib import Path
from typing import Any

import pytest


def alive(pid: int) -> bool:
    try:
        return Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0] != "Z"
    except (FileNotFoundError, ProcessLookupError):
        return False


def gone(pids: set[int], seconds: float) -> bool:
    until = time.monotonic() + seconds
    while any(map(alive, pids)):
        if time.monotonic() > until:
            return False
        time.sleep(0.01)
    return True


def test_a_server_killed_in_a_call_fails_that_call_at_once_and_comes_back(start: Any, fake_server: Any) -> None:
    daemon = start(fake_server("a"), fake_server("b"))
    daemon.wait_ready("a", "b")
    victim, other = daemon.rpc(), daemon.rpc()
    sleeping = victim.send("tools/call", {"name": "a__sleep", "arguments": {"seconds": 30}})
    direct = victim.send("conduit/call", {"name": "a__sleep", "arguments": {"seconds": 30}})
    longest = 0.0
    time.sleep(0.2)
    pid = daemon.pid("a")
    os.kill(pid, signal.SIGKILL)
    killed = time.monotonic()
    failed = victim.wait(sleeping)["result"]
    took = time.monotonic() - killed
    error = victim.wait(direct)["error"]
    assert took < 0.2, took
    assert failed["isError"] is True
    assert "was ended by SIGKILL" in failed["content"][0]["text"]
    assert error["code"] == -31004
    assert {key: error["data"][key] for key in ("kind", "outcome", "signal", "server", "tool")} == {
        "kind": "unavailable",
        "outcome": "outcome_unknown",
        "signal": "SIGKILL",
        "server": "a",
        "tool": "sleep",
    }
    until = time.monotonic() + 5
    while daemon.state("a") != "ready":
        began = time.monotonic()
        assert other.call("b__echo", {"text": "x"})["content"][0]["text"] == "x"
        longest = max(longest, time.monotonic() - began)
        assert time.monotonic() < until
    assert longest < 0.5
    assert daemon.pid("a") != pid
    assert victim.call("a__echo", {"text": "back"})["content"][0]["text"] == "back"
    assert daemon.status()["servers"]["a"]["restarts"] == 1


def test_the_last_words_of_a_server_are_in_the_error_and_in_explain(start: Any, fake_server: Any) -> None:
    daemon = start(fake_server("a"))
    daemon.wait_ready("a")
    rpc, control = daemon.rpc(), daemon.rpc(control=True)
    error = rpc.ask("conduit/call", {"name": "a__die", "arguments": {"how": "7"}})["error"]
    assert error["data"]["exit_code"] == 7
    assert error["data"]["stderr"] == ["dying of 7"]
    explained = control.result("conduit/servers/explain", {"server": "a"})
    assert "dying of 7" in explained["stderr"]
    assert any("exited with code 7: dying of 7" in entry["text"] for entry in explained["timeline"])


@pytest.mark.parametrize("attempt", range(4))
def test_a_killed_daemon_leaves_nothing_running(start: Any, fake_server: Any, attempt: int, tmp_path: Path) -> None:
    """Five daemons at a time, four times: 20 kills, at different moments of their life."""
    daemons = []
    for i in range(5):
        marks = [f"detached={tmp_path}/d{i}", f"cleared={tmp_path}/c{i}", "deaf_to_term"]
        daemons.append(start(fake_server("a", *marks), fake_server("b", "hang"), fake_server("c"), wait=False))
    time.sleep(0.3 + 0.4 * attempt)
    left: set[int] = set()
    for daemon in daemons:
        left |= daemon.descendants() - {daemon.process.pid}
        left |= _children(daemon.process.pid)
        daemon.process.kill()
    left |= {int(text) for path in tmp_path.iterdir() if (text := path.read_text())}
    for daemon in daemons:
        daemon.process.wait()
    guardians = {pid for pid in left if b"guardian_process" in cmdline(pid)}
    assert gone(left - guardians, 1.0), {pid: cmdline(pid) for pid in left if alive(pid)}
    time.sleep(0.2)
    late = {int(text) for path in tmp_path.iterdir() if (text := path.read_text())}
    assert gone(late, 0.5)
    assert gone(guardians, 3)


def cmdline(pid: int) -> bytes:
    try:
        return Path(f"/proc/{pid}/cmdline").read_bytes()
    except OSError:
        return b""


def _children(parent: int) -> set[int]:
    found = set()
    for pid in filter(str.isdigit, os.listdir("/proc")):
        try:
            if int(Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[1]) == parent:
                found.add(int(pid))
        except OSError:
            continue
    return found


@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGINT])
def test_a_signal_stops_it_in_order(start: Any, fake_server: Any, number: int) -> None:
    daemon = start(fake_server("a"), fake_server("b"))
    daemon.wait_ready("a", "b")
    rpc = daemon.rpc()
    running = rpc.send("conduit/call", {"name": "a__sleep", "arguments": {"seconds": 0.5}})
    time.sleep(0.1)
    children = _children(daemon.process.pid)
    assert len(children) == 3  # two servers and the guardian
    daemon.process.send_signal(number)
    time.sleep(0.1)
    refused = rpc.ask("conduit/call", {"name": "b__echo", "arguments": {"text": "late"}})["error"]
    assert (refused["code"], refused["data"]["kind"]) == (-31010, "shutting_down")
    assert rpc.wait(running)["result"]["content"][0]["text"] == "slept"
    assert daemon.process.wait(10) == 0
    assert gone(children, 0.1)
    assert not daemon.agent.exists()
    assert not daemon.control.exists()
    assert daemon.events()[-1] == "daemon.stopped"


def test_calls_that_do_not_end_in_time_are_answered_when_it_stops(start: Any, fake_server: Any) -> None:
    daemon = start("[limits]\nshutdown_timeout = 0.5\n", fake_server("a", "deaf_to_term"))
    daemon.wait_ready("a")
    rpc = daemon.rpc()
    running = rpc.send("conduit/call", {"name": "a__sleep", "arguments": {"seconds": 60}})
    time.sleep(0.1)
    began = time.monotonic()
    daemon.process.terminate()
    error = rpc.wait(running)["error"]
    assert (error["data"]["kind"], error["data"]["outcome"]) == ("shutting_down", "outcome_unknown")
    assert daemon.process.wait(10) == 0
    assert time.monotonic() - began < 4


def test_a_second_signal_does_not_wait_for_calls(start: Any, fake_server: Any) -> None:
    daemon = start("[limits]\nshutdown_timeout = 60\n", fake_server("a"))
    daemon.wait_ready("a")
    rpc = daemon.rpc()
    running = rpc.send("conduit/call", {"name": "a__sleep", "arguments": {"seconds": 50}})
    time.sleep(0.1)
    daemon.process.terminate()
    time.sleep(0.2)
    assert daemon.process.poll() is None
    daemon.process.terminate()
    assert rpc.wait(running)["error"]["data"]["kind"] == "shutting_down"
    assert daemon.process.wait(5) == 0


def test_servers_that_cannot_start_hold_nobody_up_and_say_why(start: Any, fake_server: Any) -> None:
    daemon = start(
        fake_server("good"),
        fake_server("hangs", "hang"),
        fake_server("exits", "exit=7"),
        '[servers.missing]\ncommand = "no-such-command-anywhere"\n',
    )
    assert time.monotonic() - daemon.started < 10
    daemon.wait_ready("good")
    rpc = daemon.rpc()
    began = time.monotonic()
    listing = rpc.result("conduit/tools", {"timeout": 0})
    assert time.monotonic() - began < 1
    assert {tool["name"].split("__")[0] for tool in listing["tools"]} == {"good"}
    daemon.wait_until(lambda: daemon.state("exits") in ("waiting", "open"))
    servers = daemon.status()["servers"]
    assert servers["exits"]["reason"] == "server exits exited with code 7 during start: no licence found"
    assert servers["hangs"]["reason"].startswith("server hangs is being started")
    assert (servers["missing"]["state"], servers["missing"]["reason"]) == (
        "needs_attention",
        "server missing cannot start: the command 'no-such-command-anywhere' was not found",
    )
    missing = {entry["server"]: entry["state"] for entry in rpc.result("conduit/tools", {"timeout": 0})["missing"]}
    assert missing.keys() == {"hangs", "exits", "missing"}
    assert daemon.status()["health"] == "degraded"
    assert rpc.call("good__echo", {"text": "fine"})["content"][0]["text"] == "fine"
    assert daemon.stop() == 0


def test_a_listing_waits_for_a_server_in_its_first_connect(start: Any, fake_server: Any) -> None:
    daemon = start(fake_server("a"), wait=False)
    daemon.wait_until(daemon.control.is_socket)
    rpc = daemon.rpc()
    listing = rpc.result("conduit/tools", {"timeout": 10})
    assert len(listing["tools"]) == 9
    assert listing["missing"] == []


def test_the_tools_of_a_server_that_is_down_are_not_listed_and_its_names_still_mean_it(
    start: Any, fake_server: Any
) -> None:
    daemon = start(fake_server("a"), fake_server("b"))
    daemon.wait_ready("a", "b")
    rpc, control = daemon.rpc(), daemon.rpc(control=True)
    rpc.result("initialize", {"protocolVersion": "2025-11-25", "capabilities": {}, "clientInfo": {"name": "t"}})
    assert control.result("conduit/servers/stop", {"server": "a"}) is not None
    daemon.wait_until(lambda: daemon.state("a") == "stopped")
    daemon.wait_until(lambda: not any(t["name"].startswith("a__") for t in rpc.result("tools/list")["tools"]))
    error = rpc.ask("conduit/call", {"name": "a__echo", "arguments": {"text": "x"}})["error"]
    assert (error["data"]["kind"], error["data"]["outcome"]) == ("unavailable", "not_sent")

    def told() -> bool:
        rpc.result("ping")
        return any(note["method"] == "notifications/tools/list_changed" for note in rpc.notifications)

    daemon.wait_until(told, 2)
    control.result("conduit/servers/start", {"server": "a"})
    daemon.wait_ready("a")
    assert rpc.call("a__echo", {"text": "x"})["content"][0]["text"] == "x"
    before = daemon.pid("a")
    control.result("conduit/servers/restart", {"server": "a"})
    daemon.wait_until(lambda: daemon.state("a") == "ready" and daemon.pid("a") != before)


def test_a_stale_socket_is_replaced_and_a_live_daemon_is_not(start: Any, fake_server: Any) -> None:
    first = start(fake_server("a"))
    first.process.kill()
    first.process.wait()
    assert first.agent.is_socket()
    second = type(first)(first.folder, ALLOW_AND + fake_server("a"))
    try:
        second.wait_ready("a")
        third = type(first)(first.folder, ALLOW_AND + fake_server("a"), wait=False)
        assert third.process.wait(10) == 1
        last = third.log()[-1]
        assert last["event"] == "daemon.failed"
        assert f"process {second.process.pid}" in last["reason"] or "already listens" in last["reason"]
        assert second.state("a") == "ready"
    finally:
        assert second.stop() == 0


ALLOW_AND = '[policy]\ndefault = "allow"\n'


def test_closing_a_connection_cancels_its_calls_at_the_server(start: Any, fake_server: Any) -> None:
    daemon = start(fake_server("a"))
    daemon.wait_ready("a")
    leaving, staying = daemon.rpc(), daemon.rpc()
    leaving.send("tools/call", {"name": "a__sleep", "arguments": {"seconds": 60}})
    leaving.send("conduit/call", {"name": "a__sleep", "arguments": {"seconds": 60}})
    time.sleep(0.2)
    leaving.close()
    daemon.wait_until(lambda: daemon.status()["calls"]["in_flight"] == 0, 2)
    daemon.wait_until(lambda: len(json.loads(staying.call("a__received")["content"][0]["text"])) == 2, 2)


def test_a_half_closed_connection_still_gets_its_answers(start: Any, fake_server: Any) -> None:
    daemon = start(fake_server("a"))
    daemon.wait_ready("a")
    with socket.socket(socket.AF_UNIX) as sock:
        sock.settimeout(10)
        sock.connect(str(daemon.agent))
        params = {"name": "a__sleep", "arguments": {"seconds": 0.4}}
        sock.sendall(json.dumps({"jsonrpc": "2.0", "id": 1, "method": "tools/call", "params": params}).encode() + b"\n")
        sock.shutdown(socket.SHUT_WR)
        data = b""
        while chunk := sock.recv(1 << 16):
            data += chunk
    assert json.loads(data)["result"]["content"][0]["text"] == "slept"


def test_a_request_that_is_cancelled_is_cancelled_at_the_server_and_gets_no_answer(
    start: Any, fake_server: Any
) -> None:
    daemon = start(fake_server("a"))
    daemon.wait_ready("a")
    rpc = daemon.rpc()
    sleeping = rpc.send("tools/call", {"name": "a__sleep", "arguments": {"seconds": 60}})
    direct = rpc.send("conduit/call", {"name": "a__sleep", "arguments": {"seconds": 60}})
    time.sleep(0.1)
    rpc.notify("notifications/cancelled", {"requestId": sleeping})
    rpc.notify("notifications/cancelled", {"requestId": direct})
    daemon.wait_until(lambda: len(json.loads(rpc.call("a__received")["content"][0]["text"])) == 2, 2)
    assert not rpc.answers


def test_progress_reaches_who_asked_for_it(start: Any, fake_server: Any) -> None:
    daemon = start(fake_server("a"))
    daemon.wait_ready("a")
    rpc = daemon.rpc()
    params = {"name": "a__tick", "arguments": {"times": 3}, "_meta": {"progressToken": "mine"}}
    assert rpc.result("tools/call", params)["content"][0]["text"] == "ticked"
    seen = [(note["params"]["progressToken"], note["params"]["progress"]) for note in rpc.notifications]
    assert seen == [("mine", 1), ("mine", 2), ("mine", 3)]


@pytest.mark.parametrize(
    ("line", "code"),
    [
        (b"no json\n", -32700),
        (b'{"jsonrpc":"2.0","id":1}\n', -32600),
        (b'{"jsonrpc":"1.0","id":1,"method":"ping"}\n', -32600),
        (b'[{"jsonrpc":"2.0","id":1,"method":"ping"}]\n', -32600),
        (b'{"jsonrpc":"2.0","id":null,"method":"ping"}\n', -32600),
        (b'{"jsonrpc":"2.0","id":1,"method":"no/such"}\n', -32601),
        (b'{"jsonrpc":"2.0","id":1,"method":"tools/call","params":{"arguments":{}}}\n', -32602),
        (b'{"jsonrpc":"2.0","id":1,"method":"conduit/status","params":{"colour":1}}\n', -32602),
        (b'{"jsonrpc":"2.0","id":1,"method":"conduit/tree"}\n', -31009),
        (b'{"jsonrpc":"2.0","id":1,"method":"tools/call","params":' + b"[" * 50_000 + b"]" * 50_000 + b"}\n", -32700),
    ],
)
def test_what_is_wrong_is_answered_and_the_connection_goes_on(
    start: Any, fake_server: Any, line: bytes, code: int
) -> None:
    daemon = start()
    rpc = daemon.rpc()
    rpc.sock.sendall(line)
    error = rpc.receive()["error"]
    assert error["code"] == code
    assert rpc.result("ping") == {}


def test_a_line_over_the_limit_is_answered_and_ends_its_connection_alone(start: Any) -> None:
    daemon = start(rpc="max_message = 100000")
    long, short = daemon.rpc(), daemon.rpc()
    long.sock.sendall(b'{"jsonrpc":"2.0","id":1,"method":"ping","params":{"x":"' + b"x" * 200_000)
    error = long.receive()
    assert (error["id"], error["error"]["code"]) == (None, -32600)
    with pytest.raises((EOFError, ConnectionResetError)):
        long.receive()
    assert short.result("ping") == {}


def test_more_connections_than_allowed_are_told_so(start: Any) -> None:
    daemon = start(rpc="max_connections = 2")
    first, second, third = daemon.rpc(), daemon.rpc(), daemon.rpc()
    assert third.receive()["error"]["data"]["kind"] == "unavailable"
    with pytest.raises(EOFError):
        third.receive()
    assert first.result("ping") == second.result("ping") == {}
    # Agents that take all of theirs do not lock the operator out.
    operator = daemon.rpc(control=True)
    assert operator.result("conduit/status")["connections"] == 3
    operator.close()
    second.close()
    daemon.wait_until(lambda: first.result("conduit/status")["connections"] == 1)
    assert daemon.rpc().result("ping") == {}


def test_it_runs_without_standard_descriptors(start: Any, fake_server: Any) -> None:
    daemon = start(fake_server("a"), wait=False, shell="exec {} <&- >&- 2>&-")
    daemon.wait_until(daemon.control.is_socket)
    daemon.wait_ready("a")
    assert daemon.rpc().call("a__echo", {"text": "x"})["content"][0]["text"] == "x"
    assert daemon.stop() == 0


def test_a_log_that_nobody_reads_holds_no_call_up(start: Any, fake_server: Any) -> None:
    daemon = start(fake_server("a"), wait=False, shell="{} 2>&1 | sleep 60")
    daemon.wait_until(daemon.control.is_socket)
    daemon.wait_ready("a")
    rpc = daemon.rpc()
    longest = 0.0
    for i in range(2000):
        began = time.monotonic()
        assert rpc.call("a__echo", {"text": str(i)})["content"][0]["text"] == str(i)
        longest = max(longest, time.monotonic() - began)
    assert longest < 0.5
    daemon.rpc(control=True).result("conduit/shutdown")
    daemon.wait_until(lambda: not daemon.agent.exists(), 10)


def test_a_process_out_of_descriptors_serves_on(start: Any, fake_server: Any) -> None:
    daemon = start(fake_server("a"), wait=False, shell="ulimit -n 40; exec {}")
    daemon.wait_until(daemon.control.is_socket)
    daemon.wait_ready("a")
    rpc = daemon.rpc()
    many = []
    for _ in range(60):
        waiting = socket.socket(socket.AF_UNIX)
        waiting.connect(str(daemon.agent))
        many.append(waiting)
    time.sleep(0.3)
    assert rpc.call("a__echo", {"text": "x"})["content"][0]["text"] == "x"
    for waiting in many:
        waiting.close()
    assert daemon.rpc().call("a__echo", {"text": "y"})["content"][0]["text"] == "y"
    assert daemon.stop() == 0


def test_orders_to_a_server_take_effect_in_their_order(start: Any, fake_server: Any) -> None:
    daemon = start(fake_server("a", "deaf_to_term"), fake_server("b"))
    daemon.wait_ready("a", "b")
    control = daemon.rpc(control=True)
    for server in ("b", "b", "a"):
        assert control.result("conduit/servers/stop", {"server": server})["state"] == "stopped"
        assert daemon.pid(server) == 0
        control.result("conduit/servers/start", {"server": server})
        daemon.wait_ready(server)
    stop = control.send("conduit/servers/stop", {"server": "a"})
    time.sleep(0.2)
    begin = control.send("conduit/servers/start", {"server": "a"})
    control.wait(begin)
    control.wait(stop)
    daemon.wait_ready("a")
