"""Signs of life: given while the hub and the RPC answer, withheld while one of them does not."""

from __future__ import annotations

import itertools
import os
import socket
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import pytest
import trio
import trio.testing

import supervisors
from conduit_daemon.messages import GetGate
from conduit_daemon.service.notify import Notifier
from conduit_daemon.service.watchdog import children, health_line, hub_answers, report_health, rpc_answers, watch
from conduit_daemon.telemetry.events import EventBus
from supervisors import Actor, Call, ChildSpec, From

INTERVAL = 8.0


class Manager:
    """systemd's end."""

    def __init__(self, path: Path) -> None:
        self.notifier = Notifier(str(path), watchdog=INTERVAL)
        self.sock = socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM)
        self.sock.bind(str(path))
        self.sock.setblocking(False)

    def received(self) -> list[str]:
        messages = []
        while True:
            try:
                messages.append(self.sock.recv(4096).decode())
            except BlockingIOError:
                return messages


@pytest.fixture
def manager(tmp_path: Path) -> Manager:
    return Manager(tmp_path / "notify")


@asynccontextmanager
async def running(*tasks: Callable[[], Awaitable[object]]) -> AsyncIterator[None]:
    async with trio.open_nursery() as nursery:
        for task in tasks:
            nursery.start_soon(task)
        yield
        nursery.cancel_scope.cancel()


async def answers() -> bool:
    await trio.lowlevel.checkpoint()
    return True


async def test_a_sign_of_life_is_due_three_times_an_interval(manager: Manager, autojump_clock: Any) -> None:
    async with running(lambda: watch(manager.notifier, INTERVAL, {"hub": answers}, EventBus())):
        await trio.sleep(0.1)
        assert manager.received() == ["WATCHDOG=1"]
        for _ in range(10):
            await trio.sleep(INTERVAL)
            assert manager.received() == ["WATCHDOG=1"] * 3


async def test_one_silent_part_is_enough_and_is_named_once(manager: Manager, autojump_clock: Any) -> None:
    bus, events = EventBus(), []
    bus.attach(events.append)
    asked, wedged = 0, True

    async def wedges() -> bool:
        nonlocal asked
        asked += 1
        if wedged:
            await trio.sleep_forever()
        return True

    async with running(lambda: watch(manager.notifier, INTERVAL, {"hub": wedges, "rpc": answers}, bus)):
        await trio.sleep(INTERVAL * 5)
        assert manager.received() == []
        assert [(event.type, event.fields["parts"]) for event in events] == [("daemon.unresponsive", ["hub"])]
        assert asked > 5, "it is asked again"
        wedged = False
        await trio.sleep(INTERVAL)
        assert manager.received()


async def test_a_part_that_is_late_once_costs_nothing(manager: Manager, autojump_clock: Any) -> None:
    late = False

    async def slow() -> bool:
        nonlocal late
        late = not late
        await trio.sleep(INTERVAL * 0.49 if late else 0)
        return True

    signs = [0.0]

    async def listen() -> None:
        while True:
            if manager.received():
                signs.append(trio.current_time())
            await trio.sleep(0.01)

    signs[0] = trio.current_time()
    async with running(lambda: watch(manager.notifier, INTERVAL, {"hub": slow}, EventBus()), listen):
        await trio.sleep(INTERVAL * 20)
    gaps = [after - before for before, after in itertools.pairwise(signs)]
    assert max(gaps) < INTERVAL * 0.9
    assert len(gaps) > 25


def test_only_what_the_manager_wants_is_a_task(tmp_path: Path) -> None:
    async def admit(sock: socket.socket) -> None: ...

    def ids(notifier: Notifier) -> list[str]:
        return [spec.id for spec in children(notifier, admit=admit, health=str, bus=EventBus())]

    assert ids(Notifier(None, watchdog=1)) == []
    assert ids(Notifier(str(tmp_path / "x"))) == ["status_line"]
    assert ids(Notifier(str(tmp_path / "x"), watchdog=1)) == ["status_line", "watchdog"]


class Hub(Actor):
    name = "hub"

    def __init__(self, wedged: trio.Event) -> None:
        self.wedged = wedged

    async def init(self) -> None: ...

    async def handle_call(self, request: Call[Any], sender: From) -> object:
        assert isinstance(request, GetGate)
        if self.wedged.is_set():
            await trio.sleep_forever()
        return "gate"


async def test_a_deadlocked_hub_stops_the_signs(manager: Manager, autojump_clock: Any) -> None:
    wedged = trio.Event()
    async with supervisors.open_supervisor([ChildSpec(id="hub", start=lambda: Hub(wedged), shutdown=1)], name="root"):
        assert await hub_answers()
        async with running(lambda: watch(manager.notifier, INTERVAL, {"hub": hub_answers}, EventBus())):
            await trio.sleep(INTERVAL)
            assert manager.received()
            wedged.set()
            await trio.sleep(INTERVAL)
            manager.received()
            await trio.sleep(INTERVAL * 5)
            assert manager.received() == []


async def test_no_hub_is_no_answer() -> None:
    assert not await hub_answers()


async def test_the_rpc_is_asked_over_a_connection_of_its_own() -> None:
    seen = b""

    async def serve(sock: socket.socket) -> None:
        nonlocal seen
        assert not sock.getblocking()
        with sock:
            await trio.lowlevel.wait_readable(sock)
            seen = sock.recv(100)
            sock.send(b'{"jsonrpc":"2.0","id":"watchdog","result":{}}\n')

    # As the RPC does: `admit` returns at once, and a task of its own serves.
    async with trio.open_nursery() as nursery:

        async def start(sock: socket.socket) -> None:
            nursery.start_soon(serve, sock)

        assert await rpc_answers(start)
    assert b'"ping"' in seen
    assert seen.endswith(b"\n")


async def test_an_rpc_that_crashes_or_hangs_has_not_answered() -> None:
    async def crashes(sock: socket.socket) -> None:
        sock.close()
        raise supervisors.NoProcess("rpc.connections")

    async def hangs_up(sock: socket.socket) -> None:
        sock.close()

    async def refuses(sock: socket.socket) -> None:
        with sock:
            sock.send(b'{"jsonrpc":"2.0","id":null,"error":{"code":-31004,"message":"too many connections"}}\n')

    held = []

    async def hangs(sock: socket.socket) -> None:
        held.append(sock)

    before = len(os.listdir("/proc/self/fd")) if os.path.isdir("/proc/self/fd") else 0
    assert not await rpc_answers(crashes)
    assert not await rpc_answers(hangs_up)
    assert await rpc_answers(refuses), "it works, it is merely full"
    answered = True
    with trio.move_on_after(0.2):
        answered = await rpc_answers(hangs)
        answered = False
    assert answered, "it waits for as long as it may"
    held.pop().close()
    if before:
        assert len(os.listdir("/proc/self/fd")) == before


async def test_the_status_line_is_said_when_it_changes(manager: Manager, autojump_clock: Any) -> None:
    bus, line = EventBus(), "0 of 1 server ready"
    async with running(lambda: report_health(manager.notifier, lambda: line, bus)):
        await trio.sleep(0.5)
        line = "1 of 1 server ready"
        bus.emit("client.ready", server="s")
        await trio.sleep(2)
        assert manager.received() == ["STATUS=0 of 1 server ready", "STATUS=1 of 1 server ready"]
        for _ in range(100):  # a busy daemon
            bus.emit("call.finished", kind="ok", duration_ms=1.0)
            line = f"{trio.current_time()}"
            await trio.sleep(0.1)
        assert len(manager.received()) in range(5, 12)
        await trio.sleep(15)
        assert len(manager.received()) <= 2
        line = "1 call running"  # nothing is emitted when a call begins
        await trio.sleep(15)
        assert manager.received() == ["STATUS=1 call running"]
    bus.emit("client.down", server="s")


@pytest.mark.parametrize(
    ("states", "running", "line"),
    [
        ([], 0, "0 of 0 servers ready, 0 calls running"),
        (["ready"], 1, "1 of 1 server ready, 1 call running"),
        (["ready"] * 5 + ["waiting"], 2, "5 of 6 servers ready, 2 calls running"),
        (["ready", "idle", "open", "idle"], 0, "1 of 4 servers ready, 2 idle, 0 calls running"),
    ],
)
def test_the_line_of_health(states: list[str], running: int, line: str) -> None:
    assert health_line(states, running) == line
