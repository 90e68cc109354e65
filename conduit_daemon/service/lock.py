"""One daemon a state directory: a lock that ends with the process, however it ends."""

from __future__ import annotations

import fcntl
import os
import re
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Final, final

from conduit_daemon.errors import DaemonError

__all__ = ["StateLock", "locked"]

_TOKEN: Final = re.compile(rb"\d+\n([0-9a-f]{32})\n")


@final
class StateLock:
    """The lock of a state directory, as `locked` gives it.

    Attributes:
        former: The token of the daemon that held the lock before, where it was not released in an orderly way.
    """

    def __init__(self, directory: Path, token: str) -> None:
        self._directory = directory
        self._path = directory / "lock"
        self._token = token
        self._fd, self.former = self._taken()

    def is_in_place(self) -> bool:
        """Whether the lock's file is still the one in the directory, so that another daemon finds it taken."""
        try:
            found, held = self._path.stat(), os.fstat(self._fd)
        except OSError:
            return False
        return (found.st_dev, found.st_ino) == (held.st_dev, held.st_ino)

    def take_again(self) -> None:
        """Makes the directory and the lock again, after they were removed.

        Raises:
            DaemonError: Another daemon has taken the directory meanwhile, or it cannot be made.
        """
        if not self.is_in_place():
            former, (self._fd, _) = self._fd, self._taken()
            os.close(former)

    def release(self) -> None:
        """Gives the lock back, in an orderly way."""
        os.ftruncate(self._fd, 0)

    def close(self) -> None:
        """Ends the lock; one that was not released tells the next daemon that this one did not end in order."""
        os.close(self._fd)

    def _taken(self) -> tuple[int, str | None]:
        try:
            self._directory.mkdir(mode=0o700, parents=True, exist_ok=True)
            fd = os.open(self._path, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o600)
        except OSError as error:
            raise DaemonError(
                f"The state directory {self._directory} cannot be used ({error.strerror or error}). "
                "Make it writable for this user, or set state.directory to another one."
            ) from error
        try:
            fcntl.flock(fd, fcntl.LOCK_EX | fcntl.LOCK_NB)
            former = _TOKEN.fullmatch(os.pread(fd, 100, 0))
            os.ftruncate(fd, 0)
            os.pwrite(fd, f"{os.getpid()}\n{self._token}\n".encode(), 0)
        except BlockingIOError:
            holder = os.pread(fd, 32, 0).decode(errors="replace").partition("\n")[0].strip()
            os.close(fd)
            who = f" (process {holder})" if holder else ""
            raise DaemonError(
                f"Another daemon{who} uses the state directory {self._directory}. "
                "Stop it first, or set state.directory to another one."
            ) from None
        except BaseException:
            os.close(fd)
            raise
        return fd, None if former is None else former[1].decode()


@contextmanager
def locked(directory: Path, token: str) -> Iterator[StateLock]:
    """Holds the lock of a state directory, which is made (mode 0700) if it is missing.

    Args:
        directory: The state directory.
        token: What the processes of this run can be told by.

    Raises:
        DaemonError: Another daemon holds it, or the directory cannot be used.
    """
    lock = StateLock(directory, token)
    try:
        yield lock
        lock.release()
    finally:
        lock.close()
