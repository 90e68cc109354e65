"""The first page of the help, with all verbs: drawn here, for what draws the other pages takes its time to load."""

from __future__ import annotations

import os
import sys
import textwrap
from typing import Final

from conduit_daemon.cli.verbs import GROUPS, VERBS

__all__ = ["EPILOGUE", "HELP", "front_page", "print_front_page"]

HELP: Final = "A local hub for MCP servers: it owns the connections, agents call tools through its socket."
EPILOGUE: Final = (
    "Exit codes: 0 done, 1 failed, 2 usage, 3 no daemon answers, 4 denied, 5 the tool reports an error, "
    "78 the configuration cannot be used."
)

_OWN: Final = (
    ("--install-completion", "Has the shell complete verbs and options."),
    ("--help (-h)", "Display this message and exit."),
    ("--version", "Display application version."),
)
_FRAME: Final = 4
_NARROWEST: Final = 50
_WIDTH: Final = 80
_NAME: Final = "\x1b[36m{}\x1b[0m"


def print_front_page() -> bool:
    """Prints it as wide as the terminal is; False where the output cannot show the box, or takes nothing."""
    if (sys.stdout.encoding or "").lower().replace("-", "") != "utf8":
        return False
    terminal = sys.stdout.isatty()
    plain = not terminal or "NO_COLOR" in os.environ or os.environ.get("TERM", "dumb") == "dumb"
    try:
        sys.stdout.write(front_page(_columns(terminal), color=not plain))
        sys.stdout.flush()
    except OSError:
        return False  # the other pages' way says what is amiss
    return True


def front_page(width: int, *, color: bool = False) -> str:
    """The page, `width` columns wide."""
    width = max(width, _NARROWEST)
    groups = sorted((group.name, group.line) for group in GROUPS)
    rows = [*((verb.name, verb.line) for verb in VERBS), *groups, *_OWN]
    longest = max(len(name) for name, _ in rows)
    room = width - _FRAME - longest - 2
    lines = ["Usage: conduit COMMAND", "", *textwrap.wrap(HELP, width), ""]
    lines.append("╭─ Commands " + "─" * (width - 13) + "╮")
    for name, line in rows:
        for place, part in enumerate(textwrap.wrap(line, room)):
            shown = "" if place else name
            cell = _NAME.format(shown) if color and shown else shown
            lines.append(f"│ {cell}{' ' * (longest - len(shown))}  {part.ljust(room)} │")
    lines += ["╰" + "─" * (width - 2) + "╯", "", *textwrap.wrap(EPILOGUE, width)]
    return "\n".join(lines) + "\n"


def _columns(terminal: bool) -> int:
    asked = os.environ.get("COLUMNS", "")
    if asked.isdigit() and int(asked) > 0:
        return int(asked)
    try:
        return os.get_terminal_size(sys.stdout.fileno()).columns or _WIDTH if terminal else _WIDTH
    except OSError:
        return _WIDTH
