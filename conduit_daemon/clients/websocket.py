"""A server over a WebSocket: one JSON-RPC message a text frame, subprotocol ``mcp``."""

from __future__ import annotations

import base64
import ssl
from collections import deque
from collections.abc import Awaitable, Callable, Mapping
from typing import Any, Final, cast, final

import httpx2
import trio
import trio_websocket

from conduit_daemon.clients.dispatcher import Dispatcher, Peer, Pending
from conduit_daemon.clients.http_errors import parse_retry_after, root_cause
from conduit_daemon.clients.transport import Loss, Settings, Transport, Unreachable
from conduit_daemon.errors import ClientError

__all__ = ["SocketDispatcher", "WebSocketTransport", "new_transport"]

_SUBPROTOCOL: Final = "mcp"
_HEARTBEAT: Final = 20.0
_MAX_BACKLOG: Final = 8 << 20
_READ: Final = 1 << 16
_FAREWELL: Final = 1.0
_TOO_BIG: Final = 1009
_REJECTED: Final = trio_websocket.ConnectionRejected
_ATTENTION: Final = (401, 403)


def new_transport(settings: Settings) -> Transport:
    """The transport of a server whose URL is one of WebSocket."""
    return WebSocketTransport(settings)


@final
class _Frame:
    """A message that waits for its turn; see `dispatcher.Sending`."""

    __slots__ = ("body", "started")

    def __init__(self, body: bytearray) -> None:
        self.body = body
        self.started = False


@final
class SocketDispatcher(Dispatcher):
    """JSON-RPC over one WebSocket.

    Args:
        server: The server's id.
        socket: An open WebSocket.
        peer: Told what the server sends unasked.
        max_message: As the socket's own limit, for messages.
    """

    def __init__(
        self, server: str, socket: trio_websocket.WebSocketConnection, peer: Peer, *, max_message: int
    ) -> None:
        super().__init__(server, peer, max_message=max_message)
        self._socket = socket
        self._backlog: deque[_Frame] = deque()
        self._buffered = 0
        self._wake = trio.Event()
        self._closed = False

    def send_request(self, pending: Pending, method: str, body: bytearray, headers: Mapping[str, str] | None) -> _Frame:
        """Queues the message for the writer."""
        if self._closed:
            raise self._unavailable("is lost")
        if self._buffered > _MAX_BACKLOG:
            raise self._unavailable("does not read what it is sent")
        return self._queue(body, urgent=False)

    def send_message(
        self, method: str | None, body: bytearray, *, urgent: bool = False, headers: Mapping[str, str] | None = None
    ) -> None:
        """Queues the message; a notification is dropped where too much is queued."""
        if self._closed or (method is not None and self._buffered > 2 * _MAX_BACKLOG):
            return
        self._queue(body, urgent=urgent)

    def abandon(self, pending: Pending, reason: str | None) -> bool:
        """Takes a queued message back; else tells the server, ahead of queued ones."""
        frame = pending.queued
        if isinstance(frame, _Frame) and not frame.started and frame in self._backlog:
            self._backlog.remove(frame)
            self._buffered -= len(frame.body)
            return True
        if reason is not None:
            params = {"requestId": pending.request_id, "reason": reason}
            self.notify("notifications/cancelled", params, urgent=True)
        return False

    def close(self) -> None:
        """Sends nothing more."""
        self._closed = True
        self._backlog.clear()
        self._buffered = 0
        self._wake.set()

    async def run(self) -> None:
        """Reads, writes, and keeps deadlines and the heartbeat.

        Raises:
            ConnectionClosed: The socket is closed.
            TooSlowError: A ping was not answered within 20 seconds, or no message was taken within that.
                Both come in a group.
        """
        async with trio.open_nursery() as nursery:
            nursery.start_soon(self.deadlines.run)
            nursery.start_soon(self._write)
            nursery.start_soon(self._beat)
            while True:
                message = await self._socket.get_message()
                self.take_body(message if isinstance(message, bytes) else message.encode(errors="surrogatepass"))

    async def _write(self) -> None:
        while not self._closed:
            if not self._backlog:
                self._wake = trio.Event()
                await self._wake.wait()
                continue
            frame = self._backlog.popleft()
            self._buffered -= len(frame.body)
            frame.started = True
            with trio.fail_after(_HEARTBEAT):
                await self._socket.send_message(frame.body.decode())

    async def _beat(self) -> None:
        while True:
            await trio.sleep(_HEARTBEAT)
            with trio.fail_after(_HEARTBEAT):
                await self._socket.ping()

    def _queue(self, body: bytearray, *, urgent: bool) -> _Frame:
        frame = _Frame(body)
        if urgent:
            self._backlog.appendleft(frame)
        else:
            self._backlog.append(frame)
        self._buffered += len(body)
        self._wake.set()
        return frame

    def _unavailable(self, what: str) -> ClientError:
        return ClientError(
            "unavailable", f"Server {self.server} {what}; nothing was sent.", self.server, retry_after=1.0
        )


@final
class _Reader:
    """The nursery that the library starts its reading task in: a handshake that ends without it waits for ever."""

    def __init__(self, nursery: trio.Nursery) -> None:
        self._nursery = nursery
        self._ended = trio.Event()

    def start_soon(self, read: Callable[[], Awaitable[None]]) -> None:
        self._nursery.start_soon(self._run, read)

    async def _run(self, read: Callable[[], Awaitable[None]]) -> None:
        try:
            await read()
        finally:
            self._ended.set()

    async def cancel_at_end(self, scope: trio.CancelScope) -> None:
        await self._ended.wait()
        scope.cancel()


@final
class WebSocketTransport:
    """Opens a WebSocket and keeps it.

    Args:
        settings: What the connection is made of.
    """

    def __init__(self, settings: Settings) -> None:
        self.pid: int | None = None
        self.forgotten = trio.Event()
        self._settings = settings

    async def attend(
        self, peer: Peer, on_lost: Callable[[Loss], None], *, task_status: trio.TaskStatus[Dispatcher]
    ) -> None:
        """Opens the socket and keeps it; see `Transport.attend`."""
        refused: list[Loss] = []
        try:
            async with trio.open_nursery() as nursery:
                await self._keep(nursery, peer, on_lost, task_status)
        except* trio_websocket.ConnectionRejected as group:
            refused = [self._rejected(error) for error in group.exceptions if isinstance(error, _REJECTED)]
        except* (
            trio_websocket.HandshakeError,
            trio_websocket.ConnectionClosed,
            OSError,
            trio.BrokenResourceError,
        ) as group:
            refused = [Loss(reason=f"cannot be reached: {root_cause(group)}")]
        if refused:
            raise Unreachable(refused[0])

    async def _keep(
        self,
        nursery: trio.Nursery,
        peer: Peer,
        on_lost: Callable[[Loss], None],
        task_status: trio.TaskStatus[Dispatcher],
    ) -> None:
        settings, config = self._settings, self._settings.config
        assert config.url is not None  # noqa: S101 - a remote server has one
        agent = {"User-Agent": f"conduit/{settings.version}", **_basic(httpx2.URL(config.url)), **config.headers}
        url = httpx2.URL(config.url)
        secure = url.scheme == "wss"
        port = url.port or (443 if secure else 80)
        stream: Any = await trio.open_tcp_stream(url.host, port)
        if secure:  # here and not in the library, which never notices that it failed
            context = await trio.to_thread.run_sync(ssl.create_default_context)  # it reads files
            stream = trio.SSLStream(stream, context, server_hostname=url.host)
            await stream.do_handshake()
        reader = _Reader(nursery)
        with trio.CancelScope() as scope:
            nursery.start_soon(reader.cancel_at_end, scope)
            socket = await trio_websocket.wrap_client_stream(
                cast(trio.Nursery, reader),
                stream,
                url.netloc.decode(),
                url.raw_path.decode(),
                subprotocols=[_SUBPROTOCOL],
                extra_headers=[(name.encode(), value.encode()) for name, value in agent.items()],
                max_message_size=settings.max_message,
                receive_buffer_size=_READ,
            )
        if scope.cancelled_caught:
            raise trio_websocket.HandshakeError("it ended the handshake, or answered with what is none")
        wire = SocketDispatcher(settings.server, socket, peer, max_message=settings.max_message)
        task_status.started(wire)
        try:
            await wire.run()
        except* trio_websocket.ConnectionClosed:
            on_lost(self._closed(wire, socket.closed))
        except* trio.TooSlowError:
            on_lost(Loss(reason=f"gave no sign of life for {_HEARTBEAT:g} s"))
        finally:
            with trio.move_on_after(_FAREWELL, shield=True):
                await socket.aclose()
            nursery.cancel_scope.cancel()

    def _rejected(self, rejected: trio_websocket.ConnectionRejected) -> Loss:
        headers = {name.lower(): value for name, value in rejected.headers or ()}
        return Loss(
            reason=f"refused the WebSocket with HTTP status {rejected.status_code}",
            attention=rejected.status_code in _ATTENTION,
            retry_after=parse_retry_after((headers.get(b"retry-after") or b"").decode() or None),
        )

    def _closed(self, wire: SocketDispatcher, reason: trio_websocket.CloseReason | None) -> Loss:
        if reason is None:
            return Loss(reason="closed its WebSocket")
        if reason.code == _TOO_BIG and len(wire.pending) == 1:  # of several, nobody can tell which it was
            for pending in list(wire.pending.values()):
                wire.settle(pending, None, wire.too_large("more"))
        text = f": {reason.reason}" if reason.reason else ""
        return Loss(reason=f"closed its WebSocket ({reason.code} {reason.name}{text})")

    def settle(self, version: str, *, modern: bool) -> None:
        """Nothing goes beside the frames."""

    async def heard(self) -> None:
        """It can always speak."""

    def resume(self) -> None:
        """Nothing was held back."""

    def stderr(self) -> tuple[str, ...]:
        """None: the server is none of our processes."""
        return ()


def _basic(url: httpx2.URL) -> dict[str, str]:
    """The header for a name and a password in the address."""
    if not url.userinfo:
        return {}
    return {"Authorization": "Basic " + base64.b64encode(f"{url.username}:{url.password}".encode()).decode()}
