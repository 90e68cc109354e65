"""What a log line and an audit row cost, as ratios to bare baselines of the same run.

Run it by hand: ``python tests/benchmarks/bench_telemetry.py``. Each number is the median of interleaved rounds.
``loop`` is CPU time of the event loop's thread, ``all`` that of the whole process, threads included.
"""

from __future__ import annotations

import functools
import json
import os
import socket
import statistics
import subprocess
import sys
import tempfile
import threading
import time
from collections.abc import Callable
from pathlib import Path

import msgspec
import structlog
import trio

from conduit_daemon.config.model import AuditConfig
from conduit_daemon.model import Call, Outcome, Principal
from conduit_daemon.pipeline.audit import Audit
from conduit_daemon.telemetry.events import EventBus
from conduit_daemon.telemetry.logging import open_logging
from conduit_daemon.telemetry.masking import Masker

ROUNDS = 7
LINES = 6000  # below the log's bound, so that none is dropped
SECRETS = tuple(f"secret-number-{n:04}-of-many" for n in range(10))
Measured = tuple[float, float]

FIELDS = {
    "principal": "ann/researcher",
    "kind": "ok",
    "outcome": "done",
    "decision": "allow",
    "rule": "rules[3]",
    "duration_ms": 1.234,
}


class Meter:
    """CPU microseconds an item, of this thread and of the process, until left."""

    def __enter__(self) -> Meter:
        self._thread, self._process = time.thread_time(), time.process_time()
        return self

    def lap(self) -> None:
        """The loop's part ends here; what follows is the threads'."""
        self.loop = (time.thread_time() - self._thread) / LINES * 1e6

    def __exit__(self, *_: object) -> None:
        self.all = (time.process_time() - self._process) / LINES * 1e6


def bare_line() -> Measured:
    """A dict encoded by msgspec and written at once: the floor of a line written on the loop."""
    encode = msgspec.json.Encoder().encode
    with open(os.devnull, "wb", buffering=0) as file, Meter() as meter:
        for number in range(LINES):
            line = {"timestamp": time.time(), "level": "info", "event": "call.finished", "call": number, **FIELDS}
            file.write(encode(line) + b"\n")
        meter.lap()
    return meter.loop, meter.all


def plain_structlog() -> Measured:
    """structlog's documented fast set-up for JSON, written at once."""
    with open(os.devnull, "wb") as file:
        logger = structlog.wrap_logger(
            structlog.BytesLogger(file),
            processors=[
                structlog.processors.add_log_level,
                structlog.processors.TimeStamper(fmt="iso", utc=True),
                structlog.processors.JSONRenderer(serializer=lambda entry, **_: msgspec.json.encode(entry)),
            ],
            wrapper_class=structlog.make_filtering_bound_logger(20),
        )
        with Meter() as meter:
            for number in range(LINES):
                logger.info("call.finished", server="files", tool="read", call=str(number), **FIELDS)
            meter.lap()
    return meter.loop, meter.all


def event_line(format: str, secrets: tuple[str, ...] = SECRETS) -> Measured:
    """An event emitted and logged into a pipe that is read."""
    read_end, write_end = os.pipe()
    reader = threading.Thread(target=functools.partial(_drain, read_end))
    reader.start()
    bus = EventBus()
    with Meter() as meter:
        with open_logging(bus, Masker(secrets), fd=write_end, format=format) as log:  # type: ignore[arg-type]
            for number in range(LINES):
                bus.emit("call.finished", server="files", tool="read", call=str(number), **FIELDS)
            meter.lap()
        os.close(write_end)
        reader.join()
    assert log.dropped == 0
    return meter.loop, meter.all


def journal_datagram() -> Measured:
    """An event sent to a socket that is read as journald reads its own."""
    with tempfile.TemporaryDirectory() as directory, socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM) as server:
        path = Path(directory) / "socket"
        server.bind(str(path))
        bus = EventBus()
        reader = subprocess.Popen([sys.executable, "-c", _READER, str(server.fileno())], pass_fds=[server.fileno()])
        with Meter() as meter, open_logging(bus, Masker(SECRETS), format="journal", journal_socket=path):
            for number in range(LINES):
                bus.emit("call.finished", server="files", tool="read", call=str(number), **FIELDS)
            meter.lap()
        reader.kill()
        reader.wait()
    return meter.loop, meter.all


_READER = "import socket, sys; s = socket.socket(fileno=int(sys.argv[1]))\nwhile True: s.recv(65536)"


def no_listener() -> Measured:
    """An event that nobody listens to."""
    bus = EventBus()
    with Meter() as meter:
        for number in range(LINES):
            bus.emit("call.finished", server="files", tool="read", call=str(number), **FIELDS)
        meter.lap()
    return meter.loop, meter.all


def _drain(fd: int) -> None:
    while os.read(fd, 1 << 20):
        pass
    os.close(fd)


def audit_row() -> Measured:
    """A call recorded and written to SQLite."""

    async def record() -> Measured:
        with tempfile.TemporaryDirectory() as directory:
            audit = Audit(Path(directory), AuditConfig(), EventBus(), Masker(SECRETS))
            async with trio.open_nursery() as nursery:
                nursery.start_soon(audit.run)
                outcomes = [_outcome(number) for number in range(LINES)]
                with Meter() as meter:
                    for outcome in outcomes:
                        audit.record(outcome)
                    meter.lap()
                    await audit.query(limit=1)
                nursery.cancel_scope.cancel()
        return meter.loop, meter.all

    return trio.run(record)


def _outcome(number: int) -> Outcome:
    call = Call(
        id=f"c{number}",
        name="files__read",
        arguments={"path": "/srv/data/report.txt", "encoding": "utf-8", "limit": number},
        principal=Principal("ann"),
    )
    result = msgspec.Raw(b'{"content":[{"type":"text","text":"hello"}]}')
    return Outcome(call=call, kind="ok", server="files", tool="read", result=result, decision="allow", rule="rules[3]")


CASES: dict[str, Callable[[], Measured]] = {
    "bare: encode and write": bare_line,
    "structlog, its fast set-up": plain_structlog,
    "event, nobody listens": no_listener,
    "event, logged as json": functools.partial(event_line, "json"),
    "event, logged as json, no secrets": functools.partial(event_line, "json", ()),
    "event, logged for a console": functools.partial(event_line, "console"),
    "event, sent to a journal": journal_datagram,
    "audit row": audit_row,
}


def main() -> None:
    """Prints the table."""
    rounds: dict[str, list[Measured]] = {name: [] for name in CASES}
    for _ in range(ROUNDS):
        for name, case in CASES.items():
            rounds[name].append(case())
    base = rounds["structlog, its fast set-up"]
    print(f"{'us an item':36} {'loop':>8} {'all':>8} {'loop/structlog':>15} {'all/structlog':>15}")
    table = {}
    for name, measured in rounds.items():
        loop, everything = (statistics.median(item[n] for item in measured) for n in (0, 1))
        ratios = [
            statistics.median(mine[n] / theirs[n] for mine, theirs in zip(measured, base, strict=True)) for n in (0, 1)
        ]
        table[name] = {"loop_us": loop, "all_us": everything, "loop_ratio": ratios[0], "all_ratio": ratios[1]}
        print(f"{name:36} {loop:8.2f} {everything:8.2f} {ratios[0]:15.2f} {ratios[1]:15.2f}")
    print(json.dumps(table))


if __name__ == "__main__":
    main()
