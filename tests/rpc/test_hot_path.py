"""The way of a call through the daemon's own parts: how many task switches it takes, and what it must not touch."""

from __future__ import annotations

import gc
import json
import socket
import subprocess
import sys
from collections import Counter
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import pytest
import trio
from in_process import CallsOnly, agent_of, governed

from conduit_daemon.config import Config, PolicyConfig, PolicyRule, ServerConfig
from conduit_daemon.model import Call, Principal
from conduit_daemon.pipeline import Context, Gate, run
from conduit_daemon.telemetry.events import Event, EventBus
from conduit_daemon.telemetry.tracing import Tracer

FAKE = Path(__file__).parents[1] / "fakes" / "stdio_server.py"


MODERN = {
    "io.modelcontextprotocol/protocolVersion": "2026-07-28",
    "io.modelcontextprotocol/clientInfo": {"name": "test", "version": "1"},
    "io.modelcontextprotocol/clientCapabilities": {},
}


class Steps(trio.abc.Instrument):
    """Counts how often any task is resumed."""

    def __init__(self) -> None:
        self.steps: list[str] = []

    def before_task_step(self, task: trio.lowlevel.Task) -> None:
        self.steps.append(task.name)


@asynccontextmanager
async def hub(**server: Any) -> AsyncIterator[tuple[socket.socket, Gate, list[Event]]]:
    """One fake server behind a pipeline with every stage on, and the agent's end of a connection to it."""
    bus, events = EventBus(), []
    bus.attach(events.append)
    rules = (PolicyRule(effect="deny", tools=("die",)), PolicyRule(effect="allow"))
    config = Config(
        servers={"s": ServerConfig(command=sys.executable, args=(str(FAKE),), **server)},
        policy=PolicyConfig(default="deny", rules=rules),
    )
    async with governed(config, bus) as gate, agent_of(gate, bus, CallsOnly()) as sock:
        yield sock, gate, events


def line(request_id: int, tool: str, arguments: dict[str, Any], **more: Any) -> bytes:
    params = {"name": tool, "arguments": arguments, **more}
    return json.dumps({"jsonrpc": "2.0", "id": request_id, "method": "tools/call", "params": params}).encode() + b"\n"


async def answers(sock: socket.socket, count: int) -> list[dict[str, Any]]:
    data = b""
    with trio.fail_after(20):
        while data.count(b"\n") < count:
            await trio.lowlevel.wait_readable(sock.fileno())
            data += sock.recv(1 << 20)
    return [json.loads(one) for one in data.splitlines()]


async def test_a_governed_call_takes_two_task_switches() -> None:
    calls = 100
    async with hub() as (sock, _, events):
        sock.sendall(line(0, "s__echo", {"text": "warm"}))
        await answers(sock, 1)
        counter = Steps()
        trio.lowlevel.add_instrument(counter)
        for i in range(calls):
            sock.sendall(line(i, "s__echo", {"text": "hello"}))
            await answers(sock, 1)
        trio.lowlevel.remove_instrument(counter)
        # One for the reader of the agent's socket, one for the reader of the server's output; the rest is this test.
        ours = [name for name in counter.steps if "conduit_daemon" in name]
        assert len(ours) == 2 * calls, sorted(set(ours))
        assert sum(event.type == "call.finished" for event in events) == calls + 1


async def test_a_traced_call_takes_no_more_of_them() -> None:
    sdk = pytest.importorskip("opentelemetry.sdk.trace", reason="the extra otel is not installed")
    export = pytest.importorskip("opentelemetry.sdk.trace.export")
    in_memory = pytest.importorskip("opentelemetry.sdk.trace.export.in_memory_span_exporter")
    exporter = in_memory.InMemorySpanExporter()
    provider = sdk.TracerProvider(shutdown_on_exit=False)
    provider.add_span_processor(export.SimpleSpanProcessor(exporter))
    async with hub() as (sock, gate, _):
        gate.tracer = Tracer(provider.get_tracer("t"), str)
        sock.sendall(line(0, "s__echo", {"text": "warm"}))
        await answers(sock, 1)
        counter = Steps()
        trio.lowlevel.add_instrument(counter)
        for i in range(20):
            sock.sendall(line(i, "s__echo", {"text": "hello"}))
            await answers(sock, 1)
        trio.lowlevel.remove_instrument(counter)
        assert len([name for name in counter.steps if "conduit_daemon" in name]) == 2 * 20
        assert [span.name for span in exporter.get_finished_spans()] == ["tools/call echo"] * 21


async def test_calls_side_by_side_are_answered_as_they_finish() -> None:
    async with hub() as (sock, gate, _):
        sock.sendall(line(1, "s__sleep", {"seconds": 0.3}) + line(2, "s__echo", {"text": "first"}))
        got = await answers(sock, 2)
        assert [answer["id"] for answer in got] == [2, 1]
        assert not gate.flights


async def test_over_the_limit_calls_wait_their_turn_without_a_task() -> None:
    async with hub(max_in_flight=2) as (sock, gate, _):
        for i in range(6):
            sock.sendall(line(i, "s__sleep", {"seconds": 0.1}))
        await trio.sleep(0.05)
        assert gate.server_slots["s"].taken == 2
        assert len(gate.flights) == 6
        assert sorted(answer["id"] for answer in await answers(sock, 6)) == list(range(6))
        assert gate.server_slots["s"].taken == 0
        assert gate.slots.taken == 0


async def test_every_stage_answers_in_words_and_nothing_reaches_the_server() -> None:
    async with hub() as (sock, _, events):
        sock.sendall(
            line(1, "s__ech", {"text": "a"})
            + line(2, "s__add", {"a": "one", "b": 2})
            + line(3, "s__die", {"how": "SIGKILL"})
            + line(4, "s__echo", {"text": "alive"})
        )
        got = {answer["id"]: answer for answer in await answers(sock, 4)}
        assert got[1]["error"]["code"] == -32602
        assert "did you mean s__echo" in got[1]["error"]["message"]
        assert got[1]["error"]["data"].items() >= {"kind": "unknown_tool", "outcome": "not_sent"}.items()
        assert got[2]["result"]["isError"] is True
        assert "/a" in got[2]["result"]["content"][0]["text"]
        assert got[3]["result"]["isError"] is True
        assert "denied by the policy (rules[0])" in got[3]["result"]["content"][0]["text"]
        assert got[4]["result"]["content"][0]["text"] == "alive"
        kinds = [(event.fields["kind"], event.fields["decision"]) for event in events if event.type == "call.finished"]
        assert sorted(kinds) == [
            ("denied", "deny"),
            ("invalid_arguments", "invalid"),
            ("ok", "allow"),
            ("unknown_tool", "none"),
        ]


def test_a_call_crosses_no_model_of_the_sdk() -> None:
    """Every pydantic model is made to refuse, and calls still go through: the SDK is not on their way."""
    program = """
import sys, trio
sys.path[:0] = sys.argv[1:]
import test_hot_path as t
from conduit_daemon.clients.sdk import import_sdk

async def main():
    async with t.hub() as (sock, gate, events):
        import pydantic
        def refuse(*args, **kwargs):
            raise AssertionError("a model of the SDK was on the way of a call")
        for name in ("model_validate", "model_validate_json", "model_construct", "model_dump", "__init__"):
            setattr(pydantic.BaseModel, name, refuse)
        for name in ("validate_python", "validate_json", "dump_python"):
            setattr(pydantic.TypeAdapter, name, refuse)
        for i in range(20):
            sock.sendall(t.line(i, "s__echo", {"text": "hello"}))
            (answer,) = await t.answers(sock, 1)
            assert answer["result"]["content"][0]["text"] == "hello", answer
    print("crossed nothing")

trio.run(main)
"""
    done = subprocess.run(
        [sys.executable, "-c", program, *map(str, Path(__file__).parents[:2])],
        capture_output=True,
        text=True,
        timeout=60,
        check=False,
    )
    assert "crossed nothing" in done.stdout, done.stderr


@pytest.mark.parametrize("meta", [{}, MODERN], ids=["handshake", "stateless"])
async def test_calls_leave_nothing_for_the_garbage_collector(meta: dict[str, Any]) -> None:
    """Cycles that only it could free cost a tenth of the daemon's CPU under load, and memory until it came."""
    async with hub() as (sock, gate, _):

        async def call() -> None:
            sock.sendall(
                line(1, "s__echo", {"text": "hello"}, _meta=meta)  # an answer, a refusal and an error of each kind
                + line(2, "s__die", {"how": "SIGKILL"}, _meta=meta)
                + line(3, "s__add", {"a": "one"}, _meta=meta)
                + line(4, "s__fail", {"kind": "error"}, _meta=meta)
                + line(5, "s__fail", {"kind": "result"}, _meta=meta)
                + line(6, "s__fail", {"kind": "nothing"}, _meta=meta)
            )
            assert {answer["id"] for answer in await answers(sock, 6)} == {1, 2, 3, 4, 5, 6}
            echo = Call(id=gate.new_call_id(), name="s__echo", arguments={"text": "hi"}, principal=Principal("tester"))
            assert (await run(echo, Context(gate))).kind == "ok"

        await call()
        gc.collect()
        gc.disable()
        try:
            for _ in range(10):
                await call()
            gc.set_debug(gc.DEBUG_SAVEALL)
            gc.collect()
            left = Counter(type(found).__name__ for found in gc.garbage if type(found).__module__.startswith("conduit"))
        finally:
            gc.set_debug(0)
            gc.garbage.clear()
            gc.enable()
        assert not left
