"""A server over a WebSocket: one JSON-RPC message a text frame, subprotocol ``mcp``."""

from __future__ import annotations

import base64
from collections import deque
from collections.abc import Awaitable, Callable, Mapping
from typing import Any, Final, cast, final

import httpx2
import trio
import trio_websocket

from conduit_daemon.clients.dispatcher import Dispatcher, Peer, Pending
from conduit_daemon.clients.http_errors import root_cause
from conduit_daemon.clients.tls import trusted
from conduit_daemon.clients.transport import Loss, Settings, Transport, Unreachable
from conduit_daemon.clients.websocket_frames import FrameError
from conduit_daemon.clients.websocket_stream import MessageStream
from conduit_daemon.errors import ClientError

__all__ = ["SocketDispatcher", "WebSocketTransport", "new_transport"]

_SUBPROTOCOL: Final = "mcp"
_HEARTBEAT: Final = 20.0
_MAX_BACKLOG: Final = 8 << 20
_FAREWELL: Final = 1.0


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
        peer: Told what the server sends unasked.
        max_message: Longest message in bytes.
    """

    def __init__(self, server: str, peer: Peer, *, max_message: int) -> None:
        super().__init__(server, peer, max_message=max_message)
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

    async def run(self, socket: trio_websocket.WebSocketConnection) -> None:
        """Writes, and keeps deadlines and the heartbeat. What comes is taken where `socket` reads, see `MessageStream`.

        Args:
            socket: An open WebSocket.

        Raises:
            ConnectionClosed: The socket is closed.
            TooSlowError: A ping was not answered within 20 seconds, or no message was taken within that.
                Both come in a group.
        """
        async with trio.open_nursery() as nursery:
            nursery.start_soon(self.deadlines.run)
            nursery.start_soon(self._write, socket)
            nursery.start_soon(self._beat, socket)
            while True:
                await socket.get_message()

    async def _write(self, socket: trio_websocket.WebSocketConnection) -> None:
        while not self._closed:
            if not self._backlog:
                self._wake = trio.Event()
                await self._wake.wait()
                continue
            frame = self._backlog.popleft()
            self._buffered -= len(frame.body)
            frame.started = True
            with trio.fail_after(_HEARTBEAT):
                await socket.send_message(frame.body.decode())

    async def _beat(self, socket: trio_websocket.WebSocketConnection) -> None:
        while True:
            await trio.sleep(_HEARTBEAT)
            with trio.fail_after(_HEARTBEAT):
                await socket.ping()

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
    """The nursery that the library starts its reading task in: a handshake that ends without it waits for ever.

    Attributes:
        failed: What ended the reading; None where it ended in order.
    """

    def __init__(self, nursery: trio.Nursery) -> None:
        self.failed: Exception | None = None
        self._nursery = nursery
        self._ended = trio.Event()

    def start_soon(self, read: Callable[[], Awaitable[None]]) -> None:
        self._nursery.start_soon(self._run, read)

    async def _run(self, read: Callable[[], Awaitable[None]]) -> None:
        try:
            await read()
        except Exception as error:  # noqa: BLE001 - the library fails in many ways at what is no WebSocket
            self.failed = error
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
            stream = trio.SSLStream(stream, await trusted(), server_hostname=url.host)
            await stream.do_handshake()
        wire = SocketDispatcher(settings.server, peer, max_message=settings.max_message)
        reader = _Reader(nursery)
        with trio.CancelScope() as scope:
            nursery.start_soon(reader.cancel_at_end, scope)
            socket = await trio_websocket.wrap_client_stream(
                cast(trio.Nursery, reader),
                cast(trio.SocketStream, MessageStream(stream, wire)),
                url.netloc.decode(),
                url.raw_path.decode(),
                subprotocols=[_SUBPROTOCOL],
                extra_headers=[(name.encode(), value.encode()) for name, value in agent.items()],
            )
        if scope.cancelled_caught:
            if isinstance(reader.failed, Unreachable):
                raise reader.failed
            raise trio_websocket.HandshakeError("it ended the handshake, or answered with what is none")
        task_status.started(wire)
        try:
            await wire.run(socket)
        except* trio_websocket.ConnectionClosed:
            on_lost(self._closed(reader.failed, socket.closed))
        except* trio.TooSlowError:
            on_lost(Loss(reason=f"gave no sign of life for {_HEARTBEAT:g} s"))
        finally:
            with trio.move_on_after(_FAREWELL, shield=True):
                await socket.aclose()
            nursery.cancel_scope.cancel()

    def _closed(self, failed: Exception | None, reason: trio_websocket.CloseReason | None) -> Loss:
        if isinstance(failed, FrameError):
            return Loss(reason=f"broke the protocol of its WebSocket: {failed}")
        if failed is not None:
            return Loss(reason=f"sent what could not be taken ({type(failed).__name__}: {failed})")
        if reason is None:
            return Loss(reason="closed its WebSocket")
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
