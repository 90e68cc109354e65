"""`conduit demo`: the whole product in a few seconds, explained, with nothing left behind."""

from __future__ import annotations

import shutil
import textwrap
import time
from collections.abc import Callable
from typing import Any

import msgspec

from conduit_daemon.agent import CallFailed, Conduit, Status, TreeNode
from conduit_daemon.cli import output
from conduit_daemon.cli.demo_steps import FORMATS, START_TIMEOUT, DemoFailed, Turn, running_daemon, take_turn
from conduit_daemon.cli.exits import DONE, FAILED
from conduit_daemon.cli.interruption import ended_in_order
from conduit_daemon.cli.look import print_status, print_tree

__all__ = ["demo"]

_FORBIDDEN = ("notebook__add_note", {"title": "Demo", "body": "The policy does not allow this."})


class Shown(msgspec.Struct, frozen=True):
    """All that the demo has seen."""

    configuration: str
    status: Status
    turns: list[Turn]
    denied: str
    tree: TreeNode


def demo(*, json: bool = False) -> int:
    """Shows the whole in a few seconds, on a daemon of its own that is removed again.

    Args:
        json: Print what was seen as JSON.
    """
    started = time.monotonic()
    try:
        with ended_in_order():
            if not json:
                _say(_OPENING)
            with output.waiting("Starting a daemon with one MCP server"):
                shown = _look()
    except DemoFailed as error:
        output.print_error(str(error))
        return FAILED
    seconds = time.monotonic() - started
    if json:
        output.print_json({**msgspec.to_builtins(shown), "seconds": round(seconds, 3)})
    else:
        _tell(shown, seconds)
    return DONE


def _look() -> Shown:
    with running_daemon() as (conduit, configuration):
        conduit.tools(timeout=START_TIMEOUT)  # waits for the server
        status = conduit.status()
        turns = [take_turn(conduit, format) for format in FORMATS]
        return Shown(configuration, status, turns, _denied(conduit), conduit.tree())


def _denied(conduit: Conduit) -> str:
    name, arguments = _FORBIDDEN
    try:
        conduit.call(name, arguments)
    except CallFailed as error:
        return str(error)
    raise DemoFailed(f"The policy should have denied {name}")


def _tell(shown: Shown, seconds: float) -> None:
    _step("1. The configuration", _CONFIGURATION)
    _say(textwrap.indent(shown.configuration[shown.configuration.index("[servers") :].rstrip(), "  "))
    _step("2. The servers", "The daemon has started the server and keeps it running (conduit status):")
    print_status(shown.status)
    _step("3. The tools, in each provider's format", _TOOLS)
    for turn in shown.turns:
        tools = turn.listing.tools
        _say(f"  {turn.format.title}: {output.amount(len(tools), 'tool')}, as this one:")
        _say(f"    {_short(tools[0] if tools else {}, 4)}")
    _step("4. A model's calls, answered", _CALLS)
    for turn in shown.turns:
        _say(f"  {turn.format.title}")
        for outcome, result in zip(turn.done.outcomes, turn.done.results, strict=True):
            _say(f"    {outcome.kind:<18}{_short(result, 22)}")
    _step("5. A call that no rule allows", _POLICY)
    _say(f"  {shown.denied}")
    _step("6. The processes inside", "Each is supervised, and what crashes is restarted alone (conduit tree):")
    print_tree(shown.tree)
    _say(_CLOSING.format(seconds=seconds))


def _short(value: Any, indent: int) -> str:
    """A JSON value in the rest of a line."""
    width = min(shutil.get_terminal_size((100, 24)).columns, 120) - indent
    text = msgspec.json.encode(value).decode()
    return text if len(text) <= width else text[: width - 2] + " …"


def _step(title: str, text: str) -> None:
    _say(f"\n{title}\n{text}\n")


_say: Callable[[str], None] = output.print_text

_OPENING = """\
Conduit keeps the connections to MCP servers, so that agents need not: they list and call
tools through one local socket, in the format of their model's provider."""

_CONFIGURATION = """\
One MCP server, a notebook, and a policy. Yours would be in conduit.toml:"""

_TOOLS = """\
An agent asks for the tools and hands them to its model as they are
(conduit tools anthropic, conduit tools openai --api chat, ...):"""

_CALLS = """\
The model answers with three calls at once: a search, a tool that does not exist, and a
search with a wrong argument. The agent passes the whole response on (conduit execute) and
gets one answer a call, in order, to be sent back as it is. A mistake is told to the model:"""

_POLICY = """\
The model may read notes and not add any. notebook__add_note (conduit call) is answered:"""

_CLOSING = """
That took {seconds:.1f} s, and nothing is left: the daemon, its server, its sockets and its folder are gone.
Next: `conduit init` writes a configuration to begin with; then `conduit check` and `conduit run`."""
