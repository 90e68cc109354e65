"""The listening sockets that systemd made and passed to the daemon (sd_listen_fds(3)).

They outlive the daemon: while it is restarted, connections queue in them, and none is refused.
"""

from __future__ import annotations

import os
import socket
from collections.abc import MutableMapping
from typing import Final

from conduit_daemon.errors import DaemonError

__all__ = ["NAMES", "take_sockets"]

NAMES: Final = ("agent", "control")
"""What the units call them, by ``FileDescriptorName=``."""

_FIRST: Final = 3
_VARIABLES: Final = ("LISTEN_FDS", "LISTEN_PID", "LISTEN_FDNAMES", "LISTEN_PIDFDID")


def take_sockets(environ: MutableMapping[str, str], *, first: int = _FIRST) -> dict[str, socket.socket]:
    """The sockets passed to this process, by name; the variables are removed, so that no server takes them for its own.

    To be called once, before anything opens a descriptor or starts a process.

    Args:
        environ: The process's environment.
        first: The first descriptor that is passed.

    Returns:
        Those of `NAMES` that were passed, non-blocking and closed on exec; empty where none was, or where they were
        meant for another process.

    Raises:
        DaemonError: One has another name, or is no listening Unix stream socket. All are closed.

    Example:
        >>> take_sockets({})
        {}
    """
    count, pid, names, _ = (environ.pop(variable, "") for variable in _VARIABLES)
    if pid != str(os.getpid()) or not (count.isascii() and count.isdigit()):
        return {}
    named = [*names.split(":"), *[""] * int(count)] if names else [""] * int(count)
    taken: dict[str, socket.socket] = {}
    problem = None
    for descriptor, name in zip(range(first, first + int(count)), named, strict=False):
        try:
            sock = socket.socket(fileno=descriptor)
        except OSError as error:
            problem = problem or f"descriptor {descriptor} ({name or 'without a name'}) is no socket ({error.strerror})"
            continue
        wrong = _wrong(sock, name, taken)
        if wrong is None:
            sock.setblocking(False)
            sock.set_inheritable(False)
            taken[name] = sock
        else:
            problem = problem or wrong
            sock.close()
    if problem is None:
        return taken
    for sock in taken.values():
        sock.close()
    raise DaemonError(
        f"Of the sockets that systemd passed, {problem}. Correct the socket unit: ListenStream= is a path, "
        f"and FileDescriptorName= is {' or '.join(NAMES)}, each once."
    )


def _wrong(sock: socket.socket, name: str, taken: dict[str, socket.socket]) -> str | None:
    if name not in NAMES:
        return f"one is named {name!r}"
    if name in taken:
        return f"two are named {name!r}"
    if sock.family != socket.AF_UNIX or sock.type != socket.SOCK_STREAM:
        return f"{name} is no Unix stream socket"
    if not sock.getsockopt(socket.SOL_SOCKET, socket.SO_ACCEPTCONN):
        return f"{name} does not listen (the unit has Accept=yes)"
    return None
