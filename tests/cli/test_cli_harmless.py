"""What servers and agents write cannot steer the terminal it ends up on, through a pipe or as JSON either."""

from __future__ import annotations

import json

import pytest

from conduit_daemon.cli import output

HOSTILE = "rm\x1b[2K\x07\r\x9b31m\u202egnp\u2028\u200bé👍🏽"


def test_text_for_people_is_harmless_also_where_it_is_piped_on(capsys: pytest.CaptureFixture[str]) -> None:
    output.print_text(HOSTILE)
    said = capsys.readouterr().out
    assert all(char.isprintable() or char == "\n" for char in said)
    assert "\\x1b[2K" in said
    assert "é👍🏽" in said


def test_json_means_the_same_and_is_harmless(capsys: pytest.CaptureFixture[str]) -> None:
    output.print_json({HOSTILE: [HOSTILE]})
    said = capsys.readouterr().out
    assert json.loads(said) == {HOSTILE: [HOSTILE]}
    assert all(char.isprintable() or char == "\n" for char in said)
    assert "é👍🏽" in said


def test_a_tools_text_reaches_a_program_as_it_is(capsys: pytest.CaptureFixture[str]) -> None:
    output.print_data(HOSTILE)
    assert capsys.readouterr().out == HOSTILE + "\n"
