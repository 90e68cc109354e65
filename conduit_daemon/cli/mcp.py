"""`conduit mcp`: the daemon's tools as an MCP server on stdin and stdout, for any MCP host.

It only carries lines between the host and the daemon's socket. When the daemon is restarted it connects again and
tells the new one what the host had said, so that the host need not be restarted too.
"""

from __future__ import annotations

import os
import select
import socket
import sys
import time
from collections import deque
from typing import Final, final

from conduit_daemon.agent import DaemonUnreachable, sockets
from conduit_daemon.agent._link import connect
from conduit_daemon.cli.connection import HERE, Where
from conduit_daemon.cli.exits import DONE, UsageError
from conduit_daemon.cli.mcp_session import Session

__all__ = ["mcp"]

_CHUNK: Final = 1 << 18
_HIGH_WATER: Final = 1 << 20
_PATIENCE_AT_START: Final = 3.0
_PATIENCE: Final = 10.0
_PAUSES: Final = (0.05, 1.0)
_ATOMIC: Final = select.PIPE_BUF


def mcp(*, set: str | None = None, where: Where = HERE) -> int:
    """Serves the daemon's tools on stdin and stdout, as an MCP server for any MCP host.

    Args:
        set: Only the tools of [toolsets.NAME].
    """
    bridge = _Bridge(sockets.lookup(os.environ, socket=where.socket, config=where.config), Session(set))
    bridge.run()
    if bridge.session.refusal is not None:
        raise UsageError(bridge.session.refusal)
    return DONE


@final
class _Output:
    """Lines for a descriptor, written in pieces.

    A blocking descriptor, as stdout is, takes a piece of `_ATOMIC` bytes without blocking once it is ready.
    """

    def __init__(self, fd: int, piece: int) -> None:
        self.fd = fd
        self.size = 0
        self._piece = piece
        self._parts: deque[memoryview] = deque()

    def put(self, line: bytes) -> None:
        self._parts.append(memoryview(line))
        self.size += len(line)

    def write(self) -> None:
        """Writes one piece; only where the descriptor is ready."""
        first = self._parts[0]
        taken = os.write(self.fd, first[: self._piece])
        self.size -= taken
        if taken < len(first):
            self._parts[0] = first[taken:]
        else:
            self._parts.popleft()


@final
class _Lines:
    """Whole lines out of chunks."""

    def __init__(self) -> None:
        self._rest = bytearray()

    def feed(self, chunk: bytes) -> list[bytes]:
        """The lines that `chunk` completes, with their line feeds."""
        if b"\n" not in chunk:
            self._rest += chunk
            return []
        whole, _, rest = chunk.rpartition(b"\n")
        lines = (bytes(self._rest) + whole).split(b"\n")
        self._rest = bytearray(rest)
        return [line + b"\n" for line in lines]

    def finish(self) -> list[bytes]:
        """What is left at the end, as a line."""
        rest, self._rest = bytes(self._rest), bytearray()
        return [rest + b"\n"] if rest.strip() else []


@final
class _Bridge:
    """Carries lines until the host closes its side and has all answers.

    Args:
        places: Where the daemon may listen.
        session: What must be told again.
    """

    def __init__(self, places: tuple[sockets.Sockets, ...], session: Session) -> None:
        self.session = session
        self._places = places
        self._stdin = sys.stdin.fileno()
        self._stdout = _Output(sys.stdout.fileno(), _ATOMIC)
        self._host_lines, self._daemon_lines = _Lines(), _Lines()
        self._sock: socket.socket | None = None
        self._to_daemon = _Output(-1, _CHUNK)
        self._held: list[bytes] = []
        self._host_open = True
        self._lost_at = self._connected_at = time.monotonic()
        self._pause, self._try_at = _PAUSES[0], 0.0
        self._why = ""

    def run(self) -> None:
        """Carries lines to the end.

        Raises:
            DaemonUnreachable: There is no daemon to begin with.
        """
        self._connect_first()
        while self.session.refusal is None:
            self._carry(self._ready())
            if not self._host_open and self._sock is None and not self._stdout.size:
                return

    # ---- connecting

    def _connect_first(self) -> None:
        until = time.monotonic() + _PATIENCE_AT_START
        while True:
            try:
                self._connect()
            except DaemonUnreachable:
                if time.monotonic() >= until:
                    raise
                time.sleep(_PAUSES[0])
            else:
                return

    def _connect(self) -> None:
        link = connect(self._places, control=False)
        self._sock = link.sock
        self._to_daemon, self._daemon_lines = _Output(self._sock.fileno(), _CHUNK), _Lines()
        self._connected_at = time.monotonic()
        for line in self.session.opening():
            self._to_daemon.put(line)
        for line in self._held:
            self._forward(line)
        self._held = []

    def _reconnect(self) -> None:
        if time.monotonic() < self._try_at:
            return
        try:
            self._connect()
        except DaemonUnreachable as error:
            self._why = str(error)
            self._wait_before_the_next()
            if time.monotonic() - self._lost_at > _PATIENCE:
                for line in self._held:
                    self._tell(self.session.unreachable(line, self._why))
                self._held = []
            return
        self._tell(self.session.found_again())

    def _lose(self) -> None:
        assert self._sock is not None  # noqa: S101 - only a connection is lost
        self._sock.close()
        self._sock = None
        now = time.monotonic()
        if now - self._connected_at < _PAUSES[1]:  # it lets nobody in: it is full, or starts and dies
            self._wait_before_the_next()
        else:
            self._lost_at, self._pause, self._try_at = now, _PAUSES[0], 0.0
        self._tell(self.session.lost())

    def _wait_before_the_next(self) -> None:
        self._try_at = time.monotonic() + self._pause
        self._pause = min(self._pause * 2, _PAUSES[1])

    # ---- carrying

    def _ready(self) -> dict[int, int]:
        """The descriptors that can be used now, and how."""
        if self._sock is None and self._host_open:
            self._reconnect()
        wanted: dict[int, int] = {}
        if self._host_open and self._to_daemon.size < _HIGH_WATER:
            wanted[self._stdin] = select.POLLIN
        if self._sock is not None:
            reads = select.POLLIN if self._stdout.size < _HIGH_WATER else 0
            wanted[self._sock.fileno()] = reads | (select.POLLOUT if self._to_daemon.size else 0)
        if self._stdout.size:
            wanted[self._stdout.fd] = wanted.get(self._stdout.fd, 0) | select.POLLOUT
        poll = select.poll()
        for fd, events in wanted.items():
            poll.register(fd, events)
        return dict(poll.poll(50 if self._sock is None else None))

    def _carry(self, ready: dict[int, int]) -> None:
        if ready.get(self._stdout.fd, 0) & (select.POLLOUT | select.POLLERR | select.POLLHUP) and self._stdout.size:
            self._stdout.write()
        if self._sock is not None:
            events = ready.get(self._sock.fileno(), 0)
            if events & (select.POLLIN | select.POLLHUP | select.POLLERR):
                self._hear_daemon()
        if self._sock is not None and self._to_daemon.size and ready.get(self._sock.fileno(), 0) & select.POLLOUT:
            self._speak()
        if ready.get(self._stdin, 0) & (select.POLLIN | select.POLLHUP | select.POLLERR) and self._host_open:
            self._hear_host()

    def _hear_host(self) -> None:
        chunk = os.read(self._stdin, _CHUNK)
        for line in self._host_lines.feed(chunk) if chunk else self._host_lines.finish():
            if self._sock is not None:
                self._forward(line)
            elif time.monotonic() - self._lost_at > _PATIENCE:
                self._tell(self.session.unreachable(line, self._why))
            else:
                self._held.append(line)
        if not chunk:
            self._host_open = False
            if self._sock is not None and not self._to_daemon.size:
                self._sock.shutdown(socket.SHUT_WR)

    def _forward(self, line: bytes) -> None:
        self.session.from_host(line)
        self._to_daemon.put(line)

    def _hear_daemon(self) -> None:
        assert self._sock is not None  # noqa: S101 - the caller looked
        try:
            chunk = self._sock.recv(_CHUNK)
        except BlockingIOError:
            return
        except OSError:
            chunk = b""
        for line in self._daemon_lines.feed(chunk):
            self._tell(self.session.from_daemon(line))
        if not chunk:
            self._lose()

    def _speak(self) -> None:
        assert self._sock is not None  # noqa: S101 - the caller looked
        try:
            self._to_daemon.write()
        except BlockingIOError:
            return
        except OSError:
            while self._sock is not None:
                self._hear_daemon()  # what it said before it went is still there
            return
        if not self._host_open and not self._to_daemon.size:
            self._sock.shutdown(socket.SHUT_WR)

    def _tell(self, lines: list[bytes]) -> None:
        for line in lines:
            self._stdout.put(line)
