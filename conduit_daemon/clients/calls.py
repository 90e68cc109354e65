"""Calls of a server's tools: sent, answered, and sent again where the server asks for input in between."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any, Final, Protocol, final

import msgspec
import trio
from msgspec import UNSET, UnsetType

from conduit_daemon.clients.dispatcher import Dispatcher, OnProgress, Pending
from conduit_daemon.clients.host import ASKABLE, Declined, Host, Question
from conduit_daemon.clients.port import OnResult
from conduit_daemon.clients.results import InputRequest, InputWanted, inspect_result
from conduit_daemon.clients.transport import CallHeaders
from conduit_daemon.errors import ClientError
from conduit_daemon.model import Method

__all__ = ["CallContext", "CallParams", "Granted", "Owner", "Params", "RunningCall", "headers_of", "params_of"]

_MAX_ROUNDS: Final = 10
_AWAKE: Final = 5.0
_POLL: Final = 0.05
_POLL_MAXIMUM: Final = 0.25


class CallParams(msgspec.Struct):
    """The params of ``tools/call`` and ``prompts/get``."""

    name: str
    arguments: dict[str, Any]
    meta: dict[str, Any] | UnsetType = msgspec.field(default=UNSET, name="_meta")
    inputResponses: dict[str, Any] | UnsetType = UNSET
    requestState: Any = UNSET


class ReadParams(msgspec.Struct):
    """The params of what is asked about a resource."""

    uri: str
    meta: dict[str, Any] | UnsetType = msgspec.field(default=UNSET, name="_meta")
    inputResponses: dict[str, Any] | UnsetType = UNSET
    requestState: Any = UNSET


class CompleteParams(msgspec.Struct):
    """The params of ``completion/complete``."""

    ref: dict[str, Any]
    argument: Any
    context: Any = UNSET
    meta: dict[str, Any] | UnsetType = msgspec.field(default=UNSET, name="_meta")
    inputResponses: dict[str, Any] | UnsetType = UNSET
    requestState: Any = UNSET


Params = CallParams | ReadParams | CompleteParams


def params_of(method: Method, tool: str, arguments: dict[str, Any]) -> Params:
    """What a server is sent.

    Args:
        method: What is asked.
        tool: The tool's name, or ``resource:URI`` or ``prompt:NAME``.
        arguments: Its arguments; of a completion, the ``argument`` and perhaps the ``context``.
    """
    if method == "tools/call":
        return CallParams(tool, arguments)
    kind, _, name = tool.partition(":")
    if method.startswith("resources/"):
        return ReadParams(name)
    if method == "prompts/get":
        return CallParams(name, arguments)
    ref = {"type": "ref/prompt", "name": name} if kind == "prompt" else {"type": "ref/resource", "uri": name}
    return CompleteParams(ref, arguments.get("argument"), arguments.get("context", UNSET))


def headers_of(headers: CallHeaders, method: Method, params: Params) -> Mapping[str, str]:
    """What HTTP wants beside a message of 2026-07-28."""
    if method == "tools/call" and isinstance(params, CallParams):
        return headers.of_call(params.name, params.arguments)
    name = params.uri if isinstance(params, ReadParams) else params.name if isinstance(params, CallParams) else None
    if name is None:
        return headers.of_method(method)
    from mcp.shared.inbound import MCP_NAME_HEADER, encode_header_value  # noqa: PLC0415 - see clients.session

    return {**headers.of_method(method), MCP_NAME_HEADER: encode_header_value(name)}


@final
class Granted:
    """A request that is answered with an empty result here, as soon as its caller has it in hand."""

    caller: object = None

    def __init__(self, nursery: trio.Nursery | None, on_result: OnResult) -> None:
        self._on_result: OnResult | None = on_result
        if nursery is not None:
            nursery.start_soon(self._answer)

    async def _answer(self) -> None:
        on_result, self._on_result = self._on_result, None
        if on_result is not None:
            on_result(msgspec.Raw(b"{}"), False, None)

    def cancel(self, error: ClientError) -> None:
        """Ends it with `error`."""
        on_result, self._on_result = self._on_result, None
        if on_result is not None:
            on_result(None, False, error)


@final
class Owner:
    """Whose a server is, where it asks something while no call is at it: as when it starts for the first one.

    Args:
        host: Answers what the server asks.
        caller: Who has it.
    """

    def __init__(self, host: Host, caller: object) -> None:
        self.caller = caller
        self._host = host

    async def answer(self, question: Question) -> dict[str, Any]:
        """See `Asking.answer`."""
        return await self._host.answer(question)


class CallContext(Protocol):
    """What calls of one connection have in common.

    Attributes:
        server: The server's id.
        wire: Where calls are sent.
        host: Answers what the server asks.
        nursery: Where that happens; None while there is no connection.
        running: The calls that are running.
        clean: Masks secrets in what is said of a call that failed.
    """

    server: str
    clean: Callable[[str], str]
    wire: Dispatcher
    host: Host
    nursery: trio.Nursery | None
    running: set[RunningCall]

    def headers(self, method: Method, params: Params) -> Mapping[str, str] | None:
        """What HTTP wants beside the message."""


@final
class RunningCall:
    """A call at its server.

    Args:
        context: Its connection.
        method: What is asked.
        params: What is called.
        on_result: See `Port.begin`.
        idle: Seconds of silence that end it.
        on_progress: Called with each progress.
        caller: Who calls.
    """

    __slots__ = (
        "_asking",
        "_context",
        "_end",
        "_idle",
        "_method",
        "_on_progress",
        "_on_result",
        "_params",
        "_questions",
        "_rounds",
        "caller",
        "pending",
    )

    def __init__(
        self,
        context: CallContext,
        method: Method,
        params: Params,
        on_result: OnResult,
        *,
        idle: float,
        on_progress: OnProgress | None,
        caller: object,
    ) -> None:
        self.caller = caller
        self._context = context
        self._method = method
        self._params = params
        self._on_result = on_result
        self._idle = idle
        self._on_progress = on_progress
        self.pending: Pending | None = None
        self._asking: trio.CancelScope | None = None
        self._rounds = 0
        self._questions: set[trio.CancelScope] = set()

    def send(self, request_id: int, total: float) -> None:
        """Sends it; it may take `total` seconds.

        Raises:
            ClientError: Nothing was sent.
        """
        context = self._context
        self.pending = context.wire.begin(
            request_id,
            self._method,
            self._params,
            self._answer,
            idle=self._idle,
            total=total,
            on_progress=self._on_progress,
            headers=context.headers(self._method, self._params),
        )
        self._end = self.pending.end
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

    async def answer(self, question: Question) -> dict[str, Any]:
        """The host's answer to what the server asks about this call, by a request of its own, while the call runs.

        Until it comes the server's silence is ours, and does not end the call. The end of the call ends the question.

        Raises:
            Declined: The host does not answer, or the call has ended.
        """
        answer: dict[str, Any] | None = None
        declined = Declined("The call about which this is asked has ended.")
        async with trio.open_nursery() as nursery:
            self._questions.add(nursery.cancel_scope)
            nursery.start_soon(self._stay_awake)
            try:
                answer = await self._context.host.answer(question)
            except Declined as error:
                declined = error
            finally:
                self._questions.discard(nursery.cancel_scope)
            nursery.cancel_scope.cancel()
        if answer is None:
            raise declined
        return answer

    async def _stay_awake(self) -> None:
        while self.pending is not None:
            self._context.wire.renew(self.pending)
            await trio.sleep(min(self._idle / 2, _AWAKE))

    def _finish(self, raw: msgspec.Raw | None, is_error: bool, error: ClientError | None) -> None:
        self._context.running.discard(self)
        self.pending = None  # which knows this call: no cycle must be left to collect
        for scope in self._questions:
            scope.cancel()
        if error is not None:
            error.mask(self._context.clean)
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
        offered = context.host.offered_to(self.caller)
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
                async with trio.open_nursery() as nursery:
                    for key, request in wanted.requests.items():
                        nursery.start_soon(self._ask_one, key, request, answers)
                if not answers:
                    await trio.sleep(min(_POLL * 2.0**self._rounds, _POLL_MAXIMUM))
            except* Declined as declined:
                error = self._broken(f"asked for input, and got none: {declined.exceptions[0]}")
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

    async def _ask_one(self, key: str, request: InputRequest, answers: dict[str, Any]) -> None:
        question = Question(
            server=self._context.server, method=request.method, params=request.params, call=self, key=key
        )
        answers[key] = await self._context.host.answer(question)

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
