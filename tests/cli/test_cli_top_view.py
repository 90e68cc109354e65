"""What `conduit top` draws, at every size of a terminal."""

import msgspec
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from rich.console import Console

from conduit_daemon.agent import RunningCall, TreeNode
from conduit_daemon.cli.top_sample import Sample, ServerSample
from conduit_daemon.cli.top_view import TopView


def server(place, state="ready"):
    trouble = state != "ready"
    return ServerSample(
        state=state,
        reason="server x was ended by SIGKILL, \x1b[31m and said much about it" * 4 if trouble else None,
        calls_per_second=place * 1.5,
        running=place % 3,
        calls=place * 100,
        errors=place,
        p50_ms=1.25,
        p99_ms=130.4,
        restarts=place,
        tools=5,
        retry_in=3.2 if trouble else None,
        circuit="open" if trouble else "closed",
        pid=1,
    )


def sample(servers=30, broken=7):
    return Sample(
        time=0.0,
        version="1.2.3",
        pid=77,
        uptime=100.0,
        health="degraded",
        calls_per_second=123.4,
        running=3,
        calls=1000,
        errors=2,
        approvals=1,
        connections=3,
        servers={f"server-{place}": server(place, "open" if place == broken else "ready") for place in range(servers)},
        tree=TreeNode(id="root", kind="supervisor", state="running"),
    )


def drawn(view, width, height):
    console = Console(width=width, height=height, force_terminal=True, color_system=None)
    with console.capture() as capture:
        console.print(view, height=height)
    return [line.rstrip() for line in capture.get().splitlines()]


def test_everything_where_there_is_room():
    lines = drawn(TopView(sample()), 180, 60)

    assert lines[0].startswith(
        "conduit 1.2.3  degraded  123 calls/s  3 running  1 call waiting for approval  1000 calls"
    )
    assert lines[2].split() == [
        "server", "state", "calls/s", "running", "calls", "errors", "p50", "p99", "restarts", "tools", "notes"
    ]  # fmt: skip
    assert lines[4].split() == ["server-1", "ready", "1.5", "1", "100", "1", "1.2", "ms", "130", "ms", "1", "5"]
    assert lines[10].endswith("…")
    assert "The circuit is open. Next attempt in 3.2 s. Server x was ended by SIGKILL, \\x1b[31m and" in lines[10]
    assert lines[34] == "root running  supervisor"


@pytest.mark.parametrize(("width", "columns"), [(60, 4), (80, 7), (120, 10), (140, 11)])
def test_a_narrow_terminal_has_fewer_columns_and_whole_figures(width, columns):
    lines = drawn(TopView(sample()), width, 60)

    assert len(lines[2].split()) == columns
    assert all("…" not in line for place, line in enumerate(lines) if place > 2 and "server-7 " not in line)
    assert "43.5" in next(line for line in lines if line.startswith("server-29 "))


def test_what_is_in_trouble_comes_first_and_then_what_works_most():
    lines = drawn(TopView(sample()), 100, 9)

    assert [line.split()[0] for line in lines[3:7]] == ["server-7", "server-29", "server-28", "server-27"]
    assert lines[7] == "and 26 servers more"


def test_where_the_daemon_is_gone_the_last_that_was_seen_stays():
    lines = drawn(TopView(sample(2), "Waiting for the daemon since 3.0 s; it \x1b is gone."), 100, 20)

    assert lines[0] == "Waiting for the daemon since 3.0 s; it \\x1b is gone."
    assert lines[3].startswith("server-0")


@settings(max_examples=40, deadline=None)
@given(st.integers(20, 200), st.integers(3, 60), st.integers(0, 70))
def test_it_never_is_wider_than_the_terminal(width, height, servers):
    lines = drawn(TopView(sample(servers)), width, height)

    assert all(len(line) <= width for line in lines)
    assert lines[0].startswith("conduit 1.2.3")


def calls(count):
    return [
        RunningCall(id=f"run-{place}", name="s__t", server="s", tool=f"t{place}\x1b", principal="ann/x",
                    since=-10.0 - place, phase="approval" if place else "server")
        for place in range(count)
    ]  # fmt: skip


def test_the_calls_that_run_stand_between_the_servers_and_the_tree():
    seen = msgspec.structs.replace(sample(2), running_calls=calls(2), running=2)
    lines = drawn(TopView(seen), 120, 40)

    assert lines[6].split() == ["running", "tool", "for", "where", "principal"]
    assert lines[7].split() == ["run-0", "s/t0\\x1b", "10", "s", "at", "the", "server", "ann/x"]
    assert lines[8].split() == ["run-1", "s/t1\\x1b", "11", "s", "waits", "for", "approval", "ann/x"]
    assert lines[10].startswith("root running")
    assert drawn(TopView(seen), 60, 40)[6].split() == ["tool", "for", "where"]


@pytest.mark.parametrize("height", [10, 14, 20, 30])
def test_many_calls_leave_room_and_say_how_many_more_there_are(height):
    seen = msgspec.structs.replace(sample(2), running_calls=calls(100), running=3000)
    lines = drawn(TopView(seen), 120, height)

    shown = sum(line.startswith("run-") for line in lines)
    assert len(lines) <= height
    if shown:
        assert f"and {3000 - shown} calls more" in lines
    assert shown or height == 10
