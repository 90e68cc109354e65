"""What the daemon cannot write is seen where people look: in the status, on the command line and in the metrics."""

from __future__ import annotations

import contextlib
import json
import os
import socket
import sqlite3
import subprocess
import sys
import time
from pathlib import Path
from typing import Any

import pytest
from prometheus_client.parser import text_string_to_metric_families

JOURNALLED = Path(__file__).parents[1] / "fakes" / "journal_daemon.py"
CONDUIT = Path(sys.executable).with_name("conduit")
UNKNOWN = json.dumps({"jsonrpc": "2.0", "id": "q", "method": "tools/call", "params": {"name": "no_such_tool"}}) + "\n"


def metric(daemon: Any, name: str) -> float:
    text = daemon.rpc(control=True).result("conduit/metrics")["text"]
    (value,) = (
        sample.value
        for family in text_string_to_metric_families(text)
        for sample in family.samples
        if sample.name == name
    )
    return float(value)


def refused_calls(daemon: Any, count: int) -> None:
    rpc = daemon.rpc()
    for _ in range(count // 1000):
        rpc.sock.sendall(UNKNOWN.encode() * 1000)
        for _ in range(1000):
            rpc.receive()


def test_an_audit_that_cannot_be_written_is_a_problem_until_it_can(start: Any) -> None:
    daemon = start()
    rpc = daemon.rpc()
    rpc.ask("tools/call", {"name": "no_such_tool"})
    audit = daemon.folder / "state" / "audit.db"
    daemon.wait_until(lambda: metric(daemon, "conduit_audit_rows_waiting") == 0)
    status = daemon.status()
    assert (status["health"], status.get("problems")) == ("ok", None)
    with contextlib.closing(sqlite3.connect(audit, isolation_level=None)) as holder:
        holder.execute("BEGIN EXCLUSIVE")
        for _ in range(5):
            rpc.ask("tools/call", {"name": "no_such_tool"})
        daemon.wait_until(lambda: "problems" in daemon.status())
        status = daemon.status()
        assert status["health"] == "degraded"
        (problem,) = status["problems"]
        assert problem.startswith("The audit cannot be written (")
        assert problem.endswith(": 5 rows wait in memory, 0 are lost.")
        command = [CONDUIT, "status", "--socket", daemon.control]
        assert problem in subprocess.run(command, capture_output=True, text=True, check=True).stdout
        assert metric(daemon, "conduit_audit_rows_waiting") == 5
        assert metric(daemon, "conduit_problems") == 1
    daemon.wait_until(lambda: daemon.status()["health"] == "ok")
    assert metric(daemon, "conduit_audit_rows_waiting") == 0


def test_a_stderr_that_nobody_reads_holds_up_nobody_and_is_a_problem(
    start: Any, fake_server: Any, tmp_path: Path
) -> None:
    pipe = tmp_path / "stderr"
    os.mkfifo(pipe)
    read_end = os.open(pipe, os.O_RDONLY | os.O_NONBLOCK)
    daemon = start(fake_server("a"), wait=False, shell=f"exec {{}} 2>{pipe}")
    try:
        daemon.wait_until(daemon.control.is_socket)
        daemon.wait_ready("a")
        refused_calls(daemon, 12_000)
        assert daemon.rpc().call("a__echo", {"text": "served"})["content"][0]["text"] == "served"
        status = daemon.status()
        assert status["health"] == "degraded"
        assert status["problems"][0].startswith("The log cannot be written, or not fast enough: ")
        dropped = metric(daemon, "conduit_log_lines_dropped_total")
        assert dropped > 1000
        said = b""

        def read() -> bool:
            nonlocal said
            with contextlib.suppress(BlockingIOError):
                while data := os.read(read_end, 1 << 20):
                    said += data
            return b'"event":"log.lines_dropped"' in said

        daemon.wait_until(read)
        daemon.wait_until(lambda: read() and "within the last minute" in daemon.status()["problems"][0])
        counts = [json.loads(line)["count"] for line in said.splitlines() if b'"event":"log.lines_dropped"' in line]
        assert sum(counts) >= dropped
    finally:
        daemon.process.terminate()
        while daemon.process.poll() is None:
            with contextlib.suppress(BlockingIOError):
                os.read(read_end, 1 << 20)
        os.close(read_end)
    assert daemon.process.returncode == 0


def test_a_journal_that_takes_nothing_holds_up_nobody_and_is_a_problem(
    start: Any, fake_server: Any, tmp_path: Path
) -> None:
    path = tmp_path / "journal"
    with socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM) as journal:
        journal.bind(str(path))
        journal.setblocking(False)
        to_journal = f"""sed -i 's/"json"/"journal"/' "$4"; exec {sys.executable} {JOURNALLED} {path} "$2" "$3" "$4\""""
        daemon = start(fake_server("a"), wait=False, shell=f"set -- {{}}; {to_journal}")
        daemon.wait_until(daemon.control.is_socket)
        daemon.wait_ready("a")
        refused_calls(daemon, 12_000)
        longest = 0.0
        for i in range(50):
            began = time.monotonic()
            assert daemon.rpc().call("a__echo", {"text": str(i)})["content"][0]["text"] == str(i)
            longest = max(longest, time.monotonic() - began)
        assert longest < 0.5
        assert daemon.status()["problems"][0].startswith("The log cannot be written, or not fast enough: ")
        assert metric(daemon, "conduit_log_lines_dropped_total") > 1000
        received: list[bytes] = []

        def told() -> bool:
            with contextlib.suppress(BlockingIOError):
                while True:
                    received.append(journal.recv(1 << 20))
            return any(b"CONDUIT_EVENT=log.lines_dropped" in datagram for datagram in received)

        daemon.wait_until(told)
        assert daemon.stop() == 0


def mounted(folder: Path) -> bool:
    done = subprocess.run(["mount", "-t", "tmpfs", "-o", "size=1m", "none", folder], capture_output=True, check=False)
    return done.returncode == 0


@pytest.mark.skipif(os.geteuid() != 0, reason="mounting a small disk needs root")
def test_a_full_disk_stops_no_call_and_is_seen(start: Any, fake_server: Any, tmp_path: Path) -> None:
    disk = tmp_path / "disk"
    disk.mkdir()
    if not mounted(disk):
        pytest.skip("no file system may be mounted here")
    try:
        table = f"{fake_server('a')}pin = true\n[audit]\narguments = true\n"
        (disk / "state").mkdir(mode=0o700)
        shell = f'set -- {{}}; ln -s {disk}/state "$(dirname "$4")/state"; exec "$@" 2>{disk}/log'
        daemon = start(table, wait=False, shell=shell)
        daemon.wait_until(daemon.control.is_socket)
        daemon.wait_ready("a")
        rpc = daemon.rpc()
        daemon.wait_until((disk / "state" / "audit.db").exists)
        with contextlib.suppress(OSError), (disk / "filler").open("wb", buffering=0) as file:
            while file.write(b"x" * 512):
                pass
        for i in range(300):
            assert rpc.call("a__echo", {"text": str(i) * 100})["content"][0]["text"] == str(i) * 100

        def seen() -> bool:
            said = " ".join(daemon.status().get("problems", []))
            return "The log cannot be" in said and "The audit cannot be written (database or disk is full)" in said

        daemon.wait_until(seen)
        assert daemon.status()["health"] == "degraded"
        (disk / "filler").unlink()
        daemon.wait_until(lambda: "The audit cannot" not in " ".join(daemon.status().get("problems", [])))
        rpc.call("a__echo", {"text": "there is room again"})
        daemon.wait_until(lambda: b'"log.lines_dropped"' in (disk / "log").read_bytes())
        assert daemon.stop() == 0
        with contextlib.closing(sqlite3.connect(disk / "state" / "audit.db")) as reader:
            assert reader.execute("SELECT count(*) FROM calls").fetchone() == (301,)
    finally:
        subprocess.run(["umount", "-l", disk], check=True)
