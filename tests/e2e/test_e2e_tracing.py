"""Traces of a running daemon: from the agent's span to the server's, for a collector that is well, silent or gone."""

from __future__ import annotations

import json
import socket
import subprocess
import sys
import threading
import time
from collections.abc import Iterator
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any

import pytest
from opentelemetry.proto.collector.trace.v1.trace_service_pb2 import ExportTraceServiceRequest

GOVERNED = Path(__file__).parents[1] / "fakes" / "governed_server.py"
TRACE, SPAN = "4bf92f3577b34da6a3ce929d0e0e4736", "00f067aa0ba902b7"
PARENT = f"00-{TRACE}-{SPAN}-01"
CONTEXT = {"traceparent": PARENT, "tracestate": "rojo=1", "baggage": "user=alice"}


class Collector:
    """Takes spans as OTLP over HTTP has them."""

    def __init__(self) -> None:
        self.requests: list[ExportTraceServiceRequest] = []
        self.headers: list[dict[str, str]] = []
        collector = self

        class Handler(BaseHTTPRequestHandler):
            def do_POST(self) -> None:
                body = self.rfile.read(int(self.headers["Content-Length"]))
                collector.headers.append(dict(self.headers))
                collector.requests.append(ExportTraceServiceRequest.FromString(body))
                self.send_response(200)
                self.end_headers()

            def log_message(self, *_: Any) -> None: ...

        self.server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
        self.url = f"http://127.0.0.1:{self.server.server_port}"
        threading.Thread(target=self.server.serve_forever, daemon=True).start()

    def spans(self) -> dict[str, Any]:
        """The spans received by the id of their call."""
        found = {}
        for request in self.requests:
            for resource in request.resource_spans:
                for scope in resource.scope_spans:
                    for span in scope.spans:
                        found[attributes(span)["conduit.call"]] = span
        return found


def attributes(carrier: Any) -> dict[str, str]:
    return {pair.key: pair.value.string_value for pair in carrier.attributes}


@pytest.fixture
def collector() -> Iterator[Collector]:
    found = Collector()
    yield found
    found.server.shutdown()
    found.server.server_close()


@pytest.fixture
def governed(start: Any, tmp_path: Path) -> Any:
    tools = tmp_path / "tools.json"
    tools.write_text(json.dumps([{"name": "t", "inputSchema": {"type": "object"}}]))
    rule = '[policy]\ndefault = "allow"\n[[policy.rules]]\nname = "none"\neffect = "deny"\nwhen = "has(args.no)"\n'

    def begin() -> tuple[Any, Path]:
        daemon = start(f'[servers.s]\ncommand = "{sys.executable}"\nargs = ["{GOVERNED}", "{tools}"]\n', policy=rule)
        daemon.wait_ready("s")
        return daemon, Path(f"{tools}.calls")

    return begin


def metas(calls: Path) -> list[dict[str, Any]]:
    return [json.loads(line).get("meta", {}) for line in calls.read_text().splitlines()]


def test_without_opentelemetry_the_callers_context_reaches_the_server_untouched(governed: Any) -> None:
    daemon, calls = governed()
    rpc = daemon.rpc()
    rpc.result("conduit/call", {"name": "s__t", "meta": CONTEXT})
    rpc.result("conduit/call", {"name": "s__t", "_meta": CONTEXT})
    rpc.result("tools/call", {"name": "s__t", "arguments": {}, "_meta": CONTEXT})
    rpc.result(
        "conduit/execute",
        {
            "provider": "anthropic",
            "response": {"content": [{"type": "tool_use", "id": "1", "name": "s__t", "input": {}}]},
            "_meta": {**CONTEXT, "progressToken": 1},
        },
    )
    rpc.result("conduit/call", {"name": "s__t"})
    rpc.result("tools/call", {"name": "s__t", "arguments": {}, "_meta": {"traceparent": ["x"] * 1000}})
    *first, execute, none, hostile = metas(calls)
    assert first == [CONTEXT] * 3
    assert execute.pop("progressToken") is not None
    assert execute == CONTEXT
    assert none == {}
    assert hostile == {"traceparent": ["x"] * 1000}


def test_a_host_behind_the_bridge_is_a_parent_too(
    governed: Any, collector: Collector, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("OTEL_EXPORTER_OTLP_ENDPOINT", collector.url)
    daemon, calls = governed()
    host = {"protocolVersion": "2025-11-25", "capabilities": {}, "clientInfo": {"name": "h", "version": "1"}}
    asked = [("initialize", host), ("tools/call", {"name": "s__t", "arguments": {}, "_meta": CONTEXT})]
    lines = [{"jsonrpc": "2.0", "id": i, "method": name, "params": params} for i, (name, params) in enumerate(asked)]
    bridge = subprocess.run(
        [sys.executable, "-m", "conduit_daemon.cli", "mcp", "--socket", str(daemon.agent)],
        input="".join(json.dumps(line) + "\n" for line in lines),
        capture_output=True,
        text=True,
        timeout=30,
        check=False,
    )
    assert '"id":1' in bridge.stdout.replace(" ", ""), bridge.stderr
    assert daemon.stop() == 0
    (span,) = collector.spans().values()
    assert (span.trace_id.hex(), span.parent_span_id.hex()) == (TRACE, SPAN)
    (meta,) = metas(calls)
    assert meta["traceparent"] == f"00-{TRACE}-{span.span_id.hex()}-01"


def test_each_call_is_a_span_between_the_callers_and_the_servers(
    governed: Any, collector: Collector, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("OTEL_EXPORTER_OTLP_ENDPOINT", collector.url)
    monkeypatch.setenv("OTEL_EXPORTER_OTLP_HEADERS", "authorization=Bearer%20planted-token")
    monkeypatch.setenv("OTEL_BSP_SCHEDULE_DELAY", "100")
    daemon, calls = governed()
    rpc = daemon.rpc()
    rpc.result("conduit/call", {"name": "s__t", "_meta": CONTEXT})
    rpc.result("tools/call", {"name": "s__t", "arguments": {}})
    rpc.ask("tools/call", {"name": "s__t", "arguments": {"no": 1}})
    rpc.ask("tools/call", {"name": "nothing", "arguments": {}, "_meta": {"traceparent": "0" * 100_000}})
    daemon.wait_until(lambda: len(collector.spans()) == 4)
    finished = [line for line in daemon.log() if line["event"] == "call.finished"]
    spans = [collector.spans()[line["call"]] for line in finished]
    ours, root, denied, unknown = spans
    assert (ours.trace_id.hex(), ours.parent_span_id.hex(), ours.trace_state) == (TRACE, SPAN, "rojo=1")
    first, second = metas(calls)
    assert first == {**CONTEXT, "traceparent": f"00-{TRACE}-{ours.span_id.hex()}-01"}
    assert second["traceparent"].startswith(f"00-{root.trace_id.hex()}-{root.span_id.hex()}-")
    assert list(second) == ["traceparent"]
    assert not root.parent_span_id
    assert [span.name for span in spans] == ["tools/call t"] * 3 + ["tools/call"]
    assert [attributes(span).get("error.type") for span in spans] == [None, None, "denied", "unknown_tool"]
    assert attributes(denied)["conduit.rule"] == "none"
    assert "denied by the policy" in denied.status.message
    assert not unknown.parent_span_id
    resource = attributes(collector.requests[0].resource_spans[0].resource)
    assert resource["service.name"] == "conduit"
    assert collector.headers[0]["authorization"] == "Bearer planted-token"
    assert daemon.stop() == 0
    assert "planted" not in daemon.log_path.read_text()


def test_what_waits_is_sent_before_the_end(
    governed: Any, collector: Collector, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("OTEL_EXPORTER_OTLP_ENDPOINT", collector.url)
    daemon, _ = governed()
    daemon.rpc().result("conduit/call", {"name": "s__t"})
    assert daemon.stop() == 0
    assert len(collector.spans()) == 1


@pytest.mark.parametrize("kind", ["silent", "closed"])
def test_a_collector_that_is_silent_or_gone_is_felt_by_nobody(
    governed: Any, kind: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    with socket.create_server(("127.0.0.1", 0)) as silent:
        monkeypatch.setenv("OTEL_EXPORTER_OTLP_ENDPOINT", f"http://127.0.0.1:{silent.getsockname()[1]}")
        for name, value in (("DELAY", "10"), ("MAX_QUEUE_SIZE", "64"), ("MAX_EXPORT_BATCH_SIZE", "32")):
            monkeypatch.setenv(f"OTEL_BSP_{'SCHEDULE_' if name == 'DELAY' else ''}{name}", value)
        if kind == "closed":
            silent.close()
        daemon, calls = governed()
        rpc = daemon.rpc()
        longest = 0.0
        for _ in range(500):
            began = time.monotonic()
            rpc.result("conduit/call", {"name": "s__t"})
            longest = max(longest, time.monotonic() - began)
        assert longest < 0.5
        assert len(metas(calls)) == 500
        began = time.monotonic()
        assert daemon.stop() == 0
        assert time.monotonic() - began < 5
    told = [line for line in daemon.log() if line.get("logger", "").startswith("opentelemetry")]
    assert len(told) < 20, "a collector that is gone does not flood the log"


def test_what_is_configured_and_not_there_is_said_and_the_daemon_serves(
    governed: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("OTEL_TRACES_EXPORTER", "no_such_exporter")
    daemon, calls = governed()
    daemon.rpc().result("conduit/call", {"name": "s__t", "meta": CONTEXT})
    assert metas(calls) == [CONTEXT]
    warnings = [line["reason"] for line in daemon.log() if line["event"] == "config.warning"]
    assert any("no_such_exporter" in reason and "not traced" in reason for reason in warnings)
