"""The audit over real files: what is kept, what happens to it when the file fails, and when the process does."""

from __future__ import annotations

import json
import os
import resource
import signal
import sqlite3
import stat
import subprocess
import sys
import tempfile
import time
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager, closing
from pathlib import Path
from typing import Any

import msgspec
import pytest
import trio

from conduit_daemon.config.model import AuditConfig
from conduit_daemon.errors import ClientError
from conduit_daemon.model import Call, Outcome, Principal
from conduit_daemon.pipeline import _audit_writer
from conduit_daemon.pipeline.audit import Audit, AuditRow
from conduit_daemon.pipeline.digest import arguments_digest
from conduit_daemon.telemetry.events import Event, EventBus
from conduit_daemon.telemetry.masking import MASK, Masker


def outcome(number: int = 0, **changes: Any) -> Outcome:
    call = {
        "id": f"c{number}",
        "name": "files__read",
        "arguments": {"n": number},
        "principal": Principal("ann"),
        **{key: changes.pop(key) for key in ("name", "arguments", "principal") if key in changes},
    }
    return Outcome(
        **{
            "call": Call(**call),
            "kind": "ok",
            "server": "files",
            "tool": "read",
            "result": msgspec.Raw(b'{"content":[]}'),
            "decision": "allow",
            "rule": "rules[0]",
            "duration": 0.5,
            **changes,
        }
    )


@asynccontextmanager
async def running(
    directory: Path, *, secrets: tuple[str, ...] = (), **config: Any
) -> AsyncIterator[tuple[Audit, list[Event]]]:
    bus, events = EventBus(), []
    bus.attach(events.append)
    audit = Audit(directory, AuditConfig(**config), bus, Masker(secrets))
    async with trio.open_nursery() as nursery:
        nursery.start_soon(audit.run)
        yield audit, events
        nursery.cancel_scope.cancel()


def rows_of(path: Path) -> list[str]:
    """The calls in the file, as anybody else would read them."""
    with closing(sqlite3.connect(path)) as connection:
        if not connection.execute("SELECT 1 FROM sqlite_schema").fetchone():
            return []
        return [call for (call,) in connection.execute("SELECT call FROM calls ORDER BY id")]


async def until(condition: Any, within: float = 5.0) -> None:
    with trio.fail_after(within):
        while not condition():
            await trio.sleep(0.005)


async def test_a_call_is_one_row_with_all_that_is_known(tmp_path: Path) -> None:
    async with running(tmp_path) as (audit, events):
        began = time.time()
        audit.record(outcome(7), approver="root")
        (row,) = await audit.query()
    assert began <= row.time <= time.time()
    assert row == AuditRow(
        time=row.time,
        call="c7",
        principal="ann",
        server="files",
        tool="read",
        arguments_digest=arguments_digest({"n": 7}),
        rule="rules[0]",
        decision="allow",
        approver="root",
        kind="ok",
        outcome="done",
        duration=0.5,
        request_bytes=7,
        result_bytes=14,
    )
    assert "arguments" not in json.loads(msgspec.json.encode(row))
    assert events == []


async def test_a_call_that_found_no_tool_is_kept_under_the_name_asked_for(tmp_path: Path) -> None:
    async with running(tmp_path) as (audit, _events):
        audit.record(
            outcome(name="made_up", server=None, tool=None, kind="unknown_tool", sent="not_sent", result=msgspec.Raw())
        )
        (row,) = await audit.query()
    wire = json.loads(msgspec.json.encode(row))
    assert (wire["tool"], wire["kind"], wire["outcome"], wire["result_bytes"]) == (
        "made_up",
        "unknown_tool",
        "not_sent",
        0,
    )
    assert "server" not in wire


async def test_rows_are_in_the_file_within_fifty_milliseconds(tmp_path: Path) -> None:
    async with running(tmp_path) as (audit, _events):
        audit.record(outcome())
        await until(lambda: audit.path.exists() and rows_of(audit.path))
        late = []
        for number in range(1, 16):
            audit.record(outcome(number))
            start = time.perf_counter()
            await until(lambda last=f"c{number}": rows_of(audit.path)[-1] == last)
            late.append(time.perf_counter() - start)
    assert sorted(late)[len(late) // 2] < 0.05
    assert min(late) > 0.01, "rows are written one by one, not gathered"


async def test_queries_narrow_and_are_newest_first(tmp_path: Path) -> None:
    async with running(tmp_path) as (audit, _events):
        audit.record(outcome(1, principal=Principal("ann/researcher")))
        await trio.sleep(0.002)
        middle = time.time()
        audit.record(
            outcome(2, server="mail", tool="send", kind="denied", sent="not_sent", principal=Principal("anna"))
        )
        audit.record(outcome(3, kind="tool_error"))

        async def calls(**query: Any) -> list[str]:
            return [row.call for row in await audit.query(**query)]

        assert await calls() == ["c3", "c2", "c1"]
        assert await calls(limit=2) == ["c3", "c2"]
        assert await calls(since=middle) == ["c3", "c2"]
        assert await calls(until=middle) == ["c1"]
        assert await calls(server="files") == ["c3", "c1"]
        assert await calls(tool="send") == ["c2"]
        assert await calls(principal="ann") == ["c3", "c1"]
        assert await calls(principal="ann/researcher") == ["c1"]
        assert await calls(principal="a%") == []
        assert await calls(outcome="done") == ["c3", "c1"]
        assert await calls(outcome="denied") == ["c2"]
        assert await calls(server="files", outcome="tool_error", limit=1) == ["c3"]
        assert await calls(tool="' OR 1 = 1 --") == []
        with pytest.raises(ClientError, match="limit must be at least 1"):
            await audit.query(limit=0)


async def test_arguments_are_kept_only_where_asked_and_redacted(tmp_path: Path) -> None:
    arguments = {"password": "x", "note": "hunter2-hunter2", "n": 1}
    async with running(tmp_path, secrets=("hunter2-hunter2",), arguments=True) as (audit, _events):
        audit.record(outcome(1, arguments=arguments))
        audit.record(outcome(2, arguments={"text": "x" * 100_000}))
        long, row = await audit.query()
        audit.config = AuditConfig(arguments=False)
        audit.record(outcome(3, arguments=arguments))
        later = (await audit.query())[0]
        audit.config = AuditConfig(enabled=False)
        audit.record(outcome(4))
        assert len(await audit.query()) == 3
    assert msgspec.json.decode(row.arguments) == {"password": MASK, "note": MASK, "n": 1}
    assert json.loads(msgspec.json.encode(row))["arguments"]["n"] == 1
    assert row.arguments_digest == arguments_digest(arguments) == later.arguments_digest
    assert msgspec.json.decode(long.arguments) == "(100011 bytes, too long to be kept)"
    assert long.request_bytes == 100_011
    assert later.arguments is msgspec.UNSET
    for name in ("audit.db", "audit.db-wal"):
        if (tmp_path / name).exists():
            assert b"hunter2" not in (tmp_path / name).read_bytes()


async def test_the_file_is_its_owners_alone_from_the_beginning(tmp_path: Path) -> None:
    old = os.umask(0)
    try:
        async with running(tmp_path / "state" / "deep") as (audit, _events):
            audit.record(outcome())
            await audit.query()
            files = list(audit.path.parent.iterdir())
            assert len(files) == 3
            assert {stat.S_IMODE(file.stat().st_mode) for file in files} == {0o600}
            assert stat.S_IMODE(audit.path.parent.stat().st_mode) == 0o700
    finally:
        os.umask(old)


async def test_stopping_writes_what_is_left_and_a_restart_goes_on(tmp_path: Path) -> None:
    audit = Audit(tmp_path, AuditConfig(), EventBus(), Masker())
    for number in range(3):
        audit.record(outcome(number))
        async with trio.open_nursery() as nursery:
            nursery.start_soon(audit.run)
            audit.record(outcome(number + 10))
            await trio.sleep(0)
            nursery.cancel_scope.cancel()
        audit.record(outcome(number + 20))
    async with trio.open_nursery() as nursery:
        nursery.start_soon(audit.run)
        rows = await audit.query()
        nursery.cancel_scope.cancel()
    assert sorted(row.call for row in rows) == sorted(f"c{n + tens}" for n in range(3) for tens in (0, 10, 20))


async def test_a_place_that_cannot_be_written_stops_nothing_and_rows_come_later(tmp_path: Path) -> None:
    blocked = tmp_path / "state"
    blocked.write_text("a file where a folder should be")
    async with running(blocked) as (audit, events):
        audit.record(outcome(1))
        await until(lambda: events)
        audit.record(outcome(2))
        await trio.sleep(1.2)
        assert [event.type for event in events] == ["audit.unavailable"]
        assert events[0].level == "error"
        assert events[0].fields["lost"] == 0
        assert "state" in events[0].fields["reason"]
        blocked.unlink()
        audit.record(outcome(3))
        await until(lambda: len(events) == 2)
        assert events[1].type == "audit.recovered"
        assert [row.call for row in await audit.query()] == ["c3", "c2", "c1"]


READ_ONLY = """
import os, trio
from pathlib import Path
from conduit_daemon.config.model import AuditConfig
from conduit_daemon.model import Call, Outcome, Principal
from conduit_daemon.pipeline.audit import Audit
from conduit_daemon.telemetry.events import EventBus
from conduit_daemon.telemetry.masking import Masker

async def main():
    bus = EventBus()
    bus.attach(lambda event: print(event.type, event.fields, flush=True))
    audit = Audit(Path("."), AuditConfig(), bus, Masker())
    async with trio.open_nursery() as nursery:
        nursery.start_soon(audit.run)
        call = Call(id="c1", name="t", arguments={}, principal=Principal("ann"))
        audit.record(Outcome(call=call, kind="ok", server="s", tool="t"))
        await trio.sleep(0.2)
        os.chmod(".", 0o700)
        await trio.sleep(1.2)
        nursery.cancel_scope.cancel()

if os.getuid() == 0:  # to whom read-only folders are none
    os.chown(".", 65534, 65534)
    os.setgroups([])
    os.setgid(65534)
    os.setuid(65534)
os.chmod(".", 0o500)
trio.run(main)
"""


def test_a_read_only_folder_is_said_and_survived() -> None:
    with tempfile.TemporaryDirectory() as folder:  # not pytest's, which another user cannot reach
        result = subprocess.run(
            [sys.executable, "-c", READ_ONLY], cwd=folder, text=True, capture_output=True, timeout=30, check=False
        )
        said = [line.split()[0] for line in result.stdout.splitlines()]
        assert (said, result.stderr) == (["audit.unavailable", "audit.recovered"], "")
        assert rows_of(Path(folder) / "audit.db") == ["c1"]


async def test_a_full_disk_keeps_rows_until_there_is_room(tmp_path: Path) -> None:
    soft, hard = resource.getrlimit(resource.RLIMIT_FSIZE)
    async with running(tmp_path) as (audit, events):
        audit.record(outcome(0))
        await audit.query()
        resource.setrlimit(resource.RLIMIT_FSIZE, (40_000, hard))
        try:
            for number in range(1, 1001):
                audit.record(outcome(number))
            await until(lambda: events)
        finally:
            resource.setrlimit(resource.RLIMIT_FSIZE, (soft, hard))
        assert [event.type for event in events] == ["audit.unavailable"]
        await until(lambda: len(events) == 2)
        assert (events[1].type, events[1].fields) == ("audit.recovered", {"lost": 0})
        assert sorted(rows_of(audit.path)) == sorted(f"c{n}" for n in range(1001))


async def test_rows_over_the_bound_are_lost_and_counted(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(_audit_writer, "KEPT", 50)
    blocked = tmp_path / "state"
    blocked.write_text("")
    async with running(blocked) as (audit, events):
        for number in range(80):
            audit.record(outcome(number))
        await until(lambda: events)
        blocked.unlink()
        await until(lambda: len(events) == 2)
        assert events[1].fields == {"lost": 30}
        assert rows_of(audit.path) == [f"c{n}" for n in range(50)]


async def test_a_lock_held_by_another_process_is_waited_out(tmp_path: Path) -> None:
    async with running(tmp_path) as (audit, events):
        audit.record(outcome(1))
        await audit.query()
        with closing(sqlite3.connect(audit.path, isolation_level=None)) as other:
            other.execute("BEGIN IMMEDIATE")
            audit.record(outcome(2))
            start = time.perf_counter()
            audit.record(outcome(3))
            assert time.perf_counter() - start < 0.05
            await until(lambda: events)
            assert "locked" in events[0].fields["reason"]
            other.execute("ROLLBACK")
        await until(lambda: rows_of(audit.path) == ["c1", "c2", "c3"])


@pytest.mark.parametrize(
    "content",
    [
        b"this is no database" * 1000,
        b"SQLite format 3\0" + b"\xff" * 5000,
        "CREATE TABLE other (x); PRAGMA user_version = 7;",
        "CREATE TABLE calls (x); PRAGMA user_version = 1;",
        "CREATE TABLE passwords (x);",
    ],
)
async def test_a_file_that_is_no_audit_is_moved_aside(tmp_path: Path, content: bytes | str) -> None:
    path = tmp_path / "audit.db"
    if isinstance(content, bytes):
        path.write_bytes(content)
    else:
        with closing(sqlite3.connect(path)) as connection:
            connection.executescript(content)
        content = path.read_bytes()
    async with running(tmp_path) as (audit, events):
        audit.record(outcome(1))
        await until(lambda: events)
        assert [row.call for row in await audit.query()] == ["c1"]
    assert [event.type for event in events] == ["audit.corrupt"]
    moved = Path(events[0].fields["moved_to"])
    assert moved.parent == tmp_path
    assert moved.name.startswith("audit.db.damaged-")
    if b"SQLite" not in content[:6]:
        assert moved.read_bytes() == content


async def test_damage_while_it_runs_is_found_by_a_reader_and_a_new_file_begun(tmp_path: Path) -> None:
    async with running(tmp_path) as (audit, events):
        for number in range(5000):
            audit.record(outcome(number))
        await audit.query()
        with closing(sqlite3.connect(audit.path)) as other:
            other.execute("PRAGMA wal_checkpoint(TRUNCATE)")
        with audit.path.open("r+b") as file:
            file.seek(4096)
            file.write(os.urandom(audit.path.stat().st_size - 4096))
        with pytest.raises(ClientError, match="cannot be read at present"):
            await audit.query(limit=10_000)
        await until(lambda: events)
        audit.record(outcome(9999))
        assert [row.call for row in await audit.query()] == ["c9999"]
        assert [event.type for event in events] == ["audit.corrupt"]


async def test_a_file_that_is_damaged_again_at_once_does_not_fill_the_folder(tmp_path: Path) -> None:
    async with running(tmp_path) as (audit, events):
        for number in range(4):
            await trio.sleep(0.05)
            (tmp_path / "copy").write_bytes(b"broken again" * 1000)
            for journal in tmp_path.glob("audit.db-*"):
                journal.unlink()  # from which SQLite would repair it
            os.rename(tmp_path / "copy", audit.path)
            audit.record(outcome(number))
        told = {"audit.corrupt", "audit.unavailable", "audit.lost"}
        await until(lambda: {event.type for event in events} == told)
        assert len(list(tmp_path.glob("audit.db.damaged-*"))) <= 3  # one file and its journals
        audit.path.unlink()
        await until(lambda: events[-1].type == "audit.recovered")


async def test_a_removed_file_is_begun_anew(tmp_path: Path) -> None:
    async with running(tmp_path) as (audit, events):
        audit.record(outcome(1))
        await audit.query()
        for file in tmp_path.iterdir():
            file.unlink()
        audit.record(outcome(2))
        assert [row.call for row in await audit.query()] == ["c2"]
        await until(lambda: [event.type for event in events] == ["audit.lost"])


async def test_old_rows_are_removed_at_the_start_in_portions(tmp_path: Path) -> None:
    async with running(tmp_path) as (audit, _events):
        for number in range(4500):
            audit.record(outcome(number))
        await audit.query()
        with closing(sqlite3.connect(audit.path)) as other:
            other.execute("UPDATE calls SET time = time - 8 * 86400 WHERE id <= 4490")
            other.commit()
    async with running(tmp_path, retention_days=7) as (audit, _events):
        await until(lambda: len(rows_of(audit.path)) == 10)
        audit.record(outcome(5000))
        assert (await audit.query())[0].call == "c5000"


async def test_old_rows_are_removed_daily(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    async with running(tmp_path, retention_days=7) as (audit, _events):
        audit.record(outcome(1))
        audit.record(outcome(2))
        await audit.query()
        with closing(sqlite3.connect(audit.path)) as other:
            other.execute("UPDATE calls SET time = time - 8 * 86400 WHERE call = 'c1'")
            other.commit()
        await trio.sleep(0.1)
        assert rows_of(audit.path) == ["c1", "c2"]
        tomorrow = time.monotonic() + 86_401
        monkeypatch.setattr(_audit_writer.time, "monotonic", lambda: tomorrow)
        audit.record(outcome(3))
        await until(lambda: rows_of(audit.path) == ["c2", "c3"])


async def test_what_no_file_takes_costs_its_own_row_at_most(tmp_path: Path) -> None:
    deep: list[Any] = []
    for _ in range(100_000):
        deep = [deep]
    async with running(tmp_path, arguments=True) as (audit, events):
        audit.record(outcome(1, arguments={"text": "\ud800", "n": 2**100}, tool="\ud800"))
        audit.record(outcome(2, arguments={"deep": deep}))
        audit.record(outcome(3, arguments={"object": object()}))
        audit.record(outcome(4, duration=float("nan")))
        audit.record(outcome(5))
        rows = {row.call: row for row in await audit.query()}
    assert sorted(rows) == ["c1", "c2", "c3", "c5"]
    assert rows["c1"].tool == "\\ud800"
    assert json.loads(bytes(rows["c1"].arguments)) == {"text": "\ud800", "n": 2**100}
    assert (rows["c2"].arguments_digest, rows["c2"].request_bytes) == ("", 0)
    assert [event.type for event in events] == ["internal.error"]
    while deep:
        deep = deep[0]


def test_digests_are_of_values_not_of_their_spelling() -> None:
    digest = arguments_digest({"b": [1, {"y": 2, "x": "ü"}], "a": None})
    assert digest == arguments_digest({"a": None, "b": [1, {"x": "ü", "y": 2}]})
    assert digest == arguments_digest(msgspec.Raw(b'{ "a": null, "b": [1, {"y":2,"x":"\\u00fc"}] }'))
    assert len(digest) == 64
    others: list[Any] = [
        {"b": [1, {"y": 2, "x": "u"}], "a": None},
        {"b": [1, {"y": 2, "x": "ü"}]},
        {"b": [1.0, {"y": 2, "x": "ü"}], "a": None},
        {"b": ["1", {"y": 2, "x": "ü"}], "a": None},
        {"b": [1, {"y": 2, "x": "ü"}], "a": False},
        "\ud800",
        "\\ud800",
        2**100,
        2**100 + 1,
    ]
    assert len({arguments_digest(other) for other in others} | {digest}) == len(others) + 1


WRITER = """
import sys, time, trio
from pathlib import Path
from conduit_daemon.config.model import AuditConfig
from conduit_daemon.model import Call, Outcome, Principal
from conduit_daemon.pipeline.audit import Audit
from conduit_daemon.telemetry.events import EventBus
from conduit_daemon.telemetry.masking import Masker

async def main():
    audit = Audit(Path(sys.argv[1]), AuditConfig(), EventBus(), Masker())
    async with trio.open_nursery() as nursery:
        nursery.start_soon(audit.run)
        for number in range(10**9):
            call = Call(id=f"c{number}", name="t", arguments={"n": number}, principal=Principal("ann"))
            audit.record(Outcome(call=call, kind="ok", server="s", tool="t"))
            sys.stdout.write(f"{number} {time.time()}\\n")
            if number % 10 == 0:
                sys.stdout.flush()
                await trio.sleep(0.0005)

trio.run(main)
"""


@pytest.mark.parametrize("times", [3, pytest.param(20, marks=pytest.mark.campaign)])
def test_a_killed_process_loses_the_last_batch_at_most(tmp_path: Path, times: int) -> None:
    for round_ in range(times):
        directory = tmp_path / str(round_)
        with subprocess.Popen(
            [sys.executable, "-c", WRITER, str(directory)], stdout=subprocess.PIPE, text=True
        ) as process:
            assert process.stdout is not None
            lines: list[str] = []
            while len(lines) < 2000:
                lines.append(process.stdout.readline())
            process.send_signal(signal.SIGKILL)
            killed = time.time()
            lines += process.stdout.read().splitlines()
        recorded = [float(line.split()[1]) for line in lines if len(line.split()) == 2]
        rows = rows_of(directory / "audit.db")
        assert rows == [f"c{n}" for n in range(len(rows))], "rows are missing between others"
        due = sum(1 for when in recorded if when < killed - 0.1)  # 50 ms, and as many for two busy cores
        assert due > 1000
        assert len(rows) >= due


async def test_a_crash_of_the_writer_ends_its_task_and_a_new_one_finds_every_row(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    audit = Audit(tmp_path, AuditConfig(), EventBus(), Masker())
    sound = _audit_writer.AuditWriter._bring_up_to_date
    crashes = iter([RuntimeError("a defect"), RuntimeError("another")])

    def defective(writer: _audit_writer.AuditWriter) -> None:
        if error := next(crashes, None):
            raise error
        sound(writer)

    monkeypatch.setattr(_audit_writer.AuditWriter, "_bring_up_to_date", defective)
    ended: list[BaseException] = []

    async def restart_it() -> None:
        while True:
            try:
                await audit.run()
            except* RuntimeError as group:
                ended.extend(group.exceptions)

    async with trio.open_nursery() as nursery:
        nursery.start_soon(restart_it)
        for number in range(5):
            audit.record(outcome(number))
            await trio.sleep(0.02)
        await until(lambda: audit.path.exists() and len(rows_of(audit.path)) == 5)
        audit.record(outcome(5))
        nursery.cancel_scope.cancel()
    assert [str(error) for error in ended] == ["a defect", "another"]
    assert rows_of(audit.path) == [f"c{n}" for n in range(6)]
