"""A person's hand on the daemon as a whole: `conduit log-level`, `conduit metrics`, `conduit taint reset`."""

from __future__ import annotations

import sys
from typing import Literal

from conduit_daemon.agent import requests
from conduit_daemon.cli import output
from conduit_daemon.cli.connection import HERE, Where, ask
from conduit_daemon.cli.exits import DONE

__all__ = ["log_level", "metrics", "reset_taint"]


def log_level(
    level: Literal["debug", "info", "warning", "error"],
    *,
    server: str | None = None,
    json: bool = False,
    where: Where = HERE,
) -> int:
    """Changes from which level on the daemon logs, until it is restarted.

    Args:
        level: The new level.
        server: For what is about this server alone.
        json: Print the daemon's answer.
    """
    with where.open() as conduit:
        answer, before = ask(conduit, requests.log_level(level, server=server))
    if json:
        output.print_json(answer)
    else:
        whose = f"The log level of {server}" if server else "The log level"
        output.print_text(f"{whose} is {level}" + (f"; it was {before.level}." if before.level else "."))
    return DONE


def metrics(*, json: bool = False, where: Where = HERE) -> int:
    """Prints the daemon's metrics, in the text format of Prometheus.

    Args:
        json: Print the daemon's answer.
    """
    with where.open() as conduit:
        answer, found = ask(conduit, requests.metrics())
    if json:
        output.print_json(answer)
    else:
        sys.stdout.write(found.text if found.text.endswith("\n") else f"{found.text}\n")
    return DONE


def reset_taint(
    *, principal: str | None = None, session: str | None = None, json: bool = False, where: Where = HERE
) -> int:
    """Forgets whose output models have read, of all conversations or of those named.

    Args:
        principal: Of this caller alone, as USER or USER/AGENT.
        session: Of this conversation alone.
        json: Print the daemon's answer.
    """
    with where.open() as conduit:
        answer, done = ask(conduit, requests.taint_reset(principal=principal, session=session))
    if json:
        output.print_json(answer)
    else:
        output.print_text(f"The taint of {output.amount(done.reset, 'conversation')} is forgotten.")
    return DONE
