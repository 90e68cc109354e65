"""Whatever only Linux has is missing: everything is imported all the same, and a stdio server runs and leaves nothing.

This stands in for macOS as far as Linux can: names are deleted from modules and /proc is hidden, so that processes are
waited for in threads and the guardian goes by process groups. It does not show what another kernel would: kqueue,
EPERM for a group of zombies, `getpeereid`, the length of socket paths.
"""

from __future__ import annotations

import os
import shutil
import signal
import subprocess
import sys
import time
from pathlib import Path

import psutil
import pytest

FAKE = Path(__file__).parents[1] / "fakes" / "stdio_server.py"

HIDDEN = """
import builtins, fcntl, importlib, os, pkgutil, select, signal, socket, sys, time
import trio  # has chosen its own way by now

def hide(module, *names):
    for name in names:
        if hasattr(module, name):
            delattr(module, name)

hide(os, "pidfd_open", "P_PIDFD", "memfd_create", "eventfd", "timerfd_create", "sched_getaffinity", "sched_setaffinity",
     "O_PATH", "O_TMPFILE", "posix_fadvise", "sendfile", "splice", "copy_file_range", "getrandom", "unshare", "setns")
hide(fcntl, "F_SETPIPE_SZ", "F_GETPIPE_SZ", "F_ADD_SEALS", "F_NOTIFY")
hide(signal, "SIGPWR", "SIGSTKFLT", "SIGRTMIN", "SIGRTMAX", "sigwaitinfo", "sigtimedwait", "pidfd_send_signal")
hide(socket, "SO_PEERCRED", "SO_PASSCRED", "SCM_CREDENTIALS", "AF_NETLINK", "AF_VSOCK", "SOCK_CLOEXEC", "SOCK_NONBLOCK",
     "SO_DOMAIN", "SO_PROTOCOL", "TCP_KEEPIDLE", "TCP_USER_TIMEOUT")
hide(time, "CLOCK_BOOTTIME", "CLOCK_TAI", "CLOCK_MONOTONIC_RAW_APPROX")
"""

IMPORT_ALL = (
    HIDDEN
    + """
import conduit_daemon, supervisors
count = 0
for package in (conduit_daemon, supervisors):
    for module in pkgutil.walk_packages(package.__path__, package.__name__ + "."):
        if not module.name.endswith("__main__"):
            importlib.import_module(module.name)
            count += 1
print(count)
"""
)

RUN_SERVER = (
    HIDDEN
    + """
import psutil
from conduit_daemon.clients.process import ServerProcess
from conduit_daemon.config import ServerConfig

class Warden:
    token = "t"
    sessions = set()
    def watch(self, session): self.sessions.add(session)
    def forget(self, session, entry): self.sessions.discard(session)

def living(group):
    for process in psutil.process_iter():
        try:
            if os.getpgid(process.pid) == group and process.status() != psutil.STATUS_ZOMBIE:
                yield process
        except (OSError, psutil.Error):
            continue

async def main():
    warden = Warden()
    config = ServerConfig(command=sys.executable, args=(sys.argv[1], "grandchild"))
    process = await ServerProcess.open(config, warden, os.environ)
    os.write(process.stdin_fd, b'{"jsonrpc":"2.0","id":1,"method":"ping"}\\n')
    with trio.fail_after(10):
        await trio.lowlevel.wait_readable(process.stdout_fd)
    print(os.read(process.stdout_fd, 1000).decode().strip())
    await process.close()
    assert not warden.sessions
    with trio.fail_after(5):  # a killed process takes a moment to be gone
        while any(living(process.pid)):
            await trio.sleep(0.01)
    print("gone")

trio.run(main)
"""
)


KILLED = (
    HIDDEN
    + """
from conduit_daemon.clients.connection import Connection, Observer, Settings
from conduit_daemon.config import LimitsConfig, ServerConfig
from conduit_daemon.published import Published
from conduit_daemon.service.guardian import Guardian
from conduit_daemon.telemetry.events import EventBus

assert not os.path.exists("/proc/self")

class Seen(Observer):
    def __init__(self): self.ready, self.pid = trio.Event(), 0
    def on_started(self, pid): self.pid = pid
    def on_ready(self, connection, negotiated, listing): self.ready.set()

async def main():
    guardian, seen, answered = Guardian(EventBus()), Seen(), trio.Event()
    await guardian.start()
    config = ServerConfig(command=sys.executable, args=(sys.argv[1], "grandchild", "deaf_to_term"))
    settings = Settings(server="fake", config=config, limits=Published(LimitsConfig()), version="0",
                        environ=os.environ, clean=str)
    connection = Connection(settings, "auto", guardian, EventBus(), seen)
    def on_result(raw, is_error, error):
        print(bytes(raw).decode())
        answered.set()
    async with trio.open_nursery() as nursery:
        nursery.start_soon(connection.run)
        with trio.fail_after(20):
            await seen.ready.wait()
            connection.begin_call("echo", {"text": "hello"}, on_result, meta={}, total=10.0, on_progress=None)
            await answered.wait()
        print(seen.pid, flush=True)
        os.kill(os.getpid(), signal.SIGKILL)

trio.run(main)
"""
)


def living(group: int) -> list[int]:
    """Processes of a group, zombies left out."""
    found = []
    for process in psutil.process_iter():
        try:
            if os.getpgid(process.pid) == group and process.status() != psutil.STATUS_ZOMBIE:
                found.append(process.pid)
        except (OSError, psutil.Error):
            continue
    return found


def without_proc() -> list[str]:
    """Begins a command where there is no /proc."""
    unshare = ["unshare", "-m" if os.geteuid() == 0 else "-rm"]
    hide = [*unshare, "sh", "-c", 'mount -t tmpfs none /proc && exec "$@"', "sh"]
    if shutil.which("unshare") is None or subprocess.run([*hide, "true"], check=False).returncode:
        pytest.skip("no mount namespace can be made here")
    return hide


def run(program: str, *args: str) -> list[str]:
    done = subprocess.run(
        [sys.executable, "-c", program, *args], capture_output=True, text=True, timeout=60, check=False
    )
    assert done.returncode == 0, done.stderr
    return done.stdout.splitlines()


def test_every_module_is_imported_without_what_only_linux_has() -> None:
    assert int(run(IMPORT_ALL)[0]) > 150


def test_a_stdio_server_runs_and_ends_without_what_only_linux_has() -> None:
    answer, end = run(RUN_SERVER, str(FAKE))
    assert '"id": 1' in answer
    assert end == "gone"


def test_a_killed_daemons_server_is_ended_by_its_group_where_there_is_no_proc() -> None:
    command = [*without_proc(), sys.executable, "-c", KILLED, str(FAKE)]
    done = subprocess.run(command, capture_output=True, text=True, timeout=60, check=False)
    assert done.returncode == -signal.SIGKILL, done.stderr
    answer, pid = done.stdout.splitlines()
    assert '"hello"' in answer
    until = time.monotonic() + 5
    while living(int(pid)):
        assert time.monotonic() < until, living(int(pid))
        time.sleep(0.01)
