"""The blocking client: plain sockets, to be shared by any number of threads."""

from __future__ import annotations

import select
import threading
import time
from collections.abc import Callable, Iterator, Mapping
from types import TracebackType
from typing import Any, Concatenate, Generic, ParamSpec, TypeVar

import msgspec

from conduit_daemon.agent import requests
from conduit_daemon.agent._answers import decode, ended, read_item, too_late
from conduit_daemon.agent._client import ATTEMPTS, PAUSE, Client
from conduit_daemon.agent._errors import DaemonUnreachable
from conduit_daemon.agent._link import PROGRESS, Link, NotSent, Slot, connect
from conduit_daemon.agent._methods import described
from conduit_daemon.agent._results import Progress
from conduit_daemon.agent.requests import Request, Subscription

__all__ = ["Conduit", "Stream"]

P = ParamSpec("P")
T = TypeVar("T")

GLANCE = 0.02
"""Seconds that a thread waits to write before it looks whether it should read as well."""


class Conduit(Client["_Channel"]):
    """A connection to the daemon, made when it is first needed and made again when the daemon restarts.

    Threads may share it: their requests run at the same time over one connection, so that the daemon sees
    one agent with one taint. A request that the daemon can have seen is never sent twice; where its
    connection is lost it raises `CallFailed` with the outcome ``outcome_unknown``.

    Args:
        socket: The agent socket; else ``$CONDUIT_SOCKET``, the configuration's, the usual places.
        config: A configuration to look into for the socket, instead of the one that the daemon would find.
        timeout: Seconds to wait for any answer; None: as long as the daemon takes.
        reconnect_timeout: Seconds to wait for a daemon that was there before and is restarting.

    Example:
        >>> with Conduit() as conduit:  # doctest: +SKIP
        ...     print(conduit.call("files__read_file", {"path": "notes.txt"}).text)
    """

    def _prepare(self) -> None:
        self._connecting = threading.Lock()

    def __enter__(self) -> Conduit:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()

    def connect(self, timeout: float = 0.0) -> None:
        """Connects now, waiting for a daemon to come up; otherwise the first request does, without waiting.

        Raises:
            DaemonUnreachable: None came within `timeout` seconds.
        """
        self._channel(False, timeout)

    def close(self) -> None:
        """Closes the connections; what runs on them is cancelled at the servers."""
        with self._connecting:
            channels = list(self._channels.values())
            self._channels.clear()
        for channel in channels:
            channel.close()

    def send(
        self,
        request: Request[T],
        *,
        timeout: float | None = None,
        on_progress: Callable[[Progress], None] | None = None,
    ) -> T:
        """Sends a request made by `conduit_daemon.agent.requests` and waits for its answer.

        Args:
            request: The request.
            timeout: Seconds to wait, in place of the connection's; it is cancelled then.
            on_progress: Called in this thread with each progress that the server reports.

        Raises:
            CallFailed: The daemon answered with an error, too late or not at all.
            DaemonUnreachable: No daemon answers; nothing was sent.
        """
        raw = self._exchange(request.method, request.params, request.control, timeout, on_progress)
        return decode(request.method, raw, request.answer)

    def request(self, method: str, params: Mapping[str, Any] | None = None, *, control: bool = False) -> Any:
        """Sends any method and returns its result as it came, for what this library has no name for.

        Raises:
            CallFailed: The daemon answered with an error, too late or not at all.
            DaemonUnreachable: No daemon answers; nothing was sent.
        """
        return decode(method, self._exchange(method, dict(params or {}), control, None, None), object)

    def subscribe(self, subscription: Subscription[T]) -> Stream[T]:
        """Opens a stream, on a connection of its own.

        Raises:
            DaemonUnreachable: No daemon answers.
        """
        return Stream(_Channel(connect(self._places, control=subscription.control)), subscription)

    def _exchange(
        self,
        method: str,
        params: dict[str, Any],
        control: bool,
        timeout: float | None,
        on_progress: Callable[[Progress], None] | None,
    ) -> msgspec.Raw:
        timeout = self.timeout if timeout is None else timeout
        for _ in range(ATTEMPTS):
            channel = self._channel(control, 0.0)
            try:
                return channel.exchange(method, params, timeout, on_progress)
            except NotSent:
                continue
        raise self._broken(control)

    def _channel(self, control: bool, patience: float) -> _Channel:
        channel = self._channels.get(control)
        if channel is not None and not channel.link.broken:
            return channel
        with self._connecting:
            known = self._channels.get(control)
            if known is not None and not known.link.broken:
                return known
            patience = self._patience(patience, known=known is not None)
            started = time.monotonic()
            while True:
                try:
                    channel = self._channels[control] = _Channel(connect(self._places, control=control))
                except DaemonUnreachable as error:
                    if self._gives_up(error, time.monotonic() - started, patience):
                        raise
                    time.sleep(PAUSE)
                else:
                    return channel

    @staticmethod
    def _method(build: Callable[P, Request[T]]) -> Callable[Concatenate[Conduit, P], T]:
        def method(self: Conduit, /, *args: P.args, **kwargs: P.kwargs) -> T:
            return self.send(build(*args, **kwargs))

        described(method, build, "Conduit")
        return method

    @staticmethod
    def _stream(build: Callable[P, Subscription[T]]) -> Callable[Concatenate[Conduit, P], Stream[T]]:
        def method(self: Conduit, /, *args: P.args, **kwargs: P.kwargs) -> Stream[T]:
            return self.subscribe(build(*args, **kwargs))

        described(method, build, "Conduit")
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


class Stream(Generic[T]):
    """Notifications as they come, until it is closed or the daemon ends it.

    A consumer that falls behind loses events, and is told how many by an ``events.dropped`` event.

    Raises:
        CallFailed: While iterating: the daemon refused the request, or the connection was lost.
    """

    def __init__(self, channel: _Channel, subscription: Subscription[T]) -> None:
        self._channel = channel
        self._subscription = subscription
        self._slot = channel.begin(subscription.method, subscription.params, wants=subscription.notification)

    def __iter__(self) -> Iterator[T]:
        return self

    def __next__(self) -> T:
        raw = self._channel.next_note(self._slot)
        if raw is None:
            raise StopIteration
        return read_item(self._subscription, raw)

    def __enter__(self) -> Stream[T]:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()

    def close(self) -> None:
        """Ends the stream; a thread that waits for its next item gets a StopIteration."""
        self._channel.close()


class _Channel:
    """A Link that threads share: one of those that wait reads for all."""

    def __init__(self, link: Link) -> None:
        self.link = link
        self._turn = threading.Condition()
        self._led = False
        self._closed = False

    def close(self) -> None:
        with self._turn:
            self._closed = True
            self.link.end()
            self._turn.notify_all()

    def begin(self, method: str, params: dict[str, Any], *, progress: bool = False, wants: str | None = None) -> Slot:
        with self._turn:
            if not self._led:
                # Sees that the daemon has gone, and takes notifications that came to nobody.
                while self.link.receive():
                    continue
            if self.link.broken:
                raise NotSent
            slot = self.link.open(method, params, progress=progress, wants=wants)
            self.link.flush()
            return slot

    def exchange(
        self,
        method: str,
        params: dict[str, Any],
        timeout: float | None,
        on_progress: Callable[[Progress], None] | None,
    ) -> msgspec.Raw:
        deadline = None if timeout is None else time.monotonic() + timeout
        slot = None
        try:
            slot = self.begin(method, params, progress=on_progress is not None)
            while not slot.done or slot.notes:
                if slot.notes and on_progress is not None:
                    on_progress(decode(PROGRESS, slot.notes.popleft(), Progress))
                elif not self._wait(slot, deadline):
                    raise too_late(slot, timeout or 0.0)
        finally:
            if slot is not None and not slot.done:
                with self._turn:
                    self.link.abandon(slot)
                    self.link.flush()
        return slot.result()

    def next_note(self, slot: Slot) -> msgspec.Raw | None:
        while not slot.notes:
            if self._closed:
                return None
            if slot.done:
                self.close()
                ended(slot)
                return None
            self._wait(slot, None)
        return slot.notes.popleft()

    def _wait(self, slot: Slot, deadline: float | None) -> bool:
        """Waits until something happened, to `slot` or not; False where the deadline is over."""
        rest = None if deadline is None else deadline - time.monotonic()
        if rest is not None and rest <= 0:
            return False
        with self._turn:
            if slot.done or slot.notes:
                return True
            leads = not self._led
            events = (select.POLLIN if leads else 0) | (select.POLLOUT if self.link.unsent else 0)
            if not events:
                self._turn.wait(rest)
                return True
            self._led = True
            self.link.hold()
        try:
            poll = select.poll()
            poll.register(self.link.sock, events)
            if not leads:  # looks again soon, for the leader may leave and nobody read then
                rest = GLANCE if rest is None else min(rest, GLANCE)
            poll.poll(None if rest is None else max(1, int(rest * 1000)))
        finally:
            with self._turn:
                if leads:
                    self._led = False
                    self.link.receive()
                self.link.flush()
                self.link.release()
                self._turn.notify_all()
        return True
