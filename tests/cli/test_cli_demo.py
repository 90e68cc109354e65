"""`conduit demo`, from outside: what it shows, how long it takes, and that nothing is left of it."""

import json
import signal
import sys
import tempfile
import time
from pathlib import Path

import anthropic.types
import openai.types.chat
import openai.types.responses
import psutil
import pytest
from google.genai import types as gemini

from conduit_daemon.cli.demo_steps import FORMATS, DemoFailed, recorded, running_daemon

RESPONSES = {
    "anthropic.json": anthropic.types.Message,
    "openai_chat.json": openai.types.chat.ChatCompletion,
    "openai_responses.json": openai.types.responses.Response,
    "gemini.json": gemini.GenerateContentResponse,
}


@pytest.fixture
def place(conduit):
    """The folder in which the demo makes its own; its path is short, as that of a socket must be."""
    with tempfile.TemporaryDirectory(prefix="home-", dir="/tmp") as home:
        folder = Path(home) / "t"
        folder.mkdir()
        conduit.environ |= {"HOME": home, "TMPDIR": str(folder)}
        yield folder


def processes_of(place):
    """All processes that were started beneath the demo, the server too: they have its home directory."""
    found = []
    for process in psutil.process_iter():
        try:
            if process.environ().get("HOME") == str(place.parent) and process.status() != psutil.STATUS_ZOMBIE:
                found.append(process.cmdline())
        except (psutil.AccessDenied, psutil.NoSuchProcess):
            continue
    return found


def gone(place, within=2.0):
    deadline = time.monotonic() + within
    while processes_of(place) and time.monotonic() < deadline:
        time.sleep(0.05)
    return processes_of(place) == [] and list(place.iterdir()) == []


def test_it_shows_everything_in_time_and_leaves_nothing(conduit, place):
    started = time.monotonic()
    said = conduit("demo")

    assert (said.returncode, said.stderr) == (0, "")
    assert time.monotonic() - started < 10
    for text in ("Anthropic", "OpenAI, chat", "OpenAI, responses", "Gemini", "notebook__search_notes", "denied"):
        assert text in said.stdout
    for kind in ("ok", "unknown_tool", "invalid_arguments"):
        assert sum(line.split()[:1] == [kind] for line in said.stdout.splitlines()) == 4
    assert "notebook  ready" in said.stdout
    assert "clients running  supervisor" in said.stdout
    assert "nothing is left" in said.stdout
    assert gone(place)


def test_the_same_for_programs(conduit, place):
    said = conduit("demo", "--json")
    assert (said.returncode, said.stderr) == (0, "")
    shown = json.loads(said.stdout)

    assert [turn["format"]["recorded"] for turn in shown["turns"]] == list(RESPONSES)
    assert all(len(turn["listing"]["tools"]) == 5 for turn in shown["turns"])
    for turn in shown["turns"]:
        assert [each["kind"] for each in turn["done"]["outcomes"]] == ["ok", "unknown_tool", "invalid_arguments"]
        assert len(turn["done"]["results"]) == 3
    assert shown["tree"]["id"] == "root"
    assert gone(place)


def test_a_temporary_folder_whose_path_is_too_long_for_a_socket_is_not_used(conduit, place):
    folder = place / ("x" * 90)
    folder.mkdir()
    conduit.environ["TMPDIR"] = str(folder)

    assert conduit("demo").returncode == 0


@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM, signal.SIGHUP])
@pytest.mark.parametrize("moment", ["a folder", "a socket", "a server"])
def test_who_stops_it_finds_nothing_left(conduit, place, number, moment):
    process = conduit.open("demo")

    def reached():
        match moment:
            case "a folder":
                return any(place.iterdir())
            case "a socket":
                return any(place.glob("*/agent.sock"))
            case _:
                return any("conduit_daemon.cli.example_server" in line for line in processes_of(place))

    while not reached():
        assert process.poll() is None
        time.sleep(0.005)
    process.send_signal(number)
    process.send_signal(number)
    _, stderr = process.communicate(timeout=20)

    assert process.returncode == 130
    assert stderr == ""
    assert gone(place)


def test_a_daemon_that_does_not_start_is_said_and_nothing_is_left(monkeypatch, tmp_path):
    monkeypatch.setenv("TMPDIR", str(tmp_path))
    monkeypatch.setattr("tempfile.tempdir", None)
    monkeypatch.setattr(sys, "executable", "/bin/false")

    with pytest.raises(DemoFailed, match="The daemon ended with exit code 1 and said nothing"), running_daemon():
        pytest.fail("there is no daemon")
    assert list(tmp_path.iterdir()) == []


@pytest.mark.parametrize("format", FORMATS, ids=lambda format: format.recorded)
def test_the_responses_are_what_the_providers_sdks_take(format):
    response = RESPONSES[format.recorded].model_validate(recorded(format))

    assert response.model_extra in (None, {}), "something in it is unknown to the SDK"
