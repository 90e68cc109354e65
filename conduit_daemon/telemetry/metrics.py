"""Numbers for Prometheus: counted from the events, and read from the daemon's parts when somebody scrapes.

Counting is on the way of every call, so it is plain dictionaries and lists; prometheus_client, which renders them, is
loaded by the first scrape. Label values that others choose (tools' names) are bounded: beyond the bound they are
counted together, as ``other``.
"""

from __future__ import annotations

from bisect import bisect_left
from collections.abc import Iterable, Iterator, Mapping
from itertools import accumulate
from typing import TYPE_CHECKING, Any, Final, final

import msgspec
import trio

from conduit_daemon.telemetry.events import EVENTS, Event, EventBus

if TYPE_CHECKING:
    from prometheus_client import CollectorRegistry, Metric

__all__ = ["CONTENT_TYPE", "STATES", "Metrics", "Readings", "ServerReading"]

CONTENT_TYPE: Final = "text/plain; version=0.0.4; charset=utf-8"
"""What `Metrics.render` returns, for HTTP."""

STATES: Final = ("stopped", "connecting", "ready", "waiting", "open", "needs_attention", "idle")
"""The states of a server, of which ``conduit_server_state`` is 1 for one."""

_DURATIONS: Final = (0.001, 0.0025, 0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1.0, 2.5, 5.0, 10.0, 30.0, 60.0, 300.0)
_LAGS: Final = (0.001, 0.005, 0.01, 0.05, 0.1, 0.5, 1.0, 5.0)
_MOST_TOOLS: Final = 1000
_LONGEST_LABEL: Final = 128
_OTHER: Final = "other"
_SAMPLE: Final = 5.0


class ServerReading(msgspec.Struct, frozen=True, kw_only=True):
    """How one server stands at a scrape.

    Attributes:
        server: Its id.
        state: One of `STATES`.
        in_flight: Calls running on it.
        restarts: How often its process was started again.
        tools: How many tools it lists.
    """

    server: str
    state: str
    in_flight: int = 0
    restarts: int = 0
    tools: int = 0


class Readings(msgspec.Struct, frozen=True, kw_only=True):
    """What is read at a scrape, not counted.

    Attributes:
        version: The daemon's version.
        in_flight: Calls on their way.
        connections: Open connections to the sockets.
        servers: How each server stands.
        mailboxes: Waiting messages by the name of the actor.
        log_lines_dropped: Lines of the log that could not be written.
        audit_rows_waiting: Rows of the audit that are not in its file yet.
        audit_rows_lost: Rows for which there was no room while they could not be written.
        problems: How many problems of the daemon's own its status tells of.
    """

    version: str
    in_flight: int = 0
    connections: int = 0
    servers: tuple[ServerReading, ...] = ()
    mailboxes: Mapping[str, int] = {}
    log_lines_dropped: int = 0
    audit_rows_waiting: int = 0
    audit_rows_lost: int = 0
    problems: int = 0


@final
class _Histogram:
    """Counts of observations by bucket, the last of which has no upper bound."""

    __slots__ = ("bounds", "counts", "total")

    def __init__(self, bounds: tuple[float, ...]) -> None:
        self.bounds = bounds
        self.counts = [0] * (len(bounds) + 1)
        self.total = 0.0

    def observe(self, value: float) -> None:
        self.counts[bisect_left(self.bounds, value)] += 1
        self.total += value

    def buckets(self) -> list[tuple[str, float]]:
        """As Prometheus has them: each includes those below it."""
        return list(zip([*map(str, self.bounds), "+Inf"], accumulate(self.counts), strict=True))


@final
class Metrics:
    """The daemon's numbers.

    Args:
        bus: Attached to for as long as the object lives; what is counted are its events.

    Example:
        >>> metrics = Metrics(EventBus())
        >>> b"conduit_calls_in_flight 2.0" in metrics.render(Readings(version="1", in_flight=2))
        True
    """

    def __init__(self, bus: EventBus) -> None:
        self._calls: dict[tuple[str, str], _Histogram] = {}
        self._errors: dict[tuple[str, str, str], int] = {}
        self._events: dict[str, int] = dict.fromkeys(EVENTS, 0)
        self._lag = _Histogram(_LAGS)
        self._registry: CollectorRegistry | None = None
        self._readings = Readings(version="")
        bus.attach(self._count, level="info")

    def render(self, readings: Readings) -> bytes:
        """All numbers in Prometheus' text format.

        Args:
            readings: How the daemon's parts stand now.
        """
        from prometheus_client import generate_latest  # noqa: PLC0415 - a daemon that nobody scrapes goes without

        if self._registry is None:
            self._registry = self._register()
        self._readings = readings
        return generate_latest(self._registry)

    async def measure_lag(self) -> None:
        """Measures every five seconds how late the event loop runs what is due, until cancelled."""
        while True:
            due = trio.current_time() + _SAMPLE
            await trio.sleep_until(due)
            self._lag.observe(max(0.0, trio.current_time() - due))

    def collect(self) -> Iterator[Metric]:
        """prometheus_client's protocol of a collector."""
        yield from self._counted()
        yield from _read(self._readings)

    def _register(self) -> CollectorRegistry:
        from prometheus_client import CollectorRegistry, ProcessCollector  # noqa: PLC0415 - as above

        registry = CollectorRegistry(auto_describe=False)
        registry.register(self)
        ProcessCollector(registry=registry)  # CPU, memory, descriptors and start, under their customary names
        return registry

    # ---- counting

    def _count(self, event: Event) -> None:
        self._events[event.type] = self._events.get(event.type, 0) + 1
        if event.type == "call.finished":
            self._count_call(event.server, event.tool, event.fields)

    def _count_call(self, server: str | None, tool: str | None, fields: dict[str, Any]) -> None:
        # Without a server no tool was found: its name is whatever a caller made up.
        key = ("", "") if server is None else (server, tool or "")
        histogram = self._calls.get(key)
        if histogram is None:
            key = self._bounded(key)
            histogram = self._calls.setdefault(key, _Histogram(_DURATIONS))
        histogram.observe(fields["duration_ms"] / 1000)
        kind = fields["kind"]
        if kind != "ok":
            failed = (*key, kind)
            self._errors[failed] = self._errors.get(failed, 0) + 1

    def _bounded(self, key: tuple[str, str]) -> tuple[str, str]:
        if len(self._calls) < _MOST_TOOLS and len(key[1]) <= _LONGEST_LABEL and key[1].isprintable():
            return key
        rest = (key[0], _OTHER)
        return rest if rest in self._calls or len(self._calls) < 2 * _MOST_TOOLS else (_OTHER, _OTHER)

    # ---- rendering

    def _counted(self) -> Iterator[Metric]:
        from prometheus_client.core import CounterMetricFamily, HistogramMetricFamily  # noqa: PLC0415 - as above

        labels = ("server", "tool")
        calls = CounterMetricFamily("conduit_calls", "Calls that have ended, well or not.", labels=labels)
        durations = HistogramMetricFamily(
            "conduit_call_duration_seconds", "From an agent's request to its answer.", labels=labels
        )
        for key, histogram in self._calls.items():
            calls.add_metric(key, sum(histogram.counts))
            durations.add_metric(key, histogram.buckets(), histogram.total)
        yield calls
        errors = CounterMetricFamily(
            "conduit_errors", "Of those, the ones without a good result, by kind.", labels=(*labels, "kind")
        )
        for failed, count in self._errors.items():
            errors.add_metric(failed, count)
        yield errors
        yield durations
        events = CounterMetricFamily("conduit_events", "Events from level info on, by type.", labels=("type",))
        for type_, count in self._events.items():
            events.add_metric((type_,), count)
        yield events
        lag = HistogramMetricFamily(
            "conduit_event_loop_lag_seconds", "How late the event loop ran what was due, sampled every five seconds."
        )
        lag.add_metric((), self._lag.buckets(), self._lag.total)
        yield lag


def _read(readings: Readings) -> Iterator[Metric]:
    from prometheus_client.core import CounterMetricFamily  # noqa: PLC0415 - as above

    servers = readings.servers
    yield _gauge("conduit_build_info", "1, with the daemon's version.", [((readings.version,), 1)], "version")
    yield _gauge("conduit_calls_in_flight", "Calls on their way.", [((), readings.in_flight)])
    yield _gauge("conduit_connections", "Open connections to the sockets.", [((), readings.connections)])
    yield _gauge(
        "conduit_server_state",
        "1 for the state that a server is in.",
        [((one.server, state), int(state == one.state)) for one in servers for state in STATES],
        "server",
        "state",
    )
    yield _gauge(
        "conduit_server_calls_in_flight",
        "Calls running on a server.",
        [((one.server,), one.in_flight) for one in servers],
        "server",
    )
    yield _gauge(
        "conduit_server_tools", "Tools that a server lists.", [((one.server,), one.tools) for one in servers], "server"
    )
    restarts = CounterMetricFamily(
        "conduit_server_restarts", "How often a server was started again.", labels=("server",)
    )
    for one in servers:
        restarts.add_metric((one.server,), one.restarts)
    yield restarts
    for name, text, count in (
        ("conduit_log_lines_dropped", "Lines of the log that could not be written.", readings.log_lines_dropped),
        ("conduit_audit_rows_lost", "Rows of the audit that could not be kept.", readings.audit_rows_lost),
    ):
        counter = CounterMetricFamily(name, text)
        counter.add_metric((), count)
        yield counter
    waiting = readings.audit_rows_waiting
    yield _gauge("conduit_audit_rows_waiting", "Rows of the audit that are not in its file yet.", [((), waiting)])
    yield _gauge(
        "conduit_problems", "Problems of the daemon's own, as its status tells them.", [((), readings.problems)]
    )
    yield _gauge(
        "conduit_mailbox_messages",
        "Messages that wait for an actor.",
        [((name,), length) for name, length in readings.mailboxes.items()],
        "actor",
    )


def _gauge(name: str, text: str, samples: Iterable[tuple[tuple[str, ...], float]], *labels: str) -> Metric:
    from prometheus_client.core import GaugeMetricFamily  # noqa: PLC0415 - as above

    gauge = GaugeMetricFamily(name, text, labels=labels)
    for values, value in samples:
        gauge.add_metric(values, value)
    return gauge
