"""What `conduit top` shows, for people: the daemon, its servers, the calls that run, the tree as there is room."""

from __future__ import annotations

from typing import Final, Literal

import msgspec
from rich.console import Console, ConsoleOptions, Group, RenderResult
from rich.table import Table
from rich.text import Text

from conduit_daemon.agent import TreeNode
from conduit_daemon.cli import output
from conduit_daemon.cli.look import branch, call_row
from conduit_daemon.cli.top_sample import Sample, ServerSample

__all__ = ["TopView"]

_COLUMNS: Final = {
    "server": 0,
    "state": 0,
    "calls/s": 0,
    "running": 0,
    "calls": 110,
    "errors": 110,
    "p50": 110,
    "p99": 70,
    "restarts": 70,
    "tools": 130,
    "notes": 70,
}
"""The columns, and how wide a terminal must be to have them."""
_CALL_COLUMNS: Final = {"running": 100, "tool": 0, "for": 0, "where": 0, "principal": 70}
_LEFT: Final = frozenset({"server", "state", "notes"})
_WELL: Final = frozenset({"ready", "idle", "stopped"})
_GAP: Final = 2
_WIDEST: Final = 32
_AROUND: Final = 4
"""Lines that are no server's row: the daemon's, the columns' names, the blank ones."""
_MANY: Final = 12
_SHOWN: Final = 6
"""Of more than so many siblings that have no children so many are shown, as connections may be hundreds."""


class TopView:
    """A picture of a sample, made to the size of the terminal.

    Args:
        sample: What to show.
        trouble: A sentence in place of the daemon's line, where it does not answer now.
    """

    def __init__(self, sample: Sample, trouble: str | None = None) -> None:
        self._sample = sample
        self._trouble = trouble

    def __rich_console__(self, console: Console, options: ConsoleOptions) -> RenderResult:
        room = options.max_height - _AROUND if options.is_terminal else 1_000_000
        sample = self._sample
        yield (
            _line(_daemon(sample))
            if self._trouble is None
            else _line(Text(output.safe(self._trouble), style="bold red"))
        )
        yield Text()
        yield _servers(sample, max(1, room), options.max_width)
        room -= len(sample.servers)
        if sample.running_calls and room > _AROUND:
            yield Text()
            calls, used = _calls(sample, max(1, room // 2 - 2), options.max_width)
            yield calls
            room -= used + 1
        if room > 0:
            yield Text()
            yield _tree(sample)


def _line(text: Text) -> Text:
    text.no_wrap, text.overflow = True, "ellipsis"
    return text


def _daemon(sample: Sample) -> Text:
    """The line on the daemon, what matters most first, since a narrow terminal cuts it."""
    line = Text.assemble(f"conduit {output.safe(sample.version)}  ", output.styled(sample.health))
    line.append(f"  {_per_second(sample.calls_per_second)} calls/s  {sample.running} running")
    if sample.approvals:
        line.append(f"  {output.amount(sample.approvals, 'call')} waiting for approval", style="bold yellow")
    if sample.rejected:
        line.append("  the changed configuration is rejected (conduit status)", style="bold red")
    facts = [
        output.amount(sample.calls, "call"),
        f"{sample.errors} failed",
        output.amount(sample.connections, "connection"),
        f"up {output.duration(sample.uptime)}",
        f"pid {sample.pid}",
    ]
    return line.append("  " + "  ".join(facts))


def _servers(sample: Sample, room: int, width: int) -> Group | Text:
    if not sample.servers:
        return Text("No servers are configured.")
    rows = list(sample.servers.items())
    if len(rows) > room:  # first what needs a look, then what does the most
        rows.sort(key=lambda row: (row[1].state in _WELL, -(row[1].calls_per_second or 0), -row[1].running))
    shown = rows if len(rows) <= room else rows[: max(1, room - 1)]
    names = [name for name, least in _COLUMNS.items() if width >= least]
    cells = [[_row(name, server)[column] for column in names] for name, server in shown]
    made = Table(box=None, pad_edge=False, header_style="bold", show_edge=False)
    left = width
    for place, name in enumerate(names):
        most = max(0, left) if name == "notes" else _WIDEST  # the notes alone give way, and are the last
        needed = min(most, max(len(name), *(len(row[place]) for row in cells)))
        left -= needed + _GAP
        side: Literal["left", "right"] = "left" if name in _LEFT else "right"
        made.add_column(name, justify=side, width=needed, no_wrap=True, overflow="ellipsis")
    for row in cells:
        made.add_row(*map(output.styled, row))
    rest = len(rows) - len(shown)
    return Group(made, Text(f"and {output.amount(rest, 'server')} more", style="dim")) if rest else Group(made)


def _calls(sample: Sample, room: int, width: int) -> tuple[Group, int]:
    """The calls that run, the oldest first, and how many lines that takes."""
    running = sample.running_calls or []
    shown = running if len(running) <= room else running[: max(1, room - 1)]
    rows = [call_row(call, sample.time) for call in shown]
    names = [name for name, least in _CALL_COLUMNS.items() if width >= least]
    made = Table(box=None, pad_edge=False, header_style="bold", show_edge=False)
    for name in names:
        most = max(_GAP, width - 40) if name == "tool" else _WIDEST
        side: Literal["left", "right"] = "right" if name == "for" else "left"
        made.add_column(name, justify=side, max_width=most, no_wrap=True, overflow="ellipsis")
    for row in rows:
        made.add_row(*(output.styled(row[name]) for name in names))
    rest = max(sample.running, len(running)) - len(shown)
    more = [Text(f"and {output.amount(rest, 'call')} more", style="dim")] if rest > 0 else []
    return Group(made, *more), len(shown) + 1 + len(more)


def _row(name: str, server: ServerSample) -> dict[str, str]:
    notes = [output.sentence(server.reason).partition("\n")[0]]
    if server.retry_in is not None:
        notes.insert(0, f"Next attempt in {output.duration(server.retry_in)}.")
    if server.circuit not in {None, "closed"}:
        notes.insert(0, f"The circuit is {server.circuit}.")
    return {
        "server": name,
        "state": server.state,
        "calls/s": _per_second(server.calls_per_second),
        "running": str(server.running),
        "calls": str(server.calls),
        "errors": str(server.errors),
        "p50": output.milliseconds(server.p50_ms),
        "p99": output.milliseconds(server.p99_ms),
        "restarts": str(server.restarts),
        "tools": str(server.tools),
        "notes": " ".join(note for note in notes if note),
    }


def _tree(sample: Sample) -> Group | Text:
    if sample.tree is None:
        return Text(f"The tree cannot be shown: {output.safe(sample.tree_missing or '')}", style="dim")
    return Group(branch(_folded(sample.tree)))


def _folded(node: TreeNode) -> TreeNode:
    """The tree with long rows of siblings made short; what does not run stays."""
    children = [_folded(child) for child in node.children]
    if len(children) > _MANY and all(not child.children for child in children):
        shown = [child for place, child in enumerate(children) if place < _SHOWN or child.state != "running"]
        rest = len(children) - len(shown)
        children = [*shown, TreeNode(id=f"and {rest} more")] if rest else children
    return msgspec.structs.replace(node, children=children)


def _per_second(rate: float | None) -> str:
    return "-" if rate is None else f"{rate:.1f}" if rate < 100 else f"{rate:.0f}"
