"""The client: one actor per MCP server, which alone connects, reconnects and says how the server stands.

Its connection is a task of its own, so that it answers while it connects. What it finds out it writes on the
server's port and tells the hub. That a server fails is a state; only a defect crashes the actor, and only for
that its supervisor restarts it.
"""

from __future__ import annotations

import time
from collections import deque
from collections.abc import Callable
from typing import Any, Final, final

import msgspec
import trio

import supervisors
from conduit_daemon.clients.connection import Connection, Ended, Observer, Settings
from conduit_daemon.clients.port import ClientState, Listing, Port, Standing
from conduit_daemon.clients.process import Warden
from conduit_daemon.clients.recovery import Recovery
from conduit_daemon.clients.session import Era, Negotiated
from conduit_daemon.messages import (
    Explain,
    Explanation,
    RestartServer,
    StartServer,
    StopServer,
    TimelineEntry,
)
from conduit_daemon.telemetry.events import EventBus, Level
from supervisors import Actor, From

__all__ = ["Client", "Timeline", "new_port"]

_KEPT: Final = 200
_ERAS: Final[dict[str, Era]] = {"auto": "auto", "2025-11-25": "legacy", "2026-07-28": "modern"}

Timeline = deque[TimelineEntry]
"""What happened to one client, the last 200 things; kept by the application, so that it survives the actor."""


def new_port(server: str) -> Port:
    """A port whose client has not begun."""
    return Port(server, Standing(state="connecting", since=time.time(), reason=_starting(server), first=True))


def new_timeline() -> Timeline:
    """An empty timeline."""
    return deque(maxlen=_KEPT)


class _ConnectionEnded(msgspec.Struct, frozen=True):
    generation: int
    ended: Ended


class _TryAgain(msgspec.Struct, frozen=True):
    generation: int


@final
class _Watch(Observer):
    """What a connection tells its client; deaf once the connection is not the client's current one."""

    def __init__(self, client: Client, generation: int) -> None:
        self._client = client
        self._generation = generation

    def _current(self) -> bool:
        return self._client.generation == self._generation

    def on_started(self, pid: int) -> None:
        if self._current():
            self._client.note_started(pid)

    def on_ready(self, connection: Connection, negotiated: Negotiated, listing: Listing) -> None:
        if self._current():
            self._client.note_ready(connection, negotiated, listing)

    def on_listing(self, listing: Listing) -> None:
        if self._current():
            self._client.note_listing(listing)

    def on_lost(self, ended: Ended) -> None:
        if self._current():
            self._client.note_lost(ended)


@final
class Client(Actor):
    """The actor of one server, registered as ``client:ID``.

    Args:
        settings: What its connections are made of.
        port: The server's port, on which it writes.
        warden: Ends the server if the daemon cannot.
        bus: Where events go.
        timeline: Where it keeps what happened.
        on_change: Called with the server's id after each change of state or listing.
    """

    def __init__(
        self,
        settings: Settings,
        port: Port,
        warden: Warden,
        bus: EventBus,
        timeline: Timeline,
        on_change: Callable[[str], None],
    ) -> None:
        self.name = f"client:{settings.server}"
        self.generation = 0
        self._settings = settings
        self._server = settings.server
        self._port = port
        self._warden = warden
        self._bus = bus
        self._timeline = timeline
        self._on_change = on_change
        self._recovery = Recovery(settings.config.backoff)
        self._era: Era = _ERAS[settings.config.protocol]
        self._connection: Connection | None = None
        self._task: supervisors.TaskHandle | None = None
        self._last_stderr: tuple[str, ...] = ()
        self._again = False

    async def init(self) -> None:
        """Begins to connect; never waits for it."""
        self._port.target = None
        self._connect("it is starting")

    async def handle_call(self, request: Any, sender: From) -> Any:
        """Answers what `messages` lists for clients."""
        match request:
            case RestartServer():
                self._restart()
            case StartServer():
                if self._task is None:
                    self._recovery.forget()
                    self._connect("it was asked to start")
            case StopServer():
                self._stop()
            case Explain():
                return self._explain()
            case _:
                raise TypeError(f"a client does not know {type(request).__name__}")
        return None

    async def handle_info(self, message: Any) -> None:
        """Takes the end of its connection and the time to try again."""
        match message:
            case _ConnectionEnded(generation, ended):
                if generation == self.generation:
                    self._take_end(ended)
            case _TryAgain(generation):
                if generation == self.generation and self._task is None:
                    self._connect("it is tried again")

    # ---- connecting

    def _connect(self, why: str) -> None:
        self.generation += 1
        if self.generation > 1:
            self._port.restarts += 1
        connection = Connection(self._settings, self._era, self._warden, self._bus, _Watch(self, self.generation))
        self._connection = connection
        probing = self._port.standing.circuit != "closed"
        self._stand(
            "connecting",
            f"{_starting(self._server)} ({why})" if self.generation > 1 else _starting(self._server),
            circuit="half_open" if probing else "closed",
            first=self._port.standing.first,
        )
        self._tell("client.connecting", "debug", f"Server {self._server} is being started: {why}.")
        self._task = self.start_task(self._hold, connection, self.generation)

    async def _hold(self, connection: Connection, generation: int) -> None:
        ended = Ended(kind="stopped", reason=f"server {self._server} was stopped")
        me = supervisors.self_ref()
        try:
            ended = await connection.run()
        finally:
            supervisors.send(me, _ConnectionEnded(generation, ended))

    def _restart(self) -> None:
        self._recovery.forget()
        if self._task is None:
            self._connect("it was asked to restart")
            return
        self._again = True
        self._task.cancel()

    def _stop(self) -> None:
        self._again = False
        if self._task is not None:
            self._task.cancel()
            return
        self._stand("stopped", f"server {self._server} was stopped")
        self._tell("client.stopped", "info", f"Server {self._server} was stopped.")

    def _take_end(self, ended: Ended) -> None:
        if self._connection is not None:
            self._last_stderr = self._connection.stderr or self._last_stderr
        self._task = self._connection = None
        again, self._again = self._again, False
        if again:
            self._connect("it was asked to restart")
        elif ended.kind == "stopped":
            self._stand("stopped", ended.reason)
            self._tell("client.stopped", "info", f"{_sentence(ended.reason)}")
        elif ended.kind == "misconfigured":
            self._stand("needs_attention", ended.reason)
            self._tell("client.needs_attention", "error", f"{_sentence(ended.reason)} It is not tried again.")
        elif ended.kind == "probe":
            self._era = "legacy"
            self._tell("client.down", "info", f"{_sentence(ended.reason)} It may know only the older handshake.")
            self._connect("with the older handshake")
        else:
            self._fail(ended)

    def _fail(self, ended: Ended) -> None:
        self._era = _ERAS[self._settings.config.protocol] if ended.kind == "start" else self._era
        pause = self._recovery.failed(ended.ready_for)
        retry_at = trio.current_time() + pause.seconds
        state: ClientState = "open" if pause.circuit == "open" else "waiting"
        self._stand(state, ended.reason, retry_at=retry_at, circuit=pause.circuit)
        text = f"Server {self._server} is tried again in {pause.seconds:.1f} s (failure {pause.failures} in a row)."
        self._tell("client.retry", "info", text, retry_in=round(pause.seconds, 3))
        supervisors.send_after(supervisors.self_ref(), _TryAgain(self.generation), pause.seconds)

    # ---- what its connection tells

    def note_started(self, pid: int) -> None:
        """The server's process runs."""
        self._port.standing = msgspec.structs.replace(self._port.standing, pid=pid)

    def note_ready(self, connection: Connection, negotiated: Negotiated, listing: Listing) -> None:
        """Calls may come."""
        self._port.target = connection
        self._port.listing = listing
        if _ERAS[self._settings.config.protocol] == "auto":
            self._era = "modern" if negotiated.modern else "legacy"
        pid = self._port.standing.pid
        self._stand("ready", None, protocol_version=negotiated.version, pid=pid)
        text = f"Server {self._server} is ready: {len(listing.tools)} tools, protocol {negotiated.version}."
        self._tell("client.ready", "info", text, tools=len(listing.tools), protocol_version=negotiated.version)
        self._report_dropped(listing)

    def note_listing(self, listing: Listing) -> None:
        """The tools changed."""
        self._port.listing = listing
        text = f"Server {self._server} now has {len(listing.tools)} tools."
        self._tell("client.tools_changed", "info", text, tools=len(listing.tools))
        self._report_dropped(listing)
        self._on_change(self._server)

    def note_lost(self, ended: Ended) -> None:
        """No call may come any more."""
        was_ready, self._port.target = self._port.target is not None, None
        if ended.kind in ("start", "lost"):
            exit_ = ended.exit
            facts = {} if exit_ is None else {"exit_code": exit_.code, "signal": exit_.signal}
            self._tell("client.down", "warning", _sentence(ended.reason), **facts)
        if was_ready:
            self._stand("waiting", ended.reason)

    # ---- saying so

    def _stand(self, state: ClientState, reason: str | None, **more: Any) -> None:
        before = self._port.standing
        last_error = before.last_error
        if state in ("waiting", "open", "needs_attention"):
            last_error = reason
        self._port.standing = Standing(
            state=state, reason=reason, since=time.time(), last_error=last_error, **{"first": False, **more}
        )
        self._on_change(self._server)

    def _tell(self, event: str, level: Level, text: str, **fields: Any) -> None:
        self._timeline.append(TimelineEntry(time.time(), event, text))
        known = {key: value for key, value in fields.items() if value is not None}
        self._bus.emit(event, level=level, server=self._server, reason=text, **known)

    def _report_dropped(self, listing: Listing) -> None:
        for dropped in listing.dropped:
            self._bus.emit(
                "client.tool_dropped",
                level="warning",
                server=self._server,
                tool=dropped.members[0][1],
                reason=dropped.reason,
            )
        if listing.note is not None:
            self._tell("client.protocol", "warning", f"The listing of {self._server} was cut short: {listing.note}.")

    def _explain(self) -> Explanation:
        standing = self._port.standing
        retry = None if standing.retry_at is None else max(0.0, standing.retry_at - trio.current_time())
        return Explanation(
            server=self._server,
            state=standing.state,
            reason=standing.reason,
            next_retry=retry,
            timeline=tuple(self._timeline),
            stderr=(self._connection.stderr if self._connection is not None else ()) or self._last_stderr,
        )


def _starting(server: str) -> str:
    return f"server {server} is being started"


def _sentence(reason: str) -> str:
    return f"{reason[:1].upper()}{reason[1:]}."
