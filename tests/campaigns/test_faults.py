"""Ten servers, two thousand calls, a fault every 50 ms: each call ends in time with a right outcome, and runs once."""

from __future__ import annotations

import os
import random
import signal
import threading
import time
from collections import Counter
from collections.abc import Callable
from pathlib import Path
from typing import Any, Final

import msgspec
import pytest

pytestmark = pytest.mark.campaign

SERVERS: Final = 10
CALLS: Final = 2000
CALLERS: Final = 20
EVERY: Final = 0.05
CALL_TIMEOUT: Final = 3.0
SLACK: Final = 1.0
FAULTS: Final = {
    "kill": signal.SIGKILL,
    "stop": signal.SIGSTOP,
    "garbage": signal.SIGUSR1,
    "slow": signal.SIGUSR2,
    "closed output": signal.SIGHUP,
    "closed input": signal.SIGWINCH,
}


class Ended(msgspec.Struct):
    """One call: what was sent, what came of it, and how long it took."""

    text: str
    kind: str
    outcome: str
    took: float


class Saboteur:
    """Does something to a random server every 50 ms, until told to stop; then lets the stopped go on."""

    def __init__(self, daemon: Any, seed: int) -> None:
        self.done: Counter[str] = Counter()
        self._random = random.Random(seed)
        self._control = daemon.rpc(control=True)
        self._over = threading.Event()
        self._stopped: dict[int, float] = {}
        self._thread = threading.Thread(target=self._run)

    def __enter__(self) -> Saboteur:
        self._thread.start()
        return self

    def __exit__(self, *exc: object) -> None:
        self._over.set()
        self._thread.join()

    def _run(self) -> None:
        began = time.monotonic()
        for number in range(1_000_000):
            if self._over.wait(max(0.0, began + number * EVERY - time.monotonic())):
                break
            servers = self._control.result("conduit/status")["servers"]
            pids = [server["pid"] for server in servers.values() if "pid" in server]
            fault = self._random.choice(list(FAULTS))
            if pids:
                self._hurt(self._random.choice(pids), fault)
            self._resume(time.monotonic())
        self._resume(float("inf"))

    def _hurt(self, pid: int, fault: str) -> None:
        try:
            os.kill(pid, FAULTS[fault])
        except ProcessLookupError:
            return
        self.done[fault] += 1
        if fault == "stop":
            self._stopped.setdefault(pid, time.monotonic() + self._random.uniform(0.1, 1.5))

    def _resume(self, now: float) -> None:
        for pid, until in list(self._stopped.items()):
            if until <= now:
                del self._stopped[pid]
                try:
                    os.kill(pid, signal.SIGCONT)
                except ProcessLookupError:
                    continue


def call_all(daemon: Any, names: list[str], ended: list[Ended], lock: threading.Lock) -> None:
    """One caller: takes the next text until none is left."""
    rpc = daemon.rpc()
    dice = random.Random()
    while True:
        with lock:
            if not names:
                return
            text = names.pop()
        server = f"s{dice.randrange(SERVERS)}"
        began = time.monotonic()
        answer = rpc.ask("conduit/call", {"name": f"{server}__echo", "arguments": {"text": text}})
        took = time.monotonic() - began
        if "result" in answer:
            assert answer["result"]["content"][0]["text"] == text
            found = Ended(text, "ok", "done", took)
        else:
            data = answer["error"]["data"]
            found = Ended(text, data["kind"], data["outcome"], took)
        with lock:
            ended.append(found)
        time.sleep(dice.uniform(0, 0.3) if found.kind == "ok" else 0.3)


def children(pid: int) -> set[int]:
    found = set()
    for entry in filter(str.isdigit, os.listdir("/proc")):
        try:
            fields = Path(f"/proc/{entry}/stat").read_text().rpartition(")")[2].split()
        except OSError:
            continue
        if int(fields[1]) == pid and fields[0] != "Z":
            found.add(int(entry))
    return found


def descriptors(pid: int) -> list[str]:
    """What the process has open, without the numbers that make each socket and pipe another."""
    found = []
    for number in os.listdir(f"/proc/{pid}/fd"):
        try:
            found.append(os.readlink(f"/proc/{pid}/fd/{number}").partition("[")[0])
        except FileNotFoundError:
            continue
    return sorted(found)


def within(seconds: float, condition: Callable[[], bool], tell: Callable[[], object]) -> float:
    """How long it took until `condition` held; fails with what `tell` says where it took too long."""
    began = time.monotonic()
    while not condition():
        assert time.monotonic() - began < seconds, tell()
        time.sleep(0.02)
    return time.monotonic() - began


def test_every_call_ends_in_time_with_a_right_outcome_and_runs_once(
    measured: Any, fake_server: Any, stalls: Any, table: Any, tmp_path: Path
) -> None:
    seed = random.randrange(1_000_000)
    # The circuit is made not to open: servers that die twice a second are this campaign's purpose.
    keys = {
        "backoff": "{ initial = 0.05, factor = 1.5, maximum = 0.5, reset_after = 0.01 }",
        "call_timeout": str(CALL_TIMEOUT),
        "connect_timeout": "5",
    }
    names = [f"s{i}" for i in range(SERVERS)]
    daemon = measured(*(fake_server(name, "faults", f"journal={tmp_path}/{name}", **keys) for name in names))
    daemon.wait_ready(*names, seconds=30)
    pid = daemon.process.pid
    daemon.rpc().result("conduit/call", {"name": "s0__echo", "arguments": {"text": "the first opens the audit"}})
    time.sleep(0.5)
    daemon.connections.pop().close()
    time.sleep(0.5)
    fds = descriptors(pid)
    assert len(children(pid)) == SERVERS + 1
    texts = [f"call {i}" for i in range(CALLS)]
    random.Random(seed).shuffle(texts)
    ended: list[Ended] = []
    lock = threading.Lock()
    began = time.monotonic()
    with Saboteur(daemon, seed) as saboteur:
        callers = [threading.Thread(target=call_all, args=(daemon, texts, ended, lock)) for _ in range(CALLERS)]
        for caller in callers:
            caller.start()
        for caller in callers:
            caller.join()
    last = time.monotonic()
    back = within(5, lambda: all(daemon.state(name) == "ready" for name in names), daemon.status)
    for connection in daemon.connections:
        connection.close()
    within(5, lambda: len(children(pid)) == SERVERS + 1, lambda: children(pid))
    within(5, lambda: len(descriptors(pid)) <= len(fds), lambda: Counter(descriptors(pid)) - Counter(fds))

    ran = Counter(line for name in names for line in (tmp_path / name).read_text().splitlines())
    assert len(ended) == CALLS
    twice = [text for text, times in ran.items() if times > 1]
    wrong = [
        call
        for call in ended
        if (call.outcome == "done" and ran[call.text] != 1)
        or (call.outcome == "not_sent" and ran[call.text])
        or (call.kind, call.outcome) not in RIGHT
    ]
    late = [call for call in ended if call.took > CALL_TIMEOUT + SLACK]
    leftover = children(pid)
    assert daemon.stop() == 0
    alive = [pid for pid in leftover if Path(f"/proc/{pid}").exists()]
    found = stalls()
    outcomes = Counter(f"{call.kind} / {call.outcome}" for call in ended)
    took = sorted(call.took for call in ended)
    table(
        f"faults, seed {seed}",
        [
            ("servers, calls, seconds", f"{SERVERS}, {CALLS}, {last - began:.0f}"),
            ("faults", ", ".join(f"{count} {name}" for name, count in sorted(saboteur.done.items()))),
            ("outcomes", ", ".join(f"{count} {name}" for name, count in outcomes.most_common())),
            ("calls that ran twice, with a wrong outcome, too late", f"{len(twice)}, {len(wrong)}, {len(late)}"),
            (
                "call p50, p99, longest, s",
                f"{took[len(took) // 2]:.4f}, {took[len(took) * 99 // 100]:.2f}, {took[-1]:.2f}",
            ),
            ("all ready after the last fault, s", f"{back:.2f}"),
            ("processes left, descriptors more than before", f"{len(alive)}, 0"),
            ("longest stall of the event loop, ms", found[0]["ms"] if found else "under 20"),
        ],
    )
    assert (twice, wrong, late, alive) == ([], [], [], [])
    assert [stall for stall in found if stall["ms"] > 50] == []


RIGHT: Final = {
    ("ok", "done"),
    ("unavailable", "not_sent"),
    ("unavailable", "outcome_unknown"),
    ("timeout", "outcome_unknown"),
    ("timeout", "not_sent"),
}
