"""One connection to a server, from its start to its end, held by one task.

The SDK's session is entered and left in that task, for the SDK's cancel scopes may not be left in another one.
What it stands on is a `Transport`. Calls come in from any task through `begin_call`. How it ended is a value, not
an exception: a server that fails is the ordinary case here.
"""

from __future__ import annotations

import math
import sys
from collections.abc import Mapping
from contextlib import suppress
from functools import partial
from typing import Any, Final, cast, final

import msgspec
import trio

from conduit_daemon.clients.calls import Granted, Owner, Params, RunningCall, headers_of, params_of
from conduit_daemon.clients.dispatcher import Dispatcher, OnProgress
from conduit_daemon.clients.ending import call_lost, ended_by_loss, ended_by_refusal, first_leaf
from conduit_daemon.clients.following import SUBSCRIBING, Following
from conduit_daemon.clients.host import CAPABILITIES_KEY, LOG_LEVEL_KEY, Asking, Caller, ConfiguredHost
from conduit_daemon.clients.listing import Listing, list_tools
from conduit_daemon.clients.observer import Ended, Observer
from conduit_daemon.clients.offerings import Offerings, list_offerings
from conduit_daemon.clients.port import OnResult
from conduit_daemon.clients.process import Warden
from conduit_daemon.clients.sdk import import_sdk
from conduit_daemon.clients.session import Era, SdkDispatcher, negotiate, open_session
from conduit_daemon.clients.stdio import StdioTransport
from conduit_daemon.clients.transport import CallHeaders, Loss, Settings, Transport, Unreachable
from conduit_daemon.errors import ClientError
from conduit_daemon.model import Method
from conduit_daemon.telemetry.events import EventBus

__all__ = ["Connection", "Ended", "Observer", "Settings"]

_EOF_WAIT: Final = 0.3
_SHOWN: Final = 200
_RESERVED_META: Final = "io.modelcontextprotocol/"


@final
class Connection:
    """One connection to a server.

    Args:
        settings: What it is made of.
        era: Which era to negotiate.
        warden: Ends the process if the daemon cannot.
        bus: Where events go.
        observer: Told how it goes.
    """

    wire: Dispatcher

    def __init__(self, settings: Settings, era: Era, warden: Warden, bus: EventBus, observer: Observer) -> None:
        self.server = settings.server
        self.clean = settings.clean
        self.host = settings.host or ConfiguredHost(
            settings.config.roots, of_one_caller=settings.config.scope == "connection"
        )
        self.nursery: trio.Nursery | None = None
        self.running: set[RunningCall] = set()
        self._settings = settings
        self._era = era
        self._warden = warden
        self._bus = bus
        self._observer = observer
        self._meta: dict[str, Any] = {}
        self._modern = False
        self._headers: CallHeaders | None = None
        self._sdk = SdkDispatcher(
            self.server,
            self.host,
            caller=self._asking_call,
            on_told=self._hear,
            on_garbage=self._log_garbage,
        )
        self._transport: Transport | None = None
        self._capabilities: frozenset[str] = frozenset()
        self._offerings = Offerings()
        self._following = Following(
            self.server,
            bus,
            list_tools=self._list,
            list_offerings=self._list_offerings,
            on_listing=observer.on_listing,
            on_offerings=observer.on_offerings,
            on_updated=observer.on_updated,
            subscriptions=observer.subscriptions,
            request=self._request,
        )
        self._level: Mapping[str, Any] | None = None
        self._asking_level = False
        self._ready_at: float | None = None
        self._garbage = 0
        self._how: Ended | None = None
        self._opened = False
        self._closed = False

    # ---- calls

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
    ) -> RunningCall | Granted:
        """Sends a call; see `Port.begin`."""
        if method in SUBSCRIBING:
            self._following.subscribe(tool, wanted=method == "resources/subscribe")
            if self._modern:
                return Granted(self.nursery, on_result)
        request_id = self.wire.mint_id()
        params = params_of(method, tool, arguments)
        if meta or self._meta or on_progress is not None:
            # The token is this connection's own: under another's, its caller would hear of that one's progress.
            own = {
                key: value
                for key, value in meta.items()
                if not key.startswith(_RESERVED_META) and key != "progressToken"
            }
            if LOG_LEVEL_KEY in meta:
                own[LOG_LEVEL_KEY] = meta[LOG_LEVEL_KEY]
            own.update(self._meta)
            if self._modern:
                own[CAPABILITIES_KEY] = self.host.offered_to(caller)
            if on_progress is not None:
                own["progressToken"] = request_id
            params.meta = own
        running = RunningCall(
            self,
            method,
            params,
            on_result,
            idle=self._settings.call_timeout,
            on_progress=on_progress,
            caller=caller,
        )
        running.send(request_id, total)
        return running

    def refresh(self) -> None:
        """Reads the server's list of tools again, soon; see `Observer.on_listing`."""
        self._following.refresh()

    def pass_on(self, method: str, params: Mapping[str, Any] | None = None) -> None:
        """See `CallTarget`; a server of the newer era is told with each call, and one with configured roots of none."""
        if self._modern:
            return
        if method == "logging/setLevel" and "logging" in self._capabilities:
            self._level = params
            if not self._asking_level:
                self._ask_level()
        elif method == "notifications/roots/list_changed" and not self._settings.config.roots:
            self.wire.notify(method, params)

    def _ask_level(self, *_: object) -> None:
        """Asks for the level that is wanted, if the server has answered the request before."""
        level, self._level = self._level, None
        self._asking_level = False
        if level is not None:
            timeout = self._settings.config.connect_timeout
            with suppress(ClientError):  # it is just being lost, and the next connection is told anew
                self.wire.begin(self.wire.mint_id(), "logging/setLevel", level, self._ask_level, total=timeout)
                self._asking_level = True

    def headers(self, method: Method, params: Params) -> Mapping[str, str] | None:
        """What HTTP wants beside a call's message."""
        return None if self._headers is None else headers_of(self._headers, method, params)

    def _asking_call(self) -> Asking | None:
        """Whose call it is about which the server asks, where that is certain."""
        if len(self.running) == 1 or (self.running and self.host.of_one_caller):
            return next(iter(self.running))
        if self.host.of_one_caller and self._observer.caller is not None:
            return Owner(self.host, self._observer.caller)
        return None

    # ---- life

    async def run(self) -> Ended:
        """Starts or reaches the server, keeps the connection and tells how it ended."""
        ended: Ended | None = None
        transport = self._transport = await self._new_transport()
        async with trio.open_nursery() as nursery:
            self.nursery = nursery
            try:
                with trio.fail_after(self._settings.config.connect_timeout):
                    self.wire = self._sdk.wire = await self._open(transport, nursery)
                self._opened = True
                if transport.pid is not None:
                    self._observer.on_started(transport.pid)
                ended = await self._hold(transport)
            except Unreachable as error:
                ended = self._lost(error.loss)
            except trio.TooSlowError:
                seconds = self._settings.config.connect_timeout
                ended = Ended(kind="start", reason=f"server {self.server} could not be reached within {seconds:g} s")
            finally:
                self.nursery = None
                self._close_door(ended or Ended(kind="stopped", reason=f"server {self.server} was stopped"))
            nursery.cancel_scope.cancel()
        return self._how or ended or Ended(kind="stopped", reason=f"server {self.server} was stopped")

    async def _open(self, transport: Transport, nursery: trio.Nursery) -> Dispatcher:
        try:
            wire: Dispatcher = await nursery.start(transport.attend, self._sdk, self._lose)
        except BaseExceptionGroup as group:
            unreachable, rest = group.split(Unreachable)
            if unreachable is None or rest is not None:
                raise
            raise first_leaf(unreachable) from None
        return wire

    async def _new_transport(self) -> Transport:
        settings = self._settings
        if settings.config.kind == "stdio":
            return StdioTransport(settings, self._warden, self._log_stderr)
        module = "conduit_daemon.clients." + ("websocket" if settings.config.kind == "websocket" else "http")
        await import_sdk(module)
        return cast(Transport, sys.modules[module].new_transport(settings))

    def _lose(self, loss: Loss) -> None:
        if self._how is None:
            self._how = self._lost(loss)
            self._close_door(self._how)
            if self.nursery is not None:
                self.nursery.cancel_scope.cancel()

    async def _hold(self, transport: Transport) -> Ended:
        await import_sdk()
        while True:
            ended = await self._hold_session(transport)
            if ended is not None:
                break
            transport.forgotten = trio.Event()  # the server knows the session no more: a new one at once
        if ended.kind != "misconfigured" and transport.pid is not None:
            with trio.move_on_after(_EOF_WAIT):  # how the process ended says more
                await trio.sleep_forever()
        return ended

    async def _hold_session(self, transport: Transport) -> Ended | None:
        config = self._settings.config
        failed: BaseException | None = None
        with trio.CancelScope(deadline=trio.current_time() + config.connect_timeout) as scope:
            try:
                async with (
                    open_session(self._sdk, version=self._settings.version, host=self.host) as session,
                    trio.open_nursery() as nursery,
                ):
                    nursery.start_soon(self._leave_when_forgotten, transport, nursery.cancel_scope)
                    await self._become_ready(transport, session)
                    scope.deadline = math.inf
                    await self._following.run(session, self._capabilities, modern=self._modern)
            except* Exception as group:  # noqa: BLE001 - the SDK fails in many ways; each means no connection
                failed = first_leaf(group)
        if failed is not None:
            return ended_by_refusal(
                self.server, failed, ready_for=self._ready_for(), stderr=self.stderr[-5:], clean=self.clean
            )
        if scope.cancelled_caught:
            reason = f"server {self.server} did not answer the handshake within {config.connect_timeout:g} s"
            return Ended(kind="start", reason=reason, stderr=self.stderr[-5:])
        return None

    async def _leave_when_forgotten(self, transport: Transport, scope: trio.CancelScope) -> None:
        await transport.forgotten.wait()
        scope.cancel()

    async def _become_ready(self, transport: Transport, session: Any) -> None:
        negotiated = await negotiate(session, self._era)
        self._modern, self._meta = negotiated.modern, negotiated.meta
        self._headers = transport.settle(negotiated.version, modern=negotiated.modern)
        self._capabilities = negotiated.capabilities
        owner = cast("Caller | None", self._observer.caller) if self.host.of_one_caller else None
        if owner is not None and owner.log_level is not None:
            self.pass_on("logging/setLevel", {"level": owner.log_level})
        self._following.begin()
        listing = await self._list()
        await transport.heard()
        if self._ready_at is None:
            self._ready_at = trio.current_time()
            self._era = "modern" if negotiated.modern else "legacy"
            self._observer.on_ready(self, negotiated, listing)
        else:
            self._observer.on_listing(listing)
        transport.resume()

    async def _request(self, method: str, params: dict[str, Any]) -> msgspec.Raw:
        headers = None if self._headers is None else self._headers.of_method(method)
        if self._meta:
            params = {**params, "_meta": self._meta}
        timeout = self._settings.config.connect_timeout
        return await self._sdk.request(method, params, timeout=timeout, headers=headers)

    async def _list_offerings(self) -> Offerings:
        self._offerings = await list_offerings(self._request, self._capabilities, self._offerings)
        return self._offerings

    async def _list(self) -> Listing:
        listing = await list_tools(self.server, partial(self._request, "tools/list"))
        return listing if self._headers is None else self._headers.learn(listing, self.server)

    # ---- its end

    def _close_door(self, ended: Ended) -> None:
        if self._closed or not self._opened:
            return
        self._closed = True
        self._observer.on_lost(ended)

        self.wire.fail_all(lambda pending: call_lost(self.server, ended, sent=pending.sent))
        for call in list(self.running):
            call.fail(call_lost(self.server, ended, sent=True))

    def _lost(self, loss: Loss) -> Ended:
        return ended_by_loss(
            self.server,
            loss,
            ready_for=self._ready_for(),
            starting=self._opened and self._ready_at is None,
            probing=self._era == "auto" and not self._sdk.probe_answered,
            clean=self.clean,
        )

    def _ready_for(self) -> float | None:
        return None if self._ready_at is None else trio.current_time() - self._ready_at

    @property
    def stderr(self) -> tuple[str, ...]:
        """The last 100 lines that the server wrote to its stderr."""
        return () if self._transport is None else self._transport.stderr()

    # ---- what it says

    def _hear(self, method: str, params: msgspec.Raw) -> None:
        self._following.note(method, params)
        if method == "notifications/message" and (call := self._asking_call()) is not None and call.caller is not None:
            cast(Caller, call.caller).tell(self.server, method, params)

    def _log_stderr(self, text: str) -> None:
        level = self._settings.config.log_stderr
        if level != "off":
            self._bus.emit("client.stderr", level=level, server=self.server, line=text)

    def _log_garbage(self, line: bytes, why: str) -> None:
        self._garbage += 1
        if self._garbage & (self._garbage - 1):  # the 1st, 2nd, 4th, 8th, ... line is logged
            return
        self._bus.emit(
            "client.protocol",
            level="warning",
            server=self.server,
            reason=f"A line on its output is no message ({why}); calls go on.",
            line=self._settings.clean(repr(line)[2:-1])[:_SHOWN],
            count=self._garbage,
        )
