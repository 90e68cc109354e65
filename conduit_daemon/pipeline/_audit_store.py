"""The audit's SQLite file: appended to by one thread, read by others, replaced where it is damaged."""

from __future__ import annotations

import os
import sqlite3
import time
from collections.abc import Iterable, Sequence
from contextlib import closing, suppress
from itertools import chain
from pathlib import Path
from typing import Any, Final, Literal, final

import msgspec
from msgspec import UNSET, UnsetType

__all__ = ["COLUMNS", "AuditQuery", "AuditRow", "AuditStore", "Damaged", "is_damage", "move_aside", "read"]

_VERSION: Final = 1
_BUSY: Final = 1.0  # seconds for which another process' lock is waited for
_CACHE: Final = 256  # KiB of pages, of 2 MB by default: rows are appended, and hardly ever read by this connection
_WAL_LIMIT: Final = 16 * 1024 * 1024

COLUMNS: Final = (
    "time",
    "call",
    "principal",
    "server",
    "tool",
    "arguments_digest",
    "arguments",
    "rule",
    "decision",
    "approver",
    "kind",
    "outcome",
    "duration",
    "request_bytes",
    "result_bytes",
)

_SCHEMA: Final = f"""
    CREATE TABLE calls (
        id INTEGER PRIMARY KEY,
        time REAL NOT NULL,
        call TEXT NOT NULL,
        principal TEXT NOT NULL,
        server TEXT,
        tool TEXT NOT NULL,
        arguments_digest TEXT NOT NULL,
        arguments TEXT,
        rule TEXT,
        decision TEXT NOT NULL,
        approver TEXT,
        kind TEXT NOT NULL,
        outcome TEXT NOT NULL,
        duration REAL NOT NULL,
        request_bytes INTEGER NOT NULL,
        result_bytes INTEGER NOT NULL
    );
    CREATE INDEX calls_by_time ON calls (time);
    PRAGMA user_version = {_VERSION};
"""

_PLACES: Final = f"({', '.join('?' * len(COLUMNS))})"
_INSERTS: Final = {
    count: f"INSERT INTO calls ({', '.join(COLUMNS)}) VALUES {', '.join([_PLACES] * count)}"  # noqa: S608
    for count in (64, 8, 1)
}
"""Statements for so many rows at once. ``executemany`` gives the interpreter away and fights for it once a row."""

_PURGE: Final = "DELETE FROM calls WHERE id IN (SELECT id FROM calls WHERE time < ? LIMIT ?)"


class AuditRow(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True):
    """One call, as the audit keeps it.

    Attributes:
        time: When it ended, in unix seconds.
        call: The daemon's id of the call.
        principal: Who called.
        server: The server's id; None where no tool was found.
        tool: The server's own name of the tool, or the name asked for where none was found.
        arguments_digest: SHA-256 of the arguments' canonical JSON.
        arguments: The redacted arguments, where the configuration has them kept.
        rule: The rule that decided.
        decision: What was decided.
        approver: Who approved or denied it, where somebody was asked.
        kind: ``ok``, ``tool_error`` or an error kind.
        outcome: ``done``, or how far a failed call came.
        duration: Seconds.
        request_bytes: Size of the arguments as JSON.
        result_bytes: Size of the result as the server wrote it; 0 where there is none.
    """

    time: float
    call: str
    principal: str
    server: str | None = None
    tool: str
    arguments_digest: str
    arguments: msgspec.Raw | UnsetType = UNSET
    rule: str | None = None
    decision: Literal["allow", "approve", "deny", "filtered", "invalid", "none"]
    approver: str | None = None
    kind: str
    outcome: str
    duration: float
    request_bytes: int
    result_bytes: int


class AuditQuery(msgspec.Struct, frozen=True, kw_only=True):
    """Which rows are wanted; what is None does not narrow them.

    Attributes:
        since: The earliest time, in unix seconds.
        until: The time before which rows end.
        server: A server's id.
        tool: A tool's own name.
        principal: A principal; that of a user includes those of the agents beneath it.
        outcome: An outcome (``done``, ``failed``, ...) or a kind (``denied``, ``timeout``, ...).
        limit: At most so many rows.
    """

    since: float | None = None
    until: float | None = None
    server: str | None = None
    tool: str | None = None
    principal: str | None = None
    outcome: str | None = None
    limit: int = 100


class Damaged(Exception):
    """The file is no usable audit; the message says what it is instead."""


def is_damage(error: Exception) -> bool:
    """Whether `error` of SQLite says that the file itself is broken, not that it is out of reach."""
    if isinstance(error, Damaged):
        return True
    code = getattr(error, "sqlite_errorcode", None)
    return code is not None and code & 0xFF in {sqlite3.SQLITE_CORRUPT, sqlite3.SQLITE_NOTADB}


@final
class AuditStore:
    """The open file. For one thread.

    Args:
        path: Where it is, or is to be; its folder is made where it is missing.

    Raises:
        OSError: It cannot be reached.
        sqlite3.Error: Likewise.
        Damaged: It is something else than an audit.
    """

    def __init__(self, path: Path) -> None:
        self._path = path
        path.parent.mkdir(mode=0o700, parents=True, exist_ok=True)
        # Made here and not by SQLite, so that it is never readable by others, not even at first; SQLite gives
        # its -wal and -shm the mode of the file.
        fd = os.open(path, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o600)
        try:
            os.fchmod(fd, 0o600)
            self._inode = os.fstat(fd).st_ino
        finally:
            os.close(fd)
        self._connection = sqlite3.connect(path, timeout=_BUSY, isolation_level=None)
        try:
            self._prepare()
        except BaseException:
            self.close()
            raise

    def _prepare(self) -> None:
        run = self._connection.execute
        run("PRAGMA journal_mode = WAL")
        # A commit survives the end of this process by any means; only a power cut can take the last ones.
        run("PRAGMA synchronous = NORMAL")
        run(f"PRAGMA journal_size_limit = {_WAL_LIMIT}")
        run(f"PRAGMA cache_size = -{_CACHE}")
        (version,) = run("PRAGMA user_version").fetchone()
        (tables,) = run("SELECT count(*) FROM sqlite_schema").fetchone()
        if version == 0 and tables == 0:
            self._connection.executescript(f"BEGIN IMMEDIATE; {_SCHEMA} COMMIT;")
        elif version != _VERSION:
            raise Damaged(f"its schema has version {version}, and this daemon writes version {_VERSION}")
        try:
            run(f"SELECT {', '.join(COLUMNS)} FROM calls LIMIT 0")  # noqa: S608
        except sqlite3.OperationalError as error:
            if error.sqlite_errorcode == sqlite3.SQLITE_ERROR:
                raise Damaged(f"its table is not the audit's: {error}") from None
            raise

    def is_in_place(self) -> bool:
        """Whether the path still names this file: it may have been removed, and rows would be written to nowhere.

        So it would be where the journal beside it was. While the file is open, neither number is given to another.
        """
        try:
            return os.stat(self._path).st_ino == self._inode and os.stat(f"{self._path}-wal").st_size >= 0
        except OSError:
            return False

    def check(self) -> None:
        """Looks through the whole file.

        Raises:
            Damaged: It is damaged.
            sqlite3.Error: It is so damaged that it cannot be looked through, or cannot be reached.
        """
        (finding,) = self._connection.execute("PRAGMA quick_check(1)").fetchone()
        if finding != "ok":
            raise Damaged(finding)

    def append(self, rows: Sequence[Sequence[Any]]) -> None:
        """Writes all rows or none.

        Raises:
            sqlite3.Error: They cannot be written.
        """
        self._connection.execute("BEGIN IMMEDIATE")
        try:
            at = 0
            for count, statement in _INSERTS.items():
                while len(rows) - at >= count:
                    self._connection.execute(statement, list(chain.from_iterable(rows[at : at + count])))
                    at += count
            self._connection.execute("COMMIT")
        except BaseException:
            with suppress(sqlite3.Error):  # a full disk has rolled back by itself
                self._connection.execute("ROLLBACK")
            raise

    def purge(self, before: float, count: int) -> int:
        """Removes at most `count` rows older than `before`, and says how many.

        Raises:
            sqlite3.Error: They cannot be removed.
        """
        return self._connection.execute(_PURGE, (before, count)).rowcount

    def close(self) -> None:
        """Closes it, as far as it can be closed."""
        with suppress(sqlite3.Error):
            self._connection.close()


def move_aside(path: Path) -> Path:
    """Renames the file and its journals to a name that is free, and returns that.

    Raises:
        OSError: It cannot be renamed.
    """
    stamp = time.strftime("%Y%m%dT%H%M%S", time.gmtime())
    names = (path.with_name(f"{path.name}.damaged-{stamp}{suffix}") for suffix in ("", *(f".{n}" for n in range(1000))))
    aside = next(name for name in names if not name.exists())
    path.rename(aside)
    for suffix in ("-wal", "-shm"):
        with suppress(FileNotFoundError):
            Path(f"{path}{suffix}").rename(f"{aside}{suffix}")
    return aside


def read(path: Path, query: AuditQuery) -> list[AuditRow]:
    """The rows of the file at `path` that `query` asks for, newest first.

    Raises:
        sqlite3.Error: It cannot be read.
    """
    if not path.exists():
        return []
    wheres, values = _conditions(query)
    statement = f"SELECT {', '.join(COLUMNS)} FROM calls{wheres} ORDER BY time DESC, id DESC LIMIT ?"  # noqa: S608
    with closing(sqlite3.connect(f"{path.absolute().as_uri()}?mode=ro", uri=True, timeout=_BUSY)) as connection:
        if connection.execute("SELECT count(*) FROM sqlite_schema").fetchone() == (0,):
            return []  # it is being made at this moment
        return [_row(columns) for columns in connection.execute(statement, (*values, query.limit))]


def _conditions(query: AuditQuery) -> tuple[str, list[Any]]:
    conditions: list[tuple[str, Iterable[Any]]] = []
    if query.since is not None:
        conditions.append(("time >= ?", (query.since,)))
    if query.until is not None:
        conditions.append(("time < ?", (query.until,)))
    if query.server is not None:
        conditions.append(("server = ?", (query.server,)))
    if query.tool is not None:
        conditions.append(("tool = ?", (query.tool,)))
    if query.principal is not None:
        beneath = f"{query.principal}/"
        conditions.append(("(principal = ? OR substr(principal, 1, ?) = ?)", (query.principal, len(beneath), beneath)))
    if query.outcome is not None:
        conditions.append(("(outcome = ? OR kind = ?)", (query.outcome, query.outcome)))
    wheres = " AND ".join(condition for condition, _ in conditions)
    return (f" WHERE {wheres}" if wheres else ""), [value for _, values in conditions for value in values]


def _row(columns: Sequence[Any]) -> AuditRow:
    known = dict(zip(COLUMNS, columns, strict=True))
    arguments = known.pop("arguments")
    return AuditRow(**known, arguments=UNSET if arguments is None else msgspec.Raw(arguments.encode()))
