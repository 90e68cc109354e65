"""A server over HTTP: Streamable HTTP of both eras, and the legacy transport with its one stream of events."""

from __future__ import annotations

from collections.abc import Callable
from contextlib import aclosing
from http import HTTPStatus
from typing import Final, cast, final
from urllib.parse import urljoin

import httpcore2  # noqa: F401 - httpx2 imports it, and much with it, at the first exchange: in the event loop
import httpx2
import trio
import truststore  # noqa: F401 - as above

from conduit_daemon.clients.auth import Login, TokenFile, token_file
from conduit_daemon.clients.dispatcher import Dispatcher, Peer
from conduit_daemon.clients.http_bodies import is_stream
from conduit_daemon.clients.http_bounds import ENCODING, bound_answer
from conduit_daemon.clients.http_dispatcher import LAST_EVENT_HEADER, HttpDispatcher
from conduit_daemon.clients.http_errors import parse_retry_after, root_cause
from conduit_daemon.clients.http_events import EventParser
from conduit_daemon.clients.http_headers import ModernHeaders
from conduit_daemon.clients.tls import trusted
from conduit_daemon.clients.transport import Loss, Settings, Transport, Unreachable

__all__ = ["HttpTransport", "new_transport"]

_KEEP_ALIVE: Final = 4.0  # below the five seconds after which common servers close an idle connection
_HEARTBEAT: Final = 30.0
_RECONNECT: Final = 1.0
_RECONNECT_MAXIMUM: Final = 30.0
_FAREWELL: Final = 1.0
_STREAM_PATIENCE: Final = 0.5
_BROKEN: Final = (httpx2.HTTPError, httpx2.StreamError, OSError)


def new_transport(settings: Settings) -> Transport:
    """The transport of a server whose URL is one of HTTP."""
    return HttpTransport(settings)


@final
class HttpTransport:
    """Keeps an HTTP client and the streams on which the server speaks unasked.

    Args:
        settings: What the connection is made of.
    """

    def __init__(self, settings: Settings) -> None:
        self.pid: int | None = None
        self.forgotten = trio.Event()
        self._settings = settings
        self._legacy = settings.config.kind == "sse"
        self._wire: HttpDispatcher | None = None
        self._nursery: trio.Nursery | None = None
        self._on_lost: Callable[[Loss], None] | None = None
        self._listening: trio.CancelScope | None = None
        self._stream_answered: trio.Event | None = None

    async def attend(
        self, peer: Peer, on_lost: Callable[[Loss], None], *, task_status: trio.TaskStatus[Dispatcher]
    ) -> None:
        """Makes the client and keeps it; see `Transport.attend`."""
        settings = self._settings
        config = settings.config
        assert config.url is not None  # noqa: S101 - a remote server has one
        timeout = httpx2.Timeout(config.connect_timeout, read=None, pool=None)
        pool = httpx2.Limits(max_connections=None, max_keepalive_connections=20, keepalive_expiry=_KEEP_ALIVE)
        agent = {"user-agent": f"conduit/{settings.version}", "accept-encoding": ENCODING, **config.headers}
        hooks = {"response": [bound_answer]}
        auth = self._login()
        tls = await trusted()
        async with (
            httpx2.AsyncClient(
                headers=agent, timeout=timeout, limits=pool, verify=tls, auth=auth, event_hooks=hooks
            ) as client,
            trio.open_nursery() as nursery,
        ):
            self._nursery, self._on_lost = nursery, on_lost
            self._wire = wire = HttpDispatcher(
                settings.server,
                peer,
                client,
                config.url,
                nursery,
                max_message=settings.max_message,
                legacy=self._legacy,
                on_lost=on_lost,
                on_forgotten=self._forget,
            )
            nursery.start_soon(wire.deadlines.run)
            if isinstance(auth, Login):
                nursery.start_soon(auth.keep_fresh)
            if self._legacy:
                await nursery.start(self._keep_stream, wire)
            task_status.started(wire)
            forget = settings.limits.watch(lambda _: wire.resize(settings.max_message))
            try:
                while True:  # an open stream would show a crash at once, though not a host that is gone
                    await trio.sleep(_HEARTBEAT * 4 if wire.streams else _HEARTBEAT)
                    wire.check()
            finally:
                forget()
                wire.close()
                await self._say_farewell(wire)

    def _login(self) -> httpx2.Auth | None:
        settings, config = self._settings, self._settings.config
        if settings.auth is not None or config.auth is None:
            return cast(httpx2.Auth | None, settings.auth)
        assert config.url is not None  # noqa: S101 - a remote server has one
        file = TokenFile(token_file(settings.state, settings.server), config.url, config.auth, settings.conceal)
        return Login(settings.server, config.url, config.auth, file)

    def settle(self, version: str, *, modern: bool) -> ModernHeaders | None:
        """Sends the version from now on; listens to an older server."""
        assert self._wire is not None  # noqa: S101 - negotiated over it
        assert self._nursery is not None  # noqa: S101 - as above
        self._wire.modern = modern
        if modern:
            return ModernHeaders(version)
        self._wire.version = version
        if not self._legacy:
            if self._listening is not None:
                self._listening.cancel()
            self._listening, self._stream_answered = trio.CancelScope(), trio.Event()
            self._nursery.start_soon(self._listen, self._wire, self._listening, self._stream_answered)
        return None

    async def heard(self) -> None:
        """Waits until an older server has answered whether it has a stream of its own; half a second at most."""
        if self._stream_answered is not None:  # some answer only with their first event
            with trio.move_on_after(_STREAM_PATIENCE):
                await self._stream_answered.wait()

    def resume(self) -> None:
        """Sends the calls that waited for a new session."""
        if self._wire is not None:
            self._wire.release()

    def stderr(self) -> tuple[str, ...]:
        """None: the server is none of our processes."""
        return ()

    def _forget(self) -> None:
        if self._wire is not None:
            self._wire.hold()
        self.forgotten.set()

    async def _listen(self, wire: HttpDispatcher, scope: trio.CancelScope, answered: trio.Event) -> None:
        """Keeps the stream on which an older server speaks unasked, where it has one."""
        parser, pause = EventParser(wire.max_message), _RECONNECT
        with scope:
            while True:
                try:
                    resume = {LAST_EVENT_HEADER: parser.last_id} if parser.last_id else None
                    async with wire.open("GET", headers=resume) as response:
                        answered.set()
                        status = response.status_code
                        has_one = status == HTTPStatus.OK and is_stream(response)
                        if status == HTTPStatus.NOT_FOUND:
                            wire.check()  # it may have forgotten the session
                        if not has_one and status < HTTPStatus.INTERNAL_SERVER_ERROR:
                            return  # it has none (405 by the specification)
                        if has_one:
                            pause = _RECONNECT
                            async with aclosing(wire.events(response, parser)) as events:
                                async for event in events:
                                    wire.take_event(event)
                except _BROKEN:
                    wire.check()
                except Exception:  # noqa: BLE001 - authentication runs inside; the requests say what is wrong
                    return
                await trio.sleep(pause if parser.retry is None else parser.retry)
                pause = min(pause * 2, _RECONNECT_MAXIMUM)

    async def _keep_stream(self, wire: HttpDispatcher, *, task_status: trio.TaskStatus[None]) -> None:
        """The legacy transport's one stream: its first event says where to post, the rest are messages."""
        parser, reason, known = EventParser(wire.max_message), "closed its stream", False
        try:
            async with wire.open("GET") as response:
                if response.status_code != HTTPStatus.OK:
                    raise Unreachable(
                        Loss(
                            reason=f"answered with HTTP status {response.status_code}",
                            attention=response.status_code in (HTTPStatus.UNAUTHORIZED, HTTPStatus.FORBIDDEN),
                            retry_after=parse_retry_after(response.headers.get("retry-after")),
                        )
                    )
                if not is_stream(response):
                    raise Unreachable(Loss(reason="answered with what is no stream of events"))
                async with aclosing(wire.events(response, parser)) as events:
                    async for event in events:
                        if event.type == "endpoint" and not known:
                            wire.url, known = self._endpoint(event.data), True
                            task_status.started()
                        else:
                            wire.take_event(event)
        except _BROKEN as error:
            reason = f"cannot be reached: {root_cause(error)}"
        loss = Loss(reason=reason)
        if not known:
            raise Unreachable(loss)
        assert self._on_lost is not None  # noqa: S101 - set before this task was started
        self._on_lost(loss)

    def _endpoint(self, data: bytes) -> str:
        assert self._settings.config.url is not None  # noqa: S101 - a remote server has one
        base = httpx2.URL(self._settings.config.url)
        url = httpx2.URL(urljoin(str(base), data.decode(errors="replace").strip()))
        if (url.scheme, url.host, url.port) != (base.scheme, base.host, base.port):
            raise Unreachable(Loss(reason=f"wants messages to be sent elsewhere ({url.host})", attention=True))
        return str(url)

    async def _say_farewell(self, wire: HttpDispatcher) -> None:
        if wire.session is None:
            return
        with trio.move_on_after(_FAREWELL, shield=True):
            try:
                async with wire.open("DELETE"):
                    return
            except Exception:  # noqa: BLE001 - it is only a courtesy
                return
