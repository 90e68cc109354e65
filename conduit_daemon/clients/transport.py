"""What a connection stands on: a way to a server that is opened, kept and closed by one task."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any, Final, Protocol

import msgspec
import trio

from conduit_daemon.clients.dispatcher import Dispatcher, Peer
from conduit_daemon.clients.host import Host
from conduit_daemon.clients.listing import Listing
from conduit_daemon.clients.process import GRACE, Exit
from conduit_daemon.config.model import LimitsConfig, ServerConfig
from conduit_daemon.published import Published

__all__ = ["CallHeaders", "Loss", "Settings", "Transport", "Unreachable"]

_LEAST_MESSAGE: Final = 10 * 1024 * 1024


class Settings(msgspec.Struct, frozen=True, kw_only=True):
    """What a connection is made of.

    Attributes:
        server: The server's id.
        config: Its configuration.
        limits: The common bounds, as they are in force.
        version: The daemon's own version, told to the server.
        environ: The daemon's environment, of which the safe part is handed on.
        clean: Masks secrets in what the server writes.
        conceal: Told the secrets that a login came to, all of them each time that they change; `clean` masks them then.
        host: Answers what the server asks; None for what the configuration can answer.
        state: The state directory, where tokens are kept.
        grace: Tells how many seconds its process has for each of the two steps in which it is asked to end.
        auth: Signs HTTP requests (an ``httpx2.Auth``); None for what the configuration says.
    """

    server: str
    config: ServerConfig
    limits: Published[LimitsConfig]
    version: str
    environ: Mapping[str, str]
    clean: Callable[[str], str]
    conceal: Callable[[frozenset[str]], None] | None = None
    host: Host | None = None
    state: Path = Path()
    grace: Callable[[], float] = lambda: GRACE
    auth: Any = None

    @property
    def max_message(self) -> int:
        """The longest message that is read of the server, in bytes.

        A result over ``limits.max_result`` fails its call wherever that limit is; what is read has a floor beneath it,
        since a listing of tools is no result, and a small limit on those must not keep a server from being listed.
        """
        return max(self.limits.current.max_result, _LEAST_MESSAGE)

    @property
    def call_timeout(self) -> float:
        """Seconds of silence that end a call."""
        return self.config.call_timeout or self.limits.current.call_timeout


class Loss(msgspec.Struct, frozen=True, kw_only=True):
    """How a server was lost.

    Attributes:
        reason: The end of a sentence that begins with the server's name, as ``exited with code 7``.
        exit: How its process ended, where it did.
        words: The last lines that it wrote to its stderr.
        attention: Whether trying again is of no use until somebody does something.
        retry_after: Seconds that the server asks to be left alone.
    """

    reason: str
    exit: Exit | None = None
    words: tuple[str, ...] = ()
    attention: bool = False
    retry_after: float | None = None


class Unreachable(Exception):
    """No connection could be made; holds why.

    Attributes:
        loss: As for a server that was lost.
    """

    def __init__(self, loss: Loss) -> None:
        super().__init__(loss.reason)
        self.loss = loss


class CallHeaders(Protocol):
    """What goes beside the messages of 2026-07-28 where they travel over HTTP."""

    def of_method(self, method: str) -> Mapping[str, str]:
        """Beside any request."""

    def of_call(self, tool: str, arguments: Mapping[str, Any]) -> Mapping[str, str]:
        """Beside a call."""

    def learn(self, listing: Listing, server: str) -> Listing:
        """Notes which arguments of which tools are headers; tools that say so wrongly are dropped."""


class Transport(Protocol):
    """A way to one server, good for one connection.

    Attributes:
        pid: The server's process, where it has one of ours.
        forgotten: Set when the server knows the session no more and the connection is to begin a new one.
    """

    pid: int | None
    forgotten: trio.Event

    async def attend(
        self, peer: Peer, on_lost: Callable[[Loss], None], *, task_status: trio.TaskStatus[Dispatcher]
    ) -> None:
        """Opens it, reports the dispatcher that stands on it, and keeps it until cancelled.

        Args:
            peer: Told what the server sends unasked.
            on_lost: Called once if the server is lost, at once and before anything is tidied up.
            task_status: Started with the dispatcher.

        Raises:
            Unreachable: It cannot be opened.
        """

    def settle(self, version: str, *, modern: bool) -> CallHeaders | None:
        """Takes note of what was negotiated; None where nothing goes beside the messages."""

    async def heard(self) -> None:
        """Waits until the server can speak unasked: what it asks about a first call must not be lost. Never long."""

    def resume(self) -> None:
        """Sends what was held back while a session was begun."""

    def stderr(self) -> tuple[str, ...]:
        """The last 100 lines that the server wrote to its stderr."""
