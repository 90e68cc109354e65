"""Calls of tools, as MCP hosts make them.

A call takes the hot path: no task, and the server's result goes to the caller as the bytes it came in.
"""

from __future__ import annotations

from functools import partial
from typing import Any, Final, final

import msgspec

from conduit_daemon.errors import ClientError
from conduit_daemon.model import Call, Outcome
from conduit_daemon.pipeline.run import Flight, start
from conduit_daemon.rpc import protocol
from conduit_daemon.rpc.connection import Connection
from conduit_daemon.rpc.mcp.eras import fit, is_modern
from conduit_daemon.rpc.progress import forward
from conduit_daemon.rpc.protocol import Request, RequestId

__all__ = ["CallRequest", "call_tool", "failed_result"]

UNKNOWN_TO_HOSTS: Final = frozenset({"unknown_tool", "unknown_toolset", "shutting_down", "internal", "invalid_params"})


class _CallParams(msgspec.Struct, frozen=True):
    name: str
    arguments: dict[str, Any] | None = None
    meta: dict[str, Any] | None = msgspec.field(default=None, name="_meta")


@final
class CallRequest:
    """A request that is a call in flight: what its connection cancels."""

    __slots__ = ("_connection", "_modern", "_request_id", "flight")

    def __init__(self, connection: Connection, request_id: RequestId, *, modern: bool) -> None:
        self.flight: Flight | None = None
        self._connection = connection
        self._request_id = request_id
        self._modern = modern

    def cancel(self) -> None:
        """Cancels the call, at its server too."""
        if self.flight is not None:
            self.flight.cancel()

    def answer(self, outcome: Outcome) -> None:
        """Answers the request with what came of the call."""
        error = outcome.error
        if error is None:
            line = protocol.answer(self._request_id, fit("tools/call", outcome.result, modern=self._modern))
        elif error.kind in UNKNOWN_TO_HOSTS:
            line = protocol.failure(self._request_id, error)
        else:
            failed = msgspec.Raw(msgspec.json.encode(failed_result(error)))
            line = protocol.answer(self._request_id, fit("tools/call", failed, modern=self._modern))
        self._connection.settle(self._request_id, line)


def call_tool(connection: Connection, request: Request) -> None:
    """Starts a tools/call; its answer is written when it comes.

    Raises:
        ClientError: ``invalid_params``.
        Refused: The host's protocol version is not spoken here.
    """
    request_id = request.number
    params = protocol.decode_params(request.params, _CallParams)
    context = connection.context
    meta = params.meta or {}
    token = meta.pop("progressToken", None)
    in_flight = CallRequest(connection, request_id, modern=bool(meta) and is_modern(meta))
    call = Call(
        id=context.gate.new_call_id(),
        name=params.name,
        arguments=params.arguments or {},
        principal=connection.principal,
        meta=meta,
    )
    connection.running[request_id] = in_flight
    in_flight.flight = start(
        call,
        context,
        in_flight.answer,
        on_progress=None if token is None else partial(forward, connection, token),
    )


def failed_result(error: ClientError) -> dict[str, Any]:
    """A failure of a known tool, as a result that a model can act on."""
    return {
        "content": [{"type": "text", "text": error.message}],
        "isError": True,
        "_meta": {"conduit": error.to_data()},
    }
