"""The metrics of a running daemon, over the control socket and over HTTP, as Prometheus' own parser reads them."""

from __future__ import annotations

import contextlib
import socket
import time
import urllib.request
from collections.abc import Callable
from typing import Any

import psutil
from prometheus_client.parser import text_string_to_metric_families


def free_port() -> int:
    with socket.create_server(("127.0.0.1", 0)) as sock:
        port: int = sock.getsockname()[1]
        return port


def parsed(text: str) -> Callable[..., float | None]:
    samples = {
        (sample.name, frozenset(sample.labels.items())): sample.value
        for family in text_string_to_metric_families(text)
        for sample in family.samples
    }
    return lambda name, **labels: samples.get((name, frozenset(labels.items())))


def test_what_happens_is_counted(start: Any, fake_server: Any) -> None:
    port = free_port()
    daemon = start(fake_server("files"), f'[metrics]\nlisten = "127.0.0.1:{port}"\n')
    daemon.wait_ready("files")
    agent, control = daemon.rpc(), daemon.rpc(control=True)
    for _ in range(3):
        agent.call("files__echo", {"text": "x"})
    agent.call("files__fail", {"kind": "tool"})
    agent.ask("tools/call", {"name": "made_up", "arguments": {}})
    running = agent.send("tools/call", {"name": "files__sleep", "arguments": {"seconds": 30}})
    daemon.wait_until(lambda: daemon.status()["calls"]["in_flight"] == 1)

    value = parsed(control.result("conduit/metrics")["text"])
    echo = {"server": "files", "tool": "echo"}
    assert value("conduit_calls_total", **echo) == 3
    assert value("conduit_call_duration_seconds_count", **echo) == 3
    assert value("conduit_errors_total", server="files", tool="fail", kind="tool_error") == 1
    assert value("conduit_errors_total", server="", tool="", kind="unknown_tool") == 1
    assert value("conduit_calls_in_flight") == 1
    assert value("conduit_server_calls_in_flight", server="files") == 1
    assert value("conduit_server_state", server="files", state="ready") == 1
    assert value("conduit_server_tools", server="files") == 9
    assert value("conduit_mailbox_messages", actor="client:files") == 0
    assert value("conduit_connections") >= 2

    agent.notify("notifications/cancelled", {"requestId": running})
    agent.ask("tools/call", {"name": "files__die", "arguments": {"how": "SIGKILL"}})
    daemon.wait_until(lambda: daemon.status()["servers"]["files"]["restarts"] == 1)
    daemon.wait_ready("files")
    with urllib.request.urlopen(f"http://127.0.0.1:{port}/metrics", timeout=10) as answer:
        value = parsed(answer.read().decode())
    assert value("conduit_server_restarts_total", server="files") == 1
    assert value("conduit_events_total", type="client.down") == 1
    assert value("conduit_errors_total", server="files", tool="die", kind="unavailable") == 1
    assert value("conduit_calls_in_flight") == 0
    assert value("conduit_event_loop_lag_seconds_count") is not None
    assert (value("process_resident_memory_bytes") or 0) > 1e7


def test_the_agents_socket_gives_no_metrics(start: Any) -> None:
    answer = start().rpc().ask("conduit/metrics")
    assert answer["error"]["data"]["kind"] == "forbidden"


def test_an_address_that_is_taken_ends_the_start_with_the_reason(start: Any) -> None:
    with socket.create_server(("127.0.0.1", 0)) as taken:
        listen = f"127.0.0.1:{taken.getsockname()[1]}"
        daemon = start(f'[metrics]\nlisten = "{listen}"\n', wait=False)
        assert daemon.process.wait(20) == 1
    last = daemon.log()[-1]
    assert last["event"] == "daemon.failed"
    assert listen in last["reason"]


def test_hostile_scrapers_cost_the_calls_nothing_and_an_honest_one_is_served(start: Any, fake_server: Any) -> None:
    port = free_port()
    daemon = start(fake_server("a"), f'[metrics]\nlisten = "127.0.0.1:{port}"\n')
    daemon.wait_ready("a")
    rpc = daemon.rpc()
    rpc.call("a__echo", {"text": "warm"})
    process = psutil.Process(daemon.process.pid)
    descriptors, memory = process.num_fds(), process.memory_info().rss
    hostile: list[socket.socket] = []

    def connect(sent: bytes) -> None:
        sock = socket.create_connection(("127.0.0.1", port))
        sock.settimeout(0.05)
        hostile.append(sock)
        with contextlib.suppress(OSError):
            sock.sendall(sent)

    longest = 0.0
    sent = [b"", b"GET /metr", b"GET /metrics HTTP/1.1\r\n\r\n", b"G" * 1_000_000, b"GET /" + b"x: y\r\n" * 100_000]
    for number in range(1000):
        connect(sent[number % 5] if number % 50 < 5 else b"G")
        if not number % 10:
            began = time.monotonic()
            rpc.call("a__echo", {"text": "x"})
            longest = max(longest, time.monotonic() - began)
        if not number % 100:
            with urllib.request.urlopen(f"http://127.0.0.1:{port}/metrics", timeout=2) as answer:
                assert parsed(answer.read().decode())("conduit_calls_total", server="a", tool="echo")
    print(f"longest call beside a thousand hostile scrapers: {longest * 1000:.0f} ms")
    assert longest < 0.5
    assert process.num_fds() <= descriptors + 40
    assert process.memory_info().rss - memory < 20_000_000
    for sock in hostile:
        sock.close()
    daemon.wait_until(lambda: process.num_fds() <= descriptors + 2, 12)
