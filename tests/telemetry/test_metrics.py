"""The metrics as Prometheus' own parser reads them, counted from a real bus."""

from __future__ import annotations

import re
import subprocess
import sys
import time
from pathlib import Path
from typing import Any, get_args

import pytest
import trio
from prometheus_client.parser import text_string_to_metric_families

from conduit_daemon.clients.port import ClientState
from conduit_daemon.telemetry.events import EVENTS, EventBus
from conduit_daemon.telemetry.metrics import STATES, Metrics, Readings, ServerReading

Samples = dict[tuple[str, frozenset[tuple[str, str]]], float]


def parsed(metrics: Metrics, **readings: Any) -> Samples:
    text = metrics.render(Readings(version="1.2", **readings)).decode()
    found: Samples = {}
    for family in text_string_to_metric_families(text):
        assert family.documentation, family.name
        for sample in family.samples:
            key = (sample.name, frozenset(sample.labels.items()))
            assert key not in found, "a series appears once"
            found[key] = sample.value
    return found


def value(samples: Samples, name: str, **labels: str) -> float | None:
    return samples.get((name, frozenset(labels.items())))


def finished(bus: EventBus, server: str | None, tool: str, kind: str = "ok", ms: float = 1.0) -> None:
    bus.emit(
        "call.finished",
        level="info" if kind in ("ok", "tool_error") else "warning",
        server=server,
        tool=tool,
        call="c",
        kind=kind,
        outcome="done",
        duration_ms=ms,
    )


def test_calls_errors_and_latencies_by_server_and_tool() -> None:
    bus = EventBus()
    metrics = Metrics(bus)
    for ms in (0.5, 1.0, 2.0, 30_000.0, 400_000.0):
        finished(bus, "files", "read", ms=ms)
    finished(bus, "files", "read", "tool_error")
    finished(bus, "files", "write", "timeout")
    finished(bus, "files", "write", "timeout")
    samples = parsed(metrics)
    read = {"server": "files", "tool": "read"}
    assert value(samples, "conduit_calls_total", **read) == 6
    assert value(samples, "conduit_errors_total", **read, kind="tool_error") == 1
    assert value(samples, "conduit_errors_total", server="files", tool="write", kind="timeout") == 2
    assert value(samples, "conduit_call_duration_seconds_count", **read) == 6
    assert value(samples, "conduit_call_duration_seconds_sum", **read) == pytest.approx(430.0045)
    for bound, count in (("0.001", 3), ("0.0025", 4), ("10.0", 4), ("30.0", 5), ("300.0", 5), ("+Inf", 6)):
        assert value(samples, "conduit_call_duration_seconds_bucket", **read, le=bound) == count, bound
    assert value(samples, "conduit_events_total", type="call.finished") == 8


def test_what_is_read_at_the_scrape() -> None:
    metrics = Metrics(EventBus())
    files = ServerReading(server="files", state="ready", in_flight=3, restarts=2, tools=14)
    samples = parsed(metrics, in_flight=4, connections=2, servers=(files,), mailboxes={"hub": 1, "client:files": 0})
    assert value(samples, "conduit_build_info", version="1.2") == 1
    assert value(samples, "conduit_calls_in_flight") == 4
    assert value(samples, "conduit_connections") == 2
    assert value(samples, "conduit_server_state", server="files", state="ready") == 1
    assert sum(value(samples, "conduit_server_state", server="files", state=state) or 0 for state in STATES) == 1
    assert value(samples, "conduit_server_calls_in_flight", server="files") == 3
    assert value(samples, "conduit_server_restarts_total", server="files") == 2
    assert value(samples, "conduit_server_tools", server="files") == 14
    assert value(samples, "conduit_mailbox_messages", actor="hub") == 1
    later = parsed(metrics)
    assert value(later, "conduit_server_tools", server="files") is None, "nothing is kept from the scrape before"
    if sys.platform == "linux":
        assert (value(samples, "process_resident_memory_bytes") or 0) > 1e6
        assert (value(samples, "process_open_fds") or 0) > 2


def test_every_state_and_every_event_type_is_there_from_the_start() -> None:
    assert set(STATES) == set(get_args(ClientState))
    samples = parsed(Metrics(EventBus()))
    for event in EVENTS:
        assert value(samples, "conduit_events_total", type=event) == 0


def test_names_that_others_choose_cannot_grow_it_without_bound() -> None:
    bus = EventBus()
    metrics = Metrics(bus)
    for number in range(3000):
        finished(bus, "hostile", f"tool-{number}", "tool_error")
        finished(bus, None, f"made-up-{number}", "unknown_tool")
        finished(bus, f"server-{number}", "x", "timeout")
    samples = parsed(metrics)
    assert len(samples) < 60_000
    assert sum(count for (name, _), count in samples.items() if name == "conduit_calls_total") == 9000
    assert sum(count for (name, _), count in samples.items() if name == "conduit_errors_total") == 9000
    assert value(samples, "conduit_calls_total", server="", tool="") == 3000
    assert (value(samples, "conduit_calls_total", server="hostile", tool="other") or 0) > 2000


def test_hostile_names_stay_labels() -> None:
    bus = EventBus()
    metrics = Metrics(bus)
    quoted = 'a"} 1 \\ b'
    for tool in (quoted, "new\nline", "\ud800", "x" * 10_000, "größe"):
        finished(bus, "s", tool)
    samples = parsed(metrics)
    assert value(samples, "conduit_calls_total", server="s", tool=quoted) == 1
    assert value(samples, "conduit_calls_total", server="s", tool="größe") == 1
    assert value(samples, "conduit_calls_total", server="s", tool="other") == 3


def test_two_daemons_in_one_process_do_not_meet() -> None:
    first, second = EventBus(), EventBus()
    one, two = Metrics(first), Metrics(second)
    finished(first, "s", "t")
    assert value(parsed(one), "conduit_calls_total", server="s", tool="t") == 1
    assert value(parsed(two), "conduit_calls_total", server="s", tool="t") is None


async def test_a_blocked_event_loop_shows(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("conduit_daemon.telemetry.metrics._SAMPLE", 0.2)
    metrics = Metrics(EventBus())
    async with trio.open_nursery() as nursery:
        nursery.start_soon(metrics.measure_lag)
        await trio.sleep(0.1)
        time.sleep(0.4)  # the loop's thread itself: due at 0.2, run at 0.5
        await trio.sleep(0.1)
        nursery.cancel_scope.cancel()
    samples = parsed(metrics)
    assert value(samples, "conduit_event_loop_lag_seconds_count") == 1
    assert 0.2 < (value(samples, "conduit_event_loop_lag_seconds_sum") or 0) < 2
    assert value(samples, "conduit_event_loop_lag_seconds_bucket", le="0.1") == 0


def test_the_library_is_loaded_by_the_first_scrape_alone() -> None:
    program = (
        "import sys; from conduit_daemon.telemetry.events import EventBus\n"
        "from conduit_daemon.telemetry.metrics import Metrics, Readings\n"
        "metrics = Metrics(EventBus()); print('prometheus_client' in sys.modules)\n"
        "metrics.render(Readings(version='1')); print('prometheus_client' in sys.modules)\n"
    )
    done = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, check=True)
    assert done.stdout.split() == ["False", "True"]


def test_the_documentation_names_each_metric() -> None:
    readme = (Path(__file__).parents[2] / "systemd" / "README.md").read_text()
    documented = {name.removesuffix("_total") for name in re.findall(r"`(conduit_[a-z_]+)`", readme)}
    rendered = Metrics(EventBus()).render(Readings(version="1")).decode()
    families = {family.name for family in text_string_to_metric_families(rendered)}
    assert documented == {name for name in families if name.startswith("conduit_")}
