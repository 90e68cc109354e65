"""Two hours of an eager office in ten minutes: all at once, and memory, descriptors and tasks stay what they were.

Calls over stdio and HTTP in both eras, each outcome among them; listings in every provider's format; agents that come
and go, also amid a call; progress, cancelled calls, large results; approvals; reloads, restarts and kills of servers;
readers of events, one of them too slow. Now and then all of it rests, and what the daemon then holds is noted.
"""

from __future__ import annotations

import contextlib
import json
import os
import random
import signal
import subprocess
import sys
import threading
import time
from collections import Counter
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any, Final

import msgspec
import psutil
import pytest

pytestmark = pytest.mark.campaign

SECONDS: Final = float(os.environ.get("CONDUIT_SOAK_SECONDS", "600"))
RESTS: Final = 6
GIVEN_BACK: Final = 31.0
"""Seconds after which free memory was given back to the system, which is done twice a minute."""
FAKES: Final = Path(__file__).parents[1] / "fakes"
POLICY: Final = '[policy]\ndefault = "allow"\n[[policy.rules]]\neffect = "approve"\ntools = ["received"]\n'
RULES: Final = '[[policy.rules]]\neffect = "deny"\ntools = ["pid"]\nname = "now and then"\n'
PROVIDERS: Final[tuple[dict[str, Any], ...]] = (
    {},
    {"provider": "anthropic"},
    {"provider": "gemini"},
    {"provider": "openai", "api": "chat"},
    {"provider": "openai", "api": "responses"},
)
STDIO: Final = ("plain", "modern", "shared")


class Sample(msgspec.Struct):
    """What the daemon holds while it rests."""

    at: float
    calls: int
    rss: int
    descriptors: int
    threads: int
    tasks: int
    children: int


class Load:
    """Workers that act until they are to rest or to end."""

    def __init__(self, daemon: Any) -> None:
        self.daemon = daemon
        self.done: Counter[str] = Counter()
        self.failed: list[str] = []
        self._go = threading.Event()
        self._over = False
        self._resting = threading.Semaphore(0)
        self._threads: list[threading.Thread] = []

    def add(self, act: Callable[[random.Random], None], pause: float) -> None:
        """Has `act` done again and again, `pause` seconds apart."""
        thread = threading.Thread(target=self._work, args=(act, pause, len(self._threads)))
        self._threads.append(thread)
        thread.start()

    def run_for(self, seconds: float) -> None:
        """Lets all work, then waits until all rest."""
        self._go.set()
        time.sleep(seconds)
        self._go.clear()
        for _ in self._threads:
            assert self._resting.acquire(timeout=60), "a worker hangs"

    def end(self) -> None:
        """Ends the workers."""
        self._over = True
        self._go.set()
        for thread in self._threads:
            thread.join(60)

    def _work(self, act: Callable[[random.Random], None], pause: float, seed: int) -> None:
        dice = random.Random(seed)
        while True:
            self._go.wait()
            while self._go.is_set() and not self._over:
                try:
                    act(dice)
                except Exception as error:  # noqa: BLE001 - told at the end, with the others
                    self.failed.append(f"{act.__name__}: {type(error).__name__}: {error}")
                time.sleep(pause)
            if self._over:
                return
            self._resting.release()


class Office:
    """What agents, people and operators do."""

    def __init__(self, daemon: Any, load: Load) -> None:
        self._daemon = daemon
        self._done = load.done
        self._servers = [*STDIO, "web", "web_modern"]
        self._changed = False

    @contextlib.contextmanager
    def _connected(self, control: bool = False) -> Iterator[Any]:
        rpc = type(self._daemon).rpc(self._daemon, control)
        self._daemon.connections.remove(rpc)
        try:
            yield rpc
        finally:
            rpc.close()

    def calls(self, dice: random.Random) -> None:
        """A short life of an agent: connects, makes some calls of each kind, goes."""
        with self._connected() as rpc:
            if dice.random() < 0.5:
                rpc.result(
                    "initialize",
                    {"protocolVersion": "2025-11-25", "capabilities": {}, "clientInfo": {"name": "a", "version": "1"}},
                )
            for _ in range(dice.randint(1, 60)):
                server = dice.choice(self._servers)
                name, arguments = dice.choice(
                    [
                        ("echo", {"text": "x" * dice.randint(1, 2000)}),
                        ("echo", {"text": "y"}),
                        ("big", {"size": dice.choice([10_000, 300_000, 3_000_000])}),
                        (
                            "fail",
                            {
                                "kind": dice.choice(
                                    ["garbage", "html", "reset"] if "web" in server else ["error", "tool"]
                                )
                            },
                        ),
                        ("tick", {"times": 2}),
                        ("nothing", {}),
                        ("echo", {"text": 5}),
                        ("pid", {}),
                    ]
                )
                how = dice.random()
                if how < 0.5:
                    rpc.ask("tools/call", {"name": f"{server}__{name}", "arguments": arguments, **_progress(name)})
                elif how < 0.8:
                    rpc.ask("conduit/call", {"name": f"{server}__{name}", "arguments": arguments, "shape": "llm"})
                else:
                    use = {"type": "tool_use", "id": "1", "name": f"{server}__{name}", "input": arguments}
                    rpc.ask("conduit/execute", {"provider": "anthropic", "response": {"content": [use]}})
                rpc.notifications.clear()
                self._done["calls"] += 1

    def cancels(self, dice: random.Random) -> None:
        """Calls that are cancelled, and agents that leave amid one."""
        with self._connected() as rpc:
            server = dice.choice(self._servers)
            running = [
                rpc.send("tools/call", {"name": f"{server}__sleep", "arguments": {"seconds": 5}}) for _ in range(5)
            ]
            for number in running[: dice.randint(0, 5)]:
                rpc.notify("notifications/cancelled", {"requestId": number})
            rpc.result("ping")
            self._done["cancelled calls"] += 5

    def lists(self, dice: random.Random) -> None:
        """Listings."""
        with self._connected() as rpc:
            rpc.result("conduit/tools", {**dice.choice(PROVIDERS), "timeout": 0, "prefix": f"p{dice.randint(0, 5)}_"})
            for method in ("tools/list", "resources/list", "prompts/list"):
                rpc.ask(method)
            self._done["listings"] += 4

    def operates(self, dice: random.Random) -> None:
        """An operator who looks at everything and restarts things."""
        with self._connected(control=True) as rpc:
            for method in ("status", "tree", "metrics", "approvals"):
                rpc.result(f"conduit/{method}")
            rpc.result("conduit/audit", {"limit": 200})
            server = dice.choice(STDIO)
            rpc.result("conduit/servers/explain", {"server": server})
            if dice.random() < 0.2:
                rpc.ask("conduit/servers/restart", {"server": server})
                self._done["restarts"] += 1

    def reloads(self, dice: random.Random) -> None:
        """A configuration that changes: a server comes and goes, a rule comes and goes, a mistake is made."""
        text = self._daemon.config.read_text()
        self._changed = not self._changed
        more = f'\n[servers.now_and_then]\ncommand = "{sys.executable}"\nargs = ["{FAKES}/stdio_server.py"]\n{RULES}'
        self._daemon.config.write_text(text + more if self._changed else text.partition("\n[servers.now_and_then]")[0])
        with self._connected(control=True) as rpc:
            rpc.result("conduit/reload")
            if dice.random() < 0.2:
                good = self._daemon.config.read_text()
                self._daemon.config.write_text(good + "\nnothing = 1\n")
                assert "error" in rpc.ask("conduit/reload")
                self._daemon.config.write_text(good)
                rpc.result("conduit/reload")
        self._done["reloads"] += 1

    def kills(self, dice: random.Random) -> None:
        """A server that dies."""
        with contextlib.suppress(ProcessLookupError, KeyError):
            pid = self._daemon.status()["servers"][dice.choice(STDIO)]["pid"]
            os.kill(pid, signal.SIGKILL)
            self._done["servers killed"] += 1

    def approves(self, dice: random.Random) -> None:
        """Somebody who watches, and calls that wait for them."""
        with self._connected(control=True) as watcher, self._connected() as rpc:
            watcher.send("conduit/approvals", {"watch": True})
            for _ in range(2):
                watcher.result("ping")
            running = [rpc.send("tools/call", {"name": "plain__received", "arguments": {}}) for _ in range(3)]
            waiting: set[str] = set()
            until = time.monotonic() + 2
            while len(waiting) < 3 and time.monotonic() < until:
                waiting |= {one["id"] for one in watcher.result("conduit/approvals")["approvals"]}
            for one in list(waiting)[: dice.randint(0, 3)]:  # who leaves takes the others back
                watcher.ask("conduit/approvals/decide", {"id": one, "decision": dice.choice(["approve", "deny"])})
                self._done["approvals decided"] += 1
            del running

    def reads_events(self, dice: random.Random) -> None:
        """A reader of events who keeps up for a while, and one who never reads."""
        with self._connected(control=True) as reader, self._connected(control=True) as lazy:
            for rpc in (reader, lazy):
                rpc.send("conduit/events", {"backlog": 100})
            until = time.monotonic() + dice.uniform(0.5, 3)
            reader.sock.settimeout(1)
            with contextlib.suppress(TimeoutError):  # all rest, and nothing happens
                while time.monotonic() < until:
                    reader.receive()
                    self._done["events read"] += 1


def _progress(name: str) -> dict[str, Any]:
    return {"_meta": {"progressToken": 1}} if name == "tick" else {}


def _described(stall: dict[str, Any]) -> str:
    where = (stall.get("where") or ["?"])[0]
    return f"{stall['task'].rpartition('.')[2]}, {stall.get('step_ms', '?')} ms of it in one step, at {where}"


@contextlib.contextmanager
def web(*behaviours: str) -> Iterator[str]:
    """A server over HTTP, and its URL."""
    with subprocess.Popen(
        [sys.executable, FAKES / "http_server.py", "0", *behaviours],
        stdout=subprocess.PIPE,
        stderr=subprocess.DEVNULL,
        text=True,
    ) as process:
        assert process.stdout is not None
        port = int(process.stdout.readline())
        try:
            yield f"http://127.0.0.1:{port}/mcp"
        finally:
            process.kill()


def resting(daemon: Any, began: float, tasks: Path) -> Sample:
    """What the daemon holds once all servers are ready and nothing is left of what was done."""
    daemon.wait_until(
        lambda: (
            all(one["state"] == "ready" for one in daemon.status()["servers"].values())
            and daemon.status()["calls"]["in_flight"] == 0
            and daemon.status()["connections"] == 1
        ),
        60,
    )
    time.sleep(GIVEN_BACK)
    process = psutil.Process(daemon.process.pid)
    return Sample(
        at=time.monotonic() - began,
        calls=daemon.status()["calls"]["total"],
        rss=process.memory_info().rss,
        descriptors=process.num_fds(),
        threads=process.num_threads(),
        tasks=int(tasks.read_text()),
        children=len(process.children(recursive=True)),
    )


def test_everything_at_once_leaves_nothing(
    measured: Any, fake_server: Any, table: Any, tmp_path: Path, stalls: Any
) -> None:
    with web() as old, web("modern") as new:
        daemon = measured(
            POLICY.partition("\n")[2].partition("\n")[2],
            *(
                fake_server(name, *(["modern"] if name == "modern" else []), backoff="{ initial = 0.1 }")
                for name in STDIO
            ),
            f'[servers.web]\nurl = "{old}"\n[servers.web_modern]\nurl = "{new}"\n',
            "[limits]\nshutdown_timeout = 1\n",
        )
        daemon.wait_ready(*STDIO, "web", "web_modern")
        load = Load(daemon)
        office = Office(daemon, load)
        for _ in range(4):
            load.add(office.calls, 0.01)
        for act, pause in (
            (office.cancels, 0.2),
            (office.lists, 0.1),
            (office.operates, 0.5),
            (office.reloads, 2.0),
            (office.kills, 5.0),
            (office.approves, 0.5),
            (office.reads_events, 0.2),
        ):
            load.add(act, pause)
        began, samples = time.monotonic(), []
        try:
            for _ in range(RESTS):
                load.run_for(SECONDS / RESTS)
                if daemon.config.read_text().count("now_and_then"):
                    office.reloads(random.Random(1))
                samples.append(resting(daemon, began, tmp_path / "stalls.tasks"))
                print(json.dumps(msgspec.to_builtins(samples[-1])), flush=True)
        finally:
            load.end()
        assert daemon.stop() == 0
    first, last = samples[RESTS // 3], samples[-1]
    table(
        f"a soak of {SECONDS:g} s: after a half, two thirds, all of it",
        [
            *((what, f"{count:,}") for what, count in sorted(load.done.items())),
            *(
                (name, ", ".join(f"{value(sample):,}" for sample in (first, samples[len(samples) * 2 // 3 - 1], last)))
                for name, value in (
                    ("RSS, MiB", lambda sample: sample.rss >> 20),
                    ("descriptors", lambda sample: sample.descriptors),
                    ("tasks", lambda sample: sample.tasks),
                    ("threads", lambda sample: sample.threads),
                    ("processes", lambda sample: sample.children),
                    ("calls so far", lambda sample: sample.calls),
                )
            ),
            ("RSS at the end / after a half", f"{last.rss / first.rss:.3f}"),
            ("longest stall of the event loop, ms", f"{stalls()[0]['ms'] if stalls() else 0:.0f}"),
            ("and what it was", _described(stalls()[0]) if stalls() else "-"),
            ("surprises of the workers", len(load.failed)),
        ],
    )
    assert not load.failed, load.failed[:10]
    assert last.descriptors <= first.descriptors + 16, "more than the kept connections to servers over HTTP"
    assert last.tasks <= first.tasks + 2
    assert last.children == first.children
    assert last.rss <= first.rss * 1.1, "more than the allocator keeps"
