"""What hosts ask of servers: calls of tools, and resources, prompts and completions, which go the same way.

A call takes the hot path: no task, and the server's result goes to the caller as the bytes it came in.
"""

from __future__ import annotations

from typing import Any, Final, final

import msgspec
from msgspec import UNSET, UnsetType

from conduit_daemon.clients.host import LOG_LEVEL_KEY
from conduit_daemon.errors import ClientError
from conduit_daemon.model import Call, Method, Outcome
from conduit_daemon.pipeline.run import Flight, start
from conduit_daemon.rpc import protocol
from conduit_daemon.rpc.connection import Connection
from conduit_daemon.rpc.mcp.asking import HandshakeHost, StatelessHost
from conduit_daemon.rpc.mcp.eras import fit, is_modern, meta_of
from conduit_daemon.rpc.progress import forward, token_of
from conduit_daemon.rpc.protocol import Refused, Request, RequestId

__all__ = ["CallRequest", "call_tool", "complete", "failed_result", "get_prompt", "read_resource", "subscribe"]

UNKNOWN_TO_HOSTS: Final = frozenset({"unknown_tool", "unknown_toolset", "shutting_down", "internal", "invalid_params"})
_NOT_FOUND: Final = -32002
_MOST_PARKED: Final = 256
_LOGGED_UNASKED: Final = "info"
"""From which level on a host of the older era hears newer servers before it has said; older ones choose themselves."""
_HOSTS_OWN: Final = frozenset({-32021, -32042})
"""Codes of servers' errors that hosts act on: a capability is missing; the user must visit a URL first."""


class _Params(msgspec.Struct, frozen=True, kw_only=True):
    meta: dict[str, Any] | None = msgspec.field(default=None, name="_meta")
    inputResponses: dict[str, Any] = {}
    requestState: str | UnsetType = UNSET


class _CallParams(_Params, frozen=True, kw_only=True):
    name: str
    arguments: dict[str, Any] | None = None


class _ReadParams(_Params, frozen=True, kw_only=True):
    uri: str


class _Ref(msgspec.Struct, frozen=True):
    type: str
    name: str | None = None
    uri: str | None = None


class _CompleteParams(_Params, frozen=True, kw_only=True):
    ref: _Ref
    argument: dict[str, Any]
    context: dict[str, Any] | UnsetType = UNSET


@final
class CallRequest:
    """A request that is a call in flight: what its connection cancels.

    Attributes:
        flight: The call.
        answered: Whether it has its result.
    """

    __slots__ = (
        "_connection",
        "_method",
        "_modern",
        "_name",
        "_outcome",
        "_request_id",
        "_stateless",
        "_token",
        "answered",
        "flight",
    )

    def __init__(
        self, connection: Connection, request: Request, name: str, token: RequestId | None = None, *, modern: bool
    ) -> None:
        self.flight: Flight | None = None
        self._connection = connection
        self._method = request.method
        self._name = name
        self._modern = modern
        self._token = token
        self._request_id: RequestId | None = request.number
        self._stateless: StatelessHost | None = None
        self._outcome: Outcome | None = None
        self.answered = False

    def cancel(self) -> None:
        """Cancels the call, at its server too."""
        if self.flight is not None:
            self.flight.cancel()

    def caller(self, meta: dict[str, Any]) -> HandshakeHost | StatelessHost | None:
        """Who answers what the call's server asks; None where nobody can."""
        if not self._modern:
            return HandshakeHost(self._connection) if self._connection.host.initialized else None
        self._stateless = StatelessHost(self._connection, meta, self)
        return self._stateless

    def tell_progress(self, raw: msgspec.Raw) -> None:
        """Tells of the call's progress, under the token of the request that waits for it at the moment."""
        if self._request_id is not None and self._token is not None:
            forward(self._connection, self._request_id, self._token, raw)

    def answer(self, outcome: Outcome) -> None:
        """Answers the request with what came of the call; where none waits, the next one that asks for it."""
        self._connection.context.callers.pop(outcome.call.id, None)
        if self._method == "resources/subscribe":
            self._note_subscription(outcome)
        if self._request_id is None:
            self._outcome = outcome
            return
        self.answered = True
        self._stateless = None  # which knows this request: no cycle must be left to collect
        self._connection.settle(self._request_id, self._line(self._request_id, outcome))

    def require(self, result: msgspec.Raw, state: str) -> bool:
        """Answers the request with what input is required, and waits for the request that brings it."""
        connection, request_id = self._connection, self._request_id
        if request_id is None:
            return False
        if len(connection.parked) >= _MOST_PARKED:
            connection.parked.pop(next(iter(connection.parked))).cancel()
        self._request_id = None
        connection.parked[state] = self
        connection.settle(request_id, protocol.answer(request_id, result))
        return True

    def resume(self, request: Request, name: str, responses: dict[str, Any], token: RequestId | None) -> None:
        """Goes on with the input that a further request brings, and tells of progress under its token.

        Raises:
            ClientError: ``invalid_params``: it asks for something else than the call that waits.
        """
        if request.method != self._method or name != self._name or self._stateless is None:
            raise ClientError("invalid_params", "This requestState is another request's; send it with that one.")
        self._connection.parked.pop(self._stateless.state or "", None)
        request_id = self._request_id = request.number
        self._token = token
        self._connection.running[request_id] = self
        self._stateless.take(responses)  # what was asked may outlive the call: a server asks while it starts, too
        if self._outcome is not None:
            self.answer(self._outcome)

    def _note_subscription(self, outcome: Outcome) -> None:
        uri = self._name.partition(":")[2]
        if outcome.error is None and outcome.server is not None and self._method == "resources/subscribe":
            self._connection.host.subscriptions[uri] = outcome.server

    def _line(self, request_id: RequestId, outcome: Outcome) -> bytes:
        error = outcome.error
        if error is None:
            return protocol.answer(request_id, fit(self._method, outcome.result, modern=self._modern))
        if self._method == "tools/call" and error.kind not in UNKNOWN_TO_HOSTS and self._code(error) == error.code:
            failed = msgspec.Raw(msgspec.json.encode(failed_result(error)))
            return protocol.answer(request_id, fit(self._method, failed, modern=self._modern))
        return protocol.error_answer(request_id, self._code(error), error.message, self._data(error))

    def _code(self, error: ClientError) -> int:
        """The server's own code of an error, if it is the server's; a resource that is unknown has an old one too."""
        own = error.data.get("error")
        if error.kind == "server_error" and isinstance(own, dict):
            code = own.get("code")
            if isinstance(code, int) and (self._method != "tools/call" or code in _HOSTS_OWN):
                return code
        if error.kind == "unknown_tool" and self._method == "resources/read" and not self._modern:
            return _NOT_FOUND
        return error.code

    def _data(self, error: ClientError) -> dict[str, Any]:
        data = error.to_data()
        own = error.data.get("error")
        if isinstance(own, dict) and isinstance(own.get("data"), dict):
            data = {**own["data"], **data}
        return {**data, "uri": self._name.partition(":")[2]} if self._method == "resources/read" else data


def call_tool(connection: Connection, request: Request) -> None:
    """Starts a tools/call; its answer is written when it comes.

    Raises:
        ClientError: ``invalid_params``.
        Refused: The host's protocol version is not spoken here.
    """
    params = protocol.decode_params(request.params, _CallParams)
    _start(connection, request, params, "tools/call", params.name, params.arguments or {})


def get_prompt(connection: Connection, request: Request) -> None:
    """Starts a prompts/get; as `call_tool`."""
    params = protocol.decode_params(request.params, _CallParams)
    _start(connection, request, params, "prompts/get", f"prompt:{params.name}", params.arguments or {})


def read_resource(connection: Connection, request: Request) -> None:
    """Starts a resources/read; as `call_tool`."""
    params = protocol.decode_params(request.params, _ReadParams)
    _start(connection, request, params, "resources/read", f"resource:{params.uri}", {})


def subscribe(connection: Connection, request: Request) -> None:
    """Starts a resources/subscribe, which only the older era has; as `call_tool`."""
    if is_modern(meta_of(request.params)):
        raise Refused(-32601, f"There is no method {request.method!r} in this version of the protocol.")
    params = protocol.decode_params(request.params, _ReadParams)
    _start(connection, request, params, "resources/subscribe", f"resource:{params.uri}", {})


def complete(connection: Connection, request: Request) -> None:
    """Starts a completion/complete; as `call_tool`."""
    params = protocol.decode_params(request.params, _CompleteParams)
    ref = params.ref
    if ref.type == "ref/prompt" and ref.name is not None:
        name = f"prompt:{ref.name}"
    elif ref.type == "ref/resource" and ref.uri is not None:
        name = f"resource:{ref.uri}"
    else:
        raise ClientError("invalid_params", "ref is a ref/prompt with a name, or a ref/resource with a uri.")
    arguments: dict[str, Any] = {"argument": params.argument}
    if not isinstance(params.context, UnsetType):
        arguments["context"] = params.context
    _start(connection, request, params, "completion/complete", name, arguments)


def _start(
    connection: Connection, request: Request, params: _Params, method: Method, name: str, arguments: dict[str, Any]
) -> None:
    context = connection.context
    meta = params.meta or {}
    token = token_of(meta)
    meta.pop("progressToken", None)
    modern = bool(meta) and is_modern(meta)
    if not isinstance(params.requestState, UnsetType) and modern:
        _parked(connection, params.requestState).resume(request, name, params.inputResponses, token)
        return
    if not modern and connection.host.initialized:  # servers of the newer era are told with each call, or log nothing
        meta[LOG_LEVEL_KEY] = connection.host.log_level or _LOGGED_UNASKED
    in_flight = CallRequest(connection, request, name, token, modern=modern)
    call = Call(
        id=context.gate.new_call_id(),
        name=name,
        arguments=arguments,
        principal=connection.principal,
        meta=meta,
        method=method,
    )
    caller = in_flight.caller(meta)
    if caller is not None:
        context.callers[call.id] = caller
    connection.running[request.number] = in_flight
    in_flight.flight = start(
        call,
        context,
        in_flight.answer,
        on_progress=None if token is None else in_flight.tell_progress,
    )


def _parked(connection: Connection, state: str) -> CallRequest:
    found = connection.parked.get(state)
    if not isinstance(found, CallRequest):
        raise ClientError(
            "invalid_params",
            "No call of this connection waits for input under this requestState; make the request again without it.",
        )
    return found


def failed_result(error: ClientError) -> dict[str, Any]:
    """A failure of a known tool, as a result that a model can act on."""
    return {
        "content": [{"type": "text", "text": error.message}],
        "isError": True,
        "_meta": {"conduit": error.to_data()},
    }
