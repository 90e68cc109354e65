"""The taint of conversations that their callers name, so that a new connection does not wash it off."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from functools import partial
from pathlib import Path
from typing import Final, final
from weakref import WeakValueDictionary

import msgspec

from conduit_daemon.model import user_of
from conduit_daemon.pipeline.context import Context, Taint
from conduit_daemon.state_file import StateFile
from conduit_daemon.steady_clock import steady_clock
from conduit_daemon.telemetry.events import EventBus

__all__ = ["Sessions"]

_FILE: Final = "taint.json"
_FORGOTTEN_AFTER: Final = 86_400.0
_STALE: Final = 3600.0
_MOST: Final = 10_000
"""Conversations kept of each user: whoever names more forgets its own, and nobody else's."""


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
        clock: Unix seconds; None for those of a clock that nobody sets.
    """

    def __init__(self, directory: Path | None, bus: EventBus, clock: Callable[[], float] | None = None) -> None:
        self.file = StateFile(None if directory is None else directory / _FILE, list[_Kept], bus)
        self._clock = clock or steady_clock()
        self._by_user: dict[str, dict[_Key, _Kept]] = {}  # of each, the one used last stands last
        self._running: WeakValueDictionary[_Key, Taint] = WeakValueDictionary()
        self._saved_at = 0.0

    def __len__(self) -> int:
        return sum(map(len, self._by_user.values()))

    def load(self) -> None:
        """Reads what was kept."""
        self._by_user = {}
        oldest = self._clock() - _FORGOTTEN_AFTER
        for kept in sorted(self.file.load() or (), key=lambda kept: kept.used):
            if kept.used > oldest:
                self._put(kept)

    def context(self, connection: Context, principal: str, session: str) -> Context:
        """The pipeline as the conversation `session` of `principal` sees it, on a connection with this view.

        What one call of a conversation reads taints those that wait at that moment, too.
        """
        key = (principal, session)
        return Context(
            connection.gate, on_taint=partial(self._taint, key), within=connection, taint=self._taint_of(key)
        )

    def join(self, connection: Context, principal: str, session: str) -> None:
        """Makes all that a connection does part of the conversation `session` of `principal`."""
        key = (principal, session)
        read = connection.taint
        connection.share(self._taint_of(key), partial(self._taint, key))
        for server in read:
            connection.add_taint(server)

    def _taint_of(self, key: _Key) -> Taint:
        taint = self._running.get(key)
        if taint is None:
            taint = self._running[key] = Taint()
        user = user_of(key[0])
        kept = self._by_user.get(user, {}).get(key)
        now = self._clock()
        if kept is not None and kept.used <= now - _FORGOTTEN_AFTER:
            del self._by_user[user][key]
        elif kept is not None:
            taint.servers |= kept.taint
            kept.used = now
            self._put(kept)
            if now > self._saved_at + _STALE:
                self._save()
        return taint

    def reset(self, principal: str | None = None, session: str | None = None) -> int:
        """Forgets the taint of conversations, and says of how many.

        Args:
            principal: Only of this one's, and of the agents beneath it.
            session: Only of those of this name.
        """

        def meant(key: _Key) -> bool:
            return (principal is None or key[0] == principal or key[0].startswith(f"{principal}/")) and (
                session is None or key[1] == session
            )

        gone = [kept for kept in self._all() if meant((kept.principal, kept.session))]
        for kept in gone:
            del self._by_user[user_of(kept.principal)][kept.principal, kept.session]
        for key, taint in self._running.items():
            if meant(key):
                taint.servers = frozenset()
        if gone:
            self._save()
        return len(gone)

    def _taint(self, key: _Key, server: str) -> None:
        now = self._clock()
        kept = self._by_user.get(user_of(key[0]), {}).get(key)
        if kept is None:
            kept = _Kept(principal=key[0], session=key[1], taint=frozenset(), used=now)
        kept.used = now
        self._put(kept)
        if server not in kept.taint:
            kept.taint |= {server}
            self._save()

    def _put(self, kept: _Kept) -> None:
        """Keeps a conversation as the one of its user that was used last."""
        key, own = (kept.principal, kept.session), self._by_user.setdefault(user_of(kept.principal), {})
        own.pop(key, None)
        own[key] = kept
        if len(own) > _MOST:
            del own[next(iter(own))]

    def _all(self) -> Iterator[_Kept]:
        for own in self._by_user.values():
            yield from own.values()

    def _save(self) -> None:
        self._saved_at = self._clock()
        self.file.save(self._living)

    def _living(self) -> list[_Kept]:
        oldest = self._clock() - _FORGOTTEN_AFTER
        living = [kept for kept in self._all() if kept.used > oldest]
        self._by_user = {}
        for kept in living:
            self._put(kept)
        return living
