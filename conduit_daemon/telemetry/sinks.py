"""Where log lines go: a file descriptor, or systemd's journal. Used by the log's own thread, which may wait."""

from __future__ import annotations

import errno
import fcntl
import os
import select
import socket
import stat
import struct
import time
from collections.abc import Callable
from pathlib import Path
from typing import Final, Protocol, final

from conduit_daemon.errors import DaemonError

__all__ = ["JOURNAL_SOCKET", "JournalSink", "Sink", "StreamSink", "is_journal"]

JOURNAL_SOCKET: Final = Path("/run/systemd/journal/socket")

_ATOMIC: Final = select.PIPE_BUF
_LOOK: Final = 0.1  # seconds between looks at whether waiting still makes sense
_SENDERS_BUFFER: Final = 8 * 1024 * 1024


class Sink(Protocol):
    """Takes rendered lines."""

    def write(self, lines: list[bytes], patient: Callable[[], bool]) -> bool:
        """Writes all lines, waiting for room as long as `patient` says so.

        Returns:
            False where patience ended first.

        Raises:
            OSError: They cannot be written, at least at present.
        """

    def close(self) -> None:
        """Lets go of the descriptor."""


@final
class StreamSink:
    """A pipe, a terminal or a file, by its descriptor.

    The descriptor is duplicated, for another file may come to have its number. Pipes are written in pieces
    that the kernel takes as one and only when it has room: lines of several writers never mix, a reader that
    stalls can be given up, and it does not matter whether another process has made the pipe non-blocking.

    Args:
        fd: An open descriptor.

    Raises:
        OSError: It is not open.
    """

    def __init__(self, fd: int) -> None:
        self._fd = fcntl.fcntl(fd, fcntl.F_DUPFD_CLOEXEC, 3)
        self._piece = 1 << 20 if stat.S_ISREG(os.fstat(self._fd).st_mode) else _ATOMIC
        self._poll = select.poll()
        self._poll.register(self._fd, select.POLLOUT)

    def write(self, lines: list[bytes], patient: Callable[[], bool]) -> bool:
        """See Sink."""
        data = b"".join(lines)
        at = 0
        while at < len(data):
            if not self._poll.poll(_LOOK * 1000):
                if not patient():
                    return False
                continue
            try:
                at += os.write(self._fd, data[at : self._end(data, at)])
            except BlockingIOError:
                time.sleep(_LOOK / 10)
        return True

    def close(self) -> None:
        """See Sink."""
        os.close(self._fd)

    def _end(self, data: bytes, at: int) -> int:
        """Where the piece that begins `at` ends: after a line, if one ends in it."""
        if len(data) - at <= self._piece:
            return len(data)
        line_end = data.rfind(b"\n", at, at + self._piece)
        return at + self._piece if line_end < 0 else line_end + 1


@final
class JournalSink:
    """systemd's journal, by its native protocol.

    Args:
        path: Its datagram socket.

    Raises:
        DaemonError: There is none.
    """

    def __init__(self, path: Path = JOURNAL_SOCKET) -> None:
        if not path.is_socket():
            raise DaemonError(
                f"The log is to go to the journal, but there is no journal at {path}: "
                'set log.format to "auto" or "json", or run where systemd runs.'
            )
        self._path = str(path)
        self._socket = socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM | socket.SOCK_CLOEXEC)
        self._socket.setblocking(False)
        self._socket.setsockopt(socket.SOL_SOCKET, socket.SO_SNDBUF, _SENDERS_BUFFER)

    def write(self, lines: list[bytes], patient: Callable[[], bool]) -> bool:
        """See Sink."""
        return all(self._send(line, patient) for line in lines)

    def close(self) -> None:
        """See Sink."""
        self._socket.close()

    def _send(self, datagram: bytes, patient: Callable[[], bool]) -> bool:
        send = self._send_datagram
        while True:
            try:
                send(datagram)
            except BlockingIOError:
                # An unconnected datagram socket is always "writable": only time tells.
                if not patient():
                    return False
                time.sleep(_LOOK / 10)
            except OSError as error:
                if send == self._send_file or error.errno not in {errno.EMSGSIZE, errno.ENOBUFS}:
                    raise
                send = self._send_file
            else:
                return True

    def _send_datagram(self, datagram: bytes) -> None:
        self._socket.sendto(datagram, self._path)

    def _send_file(self, datagram: bytes) -> None:
        """Sends one that is too large for a datagram, in a sealed file of memory."""
        fd = os.memfd_create("conduit-log", os.MFD_CLOEXEC | os.MFD_ALLOW_SEALING)
        try:
            with os.fdopen(os.dup(fd), "wb") as file:
                file.write(datagram)
            seals = fcntl.F_SEAL_SEAL | fcntl.F_SEAL_SHRINK | fcntl.F_SEAL_GROW | fcntl.F_SEAL_WRITE
            fcntl.fcntl(fd, fcntl.F_ADD_SEALS, seals)
            # Not socket.send_fds, which ignores the address it is given.
            rights = (socket.SOL_SOCKET, socket.SCM_RIGHTS, struct.pack("i", fd))
            self._socket.sendmsg([], [rights], 0, self._path)
        finally:
            os.close(fd)


def is_journal(fd: int, journal_stream: str | None) -> bool:
    """Whether what is written to `fd` ends in the journal anyway.

    Args:
        fd: An open descriptor.
        journal_stream: systemd's ``$JOURNAL_STREAM``: the device and inode of what it gave the service as
            stderr. A program started by the service inherits it, though its own stderr may be another.
    """
    if not journal_stream:
        return False
    status = os.fstat(fd)
    return journal_stream == f"{status.st_dev}:{status.st_ino}"
