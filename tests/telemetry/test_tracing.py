"""Spans of calls: what is in them, whose children they are, and what hostile contexts do to them."""

from __future__ import annotations

import subprocess
import sys
from typing import Any

import msgspec
import pytest
from opentelemetry.sdk.trace import TracerProvider
from opentelemetry.sdk.trace.export import SimpleSpanProcessor
from opentelemetry.sdk.trace.export.in_memory_span_exporter import InMemorySpanExporter
from opentelemetry.sdk.trace.sampling import ALWAYS_ON, ParentBased
from opentelemetry.trace import SpanKind, StatusCode

from conduit_daemon.errors import ClientError
from conduit_daemon.model import Call, Method, Outcome, Principal
from conduit_daemon.telemetry.events import Event, EventBus
from conduit_daemon.telemetry.masking import Masker
from conduit_daemon.telemetry.tracing import Tracer, open_tracing, wanted_exporters

PARENT = "00-4bf92f3577b34da6a3ce929d0e0e4736-00f067aa0ba902b7-01"
SECRET = "sk-verysecret-1234"
ENDPOINT = "OTEL_EXPORTER_OTLP_ENDPOINT"


class Traced:
    def __init__(self) -> None:
        self.exporter = InMemorySpanExporter()
        provider = TracerProvider(sampler=ParentBased(ALWAYS_ON), shutdown_on_exit=False)
        provider.add_span_processor(SimpleSpanProcessor(self.exporter))
        self.tracer = Tracer(provider.get_tracer("t"), Masker([SECRET]).mask)

    def call(
        self, meta: dict[str, Any] | None = None, name: str = "s__echo", method: Method = "tools/call", **outcome: Any
    ) -> tuple[dict[str, Any], Any]:
        """Runs a call's span and returns the ``_meta`` that went to the server, and the span."""
        call = Call(id="c-1", name=name, arguments={}, principal=Principal("alice"), meta=meta or {}, method=method)
        sent, ended = self.tracer.begin(call)
        how = {"kind": "ok", "server": "s", "tool": "echo", "decision": "allow", "rule": "default"} | outcome
        ended(Outcome(call=sent, **how))
        (span,) = self.exporter.get_finished_spans()
        self.exporter.clear()
        return sent.meta, span


@pytest.fixture
def traced() -> Traced:
    return Traced()


def header(span: Any) -> str:
    return f"00-{span.context.trace_id:032x}-{span.context.span_id:016x}-{span.context.trace_flags:02x}"


def test_a_span_is_named_and_described_as_the_conventions_say(traced: Traced) -> None:
    meta, span = traced.call()
    assert (span.name, span.kind, span.status.status_code) == ("tools/call echo", SpanKind.SERVER, StatusCode.UNSET)
    assert dict(span.attributes) == {
        "mcp.method.name": "tools/call",
        "network.transport": "unix",
        "gen_ai.operation.name": "execute_tool",
        "gen_ai.tool.name": "echo",
        "conduit.call": "c-1",
        "conduit.server": "s",
        "conduit.principal": "alice",
        "conduit.decision": "allow",
        "conduit.rule": "default",
        "conduit.outcome": "done",
    }
    assert meta == {"traceparent": header(span)}
    assert span.parent is None


def test_the_callers_span_is_the_parent_and_ours_goes_on_to_the_server(traced: Traced) -> None:
    given = {"traceparent": PARENT, "tracestate": "rojo=1,congo=2", "baggage": "user=alice", "own": [1]}
    meta, span = traced.call(given)
    assert f"{span.context.trace_id:032x}" == PARENT[3:35]
    assert f"{span.parent.span_id:016x}" == PARENT[36:52]
    assert span.parent.is_remote
    assert meta == {**given, "traceparent": header(span)}
    assert given["traceparent"] == PARENT, "the caller's own is not changed"


def test_a_caller_that_is_not_sampled_is_passed_on_as_such(traced: Traced) -> None:
    call = Call(id="c", name="n", arguments={}, principal=Principal("a"), meta={"traceparent": PARENT[:-2] + "00"})
    sent, ended = traced.tracer.begin(call)
    ended(Outcome(call=sent, kind="ok"))
    assert traced.exporter.get_finished_spans() == ()
    assert sent.meta["traceparent"].startswith(PARENT[:35])
    assert sent.meta["traceparent"].endswith("-00")


@pytest.mark.parametrize(
    "hostile",
    [
        "0" * 100_000,
        "00-" + "a" * 100_000,
        "00-zzf92f3577b34da6a3ce929d0e0e4736-00f067aa0ba902b7-01",
        "00-00000000000000000000000000000000-00f067aa0ba902b7-01",
        "ff-4bf92f3577b34da6a3ce929d0e0e4736-00f067aa0ba902b7-01",
        f"{PARENT}-more",
        "",
        [PARENT],
        {"a": PARENT},
        1.5,
        None,
        True,
        "\x00\n\u202e",
    ],
    ids=lambda value: repr(value)[:20],
)
def test_a_hostile_context_is_no_parent_and_goes_nowhere(traced: Traced, hostile: Any) -> None:
    meta, span = traced.call({"traceparent": hostile, "tracestate": hostile, "baggage": "a=1"})
    assert span.parent is None
    assert meta == {"traceparent": header(span), "baggage": "a=1"}
    meta, span = traced.call({"traceparent": PARENT, "tracestate": hostile})
    assert span.parent is not None
    assert meta == {"traceparent": header(span)}


@pytest.mark.parametrize(
    ("kind", "code"), [("denied", "-31001"), ("timeout", "-31003"), ("unavailable", "-31004"), ("cancelled", "-31005")]
)
def test_a_failed_call_says_how_and_without_secrets(traced: Traced, kind: Any, code: str) -> None:
    error = ClientError(kind, f"It failed for {SECRET}. " + "x" * 1000, "s", "echo")
    _, span = traced.call(kind=kind, error=error, sent="not_sent", decision="deny", rule="no-writes")
    assert span.status.status_code is StatusCode.ERROR
    assert span.status.description.startswith("It failed for [masked]. xxx")
    assert len(span.status.description) == 256
    found = span.attributes
    assert (found["error.type"], found["rpc.response.status_code"]) == (kind, code)
    assert (found["conduit.outcome"], found["conduit.decision"], found["conduit.rule"]) == (
        "not_sent",
        "deny",
        "no-writes",
    )


def test_a_tool_that_reports_a_failure_is_a_tool_error(traced: Traced) -> None:
    _, span = traced.call(kind="tool_error", result=msgspec.Raw(b'{"isError":true}'))
    assert (span.status.status_code, span.status.description) == (StatusCode.ERROR, None)
    assert span.attributes["error.type"] == "tool_error"
    assert "rpc.response.status_code" not in span.attributes


def test_names_that_callers_make_up_name_no_span(traced: Traced) -> None:
    error = ClientError("unknown_tool", "There is no such tool.")
    made_up = f"{SECRET}\ud800" + "n" * 10_000
    _, span = traced.call(name=made_up, kind="unknown_tool", error=error, server=None, tool=None)
    assert span.name == "tools/call"
    assert span.attributes["gen_ai.tool.name"] == "[masked]?" + "n" * 181
    assert "conduit.server" not in span.attributes


@pytest.mark.parametrize(
    ("method", "tool", "name", "attribute", "value"),
    [
        ("prompts/get", "prompt:greet", "prompts/get greet", "gen_ai.prompt.name", "greet"),
        ("resources/read", "resource:file:///a", "resources/read", "mcp.resource.uri", "file:///a"),
        ("completion/complete", "prompt:greet", "completion/complete", "gen_ai.prompt.name", "greet"),
    ],
)
def test_prompts_and_resources(
    traced: Traced, method: Method, tool: str, name: str, attribute: str, value: str
) -> None:
    _, span = traced.call(method=method, tool=tool)
    assert span.name == name
    assert span.attributes["mcp.method.name"] == method
    assert span.attributes[attribute] == value
    assert "gen_ai.tool.name" not in span.attributes


@pytest.mark.parametrize(
    ("environ", "exporters"),
    [
        ({}, ()),
        ({ENDPOINT: "http://localhost:4318"}, ("otlp_proto_http",)),
        ({"OTEL_EXPORTER_OTLP_TRACES_ENDPOINT": "x", "OTEL_EXPORTER_OTLP_PROTOCOL": "grpc"}, ("otlp_proto_grpc",)),
        ({ENDPOINT: "http://localhost:4318", "OTEL_SDK_DISABLED": "TRUE"}, ()),
        ({ENDPOINT: "http://localhost:4318", "OTEL_TRACES_EXPORTER": "none"}, ()),
        ({"OTEL_TRACES_EXPORTER": "otlp, console"}, ("otlp_proto_http", "console")),
        ({"OTEL_TRACES_EXPORTER": "", ENDPOINT: " "}, ()),
    ],
)
def test_what_the_standard_variables_ask_for(environ: dict[str, str], exporters: tuple[str, ...]) -> None:
    assert wanted_exporters(environ) == exporters


async def test_an_exporter_that_is_not_installed_is_a_warning_and_no_end() -> None:
    bus = EventBus()
    events: list[Event] = []
    bus.attach(events.append)
    environ = {"OTEL_TRACES_EXPORTER": "otlp", "OTEL_EXPORTER_OTLP_PROTOCOL": "grpc"}
    async with open_tracing(bus, Masker(), version="1", environ=environ) as tracer:
        assert tracer is None
    (event,) = events
    assert (event.type, event.level) == ("config.warning", "warning")
    assert "otlp_proto_grpc" in event.fields["reason"]
    assert "conduit-daemon[otel]" in event.fields["reason"]


async def test_the_exporters_own_credentials_are_masked() -> None:
    masker = Masker()
    environ = {
        "OTEL_TRACES_EXPORTER": "absent",
        "OTEL_EXPORTER_OTLP_HEADERS": "authorization=Bearer%20planted-token-1,x-key=planted-key-2",
        ENDPOINT: "http://planted-user:planted-password@localhost:4318",
    }
    async with open_tracing(EventBus(), masker, version="1", environ=environ):
        said = masker.mask("Bearer planted-token-1, planted-key-2 and planted-user:planted-password")
    assert "planted" not in said


def test_nothing_of_opentelemetry_is_loaded_where_nothing_is_configured() -> None:
    program = """
import sys, trio
import conduit_daemon.app
from conduit_daemon.telemetry.events import EventBus
from conduit_daemon.telemetry.masking import Masker
from conduit_daemon.telemetry.tracing import open_tracing

async def main():
    async with open_tracing(EventBus(), Masker(), version="1", environ={}) as tracer:
        assert tracer is None
    assert not [name for name in sys.modules if name.startswith("opentelemetry")]
    print("nothing loaded")

trio.run(main)
"""
    done = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, timeout=60, check=False)
    assert "nothing loaded" in done.stdout, done.stderr
