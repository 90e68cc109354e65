"""`conduit audit`: what was called, by whom, and what became of it."""

from __future__ import annotations

import time
from datetime import datetime

from conduit_daemon.agent import AuditRow, requests
from conduit_daemon.cli import output
from conduit_daemon.cli.connection import HERE, Where, ask
from conduit_daemon.cli.durations import seconds
from conduit_daemon.cli.exits import DONE, UsageError

__all__ = ["audit"]


def audit(
    *,
    since: str | None = None,
    until: str | None = None,
    server: str | None = None,
    tool: str | None = None,
    principal: str | None = None,
    outcome: str | None = None,
    limit: int | None = None,
    json: bool = False,
    where: Where = HERE,
) -> int:
    """Lists past calls and decisions, newest first.

    Args:
        since: From when: an age as 30m, 12h or 7d, or a date as 2026-01-31 or 2026-01-31T08:00.
        until: Up to when, likewise.
        server: Only this server's.
        tool: Only this tool's, by its server's own name for it.
        principal: Only this caller's.
        outcome: Only with this outcome, as done or outcome_unknown.
        limit: How many at most (100).
        json: Print the daemon's answer.
    """
    request = requests.audit(
        since=None if since is None else moment(since),
        until=None if until is None else moment(until),
        server=server,
        tool=tool,
        principal=principal,
        outcome=outcome,
        limit=limit,
    )
    with where.open() as conduit:
        answer, found = ask(conduit, request)
    if json:
        output.print_json(answer)
    elif not found.rows:
        output.print_text("No such calls.")
    else:
        columns = ("time", "principal", "server", "tool", "decision", "by", "kind", "outcome", "took")
        output.table(columns, [_row(row) for row in found.rows], numbers=("took",))
    return DONE


def moment(text: str) -> float:
    """A point in time as people write it, in unix seconds; a date without a zone is local.

    Raises:
        UsageError: It is neither an age nor a date.
    """
    try:
        return datetime.fromisoformat(text).timestamp()
    except ValueError:
        pass
    try:
        return time.time() - seconds(text)
    except UsageError as error:
        raise UsageError(
            f"{text!r} is no time; write an age as 30m, 12h or 7d, or a date as 2026-01-31T08:00."
        ) from error


def _row(row: AuditRow) -> tuple[str, ...]:
    return (
        output.clock(row.time),
        row.principal or "",
        row.server or "",
        row.tool or "",
        row.decision or "",
        row.approver or row.rule or "",
        row.kind or "",
        row.outcome or "",
        output.took(row.duration),
    )
