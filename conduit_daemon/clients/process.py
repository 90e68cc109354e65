"""A server's process: started in a session of its own, watched, and ended for certain."""

from __future__ import annotations

import contextlib
import fcntl
import os
import secrets
import signal
import subprocess
from collections.abc import Mapping
from typing import IO, Final, Protocol, final

import trio

from conduit_daemon.config.model import ServerConfig

__all__ = ["GRACE", "PIPE_SIZE", "SHORT_GRACE", "Exit", "ServerProcess", "Warden", "safe_environment"]

_SAFE: Final = ("HOME", "LOGNAME", "PATH", "SHELL", "TERM", "USER")
PIPE_SIZE: Final = 1 << 20
"""Bytes that the pipe from a server holds, at most."""

_AT_ONCE: Final = 2
_SPAWNS: Final[trio.lowlevel.RunVar[trio.CapacityLimiter]] = trio.lowlevel.RunVar("conduit.spawns")
_START: Final = "CONDUIT_START"
_REAP: Final = 1.0

GRACE: Final = 2.0
"""Seconds that a server has to end after its input was closed, and again after TERM."""

SHORT_GRACE: Final = 0.5
"""The same of one for whose end somebody waits."""


class Warden(Protocol):
    """Who ends the servers if the daemon cannot: the guardian."""

    token: str

    def watch(self, session: int) -> None:
        """A server was started as the leader of this session; called from the thread that started it."""

    def forget(self, session: int, entry: str) -> None:
        """The server has ended; what is left of it has `entry` (``NAME=VALUE``) in its environment."""


def safe_environment(environ: Mapping[str, str]) -> dict[str, str]:
    """The variables that every server gets: the SDK's safe default, never the daemon's whole environment."""
    return {name: environ[name] for name in _SAFE if name in environ and not environ[name].startswith("()")}


def _widen(fd: int) -> None:
    """Lets a large result through in few reads, where the system knows how."""
    if not hasattr(fcntl, "F_SETPIPE_SZ"):
        return
    with contextlib.suppress(OSError):  # over the user's quota of pipe memory the default must do
        fcntl.fcntl(fd, fcntl.F_SETPIPE_SZ, PIPE_SIZE)


def _spawns() -> trio.CapacityLimiter:
    """So many processes are started at a time: starting a thread for each, all at once, holds the loop up."""
    try:
        return _SPAWNS.get()
    except LookupError:
        limiter = trio.CapacityLimiter(_AT_ONCE)
        _SPAWNS.set(limiter)
        return limiter


@final
class Exit:
    """How a process ended.

    Attributes:
        code: Its exit code; None where a signal ended it.
        signal: The signal's name, as ``SIGKILL``; None where it exited.
    """

    __slots__ = ("code", "signal")

    def __init__(self, returncode: int) -> None:
        self.code: int | None = None
        self.signal: str | None = None
        if returncode >= 0:
            self.code = returncode
        else:
            try:
                self.signal = signal.Signals(-returncode).name
            except ValueError:
                self.signal = f"signal {-returncode}"

    def __str__(self) -> str:
        return f"was ended by {self.signal}" if self.signal else f"exited with code {self.code}"


@final
class ServerProcess:
    """A started server. Its session's id and its process group are its pid.

    Attributes:
        pid: Its process id.
        stdin_fd: Its input, non-blocking, as are the others.
        stdout_fd: Its output.
        stderr_fd: Its error output.
    """

    def __init__(self, process: subprocess.Popen[bytes], warden: Warden, start: str) -> None:
        assert process.stdin is not None  # noqa: S101 - all three are pipes
        assert process.stdout is not None  # noqa: S101 - as above
        assert process.stderr is not None  # noqa: S101 - as above
        self.pid = process.pid
        self._process = process
        self._warden = warden
        self._start = start
        self._pipes = [process.stdin, process.stdout, process.stderr]
        self.stdin_fd, self.stdout_fd, self.stderr_fd = (pipe.fileno() for pipe in self._pipes)
        for pipe in self._pipes:
            os.set_blocking(pipe.fileno(), False)
        _widen(self.stdout_fd)
        self._waiting = trio.Lock()
        self._pidfd = os.pidfd_open(self.pid) if hasattr(os, "pidfd_open") else None

    @classmethod
    async def open(cls, config: ServerConfig, warden: Warden, environ: Mapping[str, str]) -> ServerProcess:
        """Starts the server.

        Args:
            config: A stdio server's configuration.
            warden: Told of the process; its token goes into the environment.
            environ: The daemon's environment, of which the safe part is handed on.

        Raises:
            OSError: The command cannot be started.
        """
        assert config.command is not None  # noqa: S101 - a stdio server has one
        command, mark = [config.command, *config.args], secrets.token_hex(16)
        env = {**safe_environment(environ), **config.env, "CONDUIT_RUN": warden.token, _START: mark}

        def start() -> subprocess.Popen[bytes]:
            process = subprocess.Popen(
                command,
                bufsize=0,
                stdin=subprocess.PIPE,
                stdout=subprocess.PIPE,
                stderr=subprocess.PIPE,
                start_new_session=True,
                env=env,
                cwd=config.cwd,
            )
            # Here and not in the loop, which may be busy: the daemon may be killed in the very next moment.
            warden.watch(process.pid)
            return process

        return cls(await trio.to_thread.run_sync(start, limiter=_spawns()), warden, mark)

    async def wait(self) -> Exit:
        """Waits until the server itself has ended; others of its session may go on."""
        async with self._waiting:
            while self._process.poll() is None:
                if self._pidfd is None:
                    await trio.to_thread.run_sync(self._process.wait, abandon_on_cancel=True)
                else:
                    await trio.lowlevel.wait_readable(self._pidfd)
        return Exit(self._process.returncode)

    def kill_group(self) -> None:
        """Kills what is left of its process group, the server itself included."""
        self._signal(signal.SIGKILL)

    async def close(self, grace: float = GRACE) -> None:
        """Ends it: its input is closed, then TERM, then KILL to the group, `grace` seconds apart at most."""
        with trio.CancelScope(shield=True):
            self._close_pipe(self._pipes[0])
            for number in (signal.SIGTERM, signal.SIGKILL):
                with trio.move_on_after(grace):
                    await self.wait()
                if self._process.returncode is not None:
                    break
                self._signal(number)
            self.kill_group()
            with trio.move_on_after(_REAP):
                await self.wait()
            for pipe in self._pipes[1:]:
                self._close_pipe(pipe)
            if self._pidfd is not None:
                trio.lowlevel.notify_closing(self._pidfd)
                os.close(self._pidfd)
                self._pidfd = None
            self._warden.forget(self.pid, f"{_START}={self._start}")

    def _close_pipe(self, pipe: IO[bytes]) -> None:
        trio.lowlevel.notify_closing(pipe.fileno())
        pipe.close()

    def _signal(self, number: signal.Signals) -> None:
        try:
            os.killpg(self.pid, number)
        except (ProcessLookupError, PermissionError):
            return  # nothing is left of the group (macOS says so by EPERM)
