"""`conduit events`: what happens in the daemon, as it happens."""

from __future__ import annotations

import sys
from typing import Annotated

import msgspec
from cyclopts import Parameter

from conduit_daemon.agent import Event
from conduit_daemon.cli import output
from conduit_daemon.cli.connection import HERE, Where
from conduit_daemon.cli.exits import DONE

__all__ = ["events"]

_SHOWN_OTHERWISE = frozenset({"subscription", "seq", "time", "type", "level", "server", "tool", "call"})


def events(
    *types: str,
    server: Annotated[list[str] | None, Parameter(negative=())] = None,
    backlog: int | None = None,
    count: int | None = None,
    json: bool = False,
    where: Where = HERE,
) -> int:
    """Follows the daemon's events, one a line, until Ctrl-C.

    Args:
        types: Globs of event types, as client.* or call.finished; all without.
        server: Only of this server (may be repeated).
        backlog: How many past events come first.
        count: End after this many.
        json: Print each event as a JSON object.
    """
    with where.open() as conduit, conduit.events(types or None, servers=server, backlog=backlog) as stream:
        for number, event in enumerate(stream, 1):
            output.print_text(output.plain_json(msgspec.json.encode(event.fields)) if json else _line(event))
            sys.stdout.flush()
            if number == count:
                break
    return DONE


def _line(event: Event) -> str:
    about = "/".join(part for part in (event.server, event.tool) if part)
    fields = " ".join(
        f"{name}={value if isinstance(value, str) else msgspec.json.encode(value).decode()}"
        for name, value in event.fields.items()
        if name not in _SHOWN_OTHERWISE
    )
    call = f"call={event.call}" if event.call else ""
    line = " ".join(part for part in (output.clock(event.time), event.type, about, fields, call) if part)
    return line.replace("\n", "\\n")
