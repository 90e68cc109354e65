"""What happens in the daemon, as typed events on one bus that its owner holds.

An event is a fact with a stable dotted name. Whoever wants to know of it (logs, metrics, the RPC's
event streams, systemd's status line) attaches a handler; who emits knows none of them.
"""

from __future__ import annotations

import fnmatch
import time
import traceback
from collections.abc import Callable, Iterable
from typing import Any, Final, Literal

import msgspec

__all__ = ["EVENTS", "LEVELS", "Event", "EventBus", "EventHandler", "Level", "Token"]

Level = Literal["debug", "info", "warning", "error"]

LEVELS: Final[dict[str, int]] = {"debug": 10, "info": 20, "warning": 30, "error": 40}
"""The levels with the numbers that stdlib logging gives them."""

EVENTS: Final[dict[str, str]] = {
    "daemon.started": "Both sockets listen and the daemon serves.",
    "daemon.stopping": "The daemon was asked to stop; running calls are finishing.",
    "daemon.stopped": "Everything has ended and the audit is written; the process exits.",
    "daemon.unresponsive": "The hub or the RPC does not answer; if that lasts, systemd restarts the daemon.",
    "daemon.failed": "The daemon cannot start or go on; the reason is in it and the process exits with an error.",
    "client.connecting": "A client starts its server, or connects to it.",
    "client.ready": "A server has answered the handshake and listed its tools; calls go through.",
    "client.down": "A server that was ready, or becoming so, has ended or cannot be reached; the reason says how.",
    "client.retry": "A client will try its server again, and when.",
    "client.idle": "A lazy server was ended, and is started again when it is called.",
    "client.needs_attention": "A server cannot come back without a person (a login, a wrong command).",
    "client.stopped": "A server was stopped on purpose.",
    "client.stderr": "A line that a server wrote to its stderr.",
    "client.protocol": "A server broke the protocol, or what was negotiated with it is worth knowing.",
    "client.tools_changed": "A ready server's listing of tools has changed.",
    "client.tool_dropped": "A server's tool is not offered, and why.",
    "client.tool_unchecked": "A tool's schema cannot be used, so its arguments go unchecked; told once a definition.",
    "client.tool_withheld": "The definition of a pinned tool has changed; it is withheld until it is accepted.",
    "hub.toolset_changed": "The tools that agents are offered have changed: what was added and removed.",
    "call.finished": "A call has ended, well or not: one such event for each call.",
    "call.output_invalid": "A result does not fit its tool's output schema; it was delivered all the same.",
    "policy.denied": "A rule, or the policy's default, has denied a call.",
    "policy.condition_failed": "A rule's condition could not be evaluated on a call.",
    "approval.requested": "A call waits for a person's decision.",
    "approval.decided": "A waiting call was approved or denied, or nobody decided in time.",
    "approval.withdrawn": "The caller of a call that waited for a decision has gone.",
    "adapter.strict_fallback": "A tool's schema has no strict form and is offered in its own.",
    "rpc.connected": "An agent or an administrator has connected to a socket.",
    "rpc.disconnected": "A connection to a socket has ended.",
    "rpc.rejected": "A connection or a message was refused: too many, too long, or not allowed.",
    "rpc.socket_lost": "A socket's file is gone, or another's, and cannot be made again; nobody can connect there.",
    "rpc.socket_restored": "A socket's file had been removed and was made again; connections were not touched.",
    "rpc.slow_reader": "A connection does not read what it is sent and is being held back.",
    "supervisor.child_started": "A supervisor has started a child.",
    "supervisor.child_terminated": "A supervised child has ended, and why.",
    "supervisor.child_restarted": "A supervisor restarts a child, after which delay.",
    "supervisor.child_unresponsive": "A child has not ended in the time its shutdown allows.",
    "supervisor.shutdown": "A supervisor has ended, and why.",
    "supervisor.start_failed": "A child could not be started.",
    "supervisor.actor_crashed": "An actor has crashed: its error and what it was working on.",
    "guardian.started": "The process that ends orphaned servers runs.",
    "guardian.lost": "The process that ends orphaned servers has died; a new one is started.",
    "audit.unavailable": "Rows of the audit cannot be written at present; they are kept in memory up to a bound.",
    "audit.recovered": "Rows of the audit are written again; how many were lost meanwhile.",
    "audit.corrupt": "The audit's file was damaged; it was moved aside and a new one begun.",
    "audit.lost": "The audit's file was removed or replaced under the daemon; the audit goes on in a new one.",
    "state.lost": "The state directory is gone or another daemon's, and cannot be had again at present.",
    "state.restored": "The state directory had been removed; it was made again, and what is known is saved in it.",
    "state.unsaved": "What must survive a restart cannot be saved at present; it is kept in memory and tried again.",
    "state.damaged": "A file of the state directory was damaged; it was moved aside and is begun anew.",
    "log.lines_dropped": "Log lines were dropped because nothing read them fast enough.",
    "events.dropped": "A reader of events fell behind and has missed some.",
    "config.reloaded": "A changed configuration is in force: what was added, removed and changed.",
    "config.warning": "A configuration is usable, and something in it was ignored or is worth a look.",
    "config.rejected": "A changed configuration is not usable; the one before stays in force.",
    "internal.error": "A defect of the daemon itself: one thing failed because of it, the rest goes on.",
}
"""Every event type and what it means. A test compares it with what the code emits."""


class Event(msgspec.Struct, frozen=True):
    """One thing that happened.

    Attributes:
        type: A key of ``EVENTS``.
        time: Unix seconds.
        level: How much it matters.
        server: The server's id, where one is concerned.
        tool: The server's own name of the tool, where one is concerned.
        call: The call's id, where one is concerned.
        fields: What else is known. Values are JSON values; a secret may be among them, so whoever
            shows an event to somebody masks it first.
    """

    type: str
    time: float
    level: Level = "info"
    server: str | None = None
    tool: str | None = None
    call: str | None = None
    fields: dict[str, Any] = {}


EventHandler = Callable[[Event], object]
"""Called in the emitter's task, so it must be quick and must not block."""


class Token:
    """One attachment of a handler, for ``EventBus.detach``."""

    __slots__ = ("_globs", "_level", "attached", "handler")

    def __init__(self, handler: EventHandler, globs: tuple[str, ...] | None, level: int) -> None:
        self.handler = handler
        self.attached = True
        self._globs = globs
        self._level = level

    def wants(self, type: str, level: str) -> bool:
        """Whether the handler is to see events of this type and level."""
        if LEVELS[level] < self._level:
            return False
        return self._globs is None or any(fnmatch.fnmatchcase(type, glob) for glob in self._globs)


class EventBus:
    """Hands each event to the handlers attached at that time, synchronously and in their order.

    Used from the event loop's thread only. A handler that raises is detached and reported as
    ``internal.error``; the emitter never sees it.

    Example:
        >>> bus = EventBus()
        >>> token = bus.attach(print, types=["client.*"], level="warning")
        >>> bus.emit("client.down", level="warning", server="files", reason="exited with code 1")
        >>> bus.detach(token)
    """

    def __init__(self, clock: Callable[[], float] = time.time) -> None:
        self._clock = clock
        self._tokens: tuple[Token, ...] = ()
        self._routes: dict[tuple[str, str], tuple[Token, ...]] = {}

    def attach(self, handler: EventHandler, *, types: Iterable[str] | None = None, level: Level = "debug") -> Token:
        """Call `handler` with each event from now on.

        Args:
            handler: Called in the emitter's task: quick, never blocking.
            types: Globs of the event types wanted (``client.*``); all where None.
            level: The lowest level wanted.

        Returns:
            What ``detach`` takes. The same handler attached twice is called twice.
        """
        token = Token(handler, None if types is None else tuple(types), LEVELS[level])
        self._tokens = (*self._tokens, token)
        self._routes = {}
        return token

    def detach(self, token: Token) -> None:
        """Stop calling the handler of `token`; nothing happens where it is detached already."""
        # The flag counts for an emission that is under way and holds the route from before.
        token.attached = False
        self._tokens = tuple(kept for kept in self._tokens if kept is not token)
        self._routes = {}

    def emit(
        self,
        type: str,
        /,
        *,
        level: Level = "info",
        server: str | None = None,
        tool: str | None = None,
        call: str | None = None,
        **fields: Any,
    ) -> None:
        """Tell all handlers that something happened, now.

        Args:
            type: A key of ``EVENTS``.
            level: How much it matters.
            server: The server's id, where one is concerned.
            tool: The server's own name of the tool, where one is concerned.
            call: The call's id, where one is concerned.
            **fields: What else is known, as JSON values.
        """
        route = self._routes.get((type, level))
        if route is None:
            route = tuple(token for token in self._tokens if token.wants(type, level))
            self._routes[type, level] = route
        if not route:
            return
        event = Event(type, self._clock(), level, server, tool, call, fields)
        for token in route:
            if not token.attached:
                continue
            try:
                token.handler(event)
            except Exception as error:  # noqa: BLE001 - no defect of a listener is the emitter's
                self._report(token, event, error)

    def _report(self, token: Token, event: Event, error: Exception) -> None:
        # Detached before it is reported: the report itself would make it raise again, without end.
        self.detach(token)
        self.emit(
            "internal.error",
            level="error",
            message=f"A handler of events failed on {event.type} and was detached.",
            handler=getattr(token.handler, "__qualname__", repr(token.handler)),
            error=f"{error.__class__.__name__}: {error}",
            traceback="".join(traceback.format_exception(error)),
        )
