"""What a person reads of a call that waits: each part in a line of its own, and nothing in it can imitate another.

An agent chooses the arguments, their names and order, its own name, the taint, and the prefix of the name by which it
knows the tool; a server chooses the tool's own name and hints. So each is one line of bounded length, a long text shows
its end as well as its beginning, and what is left out is said, last, where it is read.
"""

from __future__ import annotations

from typing import Any, Final

import msgspec

from conduit_daemon.agent import Approval
from conduit_daemon.cli import output

__all__ = ["brief", "called", "described", "is_whole"]

_LINES: Final = 16
_TEXT: Final = 160
_TAIL: Final = 50
_KEY: Final = 40
_NAME: Final = 160
_REASON: Final = 400
_LISTED: Final = 10
_OFFERS: Final = ("resource:", "prompt:")
_ALL: Final = 1200


def described(call: Approval, *, whole: bool = False) -> str:
    """A waiting call for a person: long texts and long arguments are folded unless it is to be whole."""
    about = f"(server {_name(call.server)}, tool {_tool(call, whole)})"
    head = f"{_name(call.principal)} calls {called(call, whole=whole)}  {about}"
    lines = [head, *(f"  {line}" for line in (_pretty(call.arguments) if whole else _folded(call.arguments)))]
    if call.taint:
        lines.append(f"  the model has read what came from: {_listed(call.taint)}")
    hints = [name for name, value in call.annotations.items() if value is True]
    if hints:
        lines.append(f"  the server says of the tool: {_listed(hints)}")
    reason = f": {output.inline(call.reason, _REASON)}" if call.reason else ""
    lines.append(f"  asked by {_name(call.rule or '')}{reason}")
    if sum(map(len, lines)) > _ALL:
        lines.append(head)  # the first line may be out of sight
    if call.folded:
        lines.append("  The arguments are too large to be shown whole; approve only what you have seen by other means.")
    elif not whole and not is_whole(call):
        left = len(call.arguments) - _LINES
        more = f"{output.amount(left, 'argument')} more of {len(call.arguments)}" if left > 0 else "Its name is longer"
        lines.append(f"  {more}, f shows {'them' if left > 0 else 'it'}")
    return "\n".join(lines)


def called(call: Approval, *, whole: bool = False) -> str:
    """What is called, by its server's own name for it: the agent chose the prefix of the name that it used."""
    tool = _tool(call, whole)
    return tool if call.tool.startswith(_OFFERS) else f"{_name(call.server)}__{tool}"


def is_whole(call: Approval) -> bool:
    """Whether a folded description has the whole name of what is called, which may be a URI, and of every argument,
    though it may fold their values."""
    return len(call.arguments) <= _LINES and len(output.inline(call.tool)) <= _NAME


def brief(arguments: dict[str, Any]) -> str:
    """Arguments in a cell of a table: every one that there is room for, each with its value's beginning and end."""
    shown = ", ".join(_argument(*item) for item in list(arguments.items())[:_LINES])
    left = len(arguments) - _LINES
    return f"{{{shown}}}" if left <= 0 else f"{{{shown}, … {left} more}}"


def _folded(arguments: dict[str, Any]) -> list[str]:
    """The lines of the arguments as JSON where those are few and short; else a line for each of the first ones."""
    if len(arguments) <= _LINES:
        lines = _pretty(arguments)
        if len(lines) <= _LINES and max(map(len, lines)) <= _TEXT:
            return lines
    return [_argument(*item) for item in list(arguments.items())[:_LINES]]


def _pretty(value: Any) -> list[str]:
    return output.plain_json(msgspec.json.format(msgspec.json.encode(value), indent=2)).splitlines()


def _argument(name: str, value: Any) -> str:
    key, text = (output.plain_json(msgspec.json.encode(part)) for part in (name, value))
    return f"{_cut(key, _KEY)}: {_cut(text, _TEXT)}"


def _cut(text: str, most: int) -> str:
    """`text` with its middle left out: what matters may be at its end."""
    if len(text) <= most:
        return text
    tail = min(_TAIL, most // 3)
    return f"{text[: most - tail]}… ({len(text) - most} characters more, f shows them) …{text[-tail:]}"


def _tool(call: Approval, whole: bool) -> str:
    return output.inline(call.tool) if whole else _name(call.tool)


def _name(text: str) -> str:
    return _cut(output.inline(text), _NAME)


def _listed(names: list[str]) -> str:
    shown = ", ".join(output.inline(name, _KEY) for name in names[:_LISTED])
    left = len(names) - _LISTED
    return shown if left <= 0 else f"{shown} and {left} more"
