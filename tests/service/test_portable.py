"""Whatever only Linux has is missing: everything is imported all the same, and a stdio server runs."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

FAKE = Path(__file__).parents[1] / "fakes" / "stdio_server.py"

HIDDEN = """
import builtins, fcntl, importlib, os, pkgutil, select, signal, socket, sys, time
import psutil
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
