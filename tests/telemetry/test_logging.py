"""The log as a whole, over real pipes, terminals, files, sockets and processes."""

from __future__ import annotations

import array
import json
import logging
import os
import pty
import resource
import socket
import subprocess
import sys
import textwrap
import threading
import time
import warnings
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest
import structlog
import trio

from conduit_daemon.errors import DaemonError
from conduit_daemon.telemetry.events import EventBus
from conduit_daemon.telemetry.logging import Log, open_logging
from conduit_daemon.telemetry.masking import MASK, Masker
from conduit_daemon.telemetry.sinks import JournalSink


@contextmanager
def logged(
    tmp_path: Path, bus: EventBus | None = None, masker: Masker | None = None, **options: Any
) -> Iterator[tuple[EventBus, Log, list[dict[str, Any]]]]:
    """A log into a file; the list holds its lines once the block is left."""
    path, lines = tmp_path / "log", []
    bus = bus or EventBus()
    with path.open("wb") as file, open_logging(bus, masker or Masker(), fd=file.fileno(), **options) as log:
        yield bus, log, lines
    lines += [json.loads(line) for line in path.read_bytes().splitlines()]


def events(lines: list[dict[str, Any]]) -> list[str]:
    return [line["event"] for line in lines]


def test_each_event_is_one_json_line(tmp_path: Path) -> None:
    with logged(tmp_path) as (bus, log, lines):
        bus.emit("call.finished", server="files", tool="read", call="c1", outcome="done", duration_ms=1.5)
        bus.emit("client.down", level="warning", server="files", reason="exited with code 1")
    assert log.format == "json"
    assert [list(line) for line in lines] == [
        ["timestamp", "level", "event", "logger", "server", "tool", "call", "outcome", "duration_ms"],
        ["timestamp", "level", "event", "logger", "server", "reason"],
    ]
    assert lines[0]["timestamp"].endswith("Z")
    assert lines[1]["level"] == "warning"


def test_lines_come_in_order_and_all_of_them(tmp_path: Path) -> None:
    with logged(tmp_path) as (bus, log, lines):
        for number in range(20_000):
            bus.emit("call.finished", number=number)
            if number % 5000 == 0:
                time.sleep(0.05)
    written = [line["number"] for line in lines if line["event"] == "call.finished"]
    dropped = sum(line["count"] for line in lines if line["event"] == "log.lines_dropped")
    assert written == sorted(written)
    assert len(written) + dropped == 20_000
    assert log.dropped == dropped


def test_levels_filter_and_change_at_run_time(tmp_path: Path) -> None:
    with logged(tmp_path, level="warning") as (bus, log, lines):
        bus.emit("client.ready", n=1)
        assert log.set_level("info") == "warning"
        bus.emit("client.ready", n=2)
        assert log.set_level("debug", "files") == "info"
        bus.emit("client.stderr", level="debug", server="files", n=3)
        bus.emit("client.stderr", level="debug", server="search", n=4)
        assert log.set_level("error") == "info"
        bus.emit("client.stderr", level="debug", server="files", n=5)
        bus.emit("client.down", level="warning", n=6)
        assert log.set_level(None, "files") == "debug"
        bus.emit("client.stderr", level="warning", server="files", n=7)
        bus.emit("client.stderr", level="error", server="files", n=8)
        assert (log.level(), log.level("files")) == ("error", "error")
        with pytest.raises(ValueError, match="'loud' is no log level"):
            log.set_level("loud")  # type: ignore[arg-type]
        with pytest.raises(ValueError, match="None is no log level"):
            log.set_level(None)
    assert [line["n"] for line in lines] == [2, 3, 5, 8]


def test_arguments_are_shown_at_debug_alone_and_redacted(tmp_path: Path) -> None:
    arguments = {"path": "/srv", "password": "short", "note": "hunter2-hunter2"}
    with logged(tmp_path, masker=Masker(["hunter2-hunter2"])) as (bus, log, lines):
        bus.emit("call.finished", server="files", arguments=arguments)
        log.set_level("debug", "files")
        time.sleep(0.1)
        bus.emit("call.finished", server="files", arguments=arguments)
        bus.emit("call.finished", server="search", arguments=arguments)
    assert [line.get("arguments") for line in lines] in (
        [None, {"path": "/srv", "password": MASK, "note": MASK}, None],
        [{"path": "/srv", "password": MASK, "note": MASK}] * 2 + [None],
    )
    assert arguments["password"] == "short"


def test_arguments_of_any_depth_leave_the_log_alive(tmp_path: Path) -> None:
    deep: list[Any] = []
    for _ in range(100_000):
        deep = [deep]
    with logged(tmp_path, level="debug") as (bus, _log, lines):
        bus.emit("call.finished", arguments={"deep": deep})
        bus.emit("daemon.stopping")
    assert lines[0]["arguments"] == "(nested too deeply)"
    assert events(lines) == ["call.finished", "daemon.stopping"]
    while deep:
        deep = deep[0]


def test_no_secret_reaches_the_log_from_any_side(tmp_path: Path) -> None:
    secret = "s3cret/with ümlaut"
    with logged(tmp_path, masker=Masker([secret])) as (bus, log, lines):
        bus.emit("client.stderr", server="files", line=f"token={secret}", nested=[{"deep": (secret,)}])
        logging.getLogger("some.library").warning("sent %s", {"Authorization": secret})
        log.logger("conduit.x").error("it broke", url=f"http://h/?q={secret}")
        try:
            {}[secret]
        except KeyError:
            structlog.get_logger().exception("failed", detail=secret)
    text = json.dumps(lines, ensure_ascii=False)
    assert len(lines) == 4
    assert text.count(MASK) == 6
    assert "s3cret" not in text


def test_stdlib_and_structlog_write_through_the_same_chain_and_are_given_back(tmp_path: Path) -> None:
    root, httpx = logging.getLogger(), logging.getLogger("httpx2")
    before = (root.level, list(root.handlers), httpx.level, structlog.is_configured())
    with logged(tmp_path) as (_bus, log, lines):
        logging.getLogger("my_hooks").info("loaded %d", 3)
        logging.getLogger("my_hooks").debug("not shown")
        httpx.info("HTTP Request: POST")
        httpx.warning("slow")
        structlog.get_logger().info("hook.event", server="files", x=1)
        structlog.get_logger().debug("not shown")
        log.set_level("debug")
        httpx.info("HTTP Request: POST again")
        httpx.debug("still not shown")
        with warnings.catch_warnings():
            warnings.simplefilter("always")
            warnings.warn("old thing", DeprecationWarning, stacklevel=1)
    assert [(line["logger"], line["event"]) for line in lines[:2]] == [
        ("my_hooks", "loaded 3"),
        ("httpx2", "slow"),
    ]
    assert lines[2] == {**lines[2], "logger": "conduit", "event": "hook.event", "server": "files", "x": 1}
    assert lines[3]["event"] == "HTTP Request: POST again"
    assert lines[4]["logger"] == "py.warnings"
    assert len(lines) == 5
    assert before == (root.level, list(root.handlers), httpx.level, structlog.is_configured())


def test_a_structlog_logger_keeps_what_is_bound_to_it(tmp_path: Path) -> None:
    with logged(tmp_path) as (_bus, log, lines):
        log.logger("conduit.hub").bind(server="files").warning("hub.odd", n=1)
    assert lines[0]["logger"] == "conduit.hub"
    assert (lines[0]["server"], lines[0]["n"], lines[0]["level"]) == ("files", 1, "warning")


async def test_a_full_pipe_holds_up_nobody_and_what_was_dropped_is_counted() -> None:
    read_end, write_end = os.pipe()
    bus, reports = EventBus(), []
    bus.attach(reports.append, types=["log.lines_dropped"])
    received: list[bytes] = []

    def read_to_the_end() -> None:
        while data := os.read(read_end, 65536):
            received.append(data)

    with open_logging(bus, Masker(), fd=write_end) as log:
        # Nobody reads yet: an emission that waited for the pipe would wait for ever.
        for number in range(15_000):
            bus.emit("call.finished", server="files", number=number, text="x" * 40)
        await trio.sleep(0.1)
        assert len(log._backlog) <= 8192
        reader = threading.Thread(target=read_to_the_end)
        reader.start()
        with trio.fail_after(5):
            while not reports:
                await trio.sleep(0.01)
    os.close(write_end)
    await trio.to_thread.run_sync(reader.join)
    os.close(read_end)
    lines = [json.loads(line) for line in b"".join(received).splitlines()]
    numbers = [line["number"] for line in lines if line["event"] == "call.finished"]
    counts = [line["count"] for line in lines if line["event"] == "log.lines_dropped"]
    assert numbers == sorted(numbers)
    assert len(numbers) + sum(counts) == 15_000
    assert counts == [report.fields["count"] for report in reports]
    assert log.dropped == sum(counts) > 0


def test_leaving_while_the_reader_stalls_takes_a_bounded_time() -> None:
    read_end, write_end = os.pipe()
    bus = EventBus()
    start = time.monotonic()
    with open_logging(bus, Masker(), fd=write_end):
        for number in range(5000):
            bus.emit("call.finished", server="files", number=number, text="x" * 100)
    assert 0.9 < time.monotonic() - start < 2.5
    os.close(write_end)
    os.close(read_end)


def test_a_non_blocking_pipe_loses_nothing() -> None:
    read_end, write_end = os.pipe()
    os.set_blocking(write_end, False)
    received: list[bytes] = []

    def read_slowly() -> None:
        while data := os.read(read_end, 10_000):
            received.append(data)
            time.sleep(0.0005)

    reader = threading.Thread(target=read_slowly)
    reader.start()
    bus = EventBus()
    with open_logging(bus, Masker(), fd=write_end):
        for number in range(5000):
            bus.emit("call.finished", number=number, text="x" * 200)
    os.close(write_end)
    reader.join()
    os.close(read_end)
    assert [json.loads(line)["number"] for line in b"".join(received).splitlines()] == list(range(5000))


def test_a_reader_that_goes_away_harms_nobody_and_costs_little() -> None:
    read_end, write_end = os.pipe()
    bus = EventBus()
    with open_logging(bus, Masker(), fd=write_end) as log:
        bus.emit("daemon.started")
        os.close(read_end)
        for _ in range(20):
            bus.emit("call.finished")
            time.sleep(0.01)
        used = resource.getrusage(resource.RUSAGE_SELF)
        time.sleep(0.3)
        after = resource.getrusage(resource.RUSAGE_SELF)
        assert after.ru_utime + after.ru_stime - used.ru_utime - used.ru_stime < 0.1
    assert log.dropped == 0
    os.close(write_end)


def test_a_full_disk_drops_lines_and_the_log_goes_on_when_there_is_room(tmp_path: Path) -> None:
    path = tmp_path / "log"
    soft, hard = resource.getrlimit(resource.RLIMIT_FSIZE)
    bus = EventBus()
    with path.open("ab") as file, open_logging(bus, Masker(), fd=file.fileno()):
        resource.setrlimit(resource.RLIMIT_FSIZE, (1000, hard))  # EFBIG, as real as ENOSPC and needs no root
        try:
            for number in range(100):
                bus.emit("call.finished", number=number)
            time.sleep(0.2)
        finally:
            resource.setrlimit(resource.RLIMIT_FSIZE, (soft, hard))
        time.sleep(1.1)
        bus.emit("daemon.stopping")
    text = path.read_text()
    assert '"daemon.stopping"' in text
    assert json.loads(text.splitlines()[-1])["event"] == "log.lines_dropped"


def test_a_terminal_gets_colours_and_no_colour_where_asked() -> None:
    for environ, coloured in (({}, True), ({"NO_COLOR": "1"}, False)):
        ours, theirs = pty.openpty()
        bus = EventBus()
        with open_logging(bus, Masker(), fd=theirs, environ=environ) as log:
            assert log.format == "console"
            bus.emit("client.ready", server="files")
        text = os.read(ours, 10_000).decode()
        os.close(ours)
        os.close(theirs)
        assert "client.ready" in text
        assert ("\x1b[" in text) is coloured


@contextmanager
def journald(tmp_path: Path) -> Iterator[tuple[Path, socket.socket]]:
    """A socket that takes datagrams as journald's does."""
    path = tmp_path / "journal.sock"
    with socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM) as server:
        server.bind(str(path))
        server.settimeout(5)
        yield path, server


def receive(server: socket.socket) -> tuple[bytes, bool]:
    """A datagram's content, and whether it came in a sealed file."""
    data, ancillary, _flags, _address = server.recvmsg(1 << 20, socket.CMSG_LEN(4))
    for _level, _type, rights in ancillary:
        (fd,) = array.array("i", rights)
        with os.fdopen(fd, "rb") as file:
            file.seek(0)
            return file.read(), True
    return data, False


def test_the_journal_is_used_where_stderr_ends_there(tmp_path: Path) -> None:
    read_end, write_end = os.pipe()
    status = os.fstat(write_end)
    ours = {"JOURNAL_STREAM": f"{status.st_dev}:{status.st_ino}"}
    others = {"JOURNAL_STREAM": f"{status.st_dev}:{status.st_ino + 1}"}
    with journald(tmp_path) as (path, server):
        bus = EventBus()
        with open_logging(bus, Masker(), fd=write_end, environ=others, journal_socket=path) as log:
            assert log.format == "json"
        with open_logging(
            bus, Masker(["hunter2-hunter2"]), fd=write_end, environ=ours, journal_socket=path, level="debug"
        ) as log:
            assert log.format == "journal"
            bus.emit("client.stderr", level="error", server="files", line="a\nhunter2-hunter2")
            first, in_file = receive(server)
            assert not in_file
            assert b"CONDUIT_SERVER=files\n" in first
            assert b"PRIORITY=3\n" in first
            assert b"hunter2" not in first
            bus.emit("call.finished", server="files", text=["y" * 2000] * 31)
            second, _ = receive(server)
            assert b"CONDUIT_EVENT=call.finished\n" in second
    os.close(read_end)
    os.close(write_end)


def test_what_is_too_large_for_a_datagram_goes_in_a_sealed_file(tmp_path: Path) -> None:
    with journald(tmp_path) as (path, server):
        sink = JournalSink(path)
        sink._socket.setsockopt(socket.SOL_SOCKET, socket.SO_SNDBUF, 5000)
        large = b"MESSAGE=" + b"z" * 60_000 + b"\n"
        assert sink.write([large, b"MESSAGE=small\n"], lambda: True)
        assert receive(server) == (large, True)
        assert receive(server) == (b"MESSAGE=small\n", False)
        sink.close()


def test_a_stalled_journal_is_waited_for_only_so_long_and_a_missing_one_is_said(tmp_path: Path) -> None:
    bus = EventBus()
    with journald(tmp_path) as (path, _server):
        start = time.monotonic()
        with open_logging(bus, Masker(), format="journal", journal_socket=path) as log:
            for _ in range(5000):
                bus.emit("call.finished", text="x" * 1000)
        assert log.format == "journal"
        assert time.monotonic() - start < 3
    with (
        pytest.raises(DaemonError, match="there is no journal at"),
        open_logging(bus, Masker(), format="journal", journal_socket=tmp_path / "none"),
    ):
        pytest.fail("opened a journal that is not there")


PROGRAM = """
import os, sys, time, logging
from conduit_daemon.telemetry.events import EventBus
from conduit_daemon.telemetry.masking import Masker
from conduit_daemon.telemetry.logging import open_logging
bus = EventBus()
with open_logging(bus, Masker()) as log:
{body}
print(log.format, log.dropped)
"""


def run(body: str, **options: Any) -> subprocess.CompletedProcess[str]:
    program = PROGRAM.format(body=textwrap.indent(textwrap.dedent(body), "    "))
    return subprocess.run(
        [sys.executable, "-c", program], text=True, stdout=subprocess.PIPE, timeout=30, check=False, **options
    )


def test_a_process_without_stderr_writes_into_no_file_that_took_its_number(tmp_path: Path) -> None:
    victim = tmp_path / "victim"
    result = run(
        f"""
        fd = os.open({str(victim)!r}, os.O_CREAT | os.O_WRONLY)
        assert fd == 2, fd
        bus.emit("daemon.started")
        logging.getLogger("x").error("lost")
        time.sleep(0.1)
        """,
        preexec_fn=lambda: os.close(2),
    )
    assert result.returncode == 0
    assert result.stdout == "off 0\n"
    assert victim.read_bytes() == b""


def test_a_process_whose_stderr_is_never_read_ends_in_time() -> None:
    read_end, write_end = os.pipe()
    start = time.monotonic()
    result = run("for n in range(20000): bus.emit('call.finished', n=n, text='x' * 50)", stderr=write_end)
    assert result.returncode == 0
    assert time.monotonic() - start < 10
    os.close(read_end)
    os.close(write_end)


def test_a_library_that_logs_wrongly_is_still_logged() -> None:
    result = run("logging.getLogger('odd').warning('%d', 'no number')", stderr=subprocess.PIPE)
    line = json.loads(result.stderr)
    assert line["logger"] == "odd"
    assert "no number" in line["event"]


def test_a_process_that_ends_by_an_error_has_logged_what_came_before() -> None:
    result = run("bus.emit('daemon.failed', level='error', reason='no'); raise SystemExit(1)", stderr=subprocess.PIPE)
    assert result.returncode == 1
    assert json.loads(result.stderr.splitlines()[0])["event"] == "daemon.failed"
