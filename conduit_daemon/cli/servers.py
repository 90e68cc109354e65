"""`conduit servers` and `conduit reload`: a person's hand on the servers."""

from __future__ import annotations

import sys

import msgspec

from conduit_daemon.agent import ServerStatus, requests
from conduit_daemon.agent.requests import Request
from conduit_daemon.cli import output
from conduit_daemon.cli.arguments import parse_arguments
from conduit_daemon.cli.connection import HERE, Where, ask
from conduit_daemon.cli.exits import DONE, FAILED
from conduit_daemon.cli.readiness import until_ready

__all__ = ["accept", "add", "reload", "remove", "restart", "start", "stop"]


def restart(server: str, *, wait: float | None = None, json: bool = False, where: Where = HERE) -> int:
    """Restarts a server, or tries one at once that waits before its next attempt.

    Args:
        server: The server's id.
        wait: Wait so many seconds at most for it to be ready again, and fail if it is not.
        json: Print the daemon's answer.
    """
    return _order(server, requests.servers_restart(server), json, where, wait)


def start(server: str, *, wait: float | None = None, json: bool = False, where: Where = HERE) -> int:
    """Starts a server that was stopped.

    Args:
        server: The server's id.
        wait: Wait so many seconds at most for it to be ready, and fail if it is not.
        json: Print the daemon's answer.
    """
    return _order(server, requests.servers_start(server), json, where, wait)


def stop(server: str, *, json: bool = False, where: Where = HERE) -> int:
    """Stops a server until it is started again.

    Args:
        server: The server's id.
        json: Print the daemon's answer.
    """
    return _order(server, requests.servers_stop(server), json, where)


def accept(server: str, tool: str, *, look: bool = False, json: bool = False, where: Where = HERE) -> int:
    """Accepts the changed definition of a pinned tool; on a terminal it is shown first, and asked about.

    Args:
        server: The server's id.
        tool: The server's own name for the tool.
        look: Show what has changed, and accept nothing.
        json: Print the daemon's answer.
    """
    asks = sys.stdin.isatty() and sys.stdout.isatty() and not json
    with where.open() as conduit:
        seen = None
        if look or asks:
            answer, now = ask(conduit, requests.servers_accept(server, tool, look=True))
            if json:
                output.print_json(answer)
                return DONE
            output.print_text(f"Changed since {tool} of {server} was pinned:")
            for part in now.changed:
                shown = msgspec.json.format(msgspec.json.encode(now.definition.get(part)), indent=2)
                output.print_text(f"{part.replace('_', ' ')}: {output.plain_json(shown)}")
            if look:
                return DONE
            if input("Accept it as it is now? [y/N] ").strip().lower() not in {"y", "yes"}:
                output.print_text("Nothing is accepted.")
                return FAILED
            seen = now.digest
        answer, accepted = ask(conduit, requests.servers_accept(server, tool, digest=seen))
    if json:
        output.print_json(answer)
    else:
        output.print_text(f"{tool} of {server} is accepted with what has changed: {', '.join(accepted.changed)}.")
    return DONE


def add(server: str, *config: str, wait: float | None = None, json: bool = False, where: Where = HERE) -> int:
    """Adds a server until the next reload.

    Args:
        server: The new server's id.
        config: Its table, as JSON, or as command=uvx and args:='["mcp-server-time"]'.
        wait: Wait so many seconds at most for it to be ready, and fail if it is not.
        json: Print the daemon's answer.
    """
    return _order(server, requests.servers_add(server, parse_arguments(config)), json, where, wait)


def remove(server: str, *, json: bool = False, where: Where = HERE) -> int:
    """Removes a server until the next reload.

    Args:
        server: The server's id.
        json: Print the daemon's answer.
    """
    return _order(server, requests.servers_remove(server), json, where)


def reload(*, json: bool = False, where: Where = HERE) -> int:
    """Has the daemon read its configuration again; a wrong one changes nothing.

    Args:
        json: Print the daemon's answer.
    """
    with where.open() as conduit:
        answer, changes = ask(conduit, requests.reload())
    if json:
        output.print_json(answer)
        return DONE
    parts = [
        f"{what} {', '.join(names)}"
        for what, names in (("added", changes.added), ("removed", changes.removed), ("changed", changes.changed))
        if names
    ]
    output.print_text(f"Reloaded: {'; '.join(parts) or 'no server is affected'}.")
    if changes.needs_restart:
        output.print_text(f"Needs a restart: {', '.join(changes.needs_restart)}.")
    return DONE


def _order(server: str, request: Request[ServerStatus], json: bool, where: Where, wait: float | None = None) -> int:
    with where.open() as conduit:
        before = None if wait is None else conduit.status().servers.get(server)
        answer, found = ask(conduit, request)
        if wait is not None:
            again = before if request.method == "conduit/servers/restart" else None
            answer, found = until_ready(conduit, server, wait, again)
    if json:
        output.print_json(answer)
    else:
        said = [] if found.reason and found.state == "stopped" else [f"{server} is {found.state}."]
        output.print_text(" ".join([*said, *([output.sentence(found.reason)] if found.reason else [])]))
    return DONE if wait is None or found.state == "ready" else FAILED
