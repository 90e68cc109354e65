"""Calls one after the other as fast as they are answered, timed: the load that `conduit bench` puts on.

One thread with one poll, whatever the number of callers, so that the client's own share stays small and the same.
"""

from __future__ import annotations

import math
import os
import select
import socket
import subprocess
import sys
import time
from collections.abc import Iterator, Sequence
from contextlib import ExitStack, contextmanager
from pathlib import Path
from typing import Any, Final

import msgspec

from conduit_daemon.agent.sockets import Sockets

__all__ = ["PROTOCOL", "BenchFailed", "Caller", "Row", "Tally", "connected", "load", "request", "server_alone"]

PROTOCOL: Final = "2025-11-25"
"""The revision of MCP that the server speaks, with us and with the daemon alike, so that its own share is the same."""
_PATIENCE: Final = 10.0
"""Seconds after which an answer that has not come is given up, and the measurement with it."""
_CHUNK: Final = 1 << 18
_FEW: Final = 100


class BenchFailed(Exception):
    """Nothing could be measured; the message says why."""


class _Result(msgspec.Struct):
    is_error: bool = msgspec.field(default=False, name="isError")


class _Fault(msgspec.Struct):
    message: str = ""


class _Answer(msgspec.Struct):
    id: int | str | None = None
    result: _Result | None = None
    error: _Fault | None = None


_DECODER: Final = msgspec.json.Decoder(_Answer)


class Caller:
    """One connection that sends a line and reads the answer, again and again.

    Args:
        write: The descriptor to write to.
        read: The descriptor to read from.
    """

    def __init__(self, write: int, read: int) -> None:
        self.write, self.read = write, read
        self.sent_at = 0.0
        self._rest = b""

    def send(self, line: bytes) -> None:
        """Sends a whole line."""
        self.sent_at = time.perf_counter()
        while line:
            line = line[os.write(self.write, line) :]

    def answer(self) -> _Answer | None:
        """Reads what has come: the answer, once it is whole.

        Raises:
            BenchFailed: The connection has ended.
        """
        chunk = os.read(self.read, _CHUNK)
        if not chunk:
            raise BenchFailed("The connection was closed while it was measured")
        *lines, self._rest = (self._rest + chunk).split(b"\n")
        answers = (_DECODER.decode(line) for line in lines if line)
        return next((answer for answer in answers if answer.id is not None), None)


class Tally:
    """What was measured of one kind of load, over several rounds."""

    def __init__(self) -> None:
        self.latencies: list[float] = []
        self.seconds = 0.0
        self.failed = 0
        self.failure: str | None = None

    def row(self, name: str, callers: int) -> Row:
        """The figures, over all rounds."""
        ordered = sorted(self.latencies)
        count = len(ordered)
        return Row(
            name=name,
            callers=callers,
            calls=count,
            failed=self.failed,
            failure=self.failure,
            p50_us=_rank(ordered, 0.50) if ordered else None,
            p99_us=_rank(ordered, 0.99) if count >= _FEW else None,
            calls_per_second=round(count / self.seconds, 1) if self.seconds else 0.0,
        )


class Row(msgspec.Struct, frozen=True):
    """One line of the measurement; times in microseconds, None where there were too few calls to say."""

    name: str
    callers: int
    calls: int
    failed: int
    failure: str | None
    p50_us: float | None
    p99_us: float | None
    calls_per_second: float


def load(callers: Sequence[Caller], line: bytes, seconds: float, tally: Tally) -> None:
    """Has each caller send `line` again as soon as it was answered, and adds what is seen to `tally`.

    Raises:
        BenchFailed: An answer does not come, or a connection ends.
    """
    by_descriptor = {caller.read: caller for caller in callers}
    poll = select.poll()
    for descriptor in by_descriptor:
        poll.register(descriptor, select.POLLIN)
    began = time.perf_counter()
    end = began + seconds
    for caller in callers:
        caller.send(line)
    running = len(callers)
    while running:
        ready = poll.poll(_PATIENCE * 1000)
        if not ready:
            raise BenchFailed(f"No answer came within {_PATIENCE:g} s")
        for descriptor, _ in ready:
            caller = by_descriptor[descriptor]
            answer = caller.answer()
            if answer is None:
                continue
            now = time.perf_counter()
            tally.latencies.append(now - caller.sent_at)
            _judge(answer, tally)
            if now < end:
                caller.send(line)
            else:
                running -= 1
    tally.seconds += time.perf_counter() - began


def _judge(answer: _Answer, tally: Tally) -> None:
    if answer.error is not None:
        tally.failed += 1
        tally.failure = tally.failure or answer.error.message
    elif answer.result is not None and answer.result.is_error:
        tally.failed += 1
        tally.failure = tally.failure or "The tool reports an error."


def _rank(ordered: list[float], share: float) -> float:
    return round(ordered[math.ceil(share * len(ordered)) - 1] * 1e6, 1)


@contextmanager
def connected(places: Sequence[Sockets], count: int) -> Iterator[list[Caller]]:
    """So many connections of their own to the daemon.

    Raises:
        BenchFailed: They cannot be made.
    """
    with ExitStack() as stack:
        made = [stack.enter_context(_connect(places)) for _ in range(count)]
        yield [Caller(sock.fileno(), sock.fileno()) for sock in made]


def _connect(places: Sequence[Sockets]) -> socket.socket:
    problem = ""
    for place in places:
        sock = socket.socket(socket.AF_UNIX)
        try:
            sock.connect(str(place.agent))
        except OSError as error:
            sock.close()
            problem = f"{place.agent} ({error.strerror})"
        else:
            return sock
    raise BenchFailed(f"Not enough connections can be made: {problem}")


@contextmanager
def server_alone(log: Path) -> Iterator[Caller]:
    """The example server without a daemon: a caller at its own pipes, after MCP's handshake.

    Raises:
        BenchFailed: It does not start.
    """
    with log.open("wb") as stderr:
        process = subprocess.Popen(
            [sys.executable, "-m", "conduit_daemon.cli.example_server"],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=stderr,
            start_new_session=True,
            bufsize=0,
        )
    assert process.stdin is not None  # noqa: S101 - pipes were asked for
    assert process.stdout is not None  # noqa: S101
    try:
        caller = Caller(process.stdin.fileno(), process.stdout.fileno())
        caller.send(request("initialize", _HELLO))
        deadline = time.monotonic() + _PATIENCE
        while not select.select([caller.read], [], [], 0.1)[0] or caller.answer() is None:
            if time.monotonic() > deadline:
                raise BenchFailed(f"The example server did not answer within {_PATIENCE:g} s")
        caller.send(b'{"jsonrpc":"2.0","method":"notifications/initialized"}\n')
        yield caller
    finally:
        process.kill()
        process.wait()
        process.stdin.close()
        process.stdout.close()


_HELLO: Final = {
    "protocolVersion": PROTOCOL,
    "capabilities": {},
    "clientInfo": {"name": "conduit-bench", "version": "1"},
}


def request(method: str, params: dict[str, Any]) -> bytes:
    """A request as a line; one at a time is under way on a connection, so that they may share an id."""
    return msgspec.json.encode({"jsonrpc": "2.0", "id": 1, "method": method, "params": params}) + b"\n"
