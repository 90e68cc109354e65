"""The `conduit` command: the daemon itself, and what people do with one that runs."""

from __future__ import annotations

import os
import sys

__all__ = ["daemon", "main"]

_FRONT: tuple[list[str], ...] = ([], ["--help"], ["-h"])


def main() -> int:
    """Runs `conduit` with the process's arguments and returns its exit code."""
    return _run(sys.argv[1:])


def daemon() -> int:
    """Runs `conduitd`, which is `conduit run`."""
    return _run(["run", *sys.argv[1:]])


def _run(arguments: list[str]) -> int:
    _occupy_standard_descriptors()
    if arguments in _FRONT:
        from conduit_daemon.cli.front import print_front_page  # noqa: PLC0415 - importing the package costs nothing

        if print_front_page():
            return 0
    from conduit_daemon.cli.command import run  # noqa: PLC0415 - as above

    return run(arguments)


def _occupy_standard_descriptors() -> None:
    """Opens what of 0, 1 and 2 is closed, so that no socket gets such a number and is written to by a stray print."""
    while (fd := os.open(os.devnull, os.O_RDWR)) <= 2:
        os.set_inheritable(fd, True)
    os.close(fd)
    if sys.stdout is None:
        sys.stdout = os.fdopen(1, "w", closefd=False)
    if sys.stderr is None:
        sys.stderr = os.fdopen(2, "w", closefd=False)
