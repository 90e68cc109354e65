"""One agent's connection: its requests run side by side and are answered as they finish.

A call of a tool takes no task: the reader starts it and goes on reading, and the answer is written by whoever
reads the server. Everything else is one task a request, owned by the connection and ended with it.
"""

from __future__ import annotations

import select
import socket
from contextlib import suppress
from typing import Final, final

import msgspec
import trio

from conduit_daemon.errors import ClientError
from conduit_daemon.lines import READ_SIZE, TURN, LineSplitter, Oversized, WriterClosed
from conduit_daemon.model import Principal
from conduit_daemon.pipeline.gate import Context
from conduit_daemon.rpc import protocol
from conduit_daemon.rpc.budget import LITTLE, SHARES, Budget
from conduit_daemon.rpc.dispatch import Dispatch, Handler, InFlight, Task
from conduit_daemon.rpc.host import HostState
from conduit_daemon.rpc.outbox import Outbox
from conduit_daemon.rpc.protocol import Answer, Refused, Request, RequestId
from conduit_daemon.rpc.questions import Questions
from conduit_daemon.telemetry.events import EventBus

__all__ = ["Connection", "Dispatch", "Handler", "InFlight"]

_HIGH_WATER: Final = 1 << 20
_LOW_WATER: Final = 1 << 18
_MAX_RUNNING: Final = 4096
_TWICE: Final = 2  # a request is kept as it came and as it was read
_HUP_POLL: Final = 0.05


@final
class Connection:
    """A connected agent or administrator.

    Args:
        sock: The connected socket; closed at the end of `run`.
        dispatch: The methods.
        context: The pipeline as this caller sees it.
        principal: Who is at the other end.
        control: Whether it came through the control socket.
        bus: Where events go.
        max_message: Longest line in bytes.
        budget: What this and other connections may hold together; one of its own without.

    Attributes:
        context: The pipeline as this caller sees it.
        principal: Who is at the other end.
        control: Whether it came through the control socket.
        running: The requests that are being worked on.
        host: What is known of an MCP host at the other end.
        parked: Requests that wait for input of the host, by the state under which it brings that.
    """

    def __init__(
        self,
        sock: socket.socket,
        dispatch: Dispatch,
        *,
        context: Context,
        principal: Principal,
        control: bool,
        bus: EventBus,
        max_message: int,
        budget: Budget | None = None,
    ) -> None:
        self.context = context
        self.principal = principal
        self.control = control
        self.running: dict[RequestId, InFlight] = {}
        self.parked: dict[str, InFlight] = {}
        self._questions = Questions(self.send)
        self.host = HostState()
        self._sock = sock
        self._dispatch = dispatch
        self._bus = bus
        self._max_message = max_message
        self._splitter = LineSplitter(max_message)
        self._out = Outbox(sock.fileno(), self._hold_more)
        self._budget = budget or Budget(SHARES * max_message)
        self._reading = trio.CancelScope()
        self._nursery: trio.Nursery | None = None
        self._streams: set[RequestId] = set()
        self._large: dict[RequestId, int] = {}
        self._admitting: RequestId | None = None
        self._finishing = False
        self._room: trio.Event | None = None
        self._idle: trio.Event | None = None

    async def run(self) -> None:
        """Serves the connection until it ends, then cancels what still runs."""
        fd = self._sock.fileno()
        try:
            async with trio.open_nursery() as nursery:
                self._nursery = nursery
                nursery.start_soon(self._write)
                with self._reading:
                    await self._read(fd)
                await self._finish(fd)
                nursery.cancel_scope.cancel()
        finally:
            for request in (*self.running.values(), *self.parked.values()):
                request.cancel()
            self.running.clear()
            self.parked.clear()
            self.context.close()
            self._out.close()
            self._budget.leave(self)
            trio.lowlevel.notify_closing(fd)
            self._sock.close()

    # ---- writing

    @property
    def unread(self) -> int:
        """Bytes that wait for the peer to read."""
        return self._out.unread

    async def drained(self, below: int) -> None:
        """Waits until the peer has left fewer than `below` bytes unread, or has gone."""
        await self._out.drained(below)

    def send(self, line: bytes) -> None:
        """Writes a line, at once where the peer takes it; a peer that has gone is no error.

        A peer that leaves more unread than the longest message allows is disconnected.
        """
        self._out.send(line)

    def notify(self, method: str, params: object = None) -> None:
        """Sends a notification."""
        self._out.send(protocol.notification(method, params))

    def tell_progress(self, request_id: RequestId, params: object) -> None:
        """Tells of a request's progress; of what a peer that is late has not read, the newest is kept."""
        self._out.tell_progress(request_id, protocol.notification("notifications/progress", params))

    def tell(self, method: str, params: object) -> None:
        """Tells what a peer that is late need not hear."""
        self._out.tell(protocol.notification(method, params))

    # ---- memory

    @property
    def held(self) -> int:
        """Bytes of memory that its unfinished line, large requests and what the peer has not read take."""
        return self._splitter.kept + self._out.held + sum(self._large.values())

    @property
    def owner(self) -> object:
        """Whose it is: its process's, where that is known."""
        return self.principal.pid or self.principal.name

    def _hold_more(self) -> None:
        if self._out.held > self._max_message:
            self._drop_reader()
        else:
            self._budget.look(self)

    def give_up(self, total: int, limit: int) -> None:
        """Ends the connection, for all of them hold too much and it is the greediest; see `Budget`.

        Where that is for a request that just came, that one alone is not taken.
        """
        if self._admitting is not None:
            self._large.pop(self._admitting, None)  # asked again, there is no more that it could give
            return
        requests = sum(self._large.values())
        if self._out.held > max(requests, self._splitter.kept):
            self._drop_reader()
            return
        self._bus.emit("rpc.rejected", level="warning", pid=self.principal.pid, reason="too much held", bytes=total)
        text = (
            f"Unfinished lines, large requests and unread answers of this socket's connections hold {total} bytes, and "
            f"{limit} are allowed ({SHARES} times rpc.max_message); most are yours, and this connection is closed."
        )
        self.send(protocol.error_answer(None, -32600, text))
        if requests > self._splitter.kept:
            self._cut()
        self._splitter = LineSplitter(self._max_message)
        self._large.clear()
        self._reading.cancel()

    def _admit(self, request_id: RequestId, size: int) -> None:
        """Counts what a large request holds until it is answered.

        Raises:
            ClientError: ``rate_limited``: all hold too much, and the peer's process the most of it.
        """
        self._large[request_id] = size
        self._admitting = request_id
        self._budget.look(self)
        self._admitting = None
        if request_id not in self._large:
            raise ClientError(
                "rate_limited",
                f"What runs and waits here holds {SHARES} times rpc.max_message already, most of it for you: there is "
                "no room for this large request. Try again when some of that has been answered.",
                retry_after=1.0,
            )

    def _drop_reader(self) -> None:
        self._bus.emit("rpc.slow_reader", level="warning", pid=self.principal.pid, bytes=self._out.held)
        self._out.close()
        self._cut()

    def _cut(self) -> None:
        """Ends the connection and all that runs on it."""
        if self._nursery is not None:
            self._nursery.cancel_scope.cancel()

    async def ask(self, method: str, params: object) -> Answer:
        """Asks the peer and waits for its answer; where the wait is cancelled, the peer is told."""
        return await self._questions.ask(method, params)

    def settle(self, request_id: RequestId, line: bytes) -> None:
        """Answers a request that is in flight; one that was cancelled meanwhile gets no answer."""
        if self._forget(request_id) is not None:
            self.send(line)

    def stream(self, request_id: RequestId) -> None:
        """Makes a running request one that goes on until it is cancelled, or until the peer stops asking."""
        self._streams.add(request_id)
        if self._finishing:
            self._end(request_id)

    def _forget(self, request_id: RequestId) -> InFlight | None:
        request = self.running.pop(request_id, None)
        self._streams.discard(request_id)
        self._out.forget(request_id)
        if self._large:
            self._large.pop(request_id, None)
        if self._room is not None:
            self._room.set()
        if self._idle is not None and not self.running:
            self._idle.set()
        return request

    async def _write(self) -> None:
        with suppress(WriterClosed):
            await self._out.run()
        self._cut()

    # ---- reading

    async def _read(self, fd: int) -> None:
        while True:
            await trio.lowlevel.wait_readable(fd)
            try:
                chunk = self._sock.recv(READ_SIZE)
            except BlockingIOError:
                continue
            except OSError:
                return
            if not chunk:
                return
            for number, line in enumerate(self._splitter.feed(chunk), 1):
                if isinstance(line, Oversized):
                    self._refuse_oversized(line.size)
                    return
                if line and not line.isspace():
                    self._take(line)
                    if not await self._has_room(fd):
                        return
                if not number % TURN:
                    await trio.lowlevel.checkpoint()
            chunk = line = b""  # while nothing comes, the last that came is not kept
            if self._splitter.pending > LITTLE:
                if self._splitter.pending > self._max_message:
                    self._refuse_oversized(self._splitter.pending)
                    return
                self._budget.look(self)

    @property
    def _too_much_runs(self) -> bool:
        return sum(self._large.values()) > _TWICE * self._max_message

    async def _has_room(self, fd: int) -> bool:
        """Waits until the peer has read what it was sent and has few enough requests running; whether it stayed."""
        if self._out.unread > _HIGH_WATER:
            await self._out.drained(_LOW_WATER)
        while len(self.running) >= _MAX_RUNNING or (self._large and self._too_much_runs):
            if _hung_up(fd):
                return False
            self._room = trio.Event()
            with trio.move_on_after(_HUP_POLL):
                await self._room.wait()
        return True

    def _refuse_oversized(self, size: int) -> None:
        self._bus.emit("rpc.rejected", level="warning", pid=self.principal.pid, reason="line too long", bytes=size)
        text = f"A line over {self._max_message} bytes (rpc.max_message) is not read; the connection is closed."
        self.send(protocol.error_answer(None, -32600, text))

    def _take(self, line: bytes) -> None:
        try:
            request = protocol.decode_request(line)
        except Refused as error:
            answer = protocol.decode_answer(line)
            if answer is None:
                self.send(protocol.error_answer(None, error.code, str(error)))
            else:
                self._questions.take(answer)
            return
        request_id = request.id
        if isinstance(request_id, msgspec.UnsetType):
            if request.method == "notifications/cancelled":
                self._cancel(request)
            else:
                self._dispatch.note(self, request)
            return
        if request_id in self.running:
            text = f"A request with the id {request_id!r} is still running on this connection; use another id."
            self.send(protocol.error_answer(None, -32600, text))
            return
        try:
            if len(line) > LITTLE:
                self._admit(request_id, _TWICE * len(line))
            handler = self._dispatch.start(self, request)
        except Refused as error:
            self._large.pop(request_id, None)
            self.send(protocol.error_answer(request_id, error.code, str(error), error.data))
            return
        except ClientError as error:
            self._large.pop(request_id, None)
            self.send(self._failure(request_id, error))
            return
        if handler is not None:
            task = Task()
            self.running[request_id] = task
            assert self._nursery is not None  # noqa: S101 - run() set it
            self._nursery.start_soon(self._run_handler, handler, request, request_id, task)

    async def _run_handler(self, handler: Handler, request: Request, request_id: RequestId, task: Task) -> None:
        with task.scope:
            try:
                result = await handler(self, request)
            except Refused as error:
                self.settle(request_id, protocol.error_answer(request_id, error.code, str(error), error.data))
                return
            except ClientError as error:
                self.settle(request_id, self._failure(request_id, error))
                return
            except Exception as error:  # noqa: BLE001 - a defect of one method must not end the others' requests
                self._bus.emit("internal.error", level="error", message=f"{request.method} failed.", error=repr(error))
                failed = ClientError("internal", "The daemon failed on this request; its log says why.")
                self.settle(request_id, protocol.failure(request_id, failed))
                return
            self.settle(request_id, protocol.answer(request_id, result))

    def _failure(self, request_id: RequestId, error: ClientError) -> bytes:
        error.mask(self.context.gate.masker.mask)
        return protocol.failure(request_id, error)

    def _cancel(self, request: Request) -> None:
        try:
            wanted = protocol.decode_params(request.params, _Cancelled).requestId
        except ClientError:
            return
        self._end(wanted)

    def _end(self, request_id: RequestId) -> None:
        running = self._forget(request_id)
        if running is not None:
            running.cancel()

    async def _finish(self, fd: int) -> None:
        """After the last request: ends streams and answers what runs, unless the peer has gone altogether."""
        self._finishing = True
        for waiting in self.parked.values():
            waiting.cancel()
        for request_id in list(self._streams):
            self._end(request_id)
        while self.running and not _hung_up(fd):
            self._idle = trio.Event()
            with trio.move_on_after(_HUP_POLL):
                await self._idle.wait()
        while self._out.unread and not _hung_up(fd):
            with trio.move_on_after(_HUP_POLL):
                await self._out.drained()


class _Cancelled(msgspec.Struct):
    requestId: RequestId


def _hung_up(fd: int) -> bool:
    """Whether the peer has closed both directions; one that only ended its requests still reads answers."""
    poll = select.poll()
    poll.register(fd, select.POLLOUT)
    return any(event & (select.POLLHUP | select.POLLERR) for _, event in poll.poll(0))
