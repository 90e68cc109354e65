"""The event bus, and its table of types against what the code emits."""

from __future__ import annotations

import ast
import re
from collections.abc import Iterator
from pathlib import Path

import pytest

import conduit_daemon
from conduit_daemon.telemetry.events import EVENTS, Event, EventBus

_TYPE = re.compile(r"[a-z]+\.[a-z_]+")
_NOT_FIELDS = {"event", "timestamp", "logger", "type", "time", "seq", "subscription", "jsonrpc"}


def test_a_handler_gets_the_event_with_all_that_is_known() -> None:
    bus, seen = EventBus(clock=lambda: 12.5), []
    bus.attach(seen.append)
    bus.emit("call.finished", level="warning", server="files", tool="read", call="c1", outcome="done")
    assert seen == [Event("call.finished", 12.5, "warning", "files", "read", "c1", {"outcome": "done"})]


def test_globs_and_a_level_narrow_what_a_handler_sees() -> None:
    bus, seen = EventBus(), []
    bus.attach(lambda event: seen.append((event.type, event.level)), types=["client.*", "rpc.connected"], level="info")
    bus.emit("client.ready")
    bus.emit("client.stderr", level="debug")
    bus.emit("client.stderr", level="info")
    bus.emit("rpc.connected")
    bus.emit("rpc.disconnected")
    assert seen == [("client.ready", "info"), ("client.stderr", "info"), ("rpc.connected", "info")]


def test_attaching_and_detaching_take_effect_at_once_and_only_for_their_own_token() -> None:
    bus, seen = EventBus(), []
    bus.emit("client.ready")
    first, second = bus.attach(seen.append), bus.attach(seen.append)
    bus.emit("client.ready")
    bus.detach(first)
    bus.detach(first)
    bus.emit("client.ready")
    bus.detach(second)
    bus.emit("client.ready")
    assert len(seen) == 3


def test_a_handler_that_raises_is_detached_and_reported_and_harms_nobody() -> None:
    bus, seen, calls = EventBus(), [], []

    def broken(event: Event) -> None:
        calls.append(event.type)
        raise KeyError("lost")

    bus.attach(broken)
    bus.attach(seen.append)
    bus.emit("client.ready")
    bus.emit("client.down")
    assert calls == ["client.ready"]
    assert [event.type for event in seen] == ["internal.error", "client.ready", "client.down"]
    assert "broken" in seen[0].fields["handler"]
    assert "KeyError: 'lost'" in seen[0].fields["traceback"]


def test_many_broken_handlers_end_in_as_many_reports() -> None:
    bus, seen = EventBus(), []

    def broken(event: Event) -> None:
        raise RuntimeError(event.type)

    for _ in range(50):
        bus.attach(broken)
    bus.attach(seen.append)
    bus.emit("client.ready")
    assert [event.type for event in seen].count("internal.error") == 50


def test_cancellation_passes_through_a_handler() -> None:
    bus = EventBus()

    def interrupted(_event: Event) -> None:
        raise KeyboardInterrupt

    bus.attach(interrupted)
    with pytest.raises(KeyboardInterrupt):
        bus.emit("client.ready")


def _emitted(source: str) -> Iterator[tuple[int, str, set[str]]]:
    """(line, type, field names) of each event that `source` emits, also by way of a name or a table."""
    tree = ast.parse(source)
    indirect = False
    for node in ast.walk(tree):
        if not (isinstance(node, ast.Call) and isinstance(node.func, ast.Attribute) and node.func.attr == "emit"):
            continue
        if not node.args:
            continue
        keywords = {keyword.arg for keyword in node.keywords if keyword.arg is not None}
        literals = [part.value for part in ast.walk(node.args[0]) if isinstance(part, ast.Constant)]
        types = [literal for literal in literals if isinstance(literal, str)]
        indirect = indirect or not types
        yield from ((node.lineno, type, keywords) for type in types)
    prefixes = {type.split(".")[0] for type in EVENTS}
    for node in ast.walk(tree) if indirect else ():
        literal = node.value if isinstance(node, ast.Constant) else None
        if isinstance(literal, str) and _TYPE.fullmatch(literal) and literal.split(".")[0] in prefixes:
            yield node.lineno, literal, set()


def test_the_check_of_emitted_types_sees_each_way_of_naming_one() -> None:
    source = """
NAMES = {int: "client.made_up"}
bus.emit("client.invented" if x else "client.ready", event=1)
bus.emit(NAMES[int])
bus.emit(f"supervisor.{kind}")
"""
    assert {(type, bool(fields)) for _, type, fields in _emitted(source)} == {
        ("client.made_up", False),
        ("client.invented", True),
        ("client.ready", True),
        ("client.invented", False),
        ("client.ready", False),
        ("supervisor.", False),
    }


def test_the_code_emits_only_declared_types_with_fields_that_hide_none_of_a_lines_own() -> None:
    root = Path(conduit_daemon.__file__).parent
    wrong: list[str] = []
    for path in sorted(root.rglob("*.py")):
        if path.name == "events.py" and path.parent.name == "telemetry":
            continue
        for line, type, fields in _emitted(path.read_text()):
            where = f"{path.relative_to(root)}:{line}"
            if type not in EVENTS:
                wrong.append(f"{where} emits {type!r}, which telemetry.events.EVENTS does not declare")
            wrong += [f"{where} gives {type} a field {name!r}, which each line has" for name in fields & _NOT_FIELDS]
    assert not wrong, "\n".join(wrong)


def test_the_table_is_written_for_people() -> None:
    for type, meaning in EVENTS.items():
        assert _TYPE.fullmatch(type), type
        assert meaning[0].isupper(), meaning
        assert meaning.endswith("."), meaning
