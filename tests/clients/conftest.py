"""Connections to fakes over the network, and what is seen of them."""

from __future__ import annotations

import os
import subprocess
import sys
from collections.abc import AsyncIterator, Callable, Iterator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import pytest
import trio
from in_process import Held, NoWarden

from conduit_daemon.clients.connection import Connection, Ended, Observer, Settings
from conduit_daemon.clients.listing import Listing
from conduit_daemon.clients.session import Era, Negotiated
from conduit_daemon.config import LimitsConfig, ServerConfig
from conduit_daemon.published import Published
from conduit_daemon.telemetry.events import Event, EventBus

FAKES = Path(__file__).parents[1] / "fakes"


class Remote(Held, Observer):
    """A connection to a server at a URL, its events and how it ended."""

    def __init__(self, url: str, era: Era, limits: LimitsConfig, more: dict[str, Any], config: dict[str, Any]) -> None:
        self.bus = EventBus()
        self.events: list[Event] = []
        self.bus.attach(self.events.append)
        self.ready = trio.Event()
        self.lost = trio.Event()
        self.relisted = trio.Event()
        self.negotiated: Negotiated | None = None
        self.listings: list[Listing] = []
        settings = Settings(
            server="fake",
            config=ServerConfig(url=url, **config),
            limits=Published(limits),
            version="0",
            environ=os.environ,
            clean=lambda text: text,
            **more,
        )
        super().__init__(Connection(settings, era, NoWarden(), self.bus, self))

    def on_ready(self, connection: Connection, negotiated: Negotiated, listing: Listing) -> None:
        self.negotiated = negotiated
        self.listings.append(listing)
        self.ready.set()

    def on_listing(self, listing: Listing) -> None:
        self.listings.append(listing)
        self.relisted.set()

    def on_lost(self, ended: Ended) -> None:
        self.lost.set()


@asynccontextmanager
async def _connected(
    url: str,
    era: Era = "auto",
    wait: bool = True,
    limits: LimitsConfig | None = None,
    settings: dict[str, Any] | None = None,
    **config: Any,
) -> AsyncIterator[Remote]:
    remote = Remote(url, era, limits or LimitsConfig(), settings or {}, config)
    async with trio.open_nursery() as nursery:
        nursery.start_soon(remote.hold)
        with trio.fail_after(15):
            await (remote.ready if wait else remote.over).wait()
        yield remote
        nursery.cancel_scope.cancel()


@pytest.fixture
def connected() -> Callable[..., Any]:
    """Connects to a URL; see `_connected`."""
    return _connected


class Fake:
    """A fake server in a process of its own, on a port of its own."""

    def __init__(self, script: str, behaviours: tuple[str, ...], port: int = 0) -> None:
        self.script, self.behaviours, self.port = script, behaviours, port
        self.start()

    def start(self) -> None:
        command = [sys.executable, str(FAKES / self.script), str(self.port), *self.behaviours]
        self.process = subprocess.Popen(command, stdout=subprocess.PIPE)
        assert self.process.stdout is not None
        self.port = int(self.process.stdout.readline())

    def kill(self) -> None:
        self.process.kill()
        self.process.wait()
        assert self.process.stdout is not None
        self.process.stdout.close()

    def url(self, path: str = "/mcp", scheme: str = "http") -> str:
        return f"{scheme}://127.0.0.1:{self.port}{path}"


@pytest.fixture
def serve() -> Iterator[Callable[..., Fake]]:
    """Starts fakes that listen; ended with the test."""
    running: list[Fake] = []

    def serve(script: str, *behaviours: str) -> Fake:
        running.append(Fake(script, behaviours))
        return running[-1]

    yield serve
    for fake in running:
        fake.kill()
