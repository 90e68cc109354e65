"""The `conduit` command: the daemon itself, and what people do with one that runs."""

from __future__ import annotations

import sys

__all__ = ["daemon", "main"]


def main() -> int:
    """Runs `conduit` with the process's arguments and returns its exit code."""
    from conduit_daemon.cli.command import run  # noqa: PLC0415 - importing the package costs nothing

    return run(sys.argv[1:])


def daemon() -> int:
    """Runs `conduitd`, which is `conduit run`."""
    from conduit_daemon.cli.command import run  # noqa: PLC0415

    return run(["run", *sys.argv[1:]])
