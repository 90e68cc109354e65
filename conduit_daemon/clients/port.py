"""The door to one server: where calls go in, whatever connection stands behind it at the moment.

A port outlives the actor that keeps the connection, and the connection. Calls reach the server through it
without a message to anybody; the actor opens and closes it and writes on it what its state is.

A call that finds no connection fails at once, with two exceptions, in which it is held until the server is ready:
the server rests and starts for calls, or the call was lost with a connection before a byte of it was sent. The
latter happens once to a call.
"""

from __future__ import annotations

import math
import time
from collections import deque
from collections.abc import Callable, Collection, Mapping
from typing import Any, Final, Protocol, final

import msgspec
import trio

from conduit_daemon.clients.dispatcher import OnProgress
from conduit_daemon.clients.kept import Kept
from conduit_daemon.clients.listing import Listing
from conduit_daemon.clients.offerings import Offerings
from conduit_daemon.clients.standing import ClientState, Standing, resting, starting
from conduit_daemon.errors import ClientError
from conduit_daemon.model import Method

__all__ = [
    "AtServer",
    "CallTarget",
    "ClientState",
    "OnResult",
    "Port",
    "Running",
    "Standing",
    "new_port",
]

OnResult = Callable[[msgspec.Raw | None, bool, ClientError | None], None]
"""Called once: with a raw CallToolResult and whether the tool reports a failure, or with an error."""

_RECENT: Final = 512
_PATIENCE: Final = 60.0
_COMING_BACK: Final = frozenset({"waiting", "connecting"})


class AtServer(Protocol):
    """A call at its server."""

    def cancel(self, error: ClientError) -> None:
        """Ends it with `error`; the server is told."""


class Running(AtServer, Protocol):
    """A call that went through a port."""

    @property
    def held(self) -> bool:
        """Whether it waits for the server to start."""


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
        method: Method = "tools/call",
        caller: object = None,
    ) -> AtServer:
        """Sends a call; see `Port.begin`."""

    def refresh(self) -> None:
        """Reads the server's list of tools again, soon."""

    def pass_on(self, method: str, params: Mapping[str, Any] | None = None) -> None:
        """Tells a server that is one caller's alone what the caller says of itself, if it is to know."""


@final
class _PortCall:
    """A call that went through the port: at the server, or held until there is one."""

    __slots__ = (
        "_arguments",
        "_caller",
        "_end",
        "_meta",
        "_method",
        "_on_progress",
        "_on_result",
        "_port",
        "_running",
        "_sent_again",
        "tool",
    )

    def __init__(
        self,
        port: Port,
        tool: str,
        arguments: dict[str, Any],
        on_result: OnResult,
        meta: dict[str, Any],
        total: float,
        on_progress: OnProgress | None,
        method: Method,
        caller: object,
    ) -> None:
        self.tool = tool
        self._port = port
        self._arguments = arguments
        self._on_result = on_result
        self._meta = meta
        self._end = trio.current_time() + total
        self._on_progress = on_progress
        self._method = method
        self._caller = caller
        self._running: AtServer | None = None
        self._sent_again = False

    @property
    def held(self) -> bool:
        """See `Running`."""
        return self in self._port._held

    def cancel(self, error: ClientError) -> None:
        """Ends it with `error`; the server is told where it may know of it."""
        if self._running is not None:
            self._running.cancel(error)
        elif self._port.let_go(self):
            error.outcome = "not_sent"
            self.end(error)

    def send(self, target: CallTarget) -> None:
        """Sends it.

        Raises:
            ClientError: Nothing was sent.
        """
        self._running = target.begin_call(
            self.tool,
            self._arguments,
            self._take,
            meta=self._meta,
            total=self._end - trio.current_time(),
            on_progress=self._on_progress,
            method=self._method,
            caller=self._caller,
        )

    def end(self, error: ClientError) -> None:
        """Ends it without a server."""
        self._on_result(None, False, error)

    def hold_until(self, patience: float) -> float:
        """The time up to which it may be held, on trio's clock."""
        return min(self._end, trio.current_time() + patience)

    def _take(self, raw: msgspec.Raw | None, is_error: bool, error: ClientError | None) -> None:
        self._running = None
        port = self._port
        port.note_end()
        if error is not None and error.kind == "unavailable" and error.outcome == "not_sent" and not self._sent_again:
            self._sent_again = True
            if port.hold_again(self):
                return
        self._on_result(raw, is_error, error)


@final
class Port:
    """The door to one server.

    Attributes:
        server: The server's id.
        standing: How its client stands; replaced, never changed.
        listing: The last listing known, also while the server is down; None before the first.
        offerings: What it offers beside tools, also while it is down; None before that is known.
        restarts: How often its process was started again.
        calls: Calls that were begun.
        errors: Of those, how many failed or reported a failure.
        running: Calls that are at the server.
        quiet_since: When the last of them ended, on trio's clock.
        patience: Seconds for which a call is held at most.
        on_held: Called with the time until which a call is held, each time that one is: the client's.
        instantiate: Makes the port of a server for one caller alone; None where one server is for all.
        release: Ends such a server; None for the server that is for all.
        on_restart: Called when somebody has the server restarted, where callers have servers of their own.
        on_updated: Called with the server's id and the URI of a resource that was subscribed to and has changed.
        subscriptions: URIs of the resources that are subscribed to.
        caller: Whose server it is, where it is one caller's alone; None before its first call.
        instances: How many callers have a server of their own.
    """

    def __init__(self, server: str, standing: Standing) -> None:
        self.server = server
        self.standing = standing
        self.listing: Listing | None = None
        self.offerings: Offerings | None = None
        self.target: CallTarget | None = None
        self.restarts = 0
        self.calls = 0
        self.errors = 0
        self.running = 0
        self.quiet_since = 0.0
        self.patience = _PATIENCE
        self.on_held: Callable[[float], None] | None = None
        self.instantiate: Callable[[], Port] | None = None
        self.release: Callable[[], None] | None = None
        self.on_restart: Callable[[], None] | None = None
        self.on_updated: Callable[[str, str], None] | None = None
        self.subscriptions: set[str] = set()
        self.caller: object = None
        self.instances = 0
        self._held: dict[_PortCall, float] = {}
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
        method: Method = "tools/call",
        caller: object = None,
    ) -> Running:
        """Sends a call to the server, at once and without waiting; or holds it until the resting server is up.

        Args:
            tool: The server's own name for the tool.
            arguments: An object.
            on_result: Called once, never from within `begin`.
            meta: The caller's ``_meta``.
            total: Seconds that the call may take, within the configured bounds.
            on_progress: Asks the server for progress, and is called with the raw params of each.
            method: What is asked of the server; of a resource or a prompt, `tool` is ``resource:URI`` or
                ``prompt:NAME``.
            caller: Who calls, given back with the server's questions about this call.

        Raises:
            ClientError: ``unavailable``, with ``retry_after`` where a time is known; nothing was sent.
        """
        if self.release is not None:
            self.caller = caller
        call = _PortCall(self, tool, arguments, on_result, meta, total, on_progress, method, caller)
        if self.target is not None:
            call.send(self.target)
            self.running += 1
        elif self.standing.startable:
            self._hold(call)
        else:
            raise self.unavailable(tool)
        return call

    def refresh(self) -> bool:
        """Has the tools listed again, soon; False where there is no connection."""
        if self.target is None:
            return False
        self.target.refresh()
        return True

    # ---- calls that are held

    @property
    def held(self) -> Collection[float]:
        """The times until which calls are held, one for each."""
        return self._held.values()

    def _hold(self, call: _PortCall) -> None:
        until = self._held[call] = call.hold_until(self.patience)
        if self.on_held is not None:
            self.on_held(until)

    def hold_again(self, call: _PortCall) -> bool:
        """Holds a call that its connection lost unsent, if another connection is to be expected soon."""
        if self.target is not None or not (self.standing.startable or self.standing.state in _COMING_BACK):
            return False
        self._hold(call)
        return True

    def let_go(self, call: _PortCall) -> bool:
        """Holds a call no more; tells whether it was held."""
        return self._held.pop(call, None) is not None

    def send_held(self) -> None:
        """Sends what is held: the client is ready."""
        held, self._held = self._held, {}
        for call in held:
            if self.target is None:
                self._hold(call)
                continue
            try:
                call.send(self.target)
                self.running += 1
            except ClientError as error:
                call.end(error)

    def fail_held(self) -> None:
        """Ends what is held as ``unavailable``: the server did not come."""
        held, self._held = self._held, {}
        for call in held:
            call.end(self.unavailable(call.tool))

    def expire_held(self) -> None:
        """Ends what was held for too long."""
        now = trio.current_time()
        for call in [call for call, until in self._held.items() if until <= now]:
            del self._held[call]
            error = self.unavailable(call.tool)
            error.kind = "timeout"
            call.end(error)

    def note_end(self) -> None:
        """A call has left the server."""
        self.running -= 1
        if not self.running:
            self.quiet_since = trio.current_time()

    def close(self, reason: str) -> None:
        """Lets no call in any more; those at the server go on. `reason` is one sentence without its full stop."""
        self.target = None
        last = self.standing.last_error
        self.standing = Standing(state="stopped", since=time.time(), reason=reason, leaving=True, last_error=last)
        self.fail_held()

    def unavailable(self, tool: str | None = None) -> ClientError:
        """The error of a call that finds no connection here."""
        standing = self.standing
        retry_after = 1.0 if standing.state == "connecting" else None
        if standing.retry_at is not None:
            retry_after = round(max(standing.retry_at - trio.current_time(), 0.0), 3)
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


def new_port(server: str, kept: Kept | None = None, *, lazy: bool = False) -> Port:
    """A port whose client has not begun.

    Args:
        server: The server's id.
        kept: What the server last said it has.
        lazy: Whether the server rests until it is called.
    """
    if lazy and kept is not None:
        standing = Standing(state="idle", since=time.time(), reason=resting(server))
    else:
        standing = Standing(state="connecting", since=time.time(), reason=starting(server), first=True)
    port = Port(server, standing)
    if kept is not None:
        port.listing, port.offerings = kept.listing, kept.offerings
    return port
