"""Whoever sends very many lines at once takes nobody else's turn."""

from __future__ import annotations

import os
import signal
import socket
from typing import Any

import msgspec
import pytest
import trio
from in_process import connection_of, gate_to_nothing

from conduit_daemon.clients.stderr import ErrorOutput
from conduit_daemon.clients.stdio import LineDispatcher
from conduit_daemon.rpc.connection import Connection
from conduit_daemon.telemetry.events import EventBus


class Quiet:
    """A server's peer that takes no notice."""

    def on_request(self, request_id: int | str, method: str, params: msgspec.Raw) -> None: ...

    def on_notification(self, method: str, params: msgspec.Raw) -> None: ...

    def on_garbage(self, line: bytes, why: str) -> None: ...


class Turns:
    """Counts the turns that another task has."""

    count = 0

    async def run(self) -> None:
        while True:
            self.count += 1
            await trio.lowlevel.checkpoint()


class NoMethods:
    def start(self, connection: Connection, request: Any) -> None: ...


@pytest.mark.parametrize(
    "text", [b"\n", b'{"id":1,"result":{}}\n', b'{"method":"notifications/cancelled","params":{"requestId":1}}\n']
)
async def test_an_agents_lines(text: bytes) -> None:
    bus = EventBus()
    connection, ours = connection_of(gate_to_nothing(bus), bus, NoMethods())
    turns, sent = Turns(), ours.send(text * 50_000)
    with ours:
        async with trio.open_nursery() as nursery:
            nursery.start_soon(turns.run)
            ours.shutdown(socket.SHUT_WR)
            await connection.run()
            nursery.cancel_scope.cancel()
    assert turns.count > sent // len(text) // 100


async def test_a_servers_errors() -> None:
    read, write = os.pipe()
    told: list[str] = []
    errors, turns = ErrorOutput(read, told.append, str), Turns()
    try:
        os.set_blocking(read, False)
        sent = os.write(write, b"x\n" * 20_000)
        os.close(write)
        async with trio.open_nursery() as nursery:
            nursery.start_soon(turns.run)
            await errors.run()
            nursery.cancel_scope.cancel()
        assert turns.count > sent // 200
        assert len(errors.last) == 100
        assert len(told) < 300
    finally:
        os.close(read)


async def test_a_servers_lines() -> None:
    read, write = os.pipe()
    dispatcher, turns = LineDispatcher("fake", read, os.dup(write), Quiet(), max_message=1000), Turns()
    try:
        os.set_blocking(read, False)
        sent = os.write(write, b"x\n" * 20_000)
        async with trio.open_nursery() as nursery:
            nursery.start_soon(turns.run)
            await dispatcher.drain()
            nursery.cancel_scope.cancel()
        assert turns.count > sent // 200
    finally:
        os.close(read)
        os.close(write)


async def test_what_a_dead_server_left_is_no_more_than_its_pipe_holds_though_another_process_goes_on_writing() -> None:
    def give_up(number: int, frame: object) -> None:
        raise AssertionError("it reads without end")

    endless = os.open("/dev/zero", os.O_RDONLY | os.O_NONBLOCK)
    unread, ours = os.pipe()
    dispatcher = LineDispatcher("fake", endless, ours, Quiet(), max_message=1000)
    before = signal.signal(signal.SIGALRM, give_up)
    signal.alarm(20)  # not trio's clock, which would not be looked at
    try:
        await dispatcher.drain()
    finally:
        signal.alarm(0)
        signal.signal(signal.SIGALRM, before)
        for fd in (endless, unread, ours):
            os.close(fd)
