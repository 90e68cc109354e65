"""`conduit bench`: that it measures what it says, and leaves nothing behind."""

import json
import signal
import socket
import tempfile
import threading
import time
from pathlib import Path

import pytest

from conduit_daemon.cli.bench_load import BenchFailed, Caller, Tally, load, request


@pytest.fixture
def short_home(conduit):
    """A short home and temporary directory, as sockets need."""
    with tempfile.TemporaryDirectory(prefix="home-", dir="/tmp") as home:
        (Path(home) / "t").mkdir()
        conduit.environ |= {"HOME": home, "TMPDIR": f"{home}/t"}
        yield conduit
        assert list((Path(home) / "t").iterdir()) == []


def test_a_daemon_of_its_own_is_measured(short_home):
    said = short_home("bench", "--json", "--seconds", "0.4", "--callers", "4", timeout=60)

    assert (said.returncode, said.stderr) == (0, "")
    found = json.loads(said.stdout)
    assert (found["daemon"], found["tool"]) == ("temporary", "notebook__read_note")
    assert [(row["name"], row["callers"]) for row in found["rows"]] == [
        ("the server alone", 1),
        ("through conduit, 1 caller", 1),
        ("through conduit, 4 callers", 4),
    ]
    for row in found["rows"]:
        assert row["calls"] >= 20
        assert row["failed"] == 0
        assert 10 < row["p50_us"] < 1e6
    alone, one, _ = found["rows"]
    assert found["added_us"] == pytest.approx(one["p50_us"] - alone["p50_us"], abs=0.2)


def test_who_stops_it_finds_nothing_left(short_home):
    process = short_home.open("bench", "--seconds", "60")
    folder = Path(short_home.environ["TMPDIR"])
    while not any(folder.glob("*/agent.sock")):
        assert process.poll() is None
        time.sleep(0.02)
    process.send_signal(signal.SIGTERM)

    assert process.communicate(timeout=20) == ("", "")
    assert process.returncode == 130


def test_a_tool_of_the_running_daemon_is_measured(talking, tmp_path):
    said = talking("bench", "echo", "a=b", "--seconds", "0.2", "--callers", "3")

    assert (said.returncode, said.stderr) == (0, "")
    shown = [line.split()[2] for line in said.stdout.splitlines()[1:3]]
    assert shown == ["1", "3"]
    assert "alone" not in said.stdout
    assert "echo, called again as soon as it had answered" in said.stdout
    calls = [json.loads(line)["params"] for line in (tmp_path / "log").read_text().splitlines()]
    assert len(calls) > 10
    assert {json.dumps(each["arguments"]) for each in calls} == {'{"a": "b"}'}


@pytest.mark.parametrize(
    ("words", "code", "told"),
    [
        (["error"], 4, "The rule 'no mail' denies it."),
        (["tool_error"], 5, "tool_error reports an error: No such file."),
        (["--callers", "0"], 2, "--callers"),
        (["--socket", "/x/agent.sock"], 2, "Name a tool"),
    ],
)
def test_what_cannot_be_measured_is_said(talking, words, code, told):
    said = talking("bench", *words)

    assert (said.returncode, said.stdout) == (code, "")
    assert told in said.stderr


@pytest.fixture
def answering():
    """Makes a caller whose lines are answered by a function; None ends the connection."""
    threads, socks = [], []

    def start(answer):
        ours, theirs = socket.socketpair()

        def serve():
            with theirs, theirs.makefile("rb") as lines:
                for line in lines:
                    said = answer(json.loads(line))
                    if said is None:
                        return
                    theirs.sendall(said)

        threads.append(threading.Thread(target=serve))
        threads[-1].start()
        socks.append(ours)
        return Caller(ours.fileno(), ours.fileno())

    yield start
    for sock in socks:
        sock.close()
    for thread in threads:
        thread.join(10)


def test_failures_are_counted_and_notifications_are_not(answering):
    number = iter(range(10**9))

    def answer(message):
        kind = next(number) % 3
        note = b'{"jsonrpc":"2.0","method":"notifications/message","params":{}}\n'
        body = [b'"result":{"content":[]}', b'"result":{"isError":true}', b'"error":{"code":-1,"message":"No."}'][kind]
        return note + b'{"jsonrpc":"2.0","id":1,' + body + b"}\n"

    tally = Tally()
    load([answering(answer)], request("x", {}), 0.2, tally)
    row = tally.row("x", 1)

    assert row.calls == next(number)
    assert row.failed == row.calls * 2 // 3
    assert row.failure == "The tool reports an error."
    assert row.p50_us <= row.p99_us
    assert row.calls_per_second == pytest.approx(row.calls / tally.seconds, rel=0.01)


def test_a_connection_that_ends_ends_the_measurement(answering):
    with pytest.raises(BenchFailed, match="was closed"):
        load([answering(lambda message: None)], request("x", {}), 0.2, Tally())


def test_too_few_calls_have_no_99th_percentile():
    tally = Tally()
    tally.latencies, tally.seconds = [0.001] * 99, 1.0
    assert tally.row("x", 1).p99_us is None
    tally.latencies.append(0.5)
    assert tally.row("x", 1).p99_us == 1000.0
    assert tally.row("x", 1).p50_us == 1000.0
