"""Lines for machines, people and the journal, whatever is in them."""

from __future__ import annotations

import json
import struct
import sys
from pathlib import Path
from typing import Any

import msgspec
from hypothesis import given
from hypothesis import strategies as st

from conduit_daemon.telemetry.masking import MASK, Masker
from conduit_daemon.telemetry.rendering import LONGEST, console, journal, json_line, render

HEAD = {"timestamp": 1_796_000_000.25, "level": "info", "event": "call.finished", "logger": "conduit"}
RENDERERS = [json_line, console(colors=False), console(colors=True), journal("conduit")]

nasty = st.recursive(
    st.none()
    | st.booleans()
    | st.integers()
    | st.floats()
    | st.text(st.characters())
    | st.binary()
    | st.builds(pow, st.just(10), st.just(6000))
    | st.builds(object)
    | st.builds(KeyError, st.text()),
    lambda inner: st.lists(inner) | st.dictionaries(st.text() | st.integers(), inner) | st.frozensets(st.integers()),
    max_leaves=10,
)


def parse_journal(datagram: bytes) -> dict[str, str]:
    """The fields of a native datagram, read as journald reads it."""
    fields: dict[str, str] = {}
    at = 0
    while at < len(datagram):
        end = datagram.index(b"\n", at)
        name, equals, value = datagram[at:end].partition(b"=")
        if equals:
            at = end + 1
        else:
            (length,) = struct.unpack_from("<Q", datagram, end + 1)
            value = datagram[end + 9 : end + 9 + length]
            at = end + 9 + length
            assert datagram[at : at + 1] == b"\n"
            at += 1
        fields[name.decode()] = value.decode()
    return fields


def one(entry: dict[str, Any], renderer: Any = json_line, secrets: tuple[str, ...] = ()) -> bytes:
    (line,) = render([entry], renderer, Masker(secrets))
    return line


def test_a_json_line_begins_with_its_time_level_event_and_logger() -> None:
    line = one({**HEAD, "server": "files", "duration_ms": 1.5})
    assert line == (
        b'{"timestamp":"2026-11-30T00:53:20.250000Z","level":"info","event":"call.finished","logger":"conduit",'
        b'"server":"files","duration_ms":1.5}\n'
    )


@given(st.dictionaries(st.text(min_size=1), nasty, max_size=5))
def test_any_fields_make_exactly_one_valid_line(fields: dict[str, Any]) -> None:
    entry = {**{f"x{key}": value for key, value in fields.items()}, **HEAD}
    line = one(entry)
    assert line.count(b"\n") == 1
    assert json.loads(line)["event"] == "call.finished"
    text = one(entry, console(colors=False)).decode()
    assert text.count("\n") == 1
    assert not {char for char in text[:-1] if ord(char) < 32 or 127 <= ord(char) < 160}
    assert parse_journal(one(entry, journal("conduit")))["PRIORITY"] == "6"


def test_what_is_too_long_too_deep_or_broken_is_shortened_and_said() -> None:
    deep: list[Any] = []
    for _ in range(100_000):
        deep = [deep]
    wide = {str(n): "y" * 3000 for n in range(1000)}
    for renderer in RENDERERS:
        for value in ("x" * 2_000_000, deep, [wide] * 3, msgspec.Raw(b'"' + b"z" * 200_000 + b'"')):
            line = one({**HEAD, "value": value, "server": "files"}, renderer)
            assert len(line) <= LONGEST
            assert b"log_problem" in line or b"LOG_PROBLEM" in line
    assert json.loads(one({**HEAD, "value": "x" * 100_000, "bad": "\ud800"}))["bad"] == "\\ud800"
    while deep:
        deep = deep[0]


def test_secrets_are_masked_in_every_format_and_in_what_is_cut() -> None:
    secret = 'se"cret\\vä'
    for renderer in RENDERERS:
        for value in (secret, {"a": [secret]}, "x" * 2030 + secret + "y" * LONGEST, (secret, object())):
            line = one({**HEAD, "value": value}, renderer, (secret,)).decode()
            assert MASK in line
            assert 'se"' not in line
            assert "cret" not in line


def test_a_secret_that_is_also_a_name_or_a_number_leaves_the_line_whole() -> None:
    line = json.loads(one({**HEAD, "duration_ms": 12345678, "x": 0.12345678}, secrets=("duration_ms", "12345678")))
    assert line == {**HEAD, "timestamp": line["timestamp"], "duration_ms": MASK, "x": 0.12345678}


def test_an_exception_is_part_of_its_line() -> None:
    def entry() -> dict[str, Any]:
        try:
            int("a secret-of-eight")
        except ValueError:
            return {**HEAD, "exc_info": sys.exc_info()}

    line = json.loads(one(entry(), secrets=("secret-of-eight",)))
    assert line["exception"].startswith("Traceback")
    assert line["exception"].endswith(f"base 10: 'a {MASK}'")
    assert "exc_info" not in line
    assert "base 10: 'a secret-of-eight'" in one(entry(), console(colors=False)).decode()
    fields = parse_journal(one(entry(), journal("conduit")))
    assert fields["MESSAGE"].startswith("call.finished\nTraceback")


def test_a_console_line_shows_control_characters_instead_of_obeying_them() -> None:
    line = one({**HEAD, "line": "\x1b[2Jgone\x07\x9b1m"}, console(colors=False)).decode()
    assert "␛[2Jgone␇" in line
    assert "\x1b" not in line
    assert "\x9b" not in line


def test_the_journal_gets_each_field_under_a_name_it_can_be_filtered_by() -> None:
    entry = {**HEAD, "level": "warning", "server": "files", "tool": "read", "call": "c1", "duration_ms": 1.5}
    fields = parse_journal(one({**entry, "line": "two\nlines", "some-key": [1]}, journal("conduit")))
    assert fields == {
        "SYSLOG_IDENTIFIER": "conduit",
        "PRIORITY": "4",
        "CONDUIT_EVENT": "call.finished",
        "CONDUIT_LOGGER": "conduit",
        "CONDUIT_SERVER": "files",
        "CONDUIT_TOOL": "read",
        "CONDUIT_CALL": "c1",
        "CONDUIT_DURATION_MS": "1.5",
        "CONDUIT_LINE": "two\nlines",
        "CONDUIT_SOME_KEY": "[1]",
        "MESSAGE": 'call.finished server=files tool=read call=c1 duration_ms=1.5 line="two\\nlines" some-key=[1]',
    }


def test_values_without_a_json_form_are_shown_as_text() -> None:
    line = json.loads(one({**HEAD, "path": Path("/srv/data"), "error": KeyError("x"), "raw": msgspec.Raw(b'{"a":1}')}))
    assert line["path"] == "/srv/data"
    assert line["error"] == "KeyError: 'x'"
    assert line["raw"] == {"a": 1}
