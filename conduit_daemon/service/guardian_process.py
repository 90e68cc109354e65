"""The guardian's own program: kills what is left of a server that has ended, and at last of the run.

It reads its pipe to the end; each line is one thing that the daemon tells. Standard library only.

    token ENTRY             what stands in the environment of every process of the run
    watch SESSION           a server was started as the leader of a session
    end SESSION ENTRY       it has ended: what has ENTRY in its environment, or is of the session, is left over;
                            session 0 is nobody's
"""

import contextlib
import os
import select
import signal
import time

SCANS = 3
PAUSE = 0.02
PATIENCE = 30.0
PATIENCE_WITH_ONE = 1.0
QUIET = 0.05


def session_of(pid: str) -> int:
    """The session of a process; 0 for a zombie and for one that has just gone."""
    try:
        with open(f"/proc/{pid}/stat", "rb") as file:
            fields = file.read().rpartition(b")")[2].split()
        return 0 if fields[0] in (b"Z", b"X") else int(fields[3])
    except (OSError, IndexError, ValueError):
        return 0


def holds(pid: str, tokens: set[bytes]) -> bool:
    """Whether the environment that a process was started with holds one of the tokens."""
    try:
        with open(f"/proc/{pid}/environ", "rb") as file:
            return not tokens.isdisjoint(file.read().split(b"\0"))
    except OSError:
        return False  # it has just gone, or is another user's


def survivors(tokens: set[bytes], sessions: set[int]) -> list[int]:
    """The processes of the run that still live; the sessions of those that hold a token are added to `sessions`.

    A server begins a session of its own, and nobody can join one from outside: all that is in it is the run's.
    """
    own = str(os.getpid())
    living = {
        pid: session for pid in os.listdir("/proc") if pid.isdigit() and pid != own and (session := session_of(pid))
    }
    holders = {pid for pid in living if holds(pid, tokens)}
    sessions |= {living[pid] for pid in holders}
    return [int(pid) for pid, session in living.items() if pid in holders or session in sessions]


def end(tokens: set[bytes], sessions: set[int], patience: float = PATIENCE) -> None:
    """Kills what holds a token or is of a session, until nothing is found any more."""
    if not os.path.isdir("/proc/self"):
        for session in sessions:
            with contextlib.suppress(OSError):
                os.killpg(session, signal.SIGKILL)
        return
    clean, until = 0, time.monotonic() + patience
    while clean < SCANS and time.monotonic() < until:
        found = survivors(tokens, sessions)
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
    entries, ended = set[bytes](), set[int]()
    rest, has_proc = b"", os.path.isdir("/proc/self")
    while True:
        if entries and not select.select([0], [], [], QUIET)[0]:
            # All that ended together is looked for together, and a look never stands in the way of the news.
            if has_proc:  # elsewhere the daemon has killed the group, and more is not known
                end(entries, ended, PATIENCE_WITH_ONE)
            entries, ended = set(), set()
        chunk = os.read(0, 1 << 16)
        if not chunk:
            break
        *lines, rest = (rest + chunk).split(b"\n")
        for line in lines:
            word, *values = line.split(b" ")
            if word == b"token":
                token = values[0]
            elif word == b"watch":
                sessions.add(int(values[0]))
            elif word == b"end":
                sessions.discard(int(values[0]))
                ended |= {int(values[0])} if has_proc else set()
                entries.add(values[1])
    if token:
        end({token} | entries, sessions | ended)


if __name__ == "__main__":
    main()
