"""What an actor costs: ratios against bare trio, all in one run.

Run it with ``python tests/benchmarks/bench_supervisors.py``. Times are CPU time of the process; each figure is the
median of interleaved rounds, so that a busy machine disturbs both sides alike. triotp and pykka stand beside where they
are installed and can do the work.
"""

from __future__ import annotations

import gc
import importlib.util
import statistics
import time
import tracemalloc
from collections.abc import Callable, Coroutine
from types import ModuleType
from typing import Any

import trio
import trio.testing

from supervisors import Actor, Call, ChildSpec, DynamicSupervisor, From, Supervisor, call, open_supervisor, start_child

ROUND_TRIPS = 20_000
ACTORS = 10_000
ROUNDS = 7

Measure = Callable[[], None]
Many = Callable[[Measure], Coroutine[Any, Any, None]]


class Ping(Call[int], frozen=True):
    """A request without content."""


class Echo(Actor):
    """Answers at once."""

    async def handle_call(self, request: Ping, sender: From) -> int:
        """Replies."""
        return 1


# ---- one round trip: CPU seconds each


async def bare_round_trip() -> float:
    """A request over a memory channel, the reply over a fresh channel of one slot."""
    send, receive = trio.open_memory_channel[trio.MemorySendChannel[int]](1000)

    async def serve() -> None:
        async for answer in receive:
            await answer.send(1)

    async with trio.open_nursery() as nursery:
        nursery.start_soon(serve)
        started = time.process_time()
        for _ in range(ROUND_TRIPS):
            reply_to, reply = trio.open_memory_channel[int](1)
            await send.send(reply_to)
            await reply.receive()
        spent = time.process_time() - started
        nursery.cancel_scope.cancel()
    return spent / ROUND_TRIPS


async def actor_round_trip() -> float:
    """By ``call``, with its timeout of 5 s, to a handle."""
    async with open_supervisor([]) as root:
        echo = await start_child(root, ChildSpec(id="echo", start=Echo))
        assert echo is not None
        request = Ping()
        started = time.process_time()
        for _ in range(ROUND_TRIPS):
            await call(echo, request)
        return (time.process_time() - started) / ROUND_TRIPS


async def triotp_round_trip() -> float:
    """By ``triotp.gen_server.call``, which has no timeout unless asked."""
    gen_server, mailbox = (importlib.import_module(f"triotp.{name}") for name in ("gen_server", "mailbox"))
    module = ModuleType("echo")

    async def init(_: object) -> None:
        return None

    async def handle_call(message: object, caller: object, state: object) -> tuple[object, object]:
        return gen_server.Reply(1), state

    vars(module).update(init=init, handle_call=handle_call)
    mailbox._init()
    async with trio.open_nursery() as nursery:
        nursery.start_soon(gen_server.start, module, None, "echo")
        await trio.testing.wait_all_tasks_blocked()
        started = time.process_time()
        for _ in range(ROUND_TRIPS):
            await gen_server.call("echo", "ping")
        spent = time.process_time() - started
        nursery.cancel_scope.cancel()
    return spent / ROUND_TRIPS


def pykka_round_trip() -> float:
    """By ``ask`` of a ``ThreadingActor``: a thread and a future, no supervision."""
    pykka = importlib.import_module("pykka")

    class Threaded(pykka.ThreadingActor):  # type: ignore[misc,name-defined]
        def on_receive(self, message: object) -> int:
            return 1

    echo = Threaded.start()
    started = time.process_time()
    for _ in range(ROUND_TRIPS // 10):
        echo.ask("ping")
    spent = time.process_time() - started
    echo.stop()
    return spent / (ROUND_TRIPS // 10)


# ---- many at a time


async def bare_tasks(measure: Measure) -> None:
    """Each with a cancel scope and a channel of its own; all are started at once and cancelled at once."""

    async def serve() -> None:
        _send, receive = trio.open_memory_channel[int](1000)
        with trio.CancelScope():
            async for _ in receive:
                raise AssertionError("nothing is sent")

    async with trio.open_nursery() as nursery:
        for _ in range(ACTORS):
            nursery.start_soon(serve)
        await trio.testing.wait_all_tasks_blocked()
        measure()
        nursery.cancel_scope.cancel()


async def dynamic_actors(measure: Measure) -> None:
    """Under a dynamic supervisor, by ``start_child``; stopped side by side."""
    async with open_supervisor([ChildSpec(id="many", start=lambda: DynamicSupervisor(name="many"))]):
        for number in range(ACTORS):
            await start_child("many", ChildSpec(id=str(number), start=Echo))
        await trio.testing.wait_all_tasks_blocked()
        measure()


async def ordered_actors(measure: Measure) -> None:
    """Under a supervisor that starts and stops them one by one, in order."""
    children = [ChildSpec(id=str(number), start=Echo) for number in range(ACTORS)]
    async with open_supervisor([ChildSpec(id="many", start=lambda: Supervisor(children))]):
        await trio.testing.wait_all_tasks_blocked()
        measure()


def cpu_seconds(run: Many) -> float:
    """The CPU time to start and stop one of many."""
    gc.collect()
    started = time.process_time()
    trio.run(run, lambda: None)
    return (time.process_time() - started) / ACTORS


def kibibytes(run: Many) -> float:
    """The memory of one of many while all are idle."""
    used: list[float] = []
    gc.collect()
    tracemalloc.start()
    before = tracemalloc.get_traced_memory()[0]

    def measure() -> None:
        gc.collect()
        used.append((tracemalloc.get_traced_memory()[0] - before) / ACTORS / 1024)

    trio.run(run, measure)
    tracemalloc.stop()
    return used[0]


# ---- the table


def compare(
    title: str, unit: str, scale: float, rounds: int, goal: float, rivals: dict[str, Callable[[], float]]
) -> None:
    """Measures all rivals in turn, several times, and prints their medians and ratios to the first."""
    figures: dict[str, list[float]] = {name: [] for name in rivals}
    for _ in range(rounds):
        for name, measure in rivals.items():
            figures[name].append(measure() * scale)
    medians = {name: statistics.median(values) for name, values in figures.items()}
    base = next(iter(medians.values()))
    print(f"\n{title} (goal: at most {goal:g} times bare trio; median of {rounds})")
    for name, median in medians.items():
        print(f"  {name:<34}{median:>9.2f} {unit:<4}{median / base:>7.2f}x")


def main() -> None:
    """Prints the three tables of the design's last section."""
    trips: dict[str, Callable[[], float]] = {
        "bare trio channels": lambda: trio.run(bare_round_trip),
        "supervisors call": lambda: trio.run(actor_round_trip),
    }
    if importlib.util.find_spec("triotp"):
        trips["triotp gen_server.call"] = lambda: trio.run(triotp_round_trip)
    if importlib.util.find_spec("pykka"):
        trips["pykka ask (threads)"] = pykka_round_trip
    compare("One round trip", "us", 1e6, ROUNDS, 1.25, trips)
    many: dict[str, Many] = {
        "bare trio tasks": bare_tasks,
        "actors, DynamicSupervisor": dynamic_actors,
        "actors, Supervisor": ordered_actors,
    }
    weigh = {name: (lambda run=run: kibibytes(run)) for name, run in many.items()}
    compare(f"Memory of one of {ACTORS:,} idle", "KiB", 1, 1, 1.25, weigh)
    clock = {name: (lambda run=run: cpu_seconds(run)) for name, run in many.items()}
    compare(f"Start and stop of one of {ACTORS:,}", "us", 1e6, ROUNDS, 2.5, clock)


if __name__ == "__main__":
    main()
