"""`conduit run`: the daemon, in the foreground."""

from __future__ import annotations

import os
import signal
from pathlib import Path

from conduit_daemon.cli import output
from conduit_daemon.cli.exits import FAILED, UNUSABLE

__all__ = ["run"]


def run(config: Path | None = None) -> int:
    """Runs the daemon in the foreground, until it is told to stop.

    SIGTERM or Ctrl-C stops it, SIGHUP reloads its configuration.

    Args:
        config: The configuration; else $CONDUIT_CONFIG, the user's, the system's.
    """
    # By default it would end the process; one that comes before the daemon listens to it asks for what is under way.
    signal.signal(signal.SIGHUP, signal.SIG_IGN)
    from conduit_daemon.config import load  # noqa: PLC0415 - the daemon is loaded by those alone who run it
    from conduit_daemon.errors import ConfigError, DaemonError  # noqa: PLC0415

    try:
        loaded = load(config, os.environ)
    except ConfigError as error:
        for problem in error.problems:
            output.print_error(str(problem))
        return UNUSABLE
    from conduit_daemon import app  # noqa: PLC0415 - takes half a second, of which a mistake need not wait

    try:
        return app.run(loaded, os.environ)
    except DaemonError as error:
        output.print_error(str(error))
        return FAILED
