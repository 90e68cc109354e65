"""One daemon a state directory: a lock that ends with the process, however it ends."""

from __future__ import annotations

import fcntl
import os
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from conduit_daemon.errors import DaemonError

__all__ = ["locked"]


@contextmanager
def locked(directory: Path) -> Iterator[None]:
    """Holds the lock of a state directory, which is made (mode 0700) if it is missing.

    Raises:
        DaemonError: Another daemon holds it, or the directory cannot be used.
    """
    try:
        directory.mkdir(mode=0o700, parents=True, exist_ok=True)
        fd = os.open(directory / "lock", os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o600)
    except OSError as error:
        raise DaemonError(
            f"The state directory {directory} cannot be used ({error.strerror or error}). "
            "Make it writable for this user, or set state.directory to another one."
        ) from error
    try:
        try:
            fcntl.flock(fd, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            holder = os.pread(fd, 32, 0).decode(errors="replace").strip()
            who = f" (process {holder})" if holder else ""
            raise DaemonError(
                f"Another daemon{who} uses the state directory {directory}. "
                "Stop it first, or set state.directory to another one."
            ) from None
        os.ftruncate(fd, 0)
        os.pwrite(fd, f"{os.getpid()}\n".encode(), 0)
        yield
    finally:
        os.close(fd)
