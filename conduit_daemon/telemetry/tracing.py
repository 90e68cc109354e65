"""A span of OpenTelemetry's for each call, where that is installed and its ``OTEL_*`` variables ask for it.

The parent is the caller's, from the ``traceparent`` and ``tracestate`` of the call's ``_meta``, and the span's own go
on to the server there, as MCP has it (SEP-414, https://modelcontextprotocol.io/community/seps/414-request-meta).
``baggage`` is passed on as it came. Where nothing is configured there is no tracer, nothing of OpenTelemetry's SDK is
loaded, and ``_meta`` reaches the server untouched.

Names of spans and attributes are those of the conventions for MCP servers
(https://github.com/open-telemetry/semantic-conventions-genai, docs/gen-ai/mcp.md), except that ``error.type`` is the
error's kind and not its number, which stands in ``rpc.response.status_code``; what only this daemon knows begins with
``conduit.``. Arguments and results are never recorded.
"""

from __future__ import annotations

import os
from collections.abc import AsyncIterator, Callable, Mapping
from contextlib import asynccontextmanager
from importlib.metadata import entry_points
from typing import TYPE_CHECKING, Any, Final, final
from urllib.parse import unquote, urlsplit

import msgspec
import trio

from conduit_daemon.model import Call, Outcome
from conduit_daemon.telemetry.events import EventBus
from conduit_daemon.telemetry.masking import Masker

if TYPE_CHECKING:
    from opentelemetry import trace
    from opentelemetry.sdk.trace import TracerProvider

__all__ = ["CONTEXT_KEYS", "Ended", "Tracer", "open_tracing", "wanted_exporters"]

CONTEXT_KEYS: Final = ("traceparent", "tracestate", "baggage")
"""The keys of ``_meta`` that carry a trace's context."""

Ended = Callable[[Outcome], None]
"""Told once what came of a call."""

_NAME: Final = "conduit"
_ENDPOINTS: Final = ("OTEL_EXPORTER_OTLP_TRACES_ENDPOINT", "OTEL_EXPORTER_OTLP_ENDPOINT")
_PROTOCOLS: Final = ("OTEL_EXPORTER_OTLP_TRACES_PROTOCOL", "OTEL_EXPORTER_OTLP_PROTOCOL")
_HEADERS: Final = ("OTEL_EXPORTER_OTLP_TRACES_HEADERS", "OTEL_EXPORTER_OTLP_HEADERS")
_OTLP: Final = {"http/protobuf": "otlp_proto_http", "grpc": "otlp_proto_grpc"}
_LONGEST_CONTEXT: Final = 512  # characters, which W3C asks to be taken at least; a traceparent has 55
_LONGEST: Final = 256
_FLUSH: Final = 2.0


@final
class Tracer:
    """Makes the spans.

    Args:
        tracer: Of OpenTelemetry's.
        clean: Masks secrets in what is recorded.
    """

    def __init__(self, tracer: trace.Tracer, clean: Callable[[str], str]) -> None:
        from opentelemetry.context import Context  # noqa: PLC0415 - a daemon that is not traced goes without
        from opentelemetry.trace import SpanKind, set_span_in_context  # noqa: PLC0415 - as above
        from opentelemetry.trace.propagation.tracecontext import (  # noqa: PLC0415 - as above
            TraceContextTextMapPropagator,
        )

        self._tracer = tracer
        self._clean = clean
        self._nothing = Context()
        self._kind = SpanKind.SERVER
        self._set_span_in_context = set_span_in_context
        self._propagator = TraceContextTextMapPropagator()

    def begin(self, call: Call) -> tuple[Call, Ended]:
        """Starts a call's span.

        Args:
            call: Whose ``_meta`` may name the parent; what is no W3C trace context there is ignored and dropped.

        Returns:
            The call, whose ``_meta`` names the span, and what is to be told of its end.
        """
        given = call.meta
        parent = {key: value for key in CONTEXT_KEYS[:2] if _is_short_text(value := given.get(key))}
        span = self._tracer.start_span(
            call.method,
            self._propagator.extract(parent, self._nothing),
            self._kind,
            {"mcp.method.name": call.method, "network.transport": "unix", "conduit.call": call.id},
        )
        meta = {key: value for key, value in given.items() if key != "tracestate"}
        self._propagator.inject(meta, self._set_span_in_context(span, self._nothing))
        return msgspec.structs.replace(call, meta=meta), _Ending(span, self._clean)


@final
class _Ending:
    """Ends a span with what came of its call."""

    __slots__ = ("_clean", "_span")

    def __init__(self, span: trace.Span, clean: Callable[[str], str]) -> None:
        self._span = span
        self._clean = clean

    def __call__(self, outcome: Outcome) -> None:
        span = self._span
        if span.is_recording():
            if outcome.server is not None and (target := _target(outcome)) is not None:
                span.update_name(f"{outcome.call.method} {self._shown(target)}")
            span.set_attributes({key: self._shown(value) for key, value in _facts(outcome) if value is not None})
            if outcome.kind != "ok":
                from opentelemetry.trace import Status, StatusCode  # noqa: PLC0415 - loaded by now

                error = outcome.error
                text = None if error is None else self._shown(error.message)
                span.set_status(Status(StatusCode.ERROR, text))
        span.end()

    def _shown(self, text: str) -> str:
        """What may be exported, and can be: masked before it is cut, for half a secret would not be recognised."""
        return self._clean(text)[:_LONGEST].encode("utf-8", "replace").decode()


def _target(outcome: Outcome) -> str | None:
    """What the span is named after: of tools and prompts there is a known number, of URIs there is not."""
    method = outcome.call.method
    if method == "tools/call":
        return outcome.asked
    return outcome.asked.removeprefix("prompt:") if method == "prompts/get" else None


def _facts(outcome: Outcome) -> list[tuple[str, str | None]]:
    call, error = outcome.call, outcome.error
    facts = [
        ("conduit.server", outcome.server),
        ("conduit.principal", call.principal.name),
        ("conduit.decision", outcome.decision),
        ("conduit.rule", outcome.rule),
        ("conduit.outcome", outcome.sent),
        ("error.type", None if outcome.kind == "ok" else outcome.kind),
        ("rpc.response.status_code", None if error is None else str(error.code)),
    ]
    kind, _, name = outcome.asked.partition(":")
    if call.method == "tools/call":
        facts += [("gen_ai.operation.name", "execute_tool"), ("gen_ai.tool.name", outcome.asked)]
    elif kind == "prompt":
        facts.append(("gen_ai.prompt.name", name))
    elif kind == "resource":
        facts.append(("mcp.resource.uri", name))
    return facts


def _is_short_text(value: Any) -> bool:
    return isinstance(value, str) and len(value) <= _LONGEST_CONTEXT


def wanted_exporters(environ: Mapping[str, str]) -> tuple[str, ...]:
    """The exporters that the standard variables ask for, by the names under which packages register them.

    ``OTEL_TRACES_EXPORTER`` names them. Without it there is OTLP where an endpoint is set, and none where none is:
    OpenTelemetry's own default would have each daemon look for a collector that hardly any machine has.
    https://opentelemetry.io/docs/specs/otel/configuration/sdk-environment-variables/
    """
    if environ.get("OTEL_SDK_DISABLED", "").strip().lower() == "true":
        return ()
    named = environ.get("OTEL_TRACES_EXPORTER") or ("otlp" if _first(environ, _ENDPOINTS) else "none")
    names = [name.strip() for name in named.split(",")]
    otlp = _first(environ, _PROTOCOLS) or "http/protobuf"
    return tuple(_OTLP.get(otlp, otlp) if name == "otlp" else name for name in names if name not in {"", "none"})


@asynccontextmanager
async def open_tracing(
    bus: EventBus, masker: Masker, *, version: str, environ: Mapping[str, str] = os.environ
) -> AsyncIterator[Tracer | None]:
    """A tracer while this is entered, or None where none is wanted; then what waits is sent, for two seconds at most.

    Spans are sent by a thread of OpenTelemetry's. It drops what comes faster than it can send, so that a collector that
    is slow or gone is never felt by a call. What is configured and cannot be had is a ``config.warning``.

    Args:
        bus: Where that warning goes.
        masker: Masks what is recorded; it learns the exporters' own credentials.
        version: The daemon's version.
        environ: Where it is asked for. How the spans are sent OpenTelemetry reads from the process' environment.
    """
    names = wanted_exporters(environ)
    if not names:
        yield None
        return
    masker.update("tracing", _credentials(environ))
    try:
        provider = await trio.to_thread.run_sync(_provider, names, version)
    except Exception as error:  # noqa: BLE001 - of packages of others, which a daemon that serves can go without
        bus.emit("config.warning", level="warning", reason=f"Calls are not traced: {_hint(error)}")
        yield None
        return
    try:
        yield Tracer(provider.get_tracer(_NAME, version), masker.mask)
    finally:
        with trio.move_on_after(_FLUSH, shield=True):
            await trio.to_thread.run_sync(provider.shutdown, abandon_on_cancel=True)


def _provider(names: tuple[str, ...], version: str) -> TracerProvider:
    from opentelemetry.sdk.resources import Resource  # noqa: PLC0415 - a daemon that is not traced goes without
    from opentelemetry.sdk.trace import TracerProvider  # noqa: PLC0415 - as above
    from opentelemetry.sdk.trace.export import BatchSpanProcessor  # noqa: PLC0415 - as above

    resource = Resource.create({"service.version": version})
    if str(resource.attributes.get("service.name", "unknown_service")).startswith("unknown_service"):
        resource = resource.merge(Resource({"service.name": _NAME}))
    provider = TracerProvider(resource=resource, shutdown_on_exit=False)
    for name in names:
        found = next(iter(entry_points(group="opentelemetry_traces_exporter", name=name)), None)
        if found is None:
            raise LookupError(f"no package here has the exporter {name!r}")
        provider.add_span_processor(BatchSpanProcessor(found.load()()))
    return provider


def _hint(error: Exception) -> str:
    if isinstance(error, ImportError | LookupError):
        return f"{error}. Install it (pip install 'conduit-daemon[otel]'), or unset the OTEL_ variables."
    return f"{type(error).__name__}: {error}. Correct the OTEL_ variables."


def _credentials(environ: Mapping[str, str]) -> set[str]:
    """What is secret in the exporters' variables: the headers' values, and the endpoints' user and password."""
    found: set[str] = set()
    for name in _HEADERS:
        for header in environ.get(name, "").split(","):
            value = header.partition("=")[2].strip()
            found |= {value, unquote(value)}
    for name in _ENDPOINTS:
        try:
            parts = urlsplit(environ.get(name, ""))
        except ValueError:
            continue
        found |= {text for text in (parts.username, parts.password) if text}
    return found - {""}


def _first(environ: Mapping[str, str], names: tuple[str, ...]) -> str | None:
    return next((value for name in names if (value := environ.get(name, "").strip())), None)
