"""`conduit login`: a person logs in to a server once, in a browser."""

from __future__ import annotations

import os
import sys
import webbrowser
from pathlib import Path

from conduit_daemon.agent import AgentError, requests
from conduit_daemon.cli import output
from conduit_daemon.cli.connection import HERE, Where, ask
from conduit_daemon.cli.exits import DONE, FAILED, UNUSABLE

__all__ = ["login"]

_SCREENS = ("DISPLAY", "WAYLAND_DISPLAY")


def login(
    server: str, *, config: Path | None = None, no_browser: bool = False, json: bool = False, where: Where = HERE
) -> int:
    """Logs in to a server by OAuth; the daemon uses and renews what comes of it.

    Run it as the user that the daemon runs as: the tokens are kept in its state directory.

    Args:
        server: The server's id.
        config: The configuration; else the one that the daemon would find.
        no_browser: Print the address to open, and open nothing.
        json: Print what came of it as JSON.
    """
    from conduit_daemon.config import load, state_directory  # noqa: PLC0415 - loaded by those alone who need it
    from conduit_daemon.errors import ConfigError, DaemonError  # noqa: PLC0415

    try:
        loaded = load(config, os.environ)
    except ConfigError as error:
        for problem in error.problems:
            output.print_error(str(problem))
        return UNUSABLE
    wanted = loaded.config.servers.get(server)
    if wanted is None:
        where_looked = "there is no configuration" if loaded.path is None else f"{loaded.path} has none of that name"
        output.print_error(f"No server {server} is known: {where_looked}. Name another configuration with --config.")
        return FAILED
    import trio  # noqa: PLC0415 - half a second, of which a mistake need not wait

    from conduit_daemon.clients.auth_login import log_in  # noqa: PLC0415

    def show(address: str) -> None:
        output.print_error(f"Open this address to log in to {server}:\n{address}")
        if not no_browser and (sys.platform == "darwin" or any(os.environ.get(name) for name in _SCREENS)):
            webbrowser.open(address)

    try:
        fresh = trio.run(log_in, server, wanted, state_directory(loaded.config, os.environ), show)
    except DaemonError as error:
        output.print_error(str(error))
        return FAILED
    restarted = fresh and _restart(server, where)
    if json:
        output.print_json({"server": server, "logged_in": fresh, "restarted": restarted})
    elif not fresh:
        output.print_text(f"Server {server} wants no login, or the one it has is good.")
    else:
        output.print_text(f"Logged in to {server}." + (" The daemon connects to it now." if restarted else ""))
    return DONE


def _restart(server: str, where: Where) -> bool:
    try:
        with where.open() as conduit:
            ask(conduit, requests.servers_restart(server))
    except AgentError:
        return False  # no daemon runs, or it is not ours: it looks for tokens at its next attempt
    return True
