"""The audit: each call and what was decided about it, one row in a SQLite file.

The event loop notes a call in a bounded backlog; one thread digests the arguments and writes in batches, each
at most 50 ms late. Whatever happens to the file, no call waits for it or fails by it: rows are kept in memory
up to a bound, a damaged file is moved aside, and an event says so.
"""

from __future__ import annotations

import functools
import sqlite3
import time
from contextlib import suppress
from pathlib import Path
from typing import Any, Final, final

import trio

from conduit_daemon.config.model import AuditConfig
from conduit_daemon.errors import ClientError
from conduit_daemon.model import Outcome
from conduit_daemon.pipeline._audit_store import AuditQuery, AuditRow, is_damage, read
from conduit_daemon.pipeline._audit_writer import AuditWriter
from conduit_daemon.telemetry.events import EventBus, Level
from conduit_daemon.telemetry.masking import Masker

__all__ = ["MOST_ROWS", "Audit", "AuditQuery", "AuditRow"]

MOST_ROWS: Final = 10_000
"""Rows of one answer, at most."""

_FILE: Final = "audit.db"
_FLUSH: Final = 2.0
_SETTLE: Final = 0.5
_LATE: Final = 5000  # rows, which half a second of the fastest calls does not make


@final
class Audit:
    """Keeps account of calls. Owned by the application, which has its supervisor run ``run``.

    It holds what is not written yet, so nothing is lost where ``run`` is restarted.

    Args:
        directory: The state directory; the file in it is ``audit.db``, readable by its owner alone.
        config: What is kept, and for how long.
        bus: Where ``audit.unavailable``, ``audit.recovered``, ``audit.corrupt`` and ``audit.lost`` go.
        masker: Takes known secrets out of arguments, where those are kept.

    Example:
        >>> audit = Audit(Path("/var/lib/conduit"), AuditConfig(), bus, masker)
        >>> ChildSpec(id="audit", start=lambda: audit.run)
    """

    lost_event = "audit.lost"

    def __init__(self, directory: Path, config: AuditConfig, bus: EventBus, masker: Masker) -> None:
        self.path = directory / _FILE
        self._bus = bus
        self._writer = AuditWriter(self.path, config, masker, self._tell, self._wrote)
        self._put = self._writer.backlog.put
        self._token: trio.lowlevel.TrioToken | None = None
        self._unsettled: list[trio.Event] = []

    @property
    def config(self) -> AuditConfig:
        """What is kept, and for how long. A new one may be set at any time and holds for the next call."""
        return self._writer.config

    @config.setter
    def config(self, config: AuditConfig) -> None:
        self._writer.config = config

    @property
    def waiting(self) -> int:
        """Rows that are not in the file yet."""
        return self._writer.waiting

    @property
    def lost(self) -> int:
        """Rows lost since the start, for want of room while they could not be written."""
        return self._writer.lost

    def problem(self) -> str | None:
        """What is wrong with it at present; None where rows are written in time."""
        if self._writer.failing:
            why = f"The audit cannot be written ({self._writer.failure})"
        elif self.waiting > _LATE:
            why = "The audit is not written fast enough"
        else:
            return None
        return f"{why}: {self.waiting} rows wait in memory, {self.lost} are lost."

    def record(self, outcome: Outcome, *, approver: str | None = None) -> None:
        """Notes a finished call, for the thread to write. Neither waits nor raises.

        Args:
            outcome: What came of the call. Its arguments must not be changed afterwards.
            approver: Who approved or denied it, where somebody was asked.
        """
        if not self._writer.config.enabled:
            return
        call = outcome.call
        # Only what makes the row: the result may be large, and goes as soon as it is delivered.
        self._put(
            (
                time.time(),
                call.id,
                call.principal.name,
                outcome.server,
                outcome.asked,
                call.arguments,
                outcome.rule,
                outcome.decision,
                approver,
                outcome.kind,
                outcome.sent,
                outcome.duration,
                len(outcome.result),
            )
        )

    async def run(self) -> None:
        """Writes what is recorded, until cancelled; then what is left, for two seconds at most."""
        self._token = trio.lowlevel.current_trio_token()
        self._writer.backlog.reopen()
        writing = trio.CancelScope(shield=True)
        async with trio.open_nursery() as nursery:
            nursery.start_soon(self._run_thread, writing)
            try:
                await trio.sleep_forever()
            finally:
                writing.deadline = trio.current_time() + _FLUSH
                self._writer.backlog.close()

    def is_in_place(self) -> bool:
        """Whether the file that is written to is still the one at `path`; true where nothing is written."""
        return self._writer.is_in_place()

    def restore(self, bus: EventBus) -> None:
        """Has a new file begun, and ``audit.lost`` said; see `service.upkeep`."""
        self._writer.missing = True
        self._writer.backlog.hurry()

    async def query(
        self,
        *,
        since: float | None = None,
        until: float | None = None,
        server: str | None = None,
        tool: str | None = None,
        principal: str | None = None,
        outcome: str | None = None,
        limit: int = 100,
    ) -> list[AuditRow]:
        """The rows asked for, newest first, those of calls that have just ended among them.

        Args:
            since: The earliest time, in unix seconds.
            until: The time before which rows end.
            server: A server's id.
            tool: A tool's own name.
            principal: A principal; a user's rows include those of the agents beneath it.
            outcome: An outcome (``done``, ``failed``, ...) or a kind (``denied``, ``timeout``, ...).
            limit: At most so many, 10,000 in any case.

        Raises:
            ClientError: ``unavailable``, the file cannot be read; ``invalid_params``, `limit` is below 1.
        """
        if limit < 1:
            raise ClientError("invalid_params", f"limit must be at least 1, not {limit}.")
        query = AuditQuery(
            since=since,
            until=until,
            server=server,
            tool=tool,
            principal=principal,
            outcome=outcome,
            limit=min(limit, MOST_ROWS),
        )
        await self._settle()
        try:
            return await trio.to_thread.run_sync(read, self.path, query)
        except (sqlite3.Error, OSError) as error:
            if is_damage(error):
                self._writer.suspected = True
                self._writer.backlog.hurry()
            raise ClientError(
                "unavailable",
                f"The audit cannot be read at present ({error}); the daemon's log says what is wrong with its file.",
                retry_after=1.0,
            ) from None

    async def _run_thread(self, writing: trio.CancelScope) -> None:
        with writing:
            await trio.to_thread.run_sync(self._writer.run, abandon_on_cancel=True, limiter=trio.CapacityLimiter(1))

    async def _settle(self) -> None:
        """Waits until what is recorded now is written, or could not be."""
        with trio.move_on_after(_SETTLE):
            for _ in range(2):  # the first round of the thread may have begun before
                if self._writer.waiting == 0:
                    return
                settled = trio.Event()
                self._unsettled.append(settled)
                self._writer.backlog.hurry()
                await settled.wait()

    def _settled(self) -> None:
        settled, self._unsettled = self._unsettled, []
        for event in settled:
            event.set()

    # --- in the writer's thread

    def _wrote(self) -> None:
        if self._unsettled:
            self._soon(self._settled)

    def _tell(self, type: str, level: Level, /, **fields: Any) -> None:
        self._soon(functools.partial(self._bus.emit, type, level=level, **fields))

    def _soon(self, function: Any) -> None:
        if self._token is not None:
            with suppress(trio.RunFinishedError):
                self._token.run_sync_soon(function)
