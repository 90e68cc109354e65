"""`conduit top`: the daemon as it works, until one has seen enough."""

from __future__ import annotations

import os
import select
import signal
import sys
import termios
import time
import tty
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Final

import msgspec

from conduit_daemon.agent import AgentError
from conduit_daemon.cli import output
from conduit_daemon.cli.connection import HERE, Where
from conduit_daemon.cli.exits import DONE, UsageError
from conduit_daemon.cli.interruption import Interruptions
from conduit_daemon.cli.top_sample import Meter, Sample

__all__ = ["top"]

_SHORTEST: Final = 0.1


def top(
    *, once: bool = False, interval: float = 1.0, count: int | None = None, json: bool = False, where: Where = HERE
) -> int:
    """Shows the servers, their calls and the supervision tree, live; q or Ctrl-C ends it.

    Args:
        once: Measure for one interval, print what was seen, and end; so too where the output is no terminal.
        interval: Seconds between two looks (1).
        count: End after this many looks.
        json: Print JSON: with --once one object, else one a line.
    """
    if interval < _SHORTEST:
        raise UsageError(f"--interval must be at least {_SHORTEST:g} seconds.")
    with where.open() as conduit:
        meter = Meter(conduit)
        if once or not (json or _can_draw()):
            return _print_once(meter, interval, json)
        if json:
            return _print_lines(meter, interval, count)
        return _live(meter, interval, count)


def _can_draw() -> bool:
    return sys.stdout.isatty() and os.environ.get("TERM", "dumb") != "dumb"


def _print_once(meter: Meter, interval: float, json: bool) -> int:
    meter.look()
    with output.waiting("Measuring"):
        time.sleep(interval)
    sample = meter.look()
    if json:
        output.print_json(sample)
    else:
        from conduit_daemon.cli.top_view import TopView  # noqa: PLC0415 - loaded by those alone who look

        output.console().print(TopView(sample))
    return DONE


def _print_lines(meter: Meter, interval: float, count: int | None) -> int:
    answered = False
    number = 0
    while count is None or number < count:
        try:
            line = msgspec.json.encode(meter.look())
            answered = True
        except AgentError as error:
            if not answered:
                raise
            line = msgspec.json.encode({"time": time.time(), "error": str(error)})
        number += 1
        sys.stdout.write(line.decode() + "\n")
        sys.stdout.flush()
        if number != count:
            time.sleep(interval)
    return DONE


def _live(meter: Meter, interval: float, count: int | None) -> int:
    from rich.live import Live  # noqa: PLC0415 - loaded by those alone who look

    from conduit_daemon.cli.top_view import TopView  # noqa: PLC0415

    sample = meter.look()  # with no daemon at all there is nothing to wait for
    screen = Live(TopView(sample), console=output.console(), screen=True, auto_refresh=False)
    with Interruptions() as interruptions, _keys_unseen(), screen as live:
        live.refresh()
        number, gone_since = 1, None
        while number != count:
            view = None
            with interruptions.allowed():
                if _quits(interval):
                    break
                try:
                    sample, gone_since = meter.look(), None
                except AgentError as error:
                    gone_since = gone_since or time.monotonic()
                    view = TopView(sample, _trouble(error, sample, time.monotonic() - gone_since))
            number += 1
            live.update(view or TopView(sample), refresh=True)
    return DONE


def _trouble(error: AgentError, sample: Sample, gone: float) -> str:
    words = str(error).partition(". ")[0].rstrip(".")
    seen = output.clock(sample.time)
    return f"Waiting for the daemon since {output.duration(gone)}; as it was at {seen}. {words}."


def _quits(seconds: float) -> bool:
    """Waits so long, and tells whether a person has pressed q."""
    if not sys.stdin.isatty():
        time.sleep(seconds)
        return False
    deadline = time.monotonic() + seconds
    while (rest := deadline - time.monotonic()) > 0:
        if select.select([sys.stdin], [], [], rest)[0]:
            keys = os.read(sys.stdin.fileno(), 64)
            if not keys or b"q" in keys.lower():
                return True
    return False


@contextmanager
def _keys_unseen() -> Iterator[None]:
    """Takes keys one by one, does not show them, and puts the terminal back."""
    suspending = signal.signal(signal.SIGTSTP, signal.SIG_IGN)  # else a shell would get our screen
    keys = termios.tcgetattr(sys.stdin) if sys.stdin.isatty() else None
    try:
        if keys is not None:
            tty.setcbreak(sys.stdin, termios.TCSANOW)
        yield
    finally:
        if keys is not None:
            termios.tcsetattr(sys.stdin, termios.TCSANOW, keys)
        signal.signal(signal.SIGTSTP, suspending)
