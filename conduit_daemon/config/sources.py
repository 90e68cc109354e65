"""Reading the files that a configuration is made of, and telling later whether they have changed.

A path of a configuration may lead to anything: what is read here can neither hang the reader nor fill its memory.
"""

from __future__ import annotations

import errno
import hashlib
import os
import select
import stat
import time
from pathlib import Path
from typing import Final

__all__ = ["Stamp", "digest", "read_source", "stamp"]

_PATIENCE: Final = 5.0  # seconds for whoever writes into a pipe
_CHUNK: Final = 1 << 20

Stamp = tuple[int, ...] | None
"""What a look at a file tells without reading it; None where there is none, or it cannot be looked at."""


def digest(data: bytes) -> str:
    """What tells one content from another."""
    return hashlib.sha256(data).hexdigest()


def stamp(path: Path) -> Stamp:
    """The stamp of the file that `path` leads to now, through whatever links.

    A content that changes changes it: the time of the last change of its inode cannot be set by a program, whatever
    the time of modification says.
    """
    try:
        found = path.stat()
    except (OSError, ValueError):
        return None
    return found.st_dev, found.st_ino, found.st_size, found.st_mtime_ns, found.st_ctime_ns


def read_source(path: Path, most: int) -> bytes:
    """Up to `most` bytes of the file at `path`; of a pipe too, as ``<(...)`` of a shell is, while somebody writes.

    Raises:
        OSError: It cannot be read, or it is a pipe into which nobody writes for five seconds, or wrote nothing.
        ValueError: No file can have this path.
    """
    descriptor = os.open(path, os.O_RDONLY | os.O_NONBLOCK | os.O_NOCTTY | os.O_CLOEXEC)
    try:
        found = bytearray()
        until = time.monotonic() + _PATIENCE
        poll = select.poll()
        poll.register(descriptor, select.POLLIN)
        while len(found) < most:
            if not poll.poll(max(0.0, until - time.monotonic()) * 1000):
                raise OSError(errno.ETIMEDOUT, "it is a pipe into which nobody writes")
            try:
                chunk = os.read(descriptor, min(_CHUNK, most - len(found)))
            except BlockingIOError:
                continue
            if not chunk:
                break
            found += chunk
        if not found and stat.S_ISFIFO(os.fstat(descriptor).st_mode):
            raise OSError(errno.ENODATA, "it is a pipe, and there is nothing in it")
        return bytes(found)
    finally:
        os.close(descriptor)
