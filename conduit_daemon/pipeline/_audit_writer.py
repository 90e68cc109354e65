"""The audit's thread: turns what was noted into rows and sees that they come into the file, whatever happens to it."""

from __future__ import annotations

import sqlite3
import threading
import time
from collections import deque
from collections.abc import Callable
from itertools import islice
from pathlib import Path
from typing import Any, Final, Protocol, final

from conduit_daemon.config.model import AuditConfig
from conduit_daemon.pipeline._audit_store import AuditStore, Damaged, is_damage, move_aside
from conduit_daemon.pipeline.digest import canonical_digest, canonical_json
from conduit_daemon.steady_clock import steady_clock
from conduit_daemon.telemetry.backlog import Backlog
from conduit_daemon.telemetry.events import Level
from conduit_daemon.telemetry.masking import Masker, redact_arguments

__all__ = ["KEPT", "UNPREPARED", "AuditWriter", "Noted", "Tell"]

UNPREPARED: Final = 10_000
"""Calls noted and not yet taken by the thread, at most."""

KEPT: Final = 20_000
"""Rows kept while they cannot be written, at most; some 15 MB."""

_GATHER: Final = 0.025  # seconds, which leaves as many for the write itself
_AT_ONCE: Final = 500
_BREATH: Final = 32
_RETRY: Final = 1.0
_SAID_EVERY: Final = 60.0
_DAY: Final = 86_400.0
_JUMP: Final = 3600.0
_PURGED_AT_ONCE: Final = 2000
_LONGEST_ARGUMENTS: Final = 64 * 1024

_AT_FAULT: Final = (
    sqlite3.IntegrityError,
    sqlite3.ProgrammingError,
    sqlite3.InterfaceError,
    sqlite3.DataError,
    ValueError,
    TypeError,
    OverflowError,
)
"""Errors of which the row is the cause, and not the file."""

Noted = tuple[float, str, str, str | None, str, Any, str | None, str, str | None, str, str, float, int]
"""A row as the event loop notes it: its columns with the arguments themselves instead of digest, text and size."""


class Tell(Protocol):
    """Emits an event from the thread."""

    def __call__(self, type: str, level: Level, /, **fields: Any) -> None:
        """Has the event loop emit it."""


@final
class AuditWriter:
    """What the thread knows. It outlives the thread, so that a new one goes on where the old one ended.

    Attributes:
        config: How long rows are kept, and whether arguments are; may be replaced at any time.
        backlog: What was noted and the thread has not taken yet.
        failing: Whether the last attempt to write failed.
        failure: Why the last attempt that failed did.
        lost: Rows lost in all, for want of room while they could not be written.
        suspected: Set where a reader found the file damaged, to have it looked at.
        missing: Set where the file was found gone, to have a new one begun.

    Args:
        path: The file.
        config: The first one.
        masker: For arguments that are kept.
        tell: Emits an event.
        wrote: Called after each round, whether or not it wrote.
    """

    def __init__(self, path: Path, config: AuditConfig, masker: Masker, tell: Tell, wrote: Callable[[], None]) -> None:
        self.config = config
        self.backlog = Backlog[Noted](UNPREPARED)
        self.suspected = False
        self.missing = False
        self._path = path
        self._masker = masker
        self._tell = tell
        self._wrote = wrote
        self._rows: deque[tuple[Any, ...]] = deque()
        self._lost = 0
        self._store: AuditStore | None = None
        self.failing = False
        self.failure = ""
        self.lost = 0
        self._retry_at = 0.0
        self._said = False
        self._said_at = float("-inf")
        self._moved_at = float("-inf")
        self._purge_at = 0.0
        self._steady = steady_clock()
        # An earlier thread may hang in a write to a dead disk and come back one day.
        self._alone = threading.Lock()

    @property
    def waiting(self) -> int:
        """How many rows are not in the file yet."""
        return len(self.backlog) + len(self._rows)

    def is_in_place(self) -> bool:
        """Whether the file that is written to is still the one at its path; true where there is none."""
        store = self._store
        return store is None or store.is_in_place()

    def run(self) -> None:
        """Writes until the backlog is closed and all that was put before is written, or cannot be."""
        with self._alone:
            try:
                closed = False
                while not closed:
                    self.backlog.wait(_GATHER, self._patience())
                    closed = self.backlog.closed
                    self._prepare()
                    if closed or time.monotonic() >= self._retry_at:
                        self._write()
                    self._wrote()
            finally:
                self._close()

    def _patience(self) -> float:
        until = self._retry_at if self.failing else self._purge_at
        return max(0.0, until - time.monotonic())

    def _prepare(self) -> None:
        while noted := self.backlog.peek(_BREATH):
            for item in noted:
                if len(self._rows) < KEPT:
                    self._rows.append(self._columns(item))
                else:
                    self._lose(1)
            self.backlog.drop(len(noted))
            time.sleep(0)  # lets the event loop run, which else waits for the interpreter's switch interval
        self._lose(self.backlog.take_refused())

    def _lose(self, count: int) -> None:
        self._lost += count
        self.lost += count

    def _columns(self, noted: Noted) -> tuple[Any, ...]:
        (when, call, principal, server, tool, arguments, rule, decision, approver, kind, outcome, duration, size) = (
            noted
        )
        try:
            canonical = canonical_json(arguments)
            digest, length = canonical_digest(canonical), len(canonical)
            kept = self._kept(arguments, length) if self.config.arguments else None
        except (TypeError, ValueError, RecursionError):
            # No JSON value has come this way unless through a hook; the call itself is worth a row in any case.
            digest, length, kept = "", 0, None
        return (
            when, _text(call), _text(principal), _text(server), _text(self._masker.mask(tool)), digest, kept,
            _text(rule), decision, _text(approver), kind, outcome, duration, length, size,
        )  # fmt: skip

    def _kept(self, arguments: Any, length: int) -> str:
        if length > _LONGEST_ARGUMENTS:
            return f'"({length} bytes, too long to be kept)"'
        redacted = redact_arguments(arguments, self._masker)
        return canonical_json(redacted).decode()

    def _write(self) -> None:
        while True:
            try:
                self._bring_up_to_date()
            except (OSError, sqlite3.Error, Damaged) as error:
                self._close()
                if not self._moved_aside(error):
                    self._fail(error)
                    return
            else:
                self._succeed()
                return

    def _bring_up_to_date(self) -> None:
        purging = time.monotonic() >= self._purge_at
        if not self._rows and not purging and not self.suspected and not self.missing:
            return
        if not self._rows and not self.config.enabled and not self._path.exists():
            self._purge_at = time.monotonic() + _DAY
            return
        store = self._open()
        self.missing = False
        if self.suspected:
            store.check()
            self.suspected = False
        while self._rows:
            rows = list(islice(self._rows, _AT_ONCE))
            self._append(store, rows)
            for _ in rows:
                self._rows.popleft()
        if purging:
            removed = store.purge(self._believed() - self.config.retention_days * _DAY, _PURGED_AT_ONCE)
            # In portions, between which what has been noted meanwhile is written in time.
            self._purge_at = time.monotonic() + (0.0 if removed == _PURGED_AT_ONCE else _DAY)

    def _believed(self) -> float:
        """The time by which rows are old. A clock that was set forward is believed a day later: it may be set right
        until then, and what is removed does not come back."""
        now, steady = time.time(), self._steady()
        if now <= steady + _JUMP:
            return now
        self._steady = steady_clock()
        return steady

    def _open(self) -> AuditStore:
        if self._store is not None and not self._store.is_in_place():
            self._close()
            reason = f"{self._path} was removed or replaced, with the rows in it; a new one is begun."
            self._tell("audit.lost", "error", reason=reason)
        if self._store is None:
            self._store = AuditStore(self._path)
        return self._store

    def _append(self, store: AuditStore, rows: list[tuple[Any, ...]]) -> None:
        try:
            store.append(rows)
        except _AT_FAULT:
            # One that no file takes must not keep the others out for ever.
            for row in rows:
                try:
                    store.append([row])
                except _AT_FAULT as error:
                    self._tell("internal.error", "error", message="A call could not be audited.", error=repr(error))

    def _moved_aside(self, error: Exception) -> bool:
        """Whether the file was damaged and is out of the way, so that a new one can be begun."""
        now = time.monotonic()
        if not is_damage(error) or now < self._moved_at + _SAID_EVERY:
            return False
        try:
            aside = move_aside(self._path)
        except OSError:
            return False
        self._moved_at = now
        self.suspected = False
        self._tell("audit.corrupt", "error", reason=str(error), moved_to=str(aside))
        return True

    def _fail(self, error: Exception) -> None:
        now = time.monotonic()
        self.failing = True
        self.failure = str(error)
        self._retry_at = now + _RETRY
        if now >= self._said_at + _SAID_EVERY:
            self._say_unavailable(str(error))

    def _succeed(self) -> None:
        self._retry_at = 0.0
        if self.failing:
            self.failing = False
            if self._said:
                self._said = False
                self._tell("audit.recovered", "info", lost=self._lost)
            self._lost = 0
        elif self._lost and time.monotonic() >= self._said_at + _SAID_EVERY:
            self._say_unavailable("more calls ended at once than could be written")
            self._said, self._lost = False, 0

    def _say_unavailable(self, reason: str) -> None:
        self._said, self._said_at = True, time.monotonic()
        self._tell("audit.unavailable", "error", reason=reason, waiting=len(self._rows), lost=self._lost)

    def _close(self) -> None:
        if self._store is not None:
            self._store.close()
            self._store = None


def _text(value: str | None) -> str | None:
    """`value` as text that SQLite takes: a lone surrogate, which JSON can bring along, is none."""
    if value is None or value.isascii():
        return value
    return value.encode("utf-8", "backslashreplace").decode()
