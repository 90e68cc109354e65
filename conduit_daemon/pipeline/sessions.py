"""The taint of conversations that their callers name, so that a new connection does not wash it off."""

from __future__ import annotations

import time
from collections.abc import Callable
from functools import partial
from pathlib import Path
from typing import Final, final

import msgspec

from conduit_daemon.pipeline.context import Context
from conduit_daemon.state_file import StateFile
from conduit_daemon.telemetry.events import EventBus

__all__ = ["Sessions"]

_FILE: Final = "taint.json"
_FORGOTTEN_AFTER: Final = 86_400.0
_STALE: Final = 3600.0
_MOST: Final = 50_000


class _Kept(msgspec.Struct, kw_only=True):
    principal: str
    session: str
    taint: frozenset[str]
    used: float


_Key = tuple[str, str]


@final
class Sessions:
    """What is in the context of each named conversation; forgotten a day after its last call.

    Args:
        directory: The state directory; None keeps nothing beyond this process.
        bus: Where events about the file go.
        clock: Unix seconds.
    """

    def __init__(self, directory: Path | None, bus: EventBus, clock: Callable[[], float] = time.time) -> None:
        self.file = StateFile(None if directory is None else directory / _FILE, list[_Kept], bus)
        self._clock = clock
        self._kept: dict[_Key, _Kept] = {}
        self._saved_at = 0.0

    def __len__(self) -> int:
        return len(self._kept)

    def load(self) -> None:
        """Reads what was kept."""
        oldest = self._clock() - _FORGOTTEN_AFTER
        self._kept = {(kept.principal, kept.session): kept for kept in self.file.load() or () if kept.used > oldest}

    def context(self, connection: Context, principal: str, session: str) -> Context:
        """The pipeline as the conversation `session` of `principal` sees it, on a connection with this view."""
        key = (principal, session)
        context = Context(connection.gate, on_taint=partial(self._taint, key), within=connection)
        kept = self._kept.get(key)
        now = self._clock()
        if kept is not None:
            if kept.used <= now - _FORGOTTEN_AFTER:
                del self._kept[key]
                return context
            context.taint = kept.taint
            kept.used = now
            if now > self._saved_at + _STALE:
                self._save()
        return context

    def reset(self, principal: str | None = None, session: str | None = None) -> int:
        """Forgets the taint of conversations, and says of how many.

        Args:
            principal: Only of this one's, and of the agents beneath it.
            session: Only of those of this name.
        """
        gone = [
            key
            for key in self._kept
            if (principal is None or key[0] == principal or key[0].startswith(f"{principal}/"))
            and (session is None or key[1] == session)
        ]
        for key in gone:
            del self._kept[key]
        if gone:
            self._save()
        return len(gone)

    def _taint(self, key: _Key, server: str) -> None:
        now = self._clock()
        kept = self._kept.get(key)
        if kept is None:
            kept = self._kept[key] = _Kept(principal=key[0], session=key[1], taint=frozenset(), used=now)
            if len(self._kept) > _MOST:
                del self._kept[min(self._kept, key=lambda key: self._kept[key].used)]
        kept.used = now
        if server not in kept.taint:
            kept.taint |= {server}
            self._save()

    def _save(self) -> None:
        self._saved_at = self._clock()
        self.file.save(self._living)

    def _living(self) -> list[_Kept]:
        oldest = self._clock() - _FORGOTTEN_AFTER
        self._kept = {key: kept for key, kept in self._kept.items() if kept.used > oldest}
        return list(self._kept.values())
