"""`python -m conduit_daemon.cli`, for where the `conduit` executable is not on the path."""

import sys

from conduit_daemon.cli import main

sys.exit(main())
