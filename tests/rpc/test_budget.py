"""What connections may hold together: only the greediest has to give up, and only where it is too much."""

from __future__ import annotations

import json

import trio
from hypothesis import given
from hypothesis import strategies as st
from in_process import connection_of, gate_to_nothing

from conduit_daemon.rpc.budget import LITTLE, Budget
from conduit_daemon.rpc.connection import Connection
from conduit_daemon.rpc.dispatch import Handler
from conduit_daemon.rpc.protocol import Request
from conduit_daemon.telemetry.events import EventBus


class Holding:
    def __init__(self, owner: object, held: int) -> None:
        self.owner, self.held = owner, held
        self.told: tuple[int, int] | None = None

    def give_up(self, total: int, limit: int) -> None:
        self.told = (total, limit)
        self.held = 0


def test_of_the_greediest_process_who_asks_for_more_gives_up_first() -> None:
    budget = Budget(100 * LITTLE)
    honest = Holding("honest", 40 * LITTLE)
    greedy = [Holding("greedy", size * LITTLE) for size in (20, 30, 10)]
    for holder in (honest, *greedy[:2]):
        budget.look(holder)
    assert not any(holder.told for holder in (honest, *greedy))
    greedy[2].held = 10 * LITTLE + 1
    budget.look(greedy[2])
    assert greedy[2].told == (100 * LITTLE + 1, 100 * LITTLE)
    assert [holder.told for holder in (honest, greedy[0], greedy[1])] == [None, None, None]
    honest.held += 11 * LITTLE  # its own are the most now, but of who holds most together: not yet
    budget.look(honest)
    assert honest.told is not None
    honest.told, honest.held = None, 30 * LITTLE
    other = Holding("other", 21 * LITTLE)
    budget.look(honest)
    budget.look(other)
    assert (greedy[0].told, greedy[1].told is not None, honest.told, other.told) == (None, True, None, None)
    for gone in (greedy[0], greedy[0], other):
        budget.leave(gone)
    honest.held = 89 * LITTLE
    budget.look(honest)
    assert honest.told is None


def test_who_gives_up_a_part_is_still_counted_for_the_rest() -> None:
    class Refusing(Holding):
        def give_up(self, total: int, limit: int) -> None:
            self.held -= 30 * LITTLE

    budget, holders = Budget(100 * LITTLE), [Refusing("one", 30 * LITTLE) for _ in range(5)]
    for holder in holders:
        budget.look(holder)
    assert [holder.held // LITTLE for holder in holders] == [30, 30, 30, 0, 0]
    for _ in range(3):
        holders[0].held += 30 * LITTLE
        budget.look(holders[0])
    assert [holder.held // LITTLE for holder in holders] == [30, 30, 30, 0, 0]


def test_who_holds_little_is_left_alone() -> None:
    budget = Budget(0)
    small = [Holding("one", LITTLE) for _ in range(100)]
    for holder in small:
        budget.look(holder)
    assert not any(holder.told for holder in small)


@given(st.lists(st.tuples(st.integers(0, 3), st.integers(0, 50 * LITTLE)), max_size=30))
def test_never_more_than_the_limit_is_held_by_those_who_hold_much(steps: list[tuple[int, int]]) -> None:
    budget, holders = Budget(60 * LITTLE), [Holding(number % 2, 0) for number in range(4)]
    for number, size in steps:
        holders[number].held = size
        budget.look(holders[number])
        assert sum(holder.held for holder in holders if holder.held > LITTLE) <= budget.limit


class Staying:
    """Methods that run until the connection ends, but for ``quick``."""

    def start(self, connection: Connection, request: Request) -> Handler:
        return self.run

    def note(self, connection: Connection, notification: Request) -> None:
        raise AssertionError("no notification is sent here")

    async def run(self, connection: Connection, request: Request) -> object:
        if request.method != "quick":
            await trio.sleep_forever()
        return "done"


async def test_a_large_request_is_refused_alone_where_its_connection_held_too_much_before() -> None:
    bus, budget = EventBus(), Budget(100 * LITTLE)
    connection, ours = connection_of(gate_to_nothing(bus), bus, Staying(), budget=budget)

    def line(number: int, method: str, size: int) -> bytes:
        message = {"jsonrpc": "2.0", "id": number, "method": method, "params": {"text": "x" * size}}
        return json.dumps(message).encode() + b"\n"

    with trio.fail_after(5):
        async with trio.open_nursery() as nursery:
            nursery.start_soon(connection.run)
            async with trio.SocketStream(trio.socket.from_stdlib_socket(ours)) as stream:
                await stream.send_all(line(1, "stay", 3 * LITTLE))
                while not connection.running:
                    await trio.sleep(0.01)
                budget.limit = 2 * LITTLE  # as a reload with a smaller rpc.max_message has it
                await stream.send_all(line(2, "stay", 2 * LITTLE) + line(3, "quick", 1))
                received = b""
                while received.count(b"\n") < 2:
                    received += await stream.receive_some()
            nursery.cancel_scope.cancel()
    refused, answered = map(json.loads, received.splitlines())
    assert (refused["id"], refused["error"]["data"]["kind"]) == (2, "rate_limited")
    assert (answered["id"], answered["result"]) == (3, "done")
