"""The guardian: a small process that ends every server when the daemon dies, however it dies.

The daemon holds the only writing end of a pipe to it. When that closes, by an orderly exit or a SIGKILL, the
guardian kills what belongs to the run: every process whose environment holds the run's token, and every process
of a session that one of them or a server began. The first finds servers that the daemon was just starting and
grandchildren that left their session; the second finds those that cleared their environment. It stops when three
scans in a row found nothing. Where there is no /proc it kills the process groups. The same is done for one server when
that has ended, so that what it left behind does not add up with each restart.

PR_SET_PDEATHSIG is not used: it follows the thread that forked, and trio's threads end when idle, which would
kill healthy servers; and it does not reach grandchildren.
"""

from __future__ import annotations

import os
import secrets
import subprocess
import sys
from pathlib import Path
from typing import Final, final

import trio

from conduit_daemon.telemetry.events import EventBus

__all__ = ["Guardian"]

RUN_VARIABLE: Final = "CONDUIT_RUN"
_PROGRAM: Final = Path(__file__).with_name("guardian_process.py")
_EXIT_WAIT: Final = 5.0
_RESPAWN_PAUSE: Final = 0.1
_NOBODY: Final = 0


@final
class Guardian:
    """Owns the guardian process and tells it which servers there are.

    Attributes:
        token: Stands in the environment of every server, as the variable ``CONDUIT_RUN``.
        pid: The process; None while there is none.
    """

    def __init__(self, bus: EventBus) -> None:
        self.token = secrets.token_hex(16)
        self.pid: int | None = None
        self._bus = bus
        self._process: trio.Process | None = None
        self._sessions: set[int] = set()

    async def start(self) -> None:
        """Starts the process; to be done before the first server.

        Raises:
            OSError: It cannot be started.
        """
        # An empty environment: the guardian itself must not hold the token of a daemon further up.
        self._process = await trio.lowlevel.open_process(
            [sys.executable, "-I", "-S", str(_PROGRAM)],
            stdin=subprocess.PIPE,
            stdout=subprocess.DEVNULL,
            stderr=subprocess.DEVNULL,
            start_new_session=True,
            cwd="/",
            env={},
        )
        self.pid = self._process.pid
        self._tell(f"token {RUN_VARIABLE}={self.token}")
        for session in tuple(self._sessions):  # a server may be started in a thread meanwhile
            self._tell(f"watch {session}")
        self._bus.emit("guardian.started", level="debug", pid=self.pid)

    async def run(self) -> None:
        """Keeps one guardian running until cancelled."""
        while True:
            if self._process is None:
                await self.start()
            assert self._process is not None  # noqa: S101 - just started
            await self._process.wait()
            self._bus.emit("guardian.lost", level="error", pid=self.pid, reason="It was killed; another is started.")
            self._process = self.pid = None
            await trio.sleep(_RESPAWN_PAUSE)

    async def close(self) -> None:
        """Ends the process in an orderly way: it looks for servers left behind once more, then exits."""
        if self._process is None:
            return
        process, self._process, self.pid = self._process, None, None
        assert process.stdin is not None  # noqa: S101 - it is a pipe
        with trio.CancelScope(shield=True):
            await process.stdin.aclose()
            with trio.move_on_after(_EXIT_WAIT):
                await process.wait()
            if process.returncode is None:
                process.kill()
                await process.wait()

    def watch(self, session: int) -> None:
        """A server was started as the leader of this session. May be called from the thread that started it."""
        self._sessions.add(session)
        self._tell(f"watch {session}")

    def forget(self, session: int, entry: str) -> None:
        """A server has ended; what is left of it, wherever it went, is ended too.

        Args:
            session: Its session.
            entry: What stands in the environment of this server's processes alone, as ``NAME=VALUE``.
        """
        self._sessions.discard(session)
        self._tell(f"end {session} {entry}")

    def end_former(self, token: str) -> None:
        """Ends what a former run has left behind, whose daemon and guardian were killed together.

        Args:
            token: The `token` of that run.
        """
        self._tell(f"end {_NOBODY} {RUN_VARIABLE}={token}")

    def _tell(self, line: str) -> None:
        if self._process is None:
            return
        assert self._process.stdin is not None  # noqa: S101 - it is a pipe
        try:
            # A dozen bytes into an empty pipe, which takes all or nothing (PIPE_BUF).
            os.write(self._process.stdin.fileno(), line.encode() + b"\n")  # type: ignore[attr-defined]
        except OSError:
            return  # it is dead or stopped; whoever starts the next one tells it everything
