"""The client: one actor per MCP server, which alone connects, reconnects and says how the server stands.

Its connection is a task of its own, so that it answers while it connects. What it finds out it writes on the
server's port and tells the hub. That a server fails is a state; only a defect crashes the actor, and only for
that its supervisor restarts it.

A lazy server rests until a call is held at its port. It is started once to learn its tools where no listing was
kept; one that fails is tried again like any other, so that its state tells the truth, and rests once it is ready.
"""

from __future__ import annotations

import time
from collections.abc import Callable
from typing import Any, final

import msgspec
import trio

import supervisors
from conduit_daemon.clients.approach import Approach
from conduit_daemon.clients.clocks import SleepWatch
from conduit_daemon.clients.connection import Connection, Ended, Settings
from conduit_daemon.clients.journal import Journal, Timeline, new_timeline, sentence
from conduit_daemon.clients.kept import KeptListing
from conduit_daemon.clients.listing import Listing
from conduit_daemon.clients.offerings import Offerings
from conduit_daemon.clients.port import ClientState, Port, Standing, new_port
from conduit_daemon.clients.process import Warden
from conduit_daemon.clients.recovery import Recovery
from conduit_daemon.clients.session import Negotiated
from conduit_daemon.clients.standing import resting, starting
from conduit_daemon.clients.watch import Watch
from conduit_daemon.messages import (
    Explain,
    Explanation,
    RestartServer,
    StartServer,
    StopServer,
)
from conduit_daemon.telemetry.events import EventBus
from supervisors import Actor, From, NoReply

__all__ = ["Client", "Timeline", "new_port", "new_timeline"]


class _ConnectionEnded(msgspec.Struct, frozen=True):
    generation: int
    ended: Ended


class _TryAgain(msgspec.Struct, frozen=True):
    generation: int


class _CallHeld(msgspec.Struct, frozen=True):
    until: float


class _LookAtHeld(msgspec.Struct, frozen=True):
    """The time of a call that is held may be over."""


class _LookIfIdle(msgspec.Struct, frozen=True):
    generation: int


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
        kept: Where its last listing is kept.
        instance: Which of several servers of one id it is; None for the one that is for all.
        sleep: Tells when the machine has slept.
    """

    def __init__(
        self,
        settings: Settings,
        port: Port,
        warden: Warden,
        bus: EventBus,
        timeline: Timeline,
        on_change: Callable[[str], None],
        *,
        kept: KeptListing | None = None,
        instance: str | None = None,
        sleep: SleepWatch | None = None,
    ) -> None:
        self.name = f"client:{settings.server}" if instance is None else f"client:{settings.server}:{instance}"
        self.generation = 0
        self._settings = settings
        self._server = settings.server
        self._port = port
        self._warden = warden
        self._bus = bus
        self._journal = Journal(settings.server, bus, timeline, settings.clean)
        self._on_change = on_change
        self._kept = kept
        self._sleep = sleep or SleepWatch()
        self._lazy = settings.config.start == "lazy" or settings.config.scope == "connection"
        self._called = False
        self._recovery = Recovery(settings.config.backoff)
        self._approach = Approach(settings)
        self._connection: Connection | None = None
        self._task: supervisors.TaskHandle | None = None
        self._last_stderr: tuple[str, ...] = ()
        self._again = False
        self._stopping: list[From] | None = None

    @property
    def subscriptions(self) -> set[str]:
        """URIs of the resources that are subscribed to."""
        return self._port.subscriptions

    @property
    def caller(self) -> object:
        """Who called last."""
        return self._port.caller

    async def init(self) -> None:
        """Begins to connect, or to wait for a call; never waits for either."""
        port, name = self._port, self.name or ""
        port.target = None
        port.patience = self._settings.call_timeout
        port.on_held = lambda until: supervisors.send(name, _CallHeld(until))
        if self._kept is not None:
            self.start_task(self._kept.run)
        for until in port.held:
            self._take_held(until)
        if self._lazy and port.listing is not None and not port.held:
            self._stand("idle", resting(self._server))
        elif self._task is None:
            self._connect("it is starting")

    async def handle_call(self, request: Any, sender: From) -> Any:
        """Answers what `messages` lists for clients."""
        match request:
            case RestartServer():
                self._restart()
            case StartServer():
                self._called = True
                if self._task is None:
                    self._recovery.forget()
                    self._connect("it was asked to start")
                elif self._stopping is not None:
                    self._again = True
            case StopServer():
                self._stop()
                if self._task is not None:
                    self._stopping = [*(self._stopping or ()), sender]
                    return NoReply()  # until it has ended
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
            case _CallHeld(until):
                self._take_held(until)
            case _LookAtHeld():
                self._port.expire_held()
            case _LookIfIdle(generation):
                if generation == self.generation:
                    self._look_if_idle()

    # ---- connecting

    def _connect(self, why: str) -> None:
        self.generation += 1
        if self.generation > 1 and not self._port.standing.startable:
            self._port.restarts += 1
        way, watch = self._approach, Watch(self, self.generation)
        connection = Connection(way.settings, way.era, self._warden, self._bus, watch)
        self._connection = connection
        probing = self._port.standing.circuit != "closed"
        self._stand(
            "connecting",
            f"{starting(self._server)} ({why})" if self.generation > 1 else starting(self._server),
            circuit="half_open" if probing else "closed",
            first=self._port.standing.first,
            waking=self._port.standing.startable and bool(self._port.held),
        )
        self._journal.tell("client.connecting", "debug", f"Server {self._server} is being started: {why}.")
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
        if self._port.on_restart is not None:
            self._port.on_restart()
        else:
            self._called = True
        if self._task is None:
            self._connect("it was asked to restart")
            return
        self._again = True
        self._task.cancel()

    def _stop(self) -> None:
        self._again = False
        if self._task is not None:
            self._task.cancel()
        if self._task is None or self._port.standing.state == "idle":
            self._stand_stopped(f"server {self._server} was stopped")

    def _stand_stopped(self, reason: str) -> None:
        self._stand("stopped", reason)
        self._port.fail_held()
        self._journal.tell("client.stopped", "info", sentence(reason))

    def _take_end(self, ended: Ended) -> None:
        if self._connection is not None:
            self._last_stderr = self._connection.stderr or self._last_stderr
        self._task = self._connection = None
        again, self._again = self._again, False
        stopping, self._stopping = self._stopping, None
        for sender in stopping or ():
            supervisors.reply(sender, None)
        if again:
            self._connect("a call waits for it" if self._port.held else "it was asked to restart")
        elif ended.kind == "stopped":
            if self._port.standing.state not in ("idle", "stopped"):
                self._stand_stopped(ended.reason)
        elif ended.kind == "misconfigured":
            self._stand("needs_attention", ended.reason)
            self._port.fail_held()
            self._journal.tell("client.needs_attention", "error", f"{sentence(ended.reason)} It is not tried again.")
        elif (other := self._approach.another(ended)) is not None:
            self._journal.tell("client.down", "info", f"{sentence(ended.reason)} {other.hope}")
            self._connect(other.why)
        else:
            self._fail(ended)

    def _fail(self, ended: Ended) -> None:
        ended = self._approach.failed(ended)
        pause = self._recovery.failed(ended.ready_for, after_sleep=self._sleep.just_woke())
        seconds = max(pause.seconds, ended.retry_after or 0)
        retry_at = trio.current_time() + seconds
        state: ClientState = "open" if pause.circuit == "open" else "waiting"
        self._stand(state, ended.reason, retry_at=retry_at, circuit=pause.circuit)
        if ended.kind != "lost" or state == "open":  # what was lost unsent waits for one attempt, not for many
            self._port.fail_held()
        why = f"failure {pause.failures} in a row" if pause.failures else "the machine has slept"
        text = f"Server {self._server} is tried again in {seconds:.1f} s ({why})."
        self._journal.tell("client.retry", "info", text, retry_in=round(seconds, 3))
        supervisors.send_after(supervisors.self_ref(), _TryAgain(self.generation), seconds)

    # ---- resting

    def _take_held(self, until: float) -> None:
        self._called = True
        supervisors.send_after(supervisors.self_ref(), _LookAtHeld(), max(until - trio.current_time(), 0))
        if self._port.standing.state != "idle":
            return
        if self._task is None:
            self._connect("a call waits for it")
        else:  # it is just being ended
            self._again = True
            self._stand("connecting", starting(self._server), waking=True)

    def _rest(self) -> None:
        self._port.target = None
        self._called = False
        self._stand("idle", resting(self._server))
        self._journal.tell("client.idle", "info", f"Server {self._server} rests until it is called.")
        if self._task is not None:
            self._task.cancel()

    def _look_if_idle(self) -> None:
        wait = self._settings.config.idle_timeout
        if wait is None or self._port.target is None:
            return
        if not self._port.running:
            wait -= trio.current_time() - self._port.quiet_since
            if wait <= 0:
                self._rest()
                return
        supervisors.send_after(supervisors.self_ref(), _LookIfIdle(self.generation), wait)

    # ---- what its connection tells

    def note_started(self, pid: int) -> None:
        """The server's process runs."""
        self._port.standing = msgspec.structs.replace(self._port.standing, pid=pid)

    def note_ready(self, connection: Connection, negotiated: Negotiated, listing: Listing) -> None:
        """Calls may come."""
        self._port.target = connection
        self._port.listing = listing
        self._approach.agreed(negotiated)
        pid = self._port.standing.pid
        self._stand("ready", None, protocol_version=negotiated.version, pid=pid)
        text = f"Server {self._server} is ready: {len(listing.tools)} tools, protocol {negotiated.version}."
        self._journal.tell("client.ready", "info", text, tools=len(listing.tools), protocol_version=negotiated.version)
        self._journal.tell_dropped(listing)
        self._keep()
        self._port.quiet_since = trio.current_time()
        self._port.send_held()
        if self._lazy and self._called:
            supervisors.send(supervisors.self_ref(), _LookIfIdle(self.generation))

    def _keep(self) -> None:
        if self._kept is not None and self._port.listing is not None:
            self._kept.save(self._port.listing, self._port.offerings)

    def note_listing(self, listing: Listing) -> None:
        """The tools changed."""
        self._port.listing = listing
        self._keep()
        text = f"Server {self._server} now has {len(listing.tools)} tools."
        self._journal.tell("client.tools_changed", "info", text, tools=len(listing.tools))
        self._journal.tell_dropped(listing)
        self._on_change(self._server)

    def note_offerings(self, offerings: Offerings) -> None:
        """What the server offers beside tools is known, or changed."""
        self._port.offerings = offerings
        self._keep()
        self._on_change(self._server)
        if self._lazy and not self._called and self._port.target is not None:
            self._rest()  # all is known that it was started for

    def note_updated(self, uri: str) -> None:
        """A resource that was subscribed to has changed."""
        if self._port.on_updated is not None:
            self._port.on_updated(self._server, uri)

    def note_lost(self, ended: Ended) -> None:
        """No call may come any more."""
        was_ready, self._port.target = self._port.target is not None, None
        if ended.kind in ("start", "lost"):
            exit_ = ended.exit
            facts = {} if exit_ is None else {"exit_code": exit_.code, "signal": exit_.signal}
            self._journal.tell("client.down", "warning", sentence(ended.reason), **facts)
        if was_ready and ended.kind == "stopped" and not self._again:
            self._stand_stopped(ended.reason)
        elif was_ready:
            self._stand("connecting" if self._again else "waiting", ended.reason)

    # ---- saying so

    def _stand(self, state: ClientState, reason: str | None, **more: Any) -> None:
        before = self._port.standing
        last_error = before.last_error
        if reason is not None:
            reason = self._settings.clean(reason)
        if state in ("waiting", "open", "needs_attention"):
            last_error = reason
        self._port.standing = Standing(
            state=state, reason=reason, since=time.time(), last_error=last_error, **{"first": False, **more}
        )
        self._on_change(self._server)

    def _explain(self) -> Explanation:
        standing = self._port.standing
        retry = None if standing.retry_at is None else max(0.0, standing.retry_at - trio.current_time())
        return Explanation(
            server=self._server,
            state=standing.state,
            reason=standing.reason,
            next_retry=retry,
            waiting=len(self._port.held),
            timeline=tuple(self._journal.timeline),
            stderr=(self._connection.stderr if self._connection is not None else ()) or self._last_stderr,
        )
