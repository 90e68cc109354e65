"""The daemon's own parts around one real server, in the process of the test, from an agent's socket to its pipe.

For what a whole daemon hides: task switches, mailboxes, the inside of a gate. Tests and benchmarks share it, so that a
changed signature is felt in one place.
"""

from __future__ import annotations

import json
import os
import socket
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import Any

import trio

from conduit_daemon.clients.connection import Connection as ServerConnection
from conduit_daemon.clients.connection import Ended, Observer, Settings
from conduit_daemon.clients.listing import Listing
from conduit_daemon.clients.port import Port, Standing
from conduit_daemon.clients.session import Negotiated
from conduit_daemon.config import Config, LimitsConfig
from conduit_daemon.errors import ClientError
from conduit_daemon.hub.catalogue import Catalogue
from conduit_daemon.hub.naming import build
from conduit_daemon.model import Principal
from conduit_daemon.pipeline.audit import Audit
from conduit_daemon.pipeline.gate import Context, Gate
from conduit_daemon.pipeline.policy import compile_policy
from conduit_daemon.published import Published
from conduit_daemon.rpc import mcp
from conduit_daemon.rpc.connection import Connection
from conduit_daemon.telemetry.events import EventBus
from conduit_daemon.telemetry.masking import Masker


class NoWarden:
    """Guards nothing, for servers that a test ends itself."""

    token = "unused"

    def watch(self, session: int) -> None: ...

    def forget(self, session: int, entry: str) -> None: ...


class Held:
    """A connection that a test holds and calls.

    Args:
        connection: It.

    Attributes:
        over: Set when it has ended.
        ended: How.
    """

    def __init__(self, connection: ServerConnection) -> None:
        self.connection = connection
        self.over = trio.Event()
        self.ended: Ended | None = None

    async def hold(self) -> None:
        self.ended = await self.connection.run()
        self.over.set()

    def begin(self, tool: str, arguments: dict[str, Any], **more: Any) -> tuple[Any, list[Any], trio.Event]:
        """Begins a call: what cancels it, where its result or error will stand, and what is set then."""
        got: list[Any] = []
        done = trio.Event()

        def on_result(raw: Any, is_error: bool, error: ClientError | None) -> None:
            assert raw is None or (b"\n" not in bytes(raw) and b"\r" not in bytes(raw))
            got.append(error if raw is None else (json.loads(bytes(raw)), is_error))
            done.set()

        options: dict[str, Any] = {"meta": {}, "total": 60.0, "on_progress": None, **more}
        return self.connection.begin_call(tool, arguments, on_result, **options), got, done

    async def call(self, tool: str, arguments: dict[str, Any], **more: Any) -> Any:
        """A call's result, and whether it is an error; the error of one that failed is raised."""
        _, got, done = self.begin(tool, arguments, **more)
        with trio.fail_after(10):
            await done.wait()
        if isinstance(got[0], ClientError):
            raise got[0]
        return got[0]

    async def text(self, tool: str, arguments: dict[str, Any] | None = None, **more: Any) -> str:
        """The first text of a call's result."""
        result, is_error = await self.call(tool, arguments or {}, **more)
        assert not is_error
        text: str = result["content"][0]["text"]
        return text


class CallsOnly:
    """tools/call as the daemon answers it, whatever the method's name."""

    def start(self, connection: Connection, request: Any) -> None:
        mcp.call_tool(connection, request)


class _AtPort(Observer):
    """Puts a connection at a port when it is ready, as a client's actor does."""

    def __init__(self, port: Port) -> None:
        self.port = port
        self.ready = trio.Event()

    def on_ready(self, connection: ServerConnection, negotiated: Negotiated, listing: Listing) -> None:
        self.port.target, self.port.listing = connection, listing
        self.ready.set()

    def on_lost(self, ended: Ended) -> None:
        self.port.target = None


@asynccontextmanager
async def governed(
    config: Config, bus: EventBus, *, audit: Audit | None = None, masker: Masker | None = None
) -> AsyncIterator[Gate]:
    """The one server of `config` behind a pipeline with every stage on.

    Args:
        config: Its server must be ready within ten seconds.
        bus: Where events go.
        audit: What keeps account, if anything does.
        masker: What is secret.
    """
    ((server, wanted),) = config.servers.items()
    port = Port(server, Standing(state="connecting", since=0))
    at_port, clean = _AtPort(port), (masker or Masker()).mask
    limits = Published(config.limits)
    settings = Settings(server=server, config=wanted, limits=limits, version="0", environ=os.environ, clean=clean)
    async with trio.open_nursery() as nursery:
        nursery.start_soon(ServerConnection(settings, "legacy", NoWarden(), bus, at_port).run)
        with trio.fail_after(10):
            await at_port.ready.wait()
        assert port.listing is not None
        toolset, _ = build([(server, port.listing.tools)])
        gate = Gate(
            catalogue=Published(Catalogue(offered=toolset, known=toolset)),
            policy=Published(compile_policy(config.policy)),
            ports={server: port},
            limits=config.limits,
            bus=bus,
            recorder=audit,
        )
        gate.configure(config)
        gate.configure_server(server, wanted)
        nursery.start_soon(gate.deadlines.run)
        nursery.start_soon(gate.governance.run)
        if audit is not None:
            nursery.start_soon(audit.run)
        yield gate
        nursery.cancel_scope.cancel()


def gate_to_nothing(bus: EventBus) -> Gate:
    """A gate behind which there is no server."""
    nothing, _ = build([])
    catalogue = Published(Catalogue(offered=nothing, known=nothing))
    return Gate(catalogue=catalogue, policy=None, ports={}, limits=LimitsConfig(), bus=bus)


def connection_of(
    gate: Gate, bus: EventBus, dispatch: Any, *, principal: str = "tester", max_message: int = 1 << 20, **more: Any
) -> tuple[Connection, socket.socket]:
    """A connection whose requests go to `dispatch`, to be run, and the agent's end of it, which does not block."""
    ours, theirs = socket.socketpair()
    for end in (ours, theirs):
        end.setblocking(False)
    context, who = Context(gate), Principal(principal)
    connection = Connection(
        theirs, dispatch, context=context, principal=who, control=False, bus=bus, max_message=max_message, **more
    )
    return connection, ours


@asynccontextmanager
async def agent_of(gate: Gate, bus: EventBus, dispatch: Any, **more: Any) -> AsyncIterator[socket.socket]:
    """The agent's end of a connection that runs meanwhile; see `connection_of`."""
    connection, ours = connection_of(gate, bus, dispatch, **more)
    with ours:
        async with trio.open_nursery() as nursery:
            nursery.start_soon(connection.run)
            yield ours
            nursery.cancel_scope.cancel()
