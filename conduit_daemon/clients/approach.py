"""The way in which a server is spoken to: which era and which HTTP transport, learned from how attempts ended. Pure.

What is configured is kept to. Where it is left open, a server that ends when asked for the newer era is greeted as an
older one, and one that takes no POST is tried over the transport of 2024-11-05 (the section "Backwards Compatibility"
of the specification's transports). What worked is remembered for as long as the server can be reached.
"""

from __future__ import annotations

from typing import Final, final

import msgspec

from conduit_daemon.clients.observer import Ended
from conduit_daemon.clients.session import Era, Negotiated
from conduit_daemon.clients.transport import Settings

__all__ = ["Another", "Approach"]

_ERAS: Final[dict[str, Era]] = {"auto": "auto", "2025-11-25": "legacy", "2026-07-28": "modern"}
_TAKES_NO_POST: Final = (400, 404, 405)


class Another(msgspec.Struct, frozen=True):
    """Another way that is worth an attempt at once.

    Attributes:
        why: How the attempt is made.
        hope: Why it is made, as a sentence.
    """

    why: str
    hope: str


@final
class Approach:
    """Chooses the way for each attempt.

    Args:
        settings: As configured.

    Attributes:
        settings: For the next attempt.
        era: As above.
    """

    def __init__(self, settings: Settings) -> None:
        self.settings = settings
        self.era: Era = _ERAS[settings.config.protocol]
        self._configured = settings
        self._refused: Ended | None = None

    def agreed(self, negotiated: Negotiated) -> None:
        """Remembers the way that worked."""
        self._refused = None
        if _ERAS[self._configured.config.protocol] == "auto":
            self.era = "modern" if negotiated.modern else "legacy"

    def another(self, ended: Ended) -> Another | None:
        """Another way after an attempt that ended so; None where there is none."""
        config = self._configured.config
        if ended.kind == "probe":
            self.era = "legacy"
            return Another("with the older handshake", "It may know only the older handshake.")
        open_ = config.kind == "http" and config.transport is None and config.protocol != "2026-07-28"
        if open_ and self._refused is None and ended.kind == "start" and ended.http_status in _TAKES_NO_POST:
            self._refused = ended
            older = msgspec.structs.replace(config, transport="sse")
            self.settings = msgspec.structs.replace(self._configured, config=older)
            return Another("over the older transport", "It may know only the older transport, HTTP with SSE.")
        return None

    def failed(self, ended: Ended) -> Ended:
        """Forgets what was learned, if the server could not be started or reached.

        Returns:
            The end to tell of: where the older transport was of no use either, that of the attempt before.
        """
        if ended.kind != "start":
            return ended
        refused, self._refused = self._refused, None
        self.era, self.settings = _ERAS[self._configured.config.protocol], self._configured
        return ended if refused is None else msgspec.structs.replace(ended, reason=refused.reason)
