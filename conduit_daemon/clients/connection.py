"""One connection to a stdio server, from the start of its process to its end, held by one task.

The SDK's session and the process are entered and left in that task, for the SDK's cancel scopes may not be left
in another one. Calls come in from any task through `begin_call`. How it ended is a value, not an exception: a
server that fails is the ordinary case here.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping
from typing import Any, Final, Literal, final

import msgspec
import trio

from conduit_daemon.clients.dispatcher import LineDispatcher, OnProgress, Pending
from conduit_daemon.clients.listing import list_tools
from conduit_daemon.clients.port import Listing, OnResult
from conduit_daemon.clients.process import Exit, ServerProcess, Warden
from conduit_daemon.clients.results import inspect_result
from conduit_daemon.clients.session import Era, Negotiated, SdkDispatcher, import_sdk, negotiate, open_session
from conduit_daemon.clients.stderr import ErrorOutput
from conduit_daemon.config.model import LimitsConfig, ServerConfig
from conduit_daemon.errors import ClientError
from conduit_daemon.telemetry.events import EventBus

__all__ = ["Connection", "Ended", "Observer", "Settings"]

_DEBOUNCE: Final = 0.1
_LAST_WORDS: Final = 0.05
_EOF_WAIT: Final = 0.2
_TAIL: Final = 5
_RESERVED_META: Final = "io.modelcontextprotocol/"


class Settings(msgspec.Struct, frozen=True, kw_only=True):
    """What a connection is made of.

    Attributes:
        server: The server's id.
        config: Its configuration.
        limits: The common bounds.
        version: The daemon's own version, told to the server.
        environ: The daemon's environment, of which the safe part is handed on.
        clean: Masks secrets in what the server writes.
    """

    server: str
    config: ServerConfig
    limits: LimitsConfig
    version: str
    environ: Mapping[str, str]
    clean: Callable[[str], str]

    @property
    def call_timeout(self) -> float:
        """Seconds of silence that end a call."""
        return self.config.call_timeout or self.limits.call_timeout


class Ended(msgspec.Struct, frozen=True, kw_only=True):
    """How a connection ended.

    Attributes:
        kind: ``misconfigured`` (trying again is of no use), ``probe`` (the server ended when asked for the
            newer era), ``start`` (it never was ready), ``lost`` (it was) or ``stopped`` (on purpose).
        reason: One sentence.
        exit: How the process ended, where it did by itself.
        stderr: Its last lines.
        ready_for: Seconds that it was ready.
    """

    kind: Literal["misconfigured", "probe", "start", "lost", "stopped"]
    reason: str
    exit: Exit | None = None
    stderr: tuple[str, ...] = ()
    ready_for: float = 0.0


class Observer:
    """Whom a connection tells how it goes; called from its task. See `clients.actor`."""

    def on_started(self, pid: int) -> None:
        """The process runs."""

    def on_ready(self, connection: Connection, negotiated: Negotiated, listing: Listing) -> None:
        """Calls may come."""

    def on_listing(self, listing: Listing) -> None:
        """The tools changed."""

    def on_lost(self, ended: Ended) -> None:
        """No call may come any more; told once, before the process is gone altogether."""


class _CallParams(msgspec.Struct):
    name: str
    arguments: dict[str, Any]
    meta: dict[str, Any] | msgspec.UnsetType = msgspec.field(default=msgspec.UNSET, name="_meta")


@final
class _RunningCall:
    """A call at the server; turns its raw answer into a result."""

    __slots__ = ("_dispatcher", "_on_result", "_server", "pending")

    def __init__(self, server: str, dispatcher: LineDispatcher, on_result: OnResult) -> None:
        self._server = server
        self._dispatcher = dispatcher
        self._on_result = on_result
        self.pending: Pending | None = None

    def cancel(self, error: ClientError) -> None:
        """Ends the call with `error`; the server is told."""
        if self.pending is not None:
            self._dispatcher.cancel(self.pending, error)

    def answer(self, raw: msgspec.Raw | None, error: ClientError | None) -> None:
        """Takes the dispatcher's answer."""
        is_error = False
        if raw is not None:
            try:
                raw, is_error = inspect_result(raw, self._server)
            except ClientError as broken:
                raw, error = None, broken
        self._on_result(raw, is_error, error)


@final
class Connection:
    """One connection to a stdio server.

    Args:
        settings: What it is made of.
        era: Which era to negotiate.
        warden: Ends the process if the daemon cannot.
        bus: Where events go.
        observer: Told how it goes.
    """

    def __init__(self, settings: Settings, era: Era, warden: Warden, bus: EventBus, observer: Observer) -> None:
        self._settings = settings
        self._era = era
        self._warden = warden
        self._bus = bus
        self._observer = observer
        self._server = settings.server
        self._idle = settings.call_timeout
        self._meta: dict[str, Any] = {}
        self._modern = False
        self._sdk: SdkDispatcher | None = None
        self._tools_changed = trio.Event()
        self._ready_at: float | None = None
        self._errors: ErrorOutput | None = None
        self._garbage = 0
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
    ) -> _RunningCall:
        """Sends a call; see `Port.begin`."""
        assert self._sdk is not None  # noqa: S101 - the port has this connection only while it is ready
        lines = self._sdk.lines
        request_id = lines.mint_id()
        params = _CallParams(tool, arguments)
        if meta or self._meta or on_progress is not None:
            own = {key: value for key, value in meta.items() if not key.startswith(_RESERVED_META)}
            own.update(self._meta)
            if on_progress is not None:
                own["progressToken"] = request_id
            params.meta = own
        running = _RunningCall(self._server, lines, on_result)
        running.pending = lines.begin(
            request_id, "tools/call", params, running.answer, idle=self._idle, total=total, on_progress=on_progress
        )
        return running

    # ---- life

    async def run(self) -> Ended:
        """Starts the server, keeps the connection and tells how it ended."""
        config = self._settings.config
        try:
            process = await ServerProcess.open(config, self._warden, self._settings.environ)
        except OSError as error:
            return Ended(kind="misconfigured", reason=self._cannot_start(error))
        self._observer.on_started(process.pid)
        ended: Ended | None = None
        try:
            ended = await self._serve(process)
        finally:
            self._close_door(ended or Ended(kind="stopped", reason=f"server {self._server} was stopped"))
            await process.close()
        return ended

    async def _serve(self, process: ServerProcess) -> Ended:
        self._errors = errors = ErrorOutput(process.stderr_fd, self._log_stderr, self._settings.clean)
        self._sdk = sdk = SdkDispatcher(
            self._server,
            process.stdout_fd,
            process.stdin_fd,
            max_line=self._settings.limits.max_result,
            patience=self._settings.config.connect_timeout,
            on_tools_changed=self._note_change,
            on_garbage=self._log_garbage,
        )
        how: list[Ended] = []
        async with trio.open_nursery() as nursery:

            async def watch() -> None:
                exit_ = await process.wait()
                process.kill_group()  # a grandchild that holds the pipes must not keep the connection alive
                sdk.lines.drain()
                with trio.move_on_after(_LAST_WORDS):
                    await errors.ended.wait()
                how.append(self._exited(exit_))
                self._close_door(how[0])
                nursery.cancel_scope.cancel()

            nursery.start_soon(errors.run)
            nursery.start_soon(watch)
            ended = await self._hold_session(sdk)
            with trio.move_on_after(_EOF_WAIT):  # an exit says more than a closed pipe
                await process.wait()
                await trio.sleep_forever()  # until the watcher has made its entry
            how.append(ended)
            nursery.cancel_scope.cancel()
        return how[0]

    async def _hold_session(self, sdk: SdkDispatcher) -> Ended:
        config = self._settings.config
        await import_sdk()
        failed: BaseException | None = None
        with trio.CancelScope(deadline=trio.current_time() + config.connect_timeout) as scope:
            try:
                async with (
                    open_session(sdk, version=self._settings.version, roots=config.roots) as session,
                    trio.open_nursery() as nursery,
                ):
                    nursery.start_soon(self._leave_when_lost, sdk, nursery.cancel_scope)
                    await self._become_ready(sdk, session)
                    scope.deadline = math.inf
                    await self._follow_changes(sdk, session)
            except* Exception as group:  # noqa: BLE001 - the SDK fails in many ways; each means no connection
                failed = _first_leaf(group)
        if failed is not None:
            return Ended(kind=self._kind(), reason=self._cannot_negotiate(failed), stderr=self._last_words())
        if scope.cancelled_caught:
            reason = f"server {self._server} did not answer the handshake within {config.connect_timeout:g} s"
            return Ended(kind="start", reason=reason, stderr=self._last_words())
        if sdk.stalled:
            reason = f"server {self._server} left its input unread for {config.connect_timeout:g} s"
        else:
            reason = f"server {self._server} closed its output" + ("" if self._ready_at else " during start")
        return Ended(kind=self._kind(), reason=reason, stderr=self._last_words(), ready_for=self._ready_for())

    async def _leave_when_lost(self, sdk: SdkDispatcher, scope: trio.CancelScope) -> None:
        await sdk.lost.wait()
        scope.cancel()

    async def _become_ready(self, sdk: SdkDispatcher, session: Any) -> None:
        negotiated = await negotiate(session, self._era)
        self._modern, self._meta = negotiated.modern, negotiated.meta
        self._tools_changed = trio.Event()
        listing = await self._list(sdk)
        self._ready_at = trio.current_time()
        self._observer.on_ready(self, negotiated, listing)

    async def _follow_changes(self, sdk: SdkDispatcher, session: Any) -> None:
        async with trio.open_nursery() as nursery:
            if self._modern:
                nursery.start_soon(self._listen, session)
            while True:
                await self._tools_changed.wait()
                await trio.sleep(_DEBOUNCE)
                self._tools_changed = trio.Event()
                try:
                    self._observer.on_listing(await self._list(sdk))
                except ClientError as error:
                    self._bus.emit(
                        "client.protocol",
                        level="warning",
                        server=self._server,
                        reason=f"Its changed tools could not be listed, the old ones stay: {error.message}",
                    )

    async def _listen(self, session: Any) -> None:
        """Subscribes to changes of the tools, as servers of 2026-07-28 want it, again and again."""
        from mcp.client.subscriptions import listen  # noqa: PLC0415 - the SDK is imported late, see clients.session
        from mcp.shared.exceptions import MCPError  # noqa: PLC0415 - as above

        pause = 0.5
        while True:
            began = trio.current_time()
            try:
                async with listen(session, tools_list_changed=True) as subscription:
                    async for _event in subscription:
                        self._note_change()
            except (MCPError, RuntimeError) as error:
                if "not found" in str(error).lower() or getattr(error, "code", 0) == -32601:
                    return  # this server announces nothing
            if trio.current_time() - began > 60:
                pause = 0.5
            await trio.sleep(pause)
            pause = min(pause * 2, 60)
            self._note_change()  # what changed while nobody listened

    async def _list(self, sdk: SdkDispatcher) -> Listing:
        async def page(params: dict[str, Any]) -> msgspec.Raw:
            if self._meta:
                params = {**params, "_meta": self._meta}
            return await sdk.request("tools/list", params, timeout=self._settings.config.connect_timeout)

        return await list_tools(self._server, page)

    # ---- its end

    def _close_door(self, ended: Ended) -> None:
        if self._sdk is None or self._closed:
            return
        self._closed = True
        self._observer.on_lost(ended)

        def failed(pending: Pending) -> ClientError:
            sent = pending.sent
            fate = "The call may have taken effect." if sent else "Nothing was sent."
            data: dict[str, Any] = {"stderr": list(ended.stderr)} if ended.stderr else {}
            if ended.exit is not None:
                if ended.exit.code is not None:
                    data["exit_code"] = ended.exit.code
                if ended.exit.signal is not None:
                    data["signal"] = ended.exit.signal
            return ClientError(
                "unavailable",
                f"{ended.reason[:1].upper()}{ended.reason[1:]}. {fate}",
                self._server,
                outcome="outcome_unknown" if sent else "not_sent",
                retry_after=1.0,
                data=data,
            )

        self._sdk.lines.fail_all(failed)

    def _exited(self, exit_: Exit) -> Ended:
        reason = f"server {self._server} {exit_}"
        kind = self._kind()
        if kind == "start":
            reason += " during start"
            if self._era == "auto" and self._sdk is not None and not self._sdk.probe_answered:
                kind = "probe"
        words = self._last_words()
        if words:
            reason += f": {words[-1][:200]}"
        return Ended(kind=kind, reason=reason, exit=exit_, stderr=words, ready_for=self._ready_for())

    def _kind(self) -> Literal["start", "lost", "probe"]:
        return "start" if self._ready_at is None else "lost"

    def _ready_for(self) -> float:
        return 0.0 if self._ready_at is None else trio.current_time() - self._ready_at

    def _last_words(self) -> tuple[str, ...]:
        return () if self._errors is None else tuple(self._errors.tail(_TAIL))

    @property
    def stderr(self) -> tuple[str, ...]:
        """The last 100 lines that the server wrote to its stderr."""
        return () if self._errors is None else tuple(self._errors.last)

    def _cannot_start(self, error: OSError) -> str:
        config = self._settings.config
        if isinstance(error, FileNotFoundError):
            if config.cwd is not None and not config.cwd.is_dir():
                return f"server {self._server} cannot start: its directory {config.cwd} does not exist"
            return f"server {self._server} cannot start: the command {config.command!r} was not found"
        return f"server {self._server} cannot start: {config.command!r}: {error.strerror or error}"

    def _cannot_negotiate(self, error: BaseException) -> str:
        text = self._settings.clean(str(error) or type(error).__name__)
        return f"server {self._server} could not be agreed with on a protocol: {text[:300]}"

    # ---- what it says

    def _note_change(self) -> None:
        self._tools_changed.set()

    def _log_stderr(self, text: str) -> None:
        level = self._settings.config.log_stderr
        if level != "off":
            self._bus.emit("client.stderr", level=level, server=self._server, line=text)

    def _log_garbage(self, line: bytes, why: str) -> None:
        self._garbage += 1
        if self._garbage & (self._garbage - 1):  # the 1st, 2nd, 4th, 8th, ... line is logged
            return
        self._bus.emit(
            "client.protocol",
            level="warning",
            server=self._server,
            reason=f"A line on its output is no message ({why}); calls go on.",
            line=self._settings.clean(repr(line)[2:-1]),
            count=self._garbage,
        )


def _first_leaf(error: BaseException) -> BaseException:
    while isinstance(error, BaseExceptionGroup):
        error = error.exceptions[0]
    return error
