"""One daemon a state directory: a lock that ends with the process, however it ends."""

from __future__ import annotations

import fcntl
import os
import re
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Final

from conduit_daemon.errors import DaemonError

__all__ = ["locked"]

_TOKEN: Final = re.compile(rb"\d+\n([0-9a-f]{32})\n")


@contextmanager
def locked(directory: Path, token: str) -> Iterator[str | None]:
    """Holds the lock of a state directory, which is made (mode 0700) if it is missing.

    Args:
        directory: The state directory.
        token: What the processes of this run can be told by.

    Yields:
        The token of the daemon that held the lock before, where it was not released in an orderly way.

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
            holder = os.pread(fd, 32, 0).decode(errors="replace").partition("\n")[0].strip()
            who = f" (process {holder})" if holder else ""
            raise DaemonError(
                f"Another daemon{who} uses the state directory {directory}. "
                "Stop it first, or set state.directory to another one."
            ) from None
        former = _TOKEN.fullmatch(os.pread(fd, 100, 0))
        os.ftruncate(fd, 0)
        os.pwrite(fd, f"{os.getpid()}\n{token}\n".encode(), 0)
        yield None if former is None else former[1].decode()
        os.ftruncate(fd, 0)
    finally:
        os.close(fd)
