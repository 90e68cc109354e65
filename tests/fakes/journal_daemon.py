"""Runs the daemon with a journal of the test's: `conduit`, whose log goes to the datagram socket named first.

python journal_daemon.py SOCKET run --config FILE
"""

from __future__ import annotations

import sys
from functools import partial
from pathlib import Path

from conduit_daemon import app
from conduit_daemon.cli import main

app.open_logging = partial(app.open_logging, journal_socket=Path(sys.argv.pop(1)))  # type: ignore[assignment]
main()
