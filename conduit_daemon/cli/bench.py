"""`conduit bench`: how long calls take here and now, and how much of it is conduit's."""

from __future__ import annotations

import os
import tempfile
from collections.abc import Sequence
from contextlib import ExitStack
from pathlib import Path
from typing import Final

import msgspec

from conduit_daemon.agent import Conduit, requests
from conduit_daemon.cli import output
from conduit_daemon.cli.arguments import parse_arguments
from conduit_daemon.cli.bench_load import (
    PROTOCOL,
    BenchFailed,
    Caller,
    Row,
    Tally,
    connected,
    load,
    request,
    server_alone,
)
from conduit_daemon.cli.connection import HERE, Where, ask
from conduit_daemon.cli.demo_steps import START_TIMEOUT, DemoFailed, running_daemon
from conduit_daemon.cli.exits import DONE, FAILED, TOOL_ERROR, UsageError
from conduit_daemon.cli.interruption import ended_in_order

__all__ = ["bench"]

_ROUNDS: Final = 4
_WARM_UP: Final = 0.2
_MOST: Final = 128
_EXAMPLE: Final = ("notebook__read_note", {"id": "n1"})
_ALONE: Final = ("read_note", {"id": "n1"})


class Measured(msgspec.Struct, frozen=True):
    """All that was measured.

    Attributes:
        daemon: ``temporary`` or ``running``.
        tool: What was called.
        cores: How many the machine has for us.
        load: How many wanted to run in the last minute, before we began; None where it is not known.
        rows: One for each kind of load, all measured in turns.
        added_us: What the daemon adds to the median call of one caller; None where the server was not seen alone.
    """

    daemon: str
    tool: str
    cores: int
    load: float | None
    rows: list[Row]
    added_us: float | None


def bench(
    name: str | None = None,
    /,
    *arguments: str,
    callers: int = 16,
    seconds: float = 2.0,
    json: bool = False,
    where: Where = HERE,
) -> int:
    """Measures calls: of the example server through a daemon of its own, or of a tool of the running daemon.

    A tool that is named is called thousands of times: name one that changes nothing.

    Args:
        name: A tool of the running daemon, as `conduit tools` lists it.
        arguments: A JSON object, or name=text and name:=JSON.
        callers: How many call at once, after one alone (16).
        seconds: How long each kind of load is measured (2).
        json: Print the figures as JSON.
    """
    if not 1 <= callers <= _MOST or not 0.1 <= seconds <= 600:
        raise UsageError(f"--callers must be between 1 and {_MOST}, --seconds between 0.1 and 600.")
    if name is None and where != HERE:
        raise UsageError("Name a tool of that daemon; without one, a daemon of its own is measured.")
    try:
        with ended_in_order(), output.waiting("Measuring"):
            if name is None:
                measured = _temporary(callers, seconds)
            else:
                given = parse_arguments(arguments)
                with where.open() as conduit:
                    _, result = ask(conduit, requests.call(name, given))
                    if result.is_error:
                        output.print_error(f"{name} reports an error: {output.first_line(result.text)}")
                        return TOOL_ERROR
                    line = request("conduit/call", {"name": name, "arguments": given})
                    measured = _measure(conduit, "running", name, line, callers, seconds, None)
    except (BenchFailed, DemoFailed) as error:
        output.print_error(f"{str(error).rstrip('.')}; nothing was measured.")
        return FAILED
    if json:
        output.print_json(measured)
    else:
        _tell(measured)
    return FAILED if any(row.failed for row in measured.rows) else DONE


def _temporary(callers: int, seconds: float) -> Measured:
    name, given = _EXAMPLE
    with (
        tempfile.TemporaryDirectory(prefix="conduit-bench-") as folder,
        running_daemon(protocol=PROTOCOL) as (conduit, _),
    ):
        conduit.tools(timeout=START_TIMEOUT)  # waits for the server
        with server_alone(Path(folder) / "server.log") as alone:
            line = request("conduit/call", {"name": name, "arguments": given})
            return _measure(conduit, "temporary", name, line, callers, seconds, alone)


def _measure(
    conduit: Conduit, daemon: str, tool: str, line: bytes, callers: int, seconds: float, alone: Caller | None
) -> Measured:
    busy = os.getloadavg()[0] if hasattr(os, "getloadavg") else None
    with ExitStack() as stack:
        loads: list[tuple[str, Sequence[Caller], bytes]] = []
        if alone is not None:
            tool_alone, given = _ALONE
            loads.append(("the server alone", [alone], request("tools/call", {"name": tool_alone, "arguments": given})))
        for count in dict.fromkeys((1, callers)):
            made = stack.enter_context(connected(conduit.sockets, count))
            loads.append((f"through conduit, {output.amount(count, 'caller')}", made, line))
        tallies = [Tally() for _ in loads]
        for _, connections, what in loads:
            load(connections, what, _WARM_UP, Tally())
        for _ in range(_ROUNDS):  # in turns, so that what else the machine does meets all alike
            for (_, connections, what), tally in zip(loads, tallies, strict=True):
                load(connections, what, seconds / _ROUNDS, tally)
    rows = [tally.row(title, len(made)) for (title, made, _), tally in zip(loads, tallies, strict=True)]
    medians = [row.p50_us for row in rows]
    added = None
    if alone is not None and medians[0] is not None and medians[1] is not None:
        added = round(medians[1] - medians[0], 1)
    cores = len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1
    return Measured(daemon, tool, cores, None if busy is None else round(busy, 2), rows, added)


def _tell(measured: Measured) -> None:
    rows = [
        (row.name, str(row.calls), _micro(row.p50_us), _micro(row.p99_us), f"{row.calls_per_second:,.0f}")
        for row in measured.rows
    ]
    columns = ("what", "calls", "p50", "p99", "calls/s")
    output.table(columns, rows, numbers=columns[1:])
    busy = "" if measured.load is None else f", {measured.load:g} wanted to run when it began"
    output.print_text(
        f"\n{measured.tool}, called again as soon as it had answered; the rows were measured in turns.\n"
        f"These are figures of this machine now ({output.amount(measured.cores, 'core')}{busy}),\n"
        "with this client's own share in them."
    )
    if measured.added_us is not None:
        more = "longer" if measured.added_us >= 0 else "less"
        output.print_text(
            f"One caller waits {_micro(abs(measured.added_us))} {more} through conduit (median): validation, policy,\n"
            "audit and a log line included. The example server does next to nothing; a real one takes most of a\n"
            "call's time itself."
        )
    for row in measured.rows:
        if row.failed:
            output.print_error(f"{row.name}: {row.failed} of {row.calls} calls failed: {row.failure}")


def _micro(value: float | None) -> str:
    return "too few" if value is None else f"{value:.0f} us" if value < 10_000 else f"{value / 1000:.1f} ms"
