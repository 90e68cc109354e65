"""Looking at a daemon that runs: `conduit status`, `conduit tree`, `conduit explain`."""

from __future__ import annotations

import time
from typing import TYPE_CHECKING, Final

from conduit_daemon.agent import ConfigStatus, RunningCall, ServerStatus, Status, TimelineEntry, TreeNode, requests
from conduit_daemon.cli import output
from conduit_daemon.cli.connection import HERE, Where, ask
from conduit_daemon.cli.exits import DONE

if TYPE_CHECKING:
    from rich.tree import Tree

__all__ = ["branch", "call_row", "explain", "print_status", "print_tree", "status", "tree"]

_PHASES: Final = {
    "approval": "waits for approval",
    "rate": "waits for its rate",
    "slot": "waits for a slot",
    "hook": "in a hook",
    "start": "waits for the server",
    "server": "at the server",
}
"""What a call's phases are called."""


def status(*, json: bool = False, where: Where = HERE) -> int:
    """Shows the daemon's health and the state of every server.

    Args:
        json: Print the daemon's answer.
    """
    with where.open() as conduit:
        answer, found = ask(conduit, requests.status())
    if json:
        output.print_json(answer)
    else:
        print_status(found)
    return DONE


def tree(*, json: bool = False, where: Where = HERE) -> int:
    """Shows the supervision tree as it stands.

    Args:
        json: Print the daemon's answer.
    """
    with where.open() as conduit:
        answer, root = ask(conduit, requests.tree())
    if json:
        output.print_json(answer)
    else:
        print_tree(root)
    return DONE


def explain(server: str, *, json: bool = False, where: Where = HERE) -> int:
    """Tells why a server is in its state, as a timeline.

    Args:
        server: The server's id.
        json: Print the daemon's answer.
    """
    with where.open() as conduit:
        answer, told = ask(conduit, requests.servers_explain(server))
    if json:
        output.print_json(answer)
        return DONE
    output.print_text(f"{told.server} is {told.state}." + (f" {output.sentence(told.reason)}" if told.reason else ""))
    if told.next_retry is not None:
        output.print_text(f"It is tried again in {output.duration(told.next_retry)}.")
    if told.waiting:
        output.print_text(f"Waiting for it: {output.amount(told.waiting, 'call')}.")
    if told.running:
        output.print_text("")
        rows = [call_row(call, time.time()) for call in told.running]
        output.table(tuple(rows[0]), [tuple(row.values()) for row in rows], numbers=("for",))
    if told.timeline:
        output.print_text("")
        output.table(("time", "after", "event", "what happened"), _moments(told.timeline), numbers=("after",))
    if told.stderr:
        output.print_text("\nThe last lines of its stderr:")
        output.print_text("\n".join(f"  {line}" for line in told.stderr))
    return DONE


def print_status(found: Status) -> None:
    """Prints a status for people: a line on the daemon, then a row a server."""
    calls = f"{output.amount(found.calls.total, 'call')} ({found.calls.errors} failed, {found.calls.in_flight} running)"
    parts = [f"conduit {found.version}", found.health, f"up {output.duration(found.uptime)}", f"pid {found.pid}", calls]
    if found.approvals:
        parts.append(f"{output.amount(found.approvals, 'call')} waiting for approval")
    output.print_text(", ".join(parts))
    for problem in found.problems:
        output.print_text(f"\n{output.safe(problem)}")
    _print_config(found.config)
    if not found.servers:
        output.print_text("\nNo servers are configured.")
        return
    output.print_text("")
    rows = [_row(name, server) for name, server in found.servers.items()]
    columns = ("server", "state", "tools", "calls", "errors", "p50", "p99", "restarts", "notes")
    output.table(columns, rows, numbers=columns[2:8])


def _print_config(config: ConfigStatus) -> None:
    """Says what of the configuration's file is not in force."""
    if config.rejected is not None:
        output.print_text(
            f"\nThe configuration as read at {output.clock(config.rejected.time)} cannot be used; the one from "
            f"{output.clock(config.loaded)} is in force:"
        )
        for problem in config.rejected.problems:
            where = f"{problem.file}: {problem.key}" if problem.key else problem.file
            hint = f" (did you mean {problem.suggestion!r}?)" if problem.suggestion else ""
            output.print_text(output.safe(f"  {where}: {problem.message}{hint}"))
    if config.needs_restart:
        output.print_text(f"\nNeeds a restart: {', '.join(config.needs_restart)}.")


def print_tree(root: TreeNode) -> None:
    """Prints a supervision tree for people."""
    output.console().print(branch(root))


def call_row(call: RunningCall, now: float) -> dict[str, str]:
    """The cells of one call that is on its way, by column."""
    return {
        "running": call.id,
        "tool": f"{call.server}/{call.tool}" if call.server else call.name,
        "for": output.duration(max(0.0, now - call.since)),
        "where": _PHASES.get(call.phase, call.phase),
        "principal": call.principal,
    }


def _moments(timeline: list[TimelineEntry]) -> list[tuple[str, ...]]:
    """The rows of a timeline: each moment with the time since the one before it."""
    rows: list[tuple[str, ...]] = []
    before: float | None = None
    for entry in timeline:
        after = "" if before is None else f"+{output.duration(max(0.0, entry.time - before))}"
        rows.append((output.clock(entry.time), after, entry.event, entry.text))
        before = entry.time
    return rows


def _row(name: str, server: ServerStatus) -> tuple[str, ...]:
    notes = [output.sentence(server.reason)]
    if server.retry_in is not None:
        notes.append(f"Tried again in {output.duration(server.retry_in)}.")
    if server.circuit not in {None, "closed"}:
        notes.append(f"The circuit is {server.circuit}.")
    return (
        name,
        server.state,
        str(server.tools),
        str(server.calls),
        str(server.errors),
        output.milliseconds(server.p50_ms),
        output.milliseconds(server.p99_ms),
        str(server.restarts),
        " ".join(note for note in notes if note),
    )


def branch(node: TreeNode) -> Tree:
    """A process and all below it, to be printed by rich."""
    from rich.text import Text  # noqa: PLC0415 - programs that ask for JSON do not wait for it
    from rich.tree import Tree  # noqa: PLC0415

    facts = [node.kind] if node.kind else []
    if node.uptime is not None:
        facts.append(f"up {output.duration(node.uptime)}")
    if node.restarts:
        facts.append(output.amount(node.restarts, "restart"))
    if node.mailbox:
        facts.append(f"{output.amount(node.mailbox, 'message')} waiting")
    if node.busy_for:
        facts.append(f"busy for {output.duration(node.busy_for)}")
    label = Text(output.safe(node.id or node.name or "?"), style="bold" if node.kind == "supervisor" else "")
    label.append(" ").append(output.styled(node.state)).append(f"  {', '.join(facts)}", style="dim")
    made = Tree(label, guide_style="dim")
    for child in node.children:
        made.children.append(branch(child))
    return made
