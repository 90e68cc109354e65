"""Many calls, many connections, large results: all answered, none mixed up, memory flat."""

from __future__ import annotations

import json
import socket
import threading
import time
from pathlib import Path
from typing import Any

import psutil


def test_five_thousand_calls_64_at_once_on_one_socket(start: Any, fake_server: Any) -> None:
    daemon = start(fake_server("a"), fake_server("b"))
    daemon.wait_ready("a", "b")
    rpc = daemon.rpc()
    process = psutil.Process(daemon.process.pid)

    def volley(count: int) -> None:
        wanted: dict[int, str] = {}
        sent = 0
        while sent < count or wanted:
            while sent < count and len(wanted) < 64:
                text = f"text {sent} of {count}"
                server = "a" if sent % 2 else "b"
                wanted[rpc.send("tools/call", {"name": f"{server}__echo", "arguments": {"text": text}})] = text
                sent += 1
            message = rpc.receive()
            assert message["result"]["content"][0]["text"] == wanted.pop(message["id"])

    volley(1000)
    before = process.memory_info().rss
    volley(5000)
    after = process.memory_info().rss
    assert after / before <= 1.05, (before, after)
    calls = daemon.status()["calls"]
    assert calls == {"in_flight": 0, "total": 6000, "errors": 0}


def test_a_thousand_pipelined_requests_and_two_hundred_connections(start: Any, fake_server: Any) -> None:
    daemon = start(fake_server("a"))
    daemon.wait_ready("a")
    rpc = daemon.rpc()
    lines = b"".join(
        json.dumps({"jsonrpc": "2.0", "id": i, "method": "tools/call", "params": {"name": "a__add", "arguments": {
            "a": i, "b": 1}}}).encode() + b"\n" for i in range(1000)
    )  # fmt: skip
    threading.Thread(target=rpc.sock.sendall, args=(lines,)).start()
    sums = {
        message["id"]: message["result"]["structuredContent"]["sum"] for message in (rpc.receive() for _ in range(1000))
    }
    assert sums == {i: i + 1 for i in range(1000)}
    many = [daemon.rpc() for _ in range(200)]
    ids = [one.send("tools/call", {"name": "a__echo", "arguments": {"text": str(i)}}) for i, one in enumerate(many)]
    for i, (one, request_id) in enumerate(zip(many, ids, strict=True)):
        assert one.wait(request_id)["result"]["content"][0]["text"] == str(i)


def test_a_reader_that_stops_costs_nobody_else_and_a_bounded_memory(start: Any, fake_server: Any) -> None:
    daemon = start(fake_server("a"), fake_server("b"), rpc="max_message = 20000000")
    daemon.wait_ready("a", "b")
    process = psutil.Process(daemon.process.pid)
    lazy, busy = socket.socket(socket.AF_UNIX), daemon.rpc()
    lazy.connect(str(daemon.agent))
    before = process.memory_info().rss
    params = {"name": "a__big", "arguments": {"size": 1_000_000}}
    lazy.settimeout(0.5)
    try:
        for i in range(400):
            lazy.sendall(
                json.dumps({"jsonrpc": "2.0", "id": i, "method": "tools/call", "params": params}).encode() + b"\n"
            )
    except (TimeoutError, BrokenPipeError, ConnectionResetError):
        pass  # it is held back, or disconnected, as it should be
    longest = 0.0
    for i in range(200):
        began = time.monotonic()
        assert busy.call("b__echo", {"text": str(i)})["content"][0]["text"] == str(i)
        longest = max(longest, time.monotonic() - began)
    assert longest < 1
    assert process.memory_info().rss - before < 200_000_000
    lazy.close()
    daemon.wait_until(lambda: daemon.status()["calls"]["in_flight"] == 0)


def test_an_agent_with_more_requests_than_it_may_have_that_leaves_is_noticed(start: Any, fake_server: Any) -> None:
    daemon = start(fake_server("a"))
    daemon.wait_ready("a")
    rpc = daemon.rpc()
    for _ in range(4140):  # those over the limit of 4,096 wait in the socket, which has room for about eighty
        rpc.send("tools/call", {"name": "a__sleep", "arguments": {"seconds": 60}})
    daemon.wait_until(lambda: daemon.status()["calls"]["in_flight"] == 4096)
    rpc.sock.shutdown(socket.SHUT_RDWR)
    daemon.wait_until(lambda: daemon.status()["calls"]["in_flight"] == 0)


def test_a_large_result_comes_through_whole(start: Any, fake_server: Any) -> None:
    daemon = start(fake_server("a"))
    daemon.wait_ready("a")
    rpc = daemon.rpc()
    assert rpc.call("a__big", {"size": 9_000_000})["content"][0]["text"] == "x" * 9_000_000
    error = rpc.ask("conduit/call", {"name": "a__big", "arguments": {"size": 11_000_000}})["error"]
    assert error["data"]["kind"] == "too_large"
    assert rpc.call("a__echo", {"text": "next"})["content"][0]["text"] == "next"


HOLDS = """
import gc, tracemalloc
tracemalloc.start()
def hook(call):
    if call.arguments.get("text") == "what do you hold?":
        gc.collect()
        print("HOLDS", tracemalloc.get_traced_memory()[0], flush=True)
"""


def test_a_call_leaves_nothing_in_memory(start: Any, fake_server: Any, tmp_path: Path) -> None:
    (tmp_path / "holds.py").write_text(HOLDS)
    hooks = '[hooks]\nbefore_call = ["holds:hook"]\n'
    daemon = start(hooks, fake_server("a"), fake_server("b"), shell=f"PYTHONPATH={tmp_path} exec {{}}")
    daemon.wait_ready("a", "b")
    rpc = daemon.rpc()
    kinds = [("echo", {"text": "x"}), ("fail", {"kind": "error"}), ("add", {"a": "no"}), ("nothing", {})]

    def held(count: int) -> int:
        for start in range(0, count, 64):
            ids = []
            for i in range(start, min(start + 64, count)):
                name, arguments = kinds[i % 4]
                method = "conduit/call" if i % 3 else "tools/call"
                ids.append(rpc.send(method, {"name": f"{'ab'[i % 2]}__{name}", "arguments": arguments}))
            for request_id in ids:
                rpc.wait(request_id)
        time.sleep(0.3)  # until log and audit are written
        rpc.call("a__echo", {"text": "what do you hold?"})
        return int(daemon.log_path.read_text().rpartition("HOLDS ")[2].split()[0])

    before = held(1500)
    after = held(1500)
    print(f"bytes held more by 1,500 calls: {after - before:,} of {before:,}")
    assert after - before < 20 * 1500, "each call leaves something behind"
