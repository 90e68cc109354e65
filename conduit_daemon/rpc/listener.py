"""The two sockets: made, or taken over; accepted from; and removed at the end if they are ours."""

from __future__ import annotations

import errno
import grp
import os
import pwd
import socket
import struct
import sys
from collections.abc import Callable, Mapping
from contextlib import suppress
from pathlib import Path
from typing import Final, final

import trio

from conduit_daemon.config import Config, agent_socket, control_socket
from conduit_daemon.errors import DaemonError
from conduit_daemon.model import Principal

__all__ = ["Listener", "open_listener", "open_listeners", "peer"]

_BACKLOG: Final = 256
_LONGEST_PATH: Final = 107 if sys.platform == "linux" else 103
_OVERLOADED: Final = frozenset({errno.EMFILE, errno.ENFILE, errno.ENOBUFS, errno.ENOMEM})
_PAUSE: Final = 0.1


@final
class Listener:
    """A listening Unix socket, owned by the application so that it outlives a restart of its acceptor.

    Args:
        sock: The socket.
        path: Where it listens.
        control: Whether it is the control socket.
        make: Makes another one like it at the same path; None where a service manager made it, to be left in place.

    Attributes:
        path: Where it listens.
        control: Whether it is the control socket.
    """

    def __init__(
        self, sock: socket.socket, path: Path, *, control: bool, make: Callable[[], socket.socket] | None = None
    ) -> None:
        sock.setblocking(False)
        self.path = path
        self.control = control
        self._sock = sock
        self._make = make
        self._closed = False
        self._identity = _identity(path)
        self._accepted: list[socket.socket] = []

    async def accept(self) -> socket.socket:
        """The next connection, non-blocking. A process out of descriptors pauses and goes on.

        Raises:
            trio.ClosedResourceError: The listener was closed.
        """
        while not self._closed:
            if self._accepted:
                return self._accepted.pop(0)
            try:
                connected, _ = self._sock.accept()
            except BlockingIOError:
                with suppress(trio.ClosedResourceError):  # closed, or bound again
                    await trio.lowlevel.wait_readable(self._sock.fileno())
            except OSError as error:
                if error.errno in _OVERLOADED:
                    await trio.sleep(_PAUSE)
            else:
                connected.setblocking(False)
                return connected
        raise trio.ClosedResourceError

    def is_in_place(self) -> bool:
        """Whether its file is where it was made, so that others can connect; true of one that is closed."""
        return self._closed or _identity(self.path) == self._identity

    def bind_again(self) -> None:
        """Makes its file again, after somebody removed it. What has connected stays connected.

        Raises:
            DaemonError: It cannot be: another daemon listens there, or a service manager has to do it.
        """
        if self.is_in_place():
            return
        if self._make is None:
            unit = f"conduit-{'control' if self.control else 'agent'}.socket"
            raise DaemonError(
                f"The file of the socket {self.path} is gone, and systemd made it: nobody can connect until "
                f"the daemon and its sockets are restarted (systemctl restart {unit} conduit)."
            )
        sock = self._make()
        sock.setblocking(False)
        with suppress(OSError):  # who connected before the file was removed is still to be accepted
            while True:
                connected, _ = self._sock.accept()
                connected.setblocking(False)
                self._accepted.append(connected)
        trio.lowlevel.notify_closing(self._sock.fileno())
        self._sock.close()
        self._sock, self._identity = sock, _identity(self.path)

    def close(self) -> None:
        """Stops listening and removes the socket's file, if this daemon made it and it is still the same."""
        if self._closed:
            return
        self._closed = True
        trio.lowlevel.notify_closing(self._sock.fileno())
        self._sock.close()
        for connected in self._accepted:
            connected.close()
        if self._make is not None and self._identity is not None and _identity(self.path) == self._identity:
            self.path.unlink(missing_ok=True)


def open_listeners(config: Config, environ: Mapping[str, str], passed: Mapping[str, socket.socket]) -> list[Listener]:
    """Both sockets, the agents' first: those that were passed, else ones of our own.

    Args:
        config: Where and for whom our own are made.
        environ: Where default places are looked up.
        passed: What a service manager made, as ``agent`` and ``control``; to be left in place at the end.

    Raises:
        DaemonError: One cannot be listened on; the other is closed again.
    """
    listeners: list[Listener] = []
    rpc = config.rpc
    try:
        for name, control in (("agent", False), ("control", True)):
            given = passed.get(name)
            if given is not None:
                listeners.append(Listener(given, Path(given.getsockname()), control=control))
                continue
            path = (control_socket if control else agent_socket)(config, environ)
            mode = (0o660 if rpc.control_group else 0o600) if control else rpc.socket_mode
            group = rpc.control_group if control else rpc.socket_group
            listeners.append(open_listener(path, control=control, mode=mode, group=group))
    except DaemonError:
        for listener in listeners:
            listener.close()
        raise
    return listeners


def open_listener(path: Path, *, control: bool, mode: int, group: str | None = None) -> Listener:
    """Listens at `path`; the file of a daemon that is dead is replaced, that of a live one never is.

    Args:
        path: Where to listen; its folder is made (mode 0700) if it is missing.
        control: Whether it is the control socket.
        mode: The file's mode.
        group: The file's group; None for the daemon's own.

    Raises:
        DaemonError: It cannot be listened there; the message says why and what to do.
    """

    def make() -> socket.socket:
        return _made(path, "control" if control else "agent", mode, group)

    return Listener(make(), path, control=control, make=make)


def _made(path: Path, kind: str, mode: int, group: str | None) -> socket.socket:
    size = len(os.fsencode(path))
    if size > _LONGEST_PATH:
        raise DaemonError(
            f"The {kind} socket's path has {size} bytes and the system allows {_LONGEST_PATH}: {path}. "
            f"Set rpc.{kind}_socket to a shorter one."
        )
    try:
        path.parent.mkdir(mode=0o700, parents=True, exist_ok=True)
        _clear(path, kind)
        return _listen(path, mode, group)
    except OSError as error:
        raise DaemonError(
            f"Cannot listen at {path} ({error.strerror or error}). "
            f"Make its folder writable for this user, or set rpc.{kind}_socket to another path."
        ) from error


def _listen(path: Path, mode: int, group: str | None) -> socket.socket:
    sock = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM)
    try:
        old = os.umask(0o177)  # nobody can connect before the mode is the wanted one
        try:
            sock.bind(os.fspath(path))
        finally:
            os.umask(old)
        if group is not None:
            try:
                os.chown(path, -1, grp.getgrnam(group).gr_gid)
            except KeyError:
                raise DaemonError(f"There is no group {group!r} to give the socket {path} to.") from None
        path.chmod(mode)
        sock.listen(_BACKLOG)
    except BaseException:
        sock.close()
        raise
    return sock


def _clear(path: Path, kind: str) -> None:
    if not path.exists():
        return
    if not path.is_socket():
        raise DaemonError(
            f"{path} is in the way: it is no socket. Remove it, or set rpc.{kind}_socket to another path."
        )
    with socket.socket(socket.AF_UNIX, socket.SOCK_STREAM) as probe:
        probe.settimeout(1)
        try:
            probe.connect(os.fspath(path))
        except (ConnectionRefusedError, FileNotFoundError):
            path.unlink(missing_ok=True)
            return
        except OSError as error:
            raise DaemonError(f"Cannot tell whether a daemon listens at {path} ({error}); it is left alone.") from error
    raise DaemonError(f"A daemon already listens at {path}. Stop it first, or set rpc.{kind}_socket to another path.")


def _identity(path: Path) -> tuple[int, int] | None:
    try:
        found = path.stat()
    except OSError:
        return None
    return found.st_dev, found.st_ino


def peer(sock: socket.socket) -> Principal:
    """Who is at the other end of a Unix socket, by the kernel's word (SO_PEERCRED)."""
    if not hasattr(socket, "SO_PEERCRED"):  # macOS: only the file's mode decides who connects
        return Principal(_user(os.getuid()), os.getuid())
    pid, uid, _ = struct.unpack("3i", sock.getsockopt(socket.SOL_SOCKET, socket.SO_PEERCRED, struct.calcsize("3i")))
    return Principal(_user(uid), uid, pid)


def _user(uid: int) -> str:
    try:
        return pwd.getpwuid(uid).pw_name
    except KeyError:
        return str(uid)
