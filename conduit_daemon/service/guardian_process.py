"""The guardian's own program: reads its pipe to the end, then kills what is left of the run. Standard library only."""

import contextlib
import os
import signal
import sys
import time

SCANS = 3
PAUSE = 0.02
PATIENCE = 30.0


def session_of(pid: str) -> int:
    """The session of a process; 0 for a zombie and for one that has just gone."""
    try:
        with open(f"/proc/{pid}/stat", "rb") as file:
            fields = file.read().rpartition(b")")[2].split()
        return 0 if fields[0] in (b"Z", b"X") else int(fields[3])
    except (OSError, IndexError, ValueError):
        return 0


def holds(pid: str, token: bytes) -> bool:
    """Whether the environment that a process was started with holds the run's token."""
    try:
        with open(f"/proc/{pid}/environ", "rb") as file:
            return token in file.read().split(b"\0")
    except OSError:
        return False  # it has just gone, or is another user's


def survivors(token: bytes, sessions: set[int]) -> list[int]:
    """The processes of the run that still live; the sessions of those that hold the token are added to `sessions`.

    A server begins a session of its own, and nobody can join one from outside: all that is in it is the run's.
    """
    own = str(os.getpid())
    living = {
        pid: session for pid in os.listdir("/proc") if pid.isdigit() and pid != own and (session := session_of(pid))
    }
    holders = {pid for pid in living if holds(pid, token)}
    sessions |= {living[pid] for pid in holders}
    return [int(pid) for pid, session in living.items() if pid in holders or session in sessions]


def end_run(token: bytes, sessions: set[int]) -> None:
    """Kills what belongs to the run until nothing is found any more."""
    if not os.path.isdir("/proc/self"):
        for session in sessions:
            with contextlib.suppress(OSError):
                os.killpg(session, signal.SIGKILL)
        return
    clean, until = 0, time.monotonic() + PATIENCE
    while clean < SCANS and time.monotonic() < until:
        found = survivors(token, sessions)
        clean = 0 if found else clean + 1
        for pid in found:
            with contextlib.suppress(OSError):
                os.kill(pid, signal.SIGKILL)
        time.sleep(PAUSE)


def main() -> None:
    """Keeps book of what the daemon tells; its death is the end of the input."""
    for number in (signal.SIGINT, signal.SIGTERM, signal.SIGHUP, signal.SIGQUIT):
        signal.signal(number, signal.SIG_IGN)
    token, sessions = b"", set[int]()
    for line in sys.stdin.buffer:
        word, _, value = line.strip().partition(b" ")
        if word == b"token":
            token = value
        elif word == b"watch":
            sessions.add(int(value))
        elif word == b"forget":
            sessions.discard(int(value))
    if token:
        end_run(token, sessions)


if __name__ == "__main__":
    main()
