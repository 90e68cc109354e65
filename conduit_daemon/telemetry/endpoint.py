"""The metrics over HTTP, for a Prometheus that scrapes: ``GET /metrics``, and nothing else."""

from __future__ import annotations

import errno
import math
from collections.abc import Awaitable, Callable, Sequence
from typing import Final, final

import trio

from conduit_daemon.errors import DaemonError
from conduit_daemon.telemetry.metrics import CONTENT_TYPE

__all__ = ["open_endpoint", "serve_endpoint"]

Render = Callable[[], Awaitable[bytes]]

_MOST_CONNECTIONS: Final = 32
_LONGEST_HEAD: Final = 8192
_PATIENCE: Final = 10.0
_PIECE: Final = 4096
_PAUSE: Final = 0.1
_FRESH: Final = 0.2


async def open_endpoint(listen: str) -> list[trio.SocketListener]:
    """Listens at a TCP address, with a socket for each address that the host's name stands for.

    Args:
        listen: ``HOST:PORT``; an IPv6 address in brackets.

    Raises:
        DaemonError: It cannot be listened there.
    """
    host, _, port = listen.rpartition(":")
    try:
        return await trio.open_tcp_listeners(int(port), host=host.strip("[]"))
    except OSError as error:
        taken = "another program listens there" if error.errno == errno.EADDRINUSE else error.strerror or error
        raise DaemonError(
            f"Cannot serve the metrics at {listen}: {taken}. Set metrics.listen to another address, or remove it."
        ) from error


async def serve_endpoint(listeners: Sequence[trio.SocketListener], render: Render) -> None:
    """Answers scrapes until cancelled; the listeners stay open and are the caller's.

    Args:
        listeners: From `open_endpoint`.
        render: The metrics as they are now.
    """
    fresh = _Fresh(render)
    served: dict[trio.CancelScope, None] = {}
    async with trio.open_nursery() as nursery:
        for listener in listeners:
            nursery.start_soon(_accept, listener, served, fresh.text, nursery)


async def _accept(
    listener: trio.SocketListener, served: dict[trio.CancelScope, None], render: Render, nursery: trio.Nursery
) -> None:
    while True:
        try:
            stream = await listener.accept()
        except OSError:  # out of descriptors, or the client gave up in the queue
            await trio.sleep(_PAUSE)
            continue
        if len(served) >= _MOST_CONNECTIONS:  # not the newest waits, but the one that has been at it longest goes
            oldest = next(iter(served))
            del served[oldest]
            oldest.cancel()
        scope = trio.CancelScope(deadline=trio.current_time() + _PATIENCE)
        served[scope] = None
        nursery.start_soon(_serve, stream, scope, served, render)


async def _serve(
    stream: trio.SocketStream, scope: trio.CancelScope, served: dict[trio.CancelScope, None], render: Render
) -> None:
    try:
        with scope:
            async with stream:
                await stream.send_all(await _answer(await _head(stream), render))
    except trio.BrokenResourceError:
        return  # the scraper has gone
    finally:
        served.pop(scope, None)


@final
class _Fresh:
    """The metrics as they were a moment ago at most: whoever scrapes without end costs no more than a few a second."""

    def __init__(self, render: Render) -> None:
        self._render = render
        self._text = b""
        self._until = -math.inf
        self._one_at_a_time = trio.Lock()

    async def text(self) -> bytes:
        async with self._one_at_a_time:
            if trio.current_time() >= self._until:
                self._text = await self._render()
                self._until = trio.current_time() + _FRESH
            return self._text


async def _head(stream: trio.SocketStream) -> bytes:
    head = b""
    while b"\r\n\r\n" not in head and len(head) < _LONGEST_HEAD:
        piece = await stream.receive_some(_PIECE)
        if not piece:
            break
        head += piece
    return head


async def _answer(head: bytes, render: Render) -> bytes:
    words = head.partition(b"\r\n")[0].split(b" ")
    if b"\r\n\r\n" not in head or len(words) != 3 or not words[2].startswith(b"HTTP/1."):
        return _response("400 Bad Request", b"This is not HTTP.\n")
    method, target = words[0], words[1].partition(b"?")[0]
    if target != b"/metrics":
        return _response("404 Not Found", b"The metrics are at /metrics.\n")
    if method not in {b"GET", b"HEAD"}:
        return _response("405 Method Not Allowed", b"The metrics can be read only.\n", "Allow: GET, HEAD\r\n")
    return _response("200 OK", await render(), kind=CONTENT_TYPE, body_too=method == b"GET")


def _response(
    status: str, body: bytes, more: str = "", *, kind: str = "text/plain; charset=utf-8", body_too: bool = True
) -> bytes:
    head = (
        f"HTTP/1.1 {status}\r\nContent-Type: {kind}\r\nContent-Length: {len(body)}\r\n{more}"
        "X-Content-Type-Options: nosniff\r\nConnection: close\r\n\r\n"
    )
    return head.encode() + (body if body_too else b"")
