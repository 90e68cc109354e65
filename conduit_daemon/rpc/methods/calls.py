"""Running tools for programs: ``conduit/execute`` and ``conduit/call``."""

from __future__ import annotations

from functools import partial
from typing import Any, final

from conduit_daemon import adapters
from conduit_daemon.config import Config
from conduit_daemon.errors import ClientError
from conduit_daemon.hub.toolset import ToolSet
from conduit_daemon.model import Call, Principal
from conduit_daemon.pipeline.gate import Context, Gate
from conduit_daemon.pipeline.resolve import unknown_toolset
from conduit_daemon.pipeline.run import OnProgress, run
from conduit_daemon.pipeline.shape import shape
from conduit_daemon.published import Published
from conduit_daemon.rpc import protocol
from conduit_daemon.rpc.connection import Connection, Handler
from conduit_daemon.rpc.params import CallParams, ExecuteParams
from conduit_daemon.rpc.progress import forward, token_of
from conduit_daemon.rpc.protocol import Request
from conduit_daemon.rpc.status import port_of
from conduit_daemon.telemetry.tracing import CONTEXT_KEYS

__all__ = ["CallMethods"]


@final
class CallMethods:
    """What runs tools.

    Args:
        gate: The pipeline's shared parts.
        config: The configuration in force.
    """

    def __init__(self, gate: Gate, config: Published[Config]) -> None:
        self._gate = gate
        self._config = config

    @property
    def handlers(self) -> dict[str, Handler]:
        """The methods by name."""
        return {"conduit/execute": self._execute, "conduit/call": self._call}

    async def _execute(self, connection: Connection, request: Request) -> object:
        params = protocol.decode_params(request.params, ExecuteParams)
        if (params.response is None) == (params.calls is None):
            raise ClientError("invalid_params", "Give either the model's response, or its calls.")
        options = adapters.ExecuteOptions(
            provider=params.provider,
            api=params.api,
            null_paths=params.null_paths,
            max_concurrency=params.max_concurrency,
            call_timeout=params.call_timeout if params.timeout is None else min(params.call_timeout, params.timeout),
            structured=params.structured,
            error_prefix=params.error_prefix,
            shape=params.shape,
            max_text=self._config.current.shape.max_text,
            assigns=params.assigns,
            taint=frozenset(params.taint),
            meta=_with_trace_context(params.meta, params.meta_),
        )
        principal = connection.principal.narrowed(params.principal)
        return await adapters.execute(
            self._context(connection, principal, params.session),
            principal,
            self._recall(params.toolset),
            params.response if params.calls is None else params.calls,
            options,
            on_progress=_progress_to(connection, request, params.meta_),
        )

    def _recall(self, toolset: str | None) -> ToolSet:
        if toolset is None:
            return self._gate.catalogue.current.offered
        found = self._gate.recall(toolset)
        if found is None:
            raise unknown_toolset(toolset)
        return found

    async def _call(self, connection: Connection, request: Request) -> object:
        params = protocol.decode_params(request.params, CallParams)
        principal = connection.principal.narrowed(params.principal)
        call = Call(
            id=self._gate.new_call_id(),
            name=self._exposed(params),
            arguments=params.arguments,
            principal=principal,
            taint=frozenset(params.taint),
            assigns=params.assigns,
            meta=_with_trace_context(params.meta, params.meta_),
            timeout=params.timeout,
        )
        context = self._context(connection, principal, params.session)
        outcome = await run(call, context, on_progress=_progress_to(connection, request, params.meta_))
        if outcome.error is not None:
            raise outcome.error
        if params.shape is None:
            return outcome.result
        return shape(outcome.tool_result(), max_text=self._config.current.shape.max_text).to_wire()

    def _context(self, connection: Connection, principal: Principal, session: str | None) -> Context:
        if session is None:
            return connection.context
        return self._gate.governance.sessions.context(connection.context, principal.name, session)

    def _exposed(self, params: CallParams) -> str:
        if params.name is not None:
            if params.server is not None or params.tool is not None:
                raise ClientError("invalid_params", "Give either name, or server and tool, not both.")
            return params.name
        if params.server is None or params.tool is None:
            raise ClientError("invalid_params", "Give the tool's name, or its server and tool.")
        port_of(self._gate, params.server)
        exposed = self._gate.catalogue.current.known.exposed_name(params.server, params.tool)
        if exposed is None:
            raise ClientError(
                "unknown_tool", f"Server {params.server} has no tool {params.tool!r}.", params.server, params.tool
            )
        return exposed


def _progress_to(connection: Connection, request: Request, meta: dict[str, Any]) -> OnProgress | None:
    token = token_of(meta)
    return None if token is None else partial(forward, connection, request.number, token)


def _with_trace_context(meta: dict[str, Any], own: dict[str, Any]) -> dict[str, Any]:
    """What the server is told: `meta`, and where that names no trace the one that the request itself belongs to."""
    if "traceparent" in meta or not any(key in own for key in CONTEXT_KEYS):
        return meta
    return {**{key: own[key] for key in CONTEXT_KEYS if key in own}, **meta}
