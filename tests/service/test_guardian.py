"""The guardian: whatever kills the daemon, no server is left, nor what a server started."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest

FAKE = Path(__file__).parents[1] / "fakes" / "stdio_server.py"

DAEMON = """
import os, sys, trio
from conduit_daemon.clients.process import ServerProcess
from conduit_daemon.config import ServerConfig
from conduit_daemon.service.guardian import Guardian
from conduit_daemon.telemetry.events import EventBus

fake, folder, count, rogue = sys.argv[1], sys.argv[2], int(sys.argv[3]), sys.argv[4]

async def main():
    guardian = Guardian(EventBus())
    await guardian.start()
    print("guardian", guardian.pid, flush=True)
    async def start(i):
        behaviours = (f"detached={folder}/d{i}", f"cleared={folder}/c{i}", "deaf_to_term")
        server = ServerConfig(command=sys.executable, args=(fake, *behaviours))
        process = await ServerProcess.open(server, guardian, os.environ)
        print("server", process.pid, flush=True)
    async with trio.open_nursery() as nursery:
        nursery.start_soon(guardian.run)
        for i in range(count):
            nursery.start_soon(start, i)
        if rogue == "late":  # goes on starting servers until it is killed
            i = count
            while True:
                i += 1
                await start(i)

trio.run(main)
"""


def alive(pid: int) -> bool:
    try:
        return Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0] != "Z"
    except (FileNotFoundError, ProcessLookupError):
        return False


def processes_of(folder: Path) -> set[int]:
    """Everything whose command line names the folder of this test: the servers, however late they were started."""
    found = set()
    for pid in filter(str.isdigit, os.listdir("/proc")):
        try:
            line = Path(f"/proc/{pid}/cmdline").read_bytes()
        except OSError:
            continue
        if str(folder).encode() in line and int(pid) != os.getpid():
            found.add(int(pid))
    return found


def wait_for(condition, seconds: float) -> bool:  # type: ignore[no-untyped-def]
    until = time.monotonic() + seconds
    while not condition():
        if time.monotonic() > until:
            return False
        time.sleep(0.01)
    return True


@pytest.mark.skipif(not Path("/proc/self/environ").exists(), reason="needs /proc")
@pytest.mark.parametrize("attempt", range(4))
def test_a_killed_daemon_leaves_no_server_and_no_grandchild(tmp_path: Path, attempt: int) -> None:
    late = "late" if attempt % 2 else "settled"
    daemon = subprocess.Popen(
        [sys.executable, "-c", DAEMON, str(FAKE), str(tmp_path), "3", late], stdout=subprocess.PIPE, text=True
    )
    assert daemon.stdout is not None
    guardian = int(daemon.stdout.readline().split()[1])
    servers = [int(daemon.stdout.readline().split()[1]) for _ in range(3)]
    assert wait_for(lambda: len(list(tmp_path.iterdir())) >= 6, 10)
    time.sleep(0.05 * attempt)
    grandchildren = [int(text) for path in tmp_path.iterdir() if (text := path.read_text())]
    os.kill(daemon.pid, signal.SIGKILL)
    killed = time.monotonic()
    daemon.wait()
    assert wait_for(lambda: not any(map(alive, [*servers, *grandchildren, guardian])), 2), "a process was left"
    assert time.monotonic() - killed < 1.5
    assert wait_for(lambda: not processes_of(tmp_path), 1)


@pytest.mark.skipif(not Path("/proc/self/environ").exists(), reason="needs /proc")
def test_a_killed_guardian_is_replaced_and_the_next_one_knows_all(tmp_path: Path) -> None:
    daemon = subprocess.Popen(
        [sys.executable, "-c", DAEMON, str(FAKE), str(tmp_path), "2", "settled"], stdout=subprocess.PIPE, text=True
    )
    assert daemon.stdout is not None
    first = int(daemon.stdout.readline().split()[1])
    servers = [int(daemon.stdout.readline().split()[1]) for _ in range(2)]
    assert wait_for(lambda: len(list(tmp_path.iterdir())) == 4, 10)
    os.kill(first, signal.SIGKILL)
    assert wait_for(lambda: any(pid != first for pid in _guardians_of(daemon.pid)), 5)
    time.sleep(0.1)
    grandchildren = [int(path.read_text()) for path in tmp_path.iterdir()]
    assert all(map(alive, [*servers, *grandchildren]))
    os.kill(daemon.pid, signal.SIGKILL)
    daemon.wait()
    assert wait_for(lambda: not any(map(alive, [*servers, *grandchildren])), 2)


def _guardians_of(pid: int) -> list[int]:
    found = []
    for other in filter(str.isdigit, os.listdir("/proc")):
        try:
            if (
                b"guardian_process" in Path(f"/proc/{other}/cmdline").read_bytes()
                and int(Path(f"/proc/{other}/stat").read_text().rpartition(")")[2].split()[1]) == pid
                and alive(int(other))
            ):
                found.append(int(other))
        except OSError:
            continue
    return found
