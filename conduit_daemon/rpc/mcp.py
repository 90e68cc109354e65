"""The agent socket as an MCP server: any MCP host can use it as it is (protocol 2025-11-25 and before).

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
from conduit_daemon.rpc.progress import forward
from conduit_daemon.rpc.protocol import Request, RequestId

__all__ = ["LATEST_VERSION", "CallRequest", "call_tool", "failed_result", "initialize"]

VERSIONS: Final = ("2024-11-05", "2025-03-26", "2025-06-18", "2025-11-25")
LATEST_VERSION: Final = VERSIONS[-1]
UNKNOWN_TO_HOSTS: Final = frozenset({"unknown_tool", "unknown_toolset", "shutting_down", "internal", "invalid_params"})


class _CallParams(msgspec.Struct, frozen=True):
    name: str
    arguments: dict[str, Any] | None = None
    meta: dict[str, Any] | None = msgspec.field(default=None, name="_meta")


class _InitializeParams(msgspec.Struct, frozen=True):
    protocolVersion: str
    clientInfo: dict[str, Any] = {}
    capabilities: dict[str, Any] = {}


def initialize(connection: Connection, request: Request, version: str) -> dict[str, Any]:
    """Answers the handshake; `version` is the daemon's own.

    Raises:
        ClientError: ``invalid_params``.
    """
    params = protocol.decode_params(request.params, _InitializeParams)
    connection.initialized = True
    wanted = params.protocolVersion
    return {
        "protocolVersion": wanted if wanted in VERSIONS else LATEST_VERSION,
        "capabilities": {"tools": {"listChanged": True}},
        "serverInfo": {"name": "conduit", "title": "Conduit", "version": version},
        "instructions": "Tools of many MCP servers, named server__tool. Calls are governed by the operator's policy.",
    }


@final
class CallRequest:
    """A tools/call in flight: what its connection cancels."""

    __slots__ = ("flight",)

    def __init__(self) -> None:
        self.flight: Flight | None = None

    def cancel(self) -> None:
        """Cancels the call, at its server too."""
        if self.flight is not None:
            self.flight.cancel()


def call_tool(connection: Connection, request: Request) -> None:
    """Starts a tools/call; its answer is written when it comes.

    Raises:
        ClientError: ``invalid_params``.
    """
    request_id = request.id
    assert not isinstance(request_id, msgspec.UnsetType)  # noqa: S101 - the connection answers requests alone
    params = protocol.decode_params(request.params, _CallParams)
    gate = connection.context.gate
    meta = params.meta or {}
    token = meta.pop("progressToken", None)
    call = Call(
        id=gate.new_call_id(),
        name=params.name,
        arguments=params.arguments or {},
        principal=connection.principal,
        meta=meta,
    )
    in_flight = CallRequest()
    connection.running[request_id] = in_flight
    in_flight.flight = start(
        call,
        connection.context,
        partial(_answer, connection, request_id),
        on_progress=None if token is None else partial(forward, connection, token),
    )


def failed_result(error: ClientError) -> dict[str, Any]:
    """A failure of a known tool, as a result that a model can act on."""
    return {
        "content": [{"type": "text", "text": error.message}],
        "isError": True,
        "_meta": {"conduit": error.to_data()},
    }


def _answer(connection: Connection, request_id: RequestId, outcome: Outcome) -> None:
    error = outcome.error
    if error is None:
        line = protocol.answer(request_id, outcome.result)
    elif error.kind in UNKNOWN_TO_HOSTS:
        line = protocol.failure(request_id, error)
    else:
        line = protocol.answer(request_id, failed_result(error))
    connection.settle(request_id, line)
