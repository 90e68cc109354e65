"""How often a principal may call a tool: token buckets, one for each pair of them."""

from __future__ import annotations

from typing import Final, final

import msgspec

from conduit_daemon.config.model import RateConfig
from conduit_daemon.errors import ClientError
from conduit_daemon.hub.toolset import Entry
from conduit_daemon.model import user_of

__all__ = ["Rates", "Token"]

_PRUNED_FROM: Final = 4096
_MOST: Final = 100_000
"""Buckets that are not full; a caller that makes up more names than these shares its user's."""
_ROUNDING: Final = 1e-9


class Token(msgspec.Struct, frozen=True):
    """The right to one call.

    Attributes:
        key: The bucket it is from.
        interval: Seconds that it takes to come.
        wait: Seconds until it may be used.
    """

    key: tuple[str, str, str]
    interval: float
    wait: float


@final
class Rates:
    """Token buckets per principal and tool.

    A bucket is one number, the time at which it is full again: a call moves it later by the time that one token
    takes to come (the generic cell rate algorithm). A call that finds no token can reserve the next one and wait.
    """

    def __init__(self) -> None:
        self.default: RateConfig | None = None
        self.by_server: dict[str, RateConfig] = {}
        self._full_at: dict[tuple[str, str, str], float] = {}
        self._prune_at = _PRUNED_FROM

    def configure(self, default: RateConfig | None, by_server: dict[str, RateConfig]) -> None:
        """Takes over limits. A bucket whose limit is another one is full again: it may have been emptied for hours.

        Args:
            default: For servers without one of their own; None for no limit.
            by_server: By server id.
        """
        self._full_at = {
            key: full_at
            for key, full_at in self._full_at.items()
            if self.limit_of(key[1]) == by_server.get(key[1], default)
        }
        self.default, self.by_server = default, by_server

    def limit_of(self, server: str) -> RateConfig | None:
        """The limit on calls of a server's tools; None for no limit."""
        return self.by_server.get(server, self.default)

    def reserve(self, principal: str, entry: Entry, now: float, patience: float) -> Token:
        """Takes a token, the next that comes where there is none now.

        Args:
            principal: Who calls.
            entry: What is called.
            now: The time in seconds, on a clock that only goes forward.
            patience: Seconds that the call can wait.

        Raises:
            ClientError: ``rate_limited``: none comes in that time; ``retry_after`` says when one will.
        """
        key = (principal, entry.server_id, entry.tool.name)
        if len(self._full_at) >= _MOST and key not in self._full_at:
            key = (user_of(principal), entry.server_id, entry.tool.name)
        limit = self.limit_of(entry.server_id)
        if limit is None:
            return Token(key, 0.0, 0.0)
        interval = limit.per / limit.calls
        full_at = max(self._full_at.get(key, now), now)
        wait = full_at + interval - limit.per - now
        if wait <= _ROUNDING * limit.per:
            wait = 0.0
        elif wait > patience:
            raise ClientError(
                "rate_limited",
                f"Tool {entry.exposed} is called too often; the next call is possible in {wait:.3g} s.",
                entry.server_id,
                entry.tool.name,
                retry_after=round(wait, 3),
            )
        self._full_at[key] = full_at + interval
        if len(self._full_at) > self._prune_at:
            self._prune(now)
        return Token(key, interval, wait)

    def give_back(self, token: Token) -> None:
        """Returns a token that was reserved and not used."""
        if token.key in self._full_at:
            self._full_at[token.key] -= token.interval

    def _prune(self, now: float) -> None:
        self._full_at = {key: full_at for key, full_at in self._full_at.items() if full_at > now}
        self._prune_at = max(_PRUNED_FROM, 2 * len(self._full_at))
