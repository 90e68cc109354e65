"""Calls of a server's tools: sent, answered, and sent again where the server asks for input in between."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Final, Protocol, final

import msgspec
import trio
from msgspec import UNSET, UnsetType

from conduit_daemon.clients.dispatcher import Dispatcher, OnProgress, Pending
from conduit_daemon.clients.host import ASKABLE, Declined, Host, Question
from conduit_daemon.clients.port import OnResult
from conduit_daemon.clients.results import InputWanted, inspect_result
from conduit_daemon.errors import ClientError

__all__ = ["CallContext", "CallParams", "RunningCall"]

_MAX_ROUNDS: Final = 10
_POLL: Final = 0.05
_POLL_MAXIMUM: Final = 0.25


class CallParams(msgspec.Struct):
    """The params of ``tools/call``."""

    name: str
    arguments: dict[str, Any]
    meta: dict[str, Any] | UnsetType = msgspec.field(default=UNSET, name="_meta")
    inputResponses: dict[str, Any] | UnsetType = UNSET
    requestState: Any = UNSET


class CallContext(Protocol):
    """What calls of one connection have in common.

    Attributes:
        server: The server's id.
        wire: Where calls are sent.
        host: Answers what the server asks.
        nursery: Where that happens; None while there is no connection.
        running: The calls that are running.
    """

    server: str
    wire: Dispatcher
    host: Host
    nursery: trio.Nursery | None
    running: set[RunningCall]

    def headers(self, params: CallParams) -> Mapping[str, str] | None:
        """What HTTP wants beside the message."""


@final
class RunningCall:
    """A call at its server.

    Args:
        context: Its connection.
        params: What is called.
        on_result: See `Port.begin`.
        idle: Seconds of silence that end it.
        total: Seconds that it may take.
        on_progress: Called with each progress.
    """

    __slots__ = ("_asking", "_context", "_end", "_idle", "_on_progress", "_on_result", "_params", "_rounds", "pending")

    def __init__(
        self,
        context: CallContext,
        params: CallParams,
        on_result: OnResult,
        *,
        idle: float,
        total: float,
        on_progress: OnProgress | None,
    ) -> None:
        self._context = context
        self._params = params
        self._on_result = on_result
        self._idle = idle
        self._end = trio.current_time() + total
        self._on_progress = on_progress
        self.pending: Pending | None = None
        self._asking: trio.CancelScope | None = None
        self._rounds = 0

    def send(self, request_id: int, total: float) -> None:
        """Sends it.

        Raises:
            ClientError: Nothing was sent.
        """
        context = self._context
        self.pending = context.wire.begin(
            request_id,
            "tools/call",
            self._params,
            self._answer,
            idle=self._idle,
            total=total,
            on_progress=self._on_progress,
            headers=context.headers(self._params),
        )
        context.running.add(self)

    def cancel(self, error: ClientError) -> None:
        """Ends it with `error`; the server is told."""
        if self._asking is not None:
            self._asking.cancel()
            self._asking = None
            self._finish(None, False, error)
        elif self.pending is not None:
            self._context.wire.cancel(self.pending, error)

    def fail(self, error: ClientError) -> None:
        """Ends it with `error`, where it waits for answers of ours and its connection is lost."""
        if self._asking is not None:
            self.cancel(error)

    def _finish(self, raw: msgspec.Raw | None, is_error: bool, error: ClientError | None) -> None:
        self._context.running.discard(self)
        self._on_result(raw, is_error, error)

    def _answer(self, raw: msgspec.Raw | None, error: ClientError | None) -> None:
        is_error = False
        if raw is not None:
            try:
                raw, is_error = inspect_result(raw, self._context.server)
            except InputWanted as wanted:
                if self._may_ask(wanted):
                    return
                raw, error = None, self._broken("asked for input, which was not offered to it")
            except ClientError as broken:
                raw, error = None, broken
        self._finish(raw, is_error, error)

    def _may_ask(self, wanted: InputWanted) -> bool:
        context = self._context
        self._rounds += 1
        offered = context.host.capabilities
        for request in wanted.requests.values():
            if ASKABLE.get(request.method) not in offered:
                return False
        if context.nursery is None or self._rounds > _MAX_ROUNDS:
            return False
        self._asking = scope = trio.CancelScope(deadline=self._end)
        context.nursery.start_soon(self._ask, wanted, scope)
        return True

    async def _ask(self, wanted: InputWanted, scope: trio.CancelScope) -> None:
        answers: dict[str, Any] = {}
        error: ClientError | None = None
        with scope:
            try:
                for key, request in wanted.requests.items():
                    question = Question(
                        server=self._context.server, method=request.method, params=request.params, call=self
                    )
                    answers[key] = await self._context.host.answer(question)
                if not answers:
                    await trio.sleep(min(_POLL * 2.0**self._rounds, _POLL_MAXIMUM))
            except Declined as declined:
                error = self._broken(f"asked for input, and got none: {declined}")
        if self._asking is not scope:
            return  # it was cancelled
        self._asking = None
        if scope.cancelled_caught:
            error = ClientError(
                "timeout",
                f"Server {self._context.server} asked for input that did not come within max_call_time.",
                self._context.server,
                outcome="outcome_unknown",
            )
        if error is None:
            self._params.inputResponses = answers or UNSET
            self._params.requestState = wanted.state
            try:
                self._send_again()
            except ClientError as unavailable:
                error = unavailable
        if error is not None:
            self._finish(None, False, error)

    def _send_again(self) -> None:
        request_id = self._context.wire.mint_id()
        meta = self._params.meta
        if self._on_progress is not None and meta is not UNSET:
            self._params.meta = {**meta, "progressToken": request_id}
        self.send(request_id, max(0.0, self._end - trio.current_time()))

    def _broken(self, what: str) -> ClientError:
        return ClientError(
            "protocol",
            f"Server {self._context.server} broke the protocol: it {what}. The call may have taken effect.",
            self._context.server,
            outcome="outcome_unknown",
        )
