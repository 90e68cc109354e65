"""The asynchronous client, on anyio: the same methods on asyncio and on trio."""

from __future__ import annotations

from collections.abc import AsyncIterator, Awaitable, Callable, Mapping
from types import TracebackType
from typing import Any, Concatenate, Generic, ParamSpec, TypeVar

import anyio
import msgspec

from conduit_daemon.agent import requests
from conduit_daemon.agent._answers import decode, ended, read_item, too_late
from conduit_daemon.agent._client import ATTEMPTS, PAUSE, Client
from conduit_daemon.agent._errors import DaemonUnreachable
from conduit_daemon.agent._link import PROGRESS, Link, NotSent, Slot, connect
from conduit_daemon.agent._methods import described
from conduit_daemon.agent._results import Progress
from conduit_daemon.agent.requests import Request, Subscription

__all__ = ["AsyncConduit", "AsyncStream"]

P = ParamSpec("P")
T = TypeVar("T")


class AsyncConduit(Client["_Channel"]):
    """A connection to the daemon, made when it is first needed and made again when the daemon restarts.

    It behaves as `Conduit` does. Tasks of one event loop may share it: their requests run at the same time
    over one connection. Cancelling a task cancels its request, at the server too.

    Args:
        socket: This and all others as for `Conduit`.
        config: As for `Conduit`.
        timeout: As for `Conduit`.
        reconnect_timeout: As for `Conduit`.

    Example:
        >>> async with AsyncConduit() as conduit:  # doctest: +SKIP
        ...     result = await conduit.call("files__read_file", {"path": "notes.txt"})
    """

    async def __aenter__(self) -> AsyncConduit:
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()

    async def connect(self, timeout: float = 0.0) -> None:
        """As `Conduit.connect`."""
        await self._channel(False, timeout)

    def close(self) -> None:
        """As `Conduit.close`."""
        channels = list(self._channels.values())
        self._channels.clear()
        for channel in channels:
            channel.close()

    async def send(
        self,
        request: Request[T],
        *,
        timeout: float | None = None,
        on_progress: Callable[[Progress], None] | None = None,
    ) -> T:
        """As `Conduit.send`; `on_progress` is called in this task."""
        raw = await self._exchange(request.method, request.params, request.control, timeout, on_progress)
        return decode(request.method, raw, request.answer)

    async def request(self, method: str, params: Mapping[str, Any] | None = None, *, control: bool = False) -> Any:
        """As `Conduit.request`."""
        return decode(method, await self._exchange(method, dict(params or {}), control, None, None), object)

    def subscribe(self, subscription: Subscription[T]) -> AsyncStream[T]:
        """As `Conduit.subscribe`."""
        return AsyncStream(_Channel(connect(self._places, control=subscription.control)), subscription)

    async def _exchange(
        self,
        method: str,
        params: dict[str, Any],
        control: bool,
        timeout: float | None,
        on_progress: Callable[[Progress], None] | None,
    ) -> msgspec.Raw:
        timeout = self.timeout if timeout is None else timeout
        for _ in range(ATTEMPTS):
            channel = await self._channel(control, 0.0)
            try:
                return await channel.exchange(method, params, timeout, on_progress)
            except NotSent:
                continue
        raise self._broken(control)

    async def _channel(self, control: bool, patience: float) -> _Channel:
        patience = self._patience(patience, known=control in self._channels)
        started = anyio.current_time()
        while True:
            known = self._channels.get(control)
            if known is not None and not known.link.broken:
                return known
            try:
                channel = self._channels[control] = _Channel(connect(self._places, control=control))
            except DaemonUnreachable as error:
                if self._gives_up(error, anyio.current_time() - started, patience):
                    raise
                await anyio.sleep(PAUSE)
            else:
                return channel

    @staticmethod
    def _method(build: Callable[P, Request[T]]) -> Callable[Concatenate[AsyncConduit, P], Awaitable[T]]:
        async def method(self: AsyncConduit, /, *args: P.args, **kwargs: P.kwargs) -> T:
            return await self.send(build(*args, **kwargs))

        described(method, build, "AsyncConduit")
        return method

    @staticmethod
    def _stream(build: Callable[P, Subscription[T]]) -> Callable[Concatenate[AsyncConduit, P], AsyncStream[T]]:
        def method(self: AsyncConduit, /, *args: P.args, **kwargs: P.kwargs) -> AsyncStream[T]:
            return self.subscribe(build(*args, **kwargs))

        described(method, build, "AsyncConduit")
        return method

    tools = _method(requests.tools)
    execute = _method(requests.execute)
    call = _method(requests.call)
    status = _method(requests.status)
    events = _stream(requests.events)
    tree = _method(requests.tree)
    running = _method(requests.running)
    servers_restart = _method(requests.servers_restart)
    servers_start = _method(requests.servers_start)
    servers_stop = _method(requests.servers_stop)
    servers_add = _method(requests.servers_add)
    servers_remove = _method(requests.servers_remove)
    servers_explain = _method(requests.servers_explain)
    servers_accept = _method(requests.servers_accept)
    approvals = _method(requests.approvals)
    watch_approvals = _stream(requests.watch_approvals)
    decide = _method(requests.decide)
    policy_explain = _method(requests.policy_explain)
    taint_reset = _method(requests.taint_reset)
    audit = _method(requests.audit)
    reload = _method(requests.reload)
    log_level = _method(requests.log_level)
    metrics = _method(requests.metrics)
    shutdown = _method(requests.shutdown)
    initialize = _method(requests.initialize)
    ping = _method(requests.ping)
    list_tools = _method(requests.list_tools)
    call_tool = _method(requests.call_tool)


class AsyncStream(Generic[T]):
    """Notifications as they come, until it is closed or the daemon ends it.

    A consumer that falls behind loses events, and is told how many by an ``events.dropped`` event.

    Raises:
        CallFailed: While iterating: the daemon refused the request, or the connection was lost.
    """

    def __init__(self, channel: _Channel, subscription: Subscription[T]) -> None:
        self._channel = channel
        self._subscription = subscription
        self._slot = channel.begin(subscription.method, subscription.params, wants=subscription.notification)

    def __aiter__(self) -> AsyncIterator[T]:
        return self

    async def __anext__(self) -> T:
        raw = await self._channel.next_note(self._slot)
        if raw is None:
            raise StopAsyncIteration
        return read_item(self._subscription, raw)

    async def __aenter__(self) -> AsyncStream[T]:
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()

    def close(self) -> None:
        """Ends the stream; a task that waits for its next item gets a StopAsyncIteration."""
        self._channel.close()


class _Channel:
    """A Link that tasks share: one of those that wait, the mover, reads and writes for all."""

    def __init__(self, link: Link) -> None:
        self.link = link
        self._turn = anyio.Event()
        self._moving: anyio.CancelScope | None = None
        self._closed = False

    def close(self) -> None:
        self._closed = True
        self.link.end()
        self._wake()

    def begin(self, method: str, params: dict[str, Any], *, progress: bool = False, wants: str | None = None) -> Slot:
        if self._moving is None:
            # Sees that the daemon has gone, and takes notifications that came to nobody.
            while self.link.receive():
                continue
        if self.link.broken:
            raise NotSent
        slot = self.link.open(method, params, progress=progress, wants=wants)
        self.link.flush()
        self._unblock()
        return slot

    async def exchange(
        self,
        method: str,
        params: dict[str, Any],
        timeout: float | None,
        on_progress: Callable[[Progress], None] | None,
    ) -> msgspec.Raw:
        slot = self.begin(method, params, progress=on_progress is not None)
        try:
            with anyio.move_on_after(timeout):
                while not slot.done or slot.notes:
                    if slot.notes and on_progress is not None:
                        on_progress(decode(PROGRESS, slot.notes.popleft(), Progress))
                    else:
                        await self._wait()
            if not slot.done:
                raise too_late(slot, timeout or 0.0)
        finally:
            if not slot.done:
                self.link.abandon(slot)
                self.link.flush()
                self._unblock()
        return slot.result()

    async def next_note(self, slot: Slot) -> msgspec.Raw | None:
        while not slot.notes:
            if self._closed:
                return None
            if slot.done:
                self.close()
                ended(slot)
                return None
            await self._wait()
        return slot.notes.popleft()

    async def _wait(self) -> None:
        """Waits until something happened, to whichever request."""
        if self._moving is not None:
            await self._turn.wait()
            return
        self.link.hold()
        try:
            with anyio.CancelScope() as self._moving:
                if self.link.unsent:
                    async with anyio.create_task_group() as tasks:
                        tasks.start_soon(self._writable, tasks.cancel_scope)
                        await anyio.wait_readable(self.link.sock)
                        tasks.cancel_scope.cancel()
                else:
                    await anyio.wait_readable(self.link.sock)
        finally:
            self._moving = None
            self.link.receive()
            self.link.flush()
            self.link.release()
            self._wake()

    def _unblock(self) -> None:
        # A mover that waits to read alone would not see that there now is something to write.
        if self.link.unsent and self._moving is not None:
            self._moving.cancel()

    async def _writable(self, other: anyio.CancelScope) -> None:
        await anyio.wait_writable(self.link.sock)
        other.cancel()

    def _wake(self) -> None:
        self._turn.set()
        self._turn = anyio.Event()
