"""JSON-RPC in HTTP exchanges: each request is a POST of its own, and only its own call fails with it.

Both of MCP's HTTP transports: in Streamable HTTP the answer comes in the POST's response, as JSON or as events; in
the legacy one over the one stream that the server keeps open.
"""

from __future__ import annotations

import re
import time
from collections.abc import AsyncGenerator, Callable, Mapping
from contextlib import AbstractAsyncContextManager, aclosing
from http import HTTPStatus
from typing import Final, final

import httpx2
import trio
from mcp.shared._httpx_utils import stream_within_origin

from conduit_daemon.clients.dispatcher import Dispatcher, Peer, Pending
from conduit_daemon.clients.http_bodies import content_type, is_stream, pieces, read_body, shown
from conduit_daemon.clients.http_bounds import LARGE
from conduit_daemon.clients.http_errors import (
    is_unreachable,
    parse_retry_after,
    root_cause,
    status_error,
    transport_error,
)
from conduit_daemon.clients.http_events import Event, EventParser
from conduit_daemon.clients.transport import Loss
from conduit_daemon.errors import ClientError
from conduit_daemon.lines import TURN

__all__ = ["LAST_EVENT_HEADER", "HttpDispatcher"]

_SESSION_HEADER: Final = "mcp-session-id"
LAST_EVENT_HEADER: Final = "last-event-id"
_VERSION_HEADER: Final = "mcp-protocol-version"

_ACCEPT: Final = {"accept": "application/json, text/event-stream", "content-type": "application/json"}
_CALLS: Final = ("tools/call", "resources/read", "prompts/get", "completion/complete")
_HANDSHAKE: Final = ("initialize", "server/discover")
_INITIALIZED: Final = "notifications/initialized"
_ERROR_BODY: Final = 1 << 16
_BROKEN: Final = (httpx2.HTTPError, httpx2.StreamError, OSError)
_LINGER: Final = 1.0
_MOST_COOKIES: Final = 50
_SESSION_ID: Final = re.compile(r"[\x21-\x7e]{1,4096}")  # visible ASCII, by the specification
_LIFE: Final = 20.0
_RESUMPTIONS: Final = 3
_RESUME_AFTER: Final = 1.0


@final
class _Post:
    """A request on its way; see `dispatcher.Sending`."""

    __slots__ = ("body", "headers", "method", "scope", "session", "started", "tried")

    def __init__(self, method: str, body: bytes, headers: Mapping[str, str] | None) -> None:
        self.method = method
        self.body = body
        self.headers = headers or {}
        self.scope = trio.CancelScope()
        self.session: str | None = None
        self.started = False
        self.tried = False


@final
class HttpDispatcher(Dispatcher):
    """JSON-RPC by POST.

    Args:
        server: The server's id.
        peer: Told what the server sends unasked.
        client: Makes the exchanges.
        url: Where messages are posted.
        nursery: Where that happens.
        max_message: Longest message in bytes.
        legacy: Whether answers come over the server's one stream.
        on_lost: Called where the whole connection is lost.
        on_forgotten: Called where the server knows the session no more.

    Attributes:
        session: The session's id, where the server gave one.
        version: The negotiated version, once it is.
        modern: Whether it is of the era without sessions.
        streams: How many streams of events are open.
    """

    def __init__(
        self,
        server: str,
        peer: Peer,
        client: httpx2.AsyncClient,
        url: str,
        nursery: trio.Nursery,
        *,
        max_message: int,
        legacy: bool,
        on_lost: Callable[[Loss], None],
        on_forgotten: Callable[[], None],
    ) -> None:
        super().__init__(server, peer, max_message=max_message)
        self.url = url
        self.session: str | None = None
        self.version: str | None = None
        self.modern = False
        self.streams = 0
        self._client = client
        self._nursery = nursery
        self._legacy = legacy
        self._on_lost = on_lost
        self._on_forgotten = on_forgotten
        self._closed = False
        self._held: list[Pending] | None = None
        self._initialized: trio.Event | None = None
        self._not_before = 0.0
        self._checking = False

    # ---- sending

    def send_request(self, pending: Pending, method: str, body: bytearray, headers: Mapping[str, str] | None) -> _Post:
        """Posts the request in a task of its own; a call waits while a new session is begun."""
        if self._closed:
            raise ClientError("unavailable", f"Server {self.server} is lost; nothing was sent.", self.server)
        wait = self._not_before - trio.current_time()
        if wait > 0:
            message = f"Server {self.server} asked to be left alone for {wait:.0f} s more; nothing was sent."
            raise ClientError("unavailable", message, self.server, retry_after=round(wait, 3))
        post = _Post(method, bytes(body), headers)
        pending.queued = post
        if method == "initialize":
            self.session = self.version = None
        if self._held is not None and method in _CALLS:
            self._held.append(pending)
        else:
            self._nursery.start_soon(self._exchange, pending, post)
        return post

    def send_message(
        self, method: str | None, body: bytearray, *, urgent: bool = False, headers: Mapping[str, str] | None = None
    ) -> None:
        """Posts a notification or an answer; requests wait for the one that ends the handshake."""
        if self._closed:
            return
        delivered = None
        if method == _INITIALIZED:
            delivered = self._initialized = trio.Event()
        self._nursery.start_soon(self._deliver, bytes(body), headers or {}, delivered)

    def abandon(self, pending: Pending, reason: str | None) -> bool:
        """Closes the POST, which is the sign in 2026-07-28; an older server is told by a notification."""
        post = pending.queued
        assert isinstance(post, _Post)  # noqa: S101 - from send_request
        if self._held is not None and pending in self._held:
            self._held.remove(pending)
            return True
        if post.started and not self.modern and reason is not None:
            self.notify("notifications/cancelled", {"requestId": pending.request_id, "reason": reason})
        post.scope.cancel()
        return not post.started

    def close(self) -> None:
        """Sends nothing more."""
        self._closed = True
        self._held = None

    def hold(self) -> None:
        """Keeps calls back until `release`."""
        if self._held is None:
            self._held = []

    def release(self) -> None:
        """Sends what was kept back."""
        held, self._held = self._held, None
        for pending in held or ():
            post = pending.queued
            assert isinstance(post, _Post)  # noqa: S101 - from send_request
            if self.pending.get(pending.request_id) is pending:
                post.scope = trio.CancelScope()
                self._nursery.start_soon(self._exchange, pending, post)

    def check(self) -> None:
        """Finds out whether the server is still there, if that is not being found out already."""
        if not self._checking and not self._closed:
            self._checking = True
            self._nursery.start_soon(self._check)

    # ---- exchanges

    def open(
        self, method: str, *, content: bytes | None = None, headers: Mapping[str, str] | None = None
    ) -> AbstractAsyncContextManager[httpx2.Response]:
        """Begins an exchange with the headers that all have, and `headers`."""
        common = dict(_ACCEPT) if method == "POST" else {"accept": "text/event-stream"}
        if self.session is not None:
            common[_SESSION_HEADER] = self.session
        if self.version is not None:
            common[_VERSION_HEADER] = self.version
        common.update(headers or {})
        if len(self._client.cookies.jar) > _MOST_COOKIES:
            self._client.cookies.clear()
        return stream_within_origin(
            self._client, method, self.url, content=content, headers=common, extensions={LARGE: True}
        )

    async def _exchange(self, pending: Pending, post: _Post) -> None:
        with post.scope:
            if self._initialized is not None and post.method not in _HANDSHAKE:
                await self._initialized.wait()
            post.started, post.session = True, self.session
            try:
                async with self.open("POST", content=post.body, headers=post.headers) as response:
                    await self._take_response(pending, post, response)
            except _BROKEN as error:
                post.started = not is_unreachable(error)
                self.settle(pending, None, transport_error(self.server, error))
                if post.method not in _HANDSHAKE:
                    self.check()
            except Exception as error:
                if self._client.auth is None:
                    raise
                self.settle(pending, None, self._not_let_in(error))  # authentication runs inside the exchange

    async def _take_response(self, pending: Pending, post: _Post, response: httpx2.Response) -> None:
        status = response.status_code
        if status >= HTTPStatus.MULTIPLE_CHOICES:
            await self._take_status(pending, post, response)
            return
        if post.method == "initialize" and _SESSION_HEADER in response.headers:
            self.session = response.headers[_SESSION_HEADER]
            if _SESSION_ID.fullmatch(self.session) is None:
                self.session = None
                self.settle(pending, None, self.broken("gave a session id that is none (not ASCII, or too long)"))
                return
        if self._legacy:
            return  # the answer comes over the server's stream
        kind = content_type(response)
        if is_stream(response):
            await self._take_events(pending, response)
        elif kind == "application/json":
            body = await read_body(response, self.max_message)
            if body is None:
                self.settle(pending, None, self.too_large("too much"))
                return
            self.take_body(body)
            self.settle(pending, None, self.broken("answered a request with something else"))
        else:
            what = f"answered a request with HTTP status {status} and {shown(kind) or 'no content type'}"
            self.settle(pending, None, self.broken(what))

    async def _take_events(self, pending: Pending, response: httpx2.Response) -> None:
        parser, broken = EventParser(self.max_message), "its answer ended early"
        try:
            await self._follow(pending, response, parser)
        except _BROKEN as error:
            broken = root_cause(error)
        for _ in range(_RESUMPTIONS):
            if self._is_settled(pending) or self.modern or not parser.last_id or self._closed:
                break
            await trio.sleep(_RESUME_AFTER if parser.retry is None else parser.retry)
            try:
                async with self.open("GET", headers={LAST_EVENT_HEADER: parser.last_id}) as resumed:
                    if resumed.status_code != HTTPStatus.OK:
                        break
                    await self._follow(pending, resumed, parser)
            except _BROKEN as error:
                broken = root_cause(error)
        if not self._is_settled(pending):
            self.settle(pending, None, transport_error(self.server, httpx2.StreamError(broken)))
            self.check()

    async def _follow(self, pending: Pending, response: httpx2.Response, parser: EventParser) -> None:
        """Takes events to the stream's end; after the answer it is waited for briefly, for the connection's sake."""
        with trio.CancelScope() as scope:
            async with aclosing(self.events(response, parser)) as events:
                async for event in events:
                    self.take_event(event)
                    if self._is_settled(pending):
                        scope.deadline = min(scope.deadline, trio.current_time() + _LINGER)

    def take_event(self, event: Event) -> None:
        """Takes the message that an event carries."""
        if event.oversized is not None:
            self.take_oversized(event.oversized.head, event.oversized.tail, event.oversized.size)
        elif event.data and event.type == "message":
            self.take_body(event.data)

    def _is_settled(self, pending: Pending) -> bool:
        return self.pending.get(pending.request_id) is not pending

    async def events(self, response: httpx2.Response, parser: EventParser) -> AsyncGenerator[Event, None]:
        """The events of a response; to be closed."""
        self.streams += 1
        try:
            async for chunk in pieces(response):
                for count, event in enumerate(parser.feed(chunk), 1):
                    yield event
                    if not count % TURN:
                        await trio.lowlevel.checkpoint()
        finally:
            self.streams -= 1

    async def _take_status(self, pending: Pending, post: _Post, response: httpx2.Response) -> None:
        status = response.status_code
        body = await read_body(response, _ERROR_BODY) or b""
        if self._session_is_gone(status, body, post):
            if post.session == self.session:
                self.session = None
                self._on_forgotten()
            self._send_again(pending, post, status)
            return
        retry_after = parse_retry_after(response.headers.get("retry-after"))
        if retry_after is not None and status in (HTTPStatus.TOO_MANY_REQUESTS, HTTPStatus.SERVICE_UNAVAILABLE):
            self._not_before = trio.current_time() + retry_after
        if status < HTTPStatus.BAD_REQUEST:
            where = shown(response.headers.get("location", "nowhere"))
            what = f"answered with a redirect to {where}, which is not followed: use that address if it is meant"
            self.settle(pending, None, self.broken(what))
            return
        self.settle(pending, None, status_error(self.server, status, body, retry_after))
        if status == HTTPStatus.UNAUTHORIZED:
            self._on_lost(Loss(reason="wants a login (HTTP status 401): check its headers or auth", attention=True))

    def _send_again(self, pending: Pending, post: _Post, status: int) -> None:
        """Sends a call that found its session gone once more: in the next one, be that yet to come or there already."""
        if post.tried or post.method not in _CALLS:
            message = f"Server {self.server} knows its own session no more; the call was not done."
            error = ClientError("unavailable", message, self.server, retry_after=1.0, data={"http_status": status})
            self.settle(pending, None, error)
            return
        post.tried, post.started = True, False
        if self._held is not None:
            self._held.append(pending)
        else:
            post.scope = trio.CancelScope()
            self._nursery.start_soon(self._exchange, pending, post)

    def _session_is_gone(self, status: int, body: bytes, post: _Post) -> bool:
        if post.session is None or post.method == "initialize":
            return False
        # 404 by the specification; the TypeScript SDK's examples answer 400 and name the session.
        return status == HTTPStatus.NOT_FOUND or (status == HTTPStatus.BAD_REQUEST and b"session" in body.lower())

    async def _deliver(self, body: bytes, headers: Mapping[str, str], delivered: trio.Event | None) -> None:
        try:
            async with self.open("POST", content=body, headers=headers) as response:
                await read_body(response, _ERROR_BODY)
        except Exception:  # noqa: BLE001 - nobody waits for it; the requests say whether the server is there
            self.check()
        finally:
            if delivered is not None:
                delivered.set()

    async def _check(self) -> None:
        try:
            with trio.move_on_after(_LIFE) as patience:
                await self._ask_for_life()
            if patience.cancelled_caught and not self.pending:  # a server that works may have no time for it
                self._on_lost(Loss(reason=f"did not answer within {_LIFE:g} s whether it is still there"))
        except _BROKEN as error:
            if is_unreachable(error):
                self._on_lost(Loss(reason=f"cannot be reached any more: {root_cause(error)}"))
        finally:
            self._checking = False

    async def _ask_for_life(self) -> None:
        if self.modern or self.session is None:
            async with self.open("OPTIONS"):
                return  # whatever it answers, it is there
        ping = f'{{"jsonrpc":"2.0","id":"ping-{time.monotonic_ns()}","method":"ping"}}'.encode()
        session = self.session
        async with self.open("POST", content=ping) as response:
            if response.status_code == HTTPStatus.NOT_FOUND and session == self.session:
                self.session = None
                self.hold()
                self._on_forgotten()

    def _not_let_in(self, error: Exception) -> ClientError:
        text = root_cause(error)
        self._on_lost(Loss(reason=f"does not let the daemon in: {text}", attention=True))
        message = f"Server {self.server} does not let the daemon in: {text}"
        return ClientError("unavailable", message, self.server, data={"http_status": HTTPStatus.UNAUTHORIZED.value})
