"""What commands print: JSON for programs, text and tables for people.

Whatever comes from servers is made harmless before a terminal sees it: control characters, and with them
escape sequences, are shown and not obeyed.
"""

from __future__ import annotations

import re
import sys
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from typing import TYPE_CHECKING, Any

import msgspec

from conduit_daemon.agent import Progress

if TYPE_CHECKING:
    from rich.console import Console
    from rich.text import Text

__all__ = [
    "amount",
    "clock",
    "console",
    "duration",
    "first_line",
    "inline",
    "milliseconds",
    "plain_json",
    "print_data",
    "print_error",
    "print_json",
    "print_text",
    "safe",
    "sentence",
    "styled",
    "table",
    "took",
    "waiting",
]

_STYLES = {
    "ready": "green",
    "ok": "green",
    "running": "green",
    "degraded": "yellow",
    "connecting": "yellow",
    "waiting": "yellow",
    "backoff": "yellow",
    "failing": "red",
    "down": "red",
    "failed": "red",
    "open": "red",
    "needs_attention": "red",
    "idle": "dim",
    "stopped": "dim",
}
_WIDE = 100_000
# Letters and marks that are printable by their category and yet nothing that a person sees.
_BLANK = "\u034f\u115f\u1160\u17b4\u17b5\u180b-\u180f\u2800\u3164\ufe00-\ufe0e\uffa0"
_BLANKS = re.compile(f"[{_BLANK}\U000e0100-\U000e01ef]")
_STACK = re.compile(r"[^\W\d_]?[\u0300-\u036f\u0483-\u0489\u1ab0-\u1aff\u1dc0-\u1dff\u20d0-\u20ff\ufe20-\ufe2f]{4,}")
_UNSEEN = re.compile(f"[\x7f-\x9f\xad\u061c\u200b-\u200f\u2028-\u202e\u2060-\u206f\ufeff\ufff9-\ufffb{_BLANK}]")


def console() -> Console:
    """A console on stdout; piped output is never cut to a width."""
    from rich.console import Console  # noqa: PLC0415 - programs that ask for JSON do not wait for it

    return Console(width=None if sys.stdout.isatty() else _WIDE, highlight=False, markup=False, emoji=False)


def print_json(value: Any) -> None:
    """Prints a JSON value, indented; characters that a terminal obeys or hides are written as escapes."""
    sys.stdout.write(plain_json(msgspec.json.format(msgspec.json.encode(value), indent=2)) + "\n")


def plain_json(data: bytes) -> str:
    """JSON text in which what a terminal would obey, turn round or not show is escaped, as JSON allows anywhere."""
    return _UNSEEN.sub(lambda match: f"\\u{ord(match[0]):04x}", data.decode())


def print_text(text: str) -> None:
    """Prints a text for people, made harmless; what it is piped through may end on a terminal."""
    sys.stdout.write(safe(text) + "\n")


def print_data(text: str) -> None:
    """Prints a tool's text as it is to programs, made harmless to a terminal."""
    sys.stdout.write((safe(text) if sys.stdout.isatty() else text) + "\n")


def print_error(message: str) -> None:
    """Prints one sentence on stderr."""
    sys.stderr.write(f"conduit: {safe(message)}\n")


def safe(text: str) -> str:
    """`text` with control characters shown as \\x1b and the like; line feeds and tabs stay."""
    shown = "".join(char if char.isprintable() or char in "\n\t" else ascii(char)[1:-1] for char in text)
    return shown if shown.isascii() else _STACK.sub(_escaped, _BLANKS.sub(_escaped, shown))


def inline(text: str, most: int | None = None) -> str:
    """`text` made harmless on one line, where it must not pass for the lines around it.

    Args:
        text: From whatever source.
        most: Its longest form, in characters; what is over is told.
    """
    line = safe(text).replace("\n", "\\n").replace("\t", "\\t")
    if most is None or len(line) <= most:
        return line
    return f"{line[:most]}… ({len(line) - most} more)"


def _escaped(match: re.Match[str]) -> str:
    return ascii(match[0])[1:-1]


def first_line(text: str | None) -> str:
    """The first line of a description."""
    lines = (text or "").strip().splitlines()
    return lines[0] if lines else ""


def sentence(text: str | None) -> str:
    """A reason as a sentence: with a capital letter and a full stop."""
    said = (text or "").strip()
    return f"{said[:1].upper()}{said[1:]}{'' if said.endswith(('.', '!', '?')) else '.'}" if said else ""


def table(columns: Sequence[str], rows: Sequence[Sequence[str]], *, numbers: Sequence[str] = ()) -> None:
    """Prints rows under their columns' names.

    Args:
        columns: The names.
        rows: The cells, from whatever source.
        numbers: The columns that are aligned right.
    """
    from rich.table import Table  # noqa: PLC0415

    made = Table(box=None, pad_edge=False, header_style="bold", show_edge=False)
    for name in columns:
        made.add_column(name, justify="right" if name in numbers else "left", overflow="fold")
    for row in rows:
        made.add_row(*(styled(cell) for cell in row))
    console().print(made)


def styled(cell: str) -> Text:
    """A cell, coloured where it is a state."""
    from rich.text import Text  # noqa: PLC0415

    return Text(inline(cell), style=_STYLES.get(cell, ""))


def amount(count: int, noun: str) -> str:
    """``1 call``, ``2 calls``."""
    return f"{count} {noun}" if count == 1 else f"{count} {noun}s"


def duration(seconds: float | None) -> str:
    """A duration as people say it: ``0.2 s``, ``3 min 5 s``, ``2 d 4 h``."""
    if seconds is None:
        return ""
    if seconds < 60:
        return f"{seconds:.1f} s" if seconds < 10 else f"{seconds:.0f} s"
    whole = int(seconds)
    for unit, size, lesser, part in (("d", 86_400, "h", 3600), ("h", 3600, "min", 60), ("min", 60, "s", 1)):
        if whole >= size:
            return f"{whole // size} {unit} {whole % size // part} {lesser}"
    return f"{whole} s"


def took(seconds: float | None) -> str:
    """A duration of what is quick as a rule: ``0.3 ms``, ``1.2 s``."""
    return milliseconds(seconds * 1000) if seconds is not None and seconds < 1 else duration(seconds)


def milliseconds(value: float | None) -> str:
    """``1.2 ms``; nothing for None."""
    return "" if value is None else f"{value:.1f} ms" if value < 100 else f"{value:.0f} ms"


def clock(moment: float) -> str:
    """A point in time, local."""
    return time.strftime("%Y-%m-%d %H:%M:%S", time.localtime(moment))


@contextmanager
def waiting(text: str) -> Iterator[Callable[[Progress], None] | None]:
    """Shows a person that something is waited for, and how far it is; shows nothing where stderr is piped."""
    if not sys.stderr.isatty():
        yield None
        return
    from rich.console import Console  # noqa: PLC0415
    from rich.text import Text  # noqa: PLC0415

    with Console(stderr=True).status(Text(safe(text))) as status:

        def update(progress: Progress) -> None:
            far = f"{progress.progress:g}" + (f" of {progress.total:g}" if progress.total else "")
            said = f": {progress.message}" if progress.message else ""
            status.update(Text(safe(f"{text} ({far}{said})")))

        yield update
