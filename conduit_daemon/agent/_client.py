"""What both clients are made with, and when they stop trying to connect."""

from __future__ import annotations

import os
from pathlib import Path
from typing import Final, Generic, TypeVar

from conduit_daemon.agent._errors import DaemonUnreachable
from conduit_daemon.agent._link import BUSY
from conduit_daemon.agent.sockets import Sockets, lookup

__all__ = ["ATTEMPTS", "PAUSE", "Client"]

C = TypeVar("C")

ATTEMPTS: Final = 3
"""Connections that may break before a request is out, before it is given up."""
PAUSE: Final = 0.05
"""Seconds between two attempts to connect."""


class Client(Generic[C]):
    """The base of the blocking and of the asynchronous client.

    Args:
        socket: The agent socket; else ``$CONDUIT_SOCKET``, the configuration's, the usual places.
        config: A configuration to look into for the socket, instead of the one that the daemon would find.
        timeout: Seconds to wait for any answer; None: as long as the daemon takes.
        reconnect_timeout: Seconds to wait for a daemon that was there before and is restarting.
    """

    def __init__(
        self,
        socket: str | Path | None = None,
        *,
        config: Path | None = None,
        timeout: float | None = None,
        reconnect_timeout: float = 5.0,
    ) -> None:
        self.timeout = timeout
        self.reconnect_timeout = reconnect_timeout
        self._places = lookup(os.environ, socket=socket, config=config)
        self._channels: dict[bool, C] = {}  # by whether they lead to the control socket
        self._prepare()

    def _prepare(self) -> None:
        """Makes what one kind of client alone has."""

    @property
    def sockets(self) -> tuple[Sockets, ...]:
        """The sockets that are tried, in order."""
        return self._places

    def _patience(self, asked: float, *, known: bool) -> float:
        """Seconds to wait for a daemon: a `known` one may be restarting."""
        return max(asked, self.reconnect_timeout) if known else asked

    def _gives_up(self, error: DaemonUnreachable, waited: float, patience: float) -> bool:
        busy = any(why == BUSY for _, why in error.tried)  # it is there, so that it will come to us
        return waited >= self._patience(patience, known=busy)

    def _broken(self, control: bool) -> DaemonUnreachable:
        place = self._places[0].control if control else self._places[0].agent
        return DaemonUnreachable(((place, "it ends every connection at once"),))
