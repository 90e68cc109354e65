"""SIGKILL of the daemon, a hundred times at any moment of its life: nothing that it started is left."""

from __future__ import annotations

import json
import os
import random
import sys
import time
from pathlib import Path
from typing import Any, Final

import psutil
import pytest
from in_process import NoWarden

from conduit_daemon.clients.process import ServerProcess, Warden
from conduit_daemon.config import ServerConfig
from conduit_daemon.service.guardian import Guardian
from conduit_daemon.telemetry.events import EventBus

pytestmark = pytest.mark.campaign

ROUNDS: Final = 100
AT_ONCE: Final = 4
FAKE: Final = Path(__file__).parents[1] / "fakes" / "stdio_server.py"
PATIENCE: Final = 2.0


def wrapped(name: str, *behaviours: str) -> str:
    """A server as npx starts one: a shell, whose child is the wrapper, whose child is the server."""
    server = " ".join([sys.executable, str(FAKE), *behaviours])
    script = f"{sys.executable} -c 'import subprocess,sys; sys.exit(subprocess.call(sys.argv[1:]))' {server}; exit $?"
    return f'[servers.{name}]\ncommand = "sh"\nargs = {json.dumps(["-c", script])}\n'


def of_this_test(folder: Path) -> set[int]:
    """Whatever names the folder of this test in its command line or its environment."""
    mark, found = str(folder).encode(), set()
    for pid in filter(str.isdigit, os.listdir("/proc")):
        try:
            known = Path(f"/proc/{pid}/cmdline").read_bytes() + Path(f"/proc/{pid}/environ").read_bytes()
            state = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0]
        except OSError:
            continue
        if mark in known and state != "Z" and int(pid) != os.getpid():
            found.add(int(pid))
    return found


def marked(folder: Path) -> set[int]:
    """The grandchildren that left their session or their environment, by the marks that they left."""
    return {int(text) for path in folder.glob("pid-*") if (text := path.read_text())}


def living(pids: set[int]) -> set[int]:
    return {pid for pid in pids if psutil.pid_exists(pid) and psutil.Process(pid).status() != psutil.STATUS_ZOMBIE}


def test_no_child_is_left_a_hundred_times_of_a_hundred(
    measured: Any, fake_server: Any, table: Any, tmp_path: Path
) -> None:
    seed = random.randrange(1_000_000)
    dice = random.Random(seed)
    clean, slowest, born = 0, 0.0, 0
    for start in range(0, ROUNDS, AT_ONCE):
        folder = tmp_path / str(start)
        folder.mkdir()
        marks = [[f"detached={folder}/pid-d{i}", f"cleared={folder}/pid-c{i}", "deaf_to_term"] for i in range(AT_ONCE)]
        daemons = [
            measured(
                wrapped("wrapped", *marks[i]),
                fake_server("plain", f"journal={folder}/plain"),
                fake_server("hangs", "hang", f"journal={folder}/hangs"),
                wait=False,
            )
            for i in range(AT_ONCE)
        ]
        time.sleep(dice.uniform(0.3, 5.0))
        before = of_this_test(folder) | marked(folder)
        for daemon in daemons:
            time.sleep(dice.uniform(0, 0.05))
            daemon.process.kill()
        killed = time.monotonic()
        for daemon in daemons:
            daemon.process.wait()
        born += len(before)
        while left := of_this_test(folder) | living(marked(folder)):
            if time.monotonic() - killed > PATIENCE:
                break
            time.sleep(0.01)
        slowest = max(slowest, time.monotonic() - killed)
        assert not left, [(pid, Path(f"/proc/{pid}/cmdline").read_bytes()) for pid in left]
        clean += AT_ONCE
    table(
        f"SIGKILL of the daemon, seed {seed}",
        [
            ("daemons killed, without a child left", f"{ROUNDS}, {clean}"),
            ("processes that lived when they were killed", born),
            ("longest until all were gone, s", f"{slowest:.2f}"),
        ],
    )


async def test_the_guardian_costs_a_spawn_nothing_to_notice(table: Any) -> None:
    guardian = Guardian(EventBus())
    await guardian.start()
    config = ServerConfig(command="sleep", args=("60",))
    took: dict[str, list[float]] = {"with": [], "without": []}
    for _ in range(50):
        wardens: list[tuple[str, Warden]] = [("with", guardian), ("without", NoWarden())]
        random.shuffle(wardens)
        for name, warden in wardens:
            began = time.perf_counter()
            process = await ServerProcess.open(config, warden, os.environ)
            took[name].append(time.perf_counter() - began)
            process.kill_group()
            await process.close()
    await guardian.close()
    medians = {name: sorted(times)[len(times) // 2] * 1000 for name, times in took.items()}
    table("spawning a server, median, ms", [(f"{name} a guardian", f"{ms:.2f}") for name, ms in medians.items()])
    assert medians["with"] < medians["without"] + 2
