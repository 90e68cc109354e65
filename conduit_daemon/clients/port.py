"""The door to one server: where calls go in, whatever connection stands behind it at the moment.

A port outlives the actor that keeps the connection, and the connection. Calls reach the server through it
without a message to anybody; the actor opens and closes it and writes on it what its state is.
"""

from __future__ import annotations

import math
import time
from collections import deque
from collections.abc import Callable
from typing import Any, Final, Literal, Protocol, final

import msgspec
import trio

from conduit_daemon.clients.dispatcher import OnProgress
from conduit_daemon.errors import ClientError
from conduit_daemon.model import Dropped, Tool

__all__ = ["CallTarget", "CircuitState", "ClientState", "Listing", "OnResult", "Port", "Running", "Standing"]

ClientState = Literal["stopped", "connecting", "ready", "waiting", "open", "needs_attention", "idle"]
CircuitState = Literal["closed", "open", "half_open"]

OnResult = Callable[[msgspec.Raw | None, bool, ClientError | None], None]
"""Called once: with a raw CallToolResult and whether the tool reports a failure, or with an error."""

_RECENT: Final = 512


class Running(Protocol):
    """A call at its server."""

    def cancel(self, error: ClientError) -> None:
        """Ends it with `error`; the server is told."""


class CallTarget(Protocol):
    """A connection that is ready for calls."""

    def begin_call(
        self,
        tool: str,
        arguments: dict[str, Any],
        on_result: OnResult,
        *,
        meta: dict[str, Any],
        total: float,
        on_progress: OnProgress | None,
    ) -> Running:
        """Sends a call; see `Port.begin`."""


class Listing(msgspec.Struct, frozen=True):
    """What a server last said it has.

    Attributes:
        tools: In the server's order.
        dropped: Malformed entries, and why.
        note: What cut the listing short, where something did.
    """

    tools: tuple[Tool, ...] = ()
    dropped: tuple[Dropped, ...] = ()
    note: str | None = None


class Standing(msgspec.Struct, frozen=True, kw_only=True):
    """How a client stands.

    Attributes:
        state: As `20-clients` names them.
        reason: One sentence, where the state is not ready.
        since: Unix seconds of the last change.
        retry_at: Time of the next attempt, on trio's clock; None where none is planned.
        circuit: Whether attempts go on as usual.
        protocol_version: As negotiated; None without a connection.
        pid: The server's process; None without one.
        first: Whether its very first attempt to connect is still running.
        last_error: The last reason why it was not ready, kept when it is again.
    """

    state: ClientState
    since: float
    reason: str | None = None
    retry_at: float | None = None
    circuit: CircuitState = "closed"
    protocol_version: str | None = None
    pid: int | None = None
    first: bool = False
    last_error: str | None = None


@final
class Port:
    """The door to one server.

    Attributes:
        server: The server's id.
        standing: How its client stands; replaced, never changed.
        listing: The last listing known, also while the server is down; None before the first.
        restarts: How often its process was started again.
        calls: Calls that were begun.
        errors: Of those, how many failed or reported a failure.
    """

    def __init__(self, server: str, standing: Standing) -> None:
        self.server = server
        self.standing = standing
        self.listing: Listing | None = None
        self.target: CallTarget | None = None
        self.restarts = 0
        self.calls = 0
        self.errors = 0
        self._recent: deque[float] = deque(maxlen=_RECENT)

    def begin(
        self,
        tool: str,
        arguments: dict[str, Any],
        on_result: OnResult,
        *,
        meta: dict[str, Any],
        total: float = math.inf,
        on_progress: OnProgress | None = None,
    ) -> Running:
        """Sends a call to the server, at once and without waiting.

        Args:
            tool: The server's own name for the tool.
            arguments: An object.
            on_result: Called once, never from within `begin`.
            meta: The caller's ``_meta``.
            total: Seconds that the call may take, within the configured bounds.
            on_progress: Asks the server for progress, and is called with the raw params of each.

        Raises:
            ClientError: ``unavailable``, with ``retry_after`` where a time is known; nothing was sent.
        """
        if self.target is None:
            raise self.unavailable(tool)
        return self.target.begin_call(tool, arguments, on_result, meta=meta, total=total, on_progress=on_progress)

    def close(self, reason: str) -> None:
        """Lets no call in any more; those at the server go on. `reason` is one sentence without its full stop."""
        self.target = None
        self.standing = Standing(state="stopped", since=time.time(), reason=reason, last_error=self.standing.last_error)

    def unavailable(self, tool: str | None = None) -> ClientError:
        """The error of a call that finds no connection here."""
        standing = self.standing
        retry_after = None
        if standing.retry_at is not None:
            retry_after = round(max(standing.retry_at - trio.current_time(), 0.0), 3)
        elif standing.state == "connecting":
            retry_after = 1.0
        reason = standing.reason or f"it is {standing.state}"
        return ClientError(
            "unavailable",
            f"Server {self.server} is not available: {reason}",
            self.server,
            tool,
            retry_after=retry_after,
        )

    def note(self, duration: float, ok: bool) -> None:
        """Counts a finished call that took `duration` seconds."""
        self.calls += 1
        if not ok:
            self.errors += 1
        self._recent.append(duration)

    def percentiles_ms(self) -> tuple[float, float] | None:
        """p50 and p99 of the last 512 calls, in milliseconds; None before the first."""
        if not self._recent:
            return None
        ordered = sorted(self._recent)
        last = len(ordered) - 1
        return round(ordered[last // 2] * 1000, 3), round(ordered[math.ceil(last * 0.99)] * 1000, 3)
