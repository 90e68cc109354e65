"""What the governed way costs: CPU of a call through every stage against one that nothing governs, in one run.

Run it by hand: ``python tests/benchmarks/bench_pipeline.py``. Governed is validation, a decision from the cache of
decisions, taint, slots, the audit's row on disk and a log line; ungoverned is the same way without them. Numbers are
CPU microseconds a call of the whole process (the event loop's thread, the audit's and the log's), medians over
interleaved rounds. ``pipeline`` has a server that answers at once in this process, so that nothing but the stages
differs: it is what the goal is about. The other rows go from an agent's socket to a server's pipe and back, with so
many calls in flight; there the same work costs more, on caches that are cold after each sleep and with threads that
are woken in turns.
"""

from __future__ import annotations

import json
import socket
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import Awaitable, Callable
from functools import partial
from pathlib import Path
from typing import Any

import msgspec
import trio

sys.path.insert(0, str(Path(__file__).parents[1]))

from in_process import CallsOnly, agent_of, governed

from conduit_daemon.clients.port import OnResult, Port
from conduit_daemon.config import Config, PolicyConfig, PolicyRule, ServerConfig
from conduit_daemon.errors import ClientError
from conduit_daemon.model import Call, Outcome, Principal
from conduit_daemon.pipeline.audit import Audit
from conduit_daemon.pipeline.gate import Context, Gate
from conduit_daemon.pipeline.run import start
from conduit_daemon.rpc import mcp, protocol
from conduit_daemon.rpc.connection import Connection
from conduit_daemon.telemetry.events import EventBus
from conduit_daemon.telemetry.logging import open_logging
from conduit_daemon.telemetry.masking import Masker

FAKE = Path(__file__).parents[1] / "fakes" / "stdio_server.py"
GOAL = 15.0
ROUNDS = 9
CALLS = 1600
WHO = "ann/researcher"
RESULT = msgspec.Raw(b'{"content":[{"type":"text","text":"hello"}]}')
CALLERS = (1, 16)

Way = Callable[[], Awaitable[float]]
RULES = (
    PolicyRule(effect="deny", tools=("die",)),
    PolicyRule(effect="deny", tools=("send_*",), tainted_by=("untrusted",)),
    PolicyRule(effect="allow", servers=("s",)),
)


class _Params(msgspec.Struct):
    name: str
    arguments: dict[str, Any]
    meta: dict[str, Any] | None = msgspec.field(default=None, name="_meta")


class Ungoverned:
    """tools/call as the daemon reads and answers it, with nothing between the agent and the server but the name."""

    def __init__(self, port: Port) -> None:
        self.port = port

    def start(self, connection: Connection, request: Any) -> None:
        params = protocol.decode_params(request.params, _Params)
        in_flight = mcp.CallRequest(connection, request, params.name, modern=False)
        arguments, principal = params.arguments, connection.principal
        call = Call(
            id=connection.context.gate.new_call_id(), name=params.name, arguments=arguments, principal=principal
        )
        in_flight.caller({})
        connection.running[request.id] = in_flight
        tool = params.name.removeprefix("s__")
        self.port.begin(tool, arguments, partial(self.answer, in_flight, call), meta=call.meta)

    def answer(
        self,
        in_flight: mcp.CallRequest,
        call: Call,
        result: msgspec.Raw | None,
        is_error: bool,
        error: ClientError | None,
    ) -> None:
        assert result is not None
        assert not is_error
        in_flight.answer(Outcome(call=call, kind="ok", server="s", tool="echo", result=result))


class Instant:
    """A server that answers when it is told to."""

    def begin_call(self, tool: str, arguments: dict[str, Any], on_result: OnResult, **_: Any) -> Instant:
        self.on_result = on_result
        return self

    def answer(self) -> None:
        self.on_result(RESULT, False, None)

    def cancel(self, error: ClientError) -> None: ...


async def alone(gate: Gate, governed: bool) -> float:
    """CPU microseconds a call of the whole process, without any I/O but the audit's and the log's."""
    port = gate.ports["s"]
    before, instant = port.target, Instant()
    port.target = instant
    context, principal, arguments = Context(gate), Principal(WHO), {"text": "hello"}
    began = time.process_time()
    for _ in range(CALLS):
        if governed:
            call = Call(id=gate.new_call_id(), name="s__echo", arguments=arguments, principal=principal)
            start(call, context, ignored)
        else:
            port.begin("echo", arguments, ignored, meta={})
        instant.answer()
    await trio.sleep(0.08)  # the audit's last batch, which is at most 50 ms late
    port.target = before
    return (time.process_time() - began) / CALLS * 1e6


def ignored(*_: object) -> None: ...


async def measured(sock: socket.socket, callers: int) -> float:
    """CPU microseconds a call of the whole process, with `callers` calls in flight."""
    params = {"name": "s__echo", "arguments": {"text": "hello"}}
    lines = [
        json.dumps({"jsonrpc": "2.0", "id": i, "method": "tools/call", "params": params}).encode() + b"\n"
        for i in range(CALLS)
    ]
    began = time.process_time()
    for at in range(0, CALLS, callers):
        batch = lines[at : at + callers]
        sock.sendall(b"".join(batch))
        missing = len(batch)
        while missing:
            await trio.lowlevel.wait_readable(sock.fileno())
            missing -= sock.recv(1 << 16).count(b"\n")
    await trio.sleep(0.06)  # the audit's last batch, which is at most 50 ms late
    return (time.process_time() - began) / CALLS * 1e6


async def main() -> None:
    bus = EventBus()
    reader = subprocess.Popen(["cat"], stdin=subprocess.PIPE, stdout=subprocess.DEVNULL)
    assert reader.stdin is not None
    config = Config(
        servers={"s": ServerConfig(command=sys.executable, args=(str(FAKE),))},
        policy=PolicyConfig(default="deny", rules=RULES),
    )
    with (
        tempfile.TemporaryDirectory() as folder,
        open_logging(bus, Masker(["a-secret-of-some-length"]), fd=reader.stdin.fileno(), format="json"),
    ):
        audit = Audit(Path(folder), config.audit, bus, Masker())
        async with (
            governed(config, bus, audit=audit) as gate,
            agent_of(gate, bus, Ungoverned(gate.ports["s"]), principal=WHO) as plainly,
            agent_of(gate, bus, CallsOnly(), principal=WHO) as through_all,
        ):
            added = await compared("pipeline", partial(alone, gate, False), partial(alone, gate, True))
            for callers in CALLERS:
                ways = [partial(measured, sock, callers) for sock in (plainly, through_all)]
                await compared(f"{callers} in flight", *ways)
            (row,) = await audit.query(limit=1)
            assert row.decision == "allow"
    print(f"The goal is at most {GOAL:g} us added by the pipeline.")
    sys.exit(0 if added <= GOAL else 1)


async def compared(name: str, plain: Way, governed: Way) -> float:
    """Prints what governance adds to a call, and returns it."""
    await plain()  # warm
    await governed()
    rounds = [(await plain(), await governed()) for _ in range(ROUNDS)]
    added = sorted(full - bare for bare, full in rounds)
    bare, full = (statistics.median(found) for found in zip(*rounds, strict=True))
    middle = statistics.median(added)
    print(
        f"{name:<14} ungoverned {bare:5.1f}  governed {full:5.1f}  added {middle:5.1f} us "
        f"(rounds {added[0]:.1f} to {added[-1]:.1f})"
    )
    return middle


if __name__ == "__main__":
    trio.run(main)
