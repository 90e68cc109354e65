"""A daemon that is asked to stop while all is going on, and what is to be true of its end.

64 calls run; one server ignores TERM and never answers; the audit's file is locked by somebody else, so that its rows
wait; agents go on calling while it stops.
"""

from __future__ import annotations

import contextlib
import json
import signal
import sqlite3
import threading
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any, Final

import msgspec
import psutil

RUNNING: Final = 64
PATIENCE: Final = 1.5
"""``limits.shutdown_timeout`` of the daemon."""
ENDING: Final = 1.0 + 2.0 + 1.5
"""What a server that ignores TERM takes beyond, an audit that cannot be written, and what a busy machine may add."""
CONFIG: Final = f"[limits]\nshutdown_timeout = {PATIENCE}\nmax_in_flight = 256\n"


class Stopped(msgspec.Struct):
    """What came of it: seconds from the signal to the exit, the exit code, and what was found."""

    seconds: float
    code: int
    answered: int
    unknown: int
    refused: int
    rows: int
    expected_rows: int
    left: set[int]


@contextlib.contextmanager
def _locked(path: Path) -> Iterator[sqlite3.Connection]:
    holder = sqlite3.connect(path, isolation_level=None, check_same_thread=False)
    holder.execute("BEGIN EXCLUSIVE")
    yield holder
    holder.close()


def stop_under_load(daemon: Any, queued: int, *, release: bool) -> Stopped:
    """Loads a daemon that has the servers ``fast`` and ``stubborn``, stops it, and tells what happened.

    Args:
        daemon: It is ready.
        queued: How many calls end while the audit cannot be written.
        release: Whether the audit's file can be written again before it has ended.
    """
    rpc, stubborn, late = daemon.rpc(), daemon.rpc(), daemon.rpc()
    rpc.call("fast__echo", {"text": "the audit's file is there"})
    audit = daemon.folder / "state" / "audit.db"
    daemon.wait_until(audit.exists)
    rpc.result("ping")
    with _locked(audit) as holder:
        _pipeline(rpc, queued)
        running = [
            rpc.send("conduit/call", {"name": "fast__sleep", "arguments": {"seconds": 0.7}}) for _ in range(RUNNING - 2)
        ]
        hanging = [
            stubborn.send("conduit/call", {"name": "stubborn__sleep", "arguments": {"seconds": 600}}) for _ in range(2)
        ]
        daemon.wait_until(lambda: daemon.status()["calls"]["in_flight"] == RUNNING)
        descendants = {child.pid for child in psutil.Process(daemon.process.pid).children(recursive=True)}
        began = time.monotonic()
        daemon.process.send_signal(signal.SIGTERM)
        if release:
            threading.Timer(1.0, holder.execute, ["ROLLBACK"]).start()
        refused = asked = 0
        with contextlib.suppress(OSError, EOFError):
            while time.monotonic() - began < 0.5:
                asked += 1
                kind = late.ask("conduit/call", {"name": "fast__echo", "arguments": {"text": "x"}})
                refused += kind.get("error", {}).get("data", {}).get("kind") == "shutting_down"
        answered = sum("result" in rpc.wait(request) for request in running)
        unknown = sum(stubborn.wait(request)["error"]["data"]["outcome"] == "outcome_unknown" for request in hanging)
        code = daemon.process.wait(PATIENCE + ENDING + 10)
        seconds = time.monotonic() - began
    left = {pid for pid in descendants if _lives(pid)}
    with contextlib.closing(sqlite3.connect(audit)) as reader:
        (rows,) = reader.execute("SELECT count(*) FROM calls").fetchone()
    return Stopped(
        seconds=seconds,
        code=code,
        answered=answered,
        unknown=unknown,
        refused=refused,
        rows=rows,
        expected_rows=1 + queued + RUNNING + asked,
        left=left,
    )


def _pipeline(rpc: Any, count: int) -> None:
    """Has `count` calls end, as fast as they can be refused."""
    line = json.dumps({"jsonrpc": "2.0", "id": "q", "method": "tools/call", "params": {"name": "no_such_tool"}})
    sent = threading.Thread(target=rpc.sock.sendall, args=((line + "\n").encode() * count,))
    sent.start()
    for _ in range(count):
        assert rpc.receive()["error"]["data"]["kind"] == "unknown_tool"
    sent.join()


def _lives(pid: int) -> bool:
    try:
        return Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0] != "Z"
    except OSError:
        return False


def check(stopped: Stopped, daemon: Any) -> None:
    """Fails where anything is not as the design says."""
    assert stopped.code == 0, stopped
    assert stopped.seconds <= PATIENCE + ENDING, stopped
    assert (stopped.answered, stopped.unknown) == (RUNNING - 2, 2), stopped
    assert stopped.refused > 0, stopped
    assert not stopped.left, [(pid, Path(f"/proc/{pid}/cmdline").read_bytes()) for pid in stopped.left]
    assert not daemon.agent.exists()
    assert not daemon.control.exists()
    assert daemon.events()[-1] == "daemon.stopped"
