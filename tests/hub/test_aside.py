"""Ten thousand tools: read, built, chosen from; and others have their turn all the while."""

from __future__ import annotations

import gc
import threading
from collections.abc import Awaitable, Callable
from typing import Any

import msgspec
import pytest
import trio

from conduit_daemon.clients.listing import list_tools
from conduit_daemon.collector import large_data
from conduit_daemon.hub.aside import Aside
from conduit_daemon.hub.naming import build
from conduit_daemon.hub.toolset import ToolSet
from conduit_daemon.model import Tool

MANY = 10_000


def wire(number: int) -> dict[str, Any]:
    return {"name": f"tool_{number}", "description": "x" * 50, "inputSchema": {"type": "object", "properties": {}}}


async def turns_during(work: Callable[[], Awaitable[Any]]) -> tuple[int, Any]:
    """How often another task had its turn while `work` was done, and what came of it."""
    turns = 0
    results: list[Any] = []
    async with trio.open_nursery() as nursery:

        async def tick() -> None:
            nonlocal turns
            while True:
                await trio.sleep(0)
                turns += 1

        nursery.start_soon(tick)
        results.append(await work())
        nursery.cancel_scope.cancel()
    return turns, results[0]


async def test_a_long_listing_is_read_in_turns() -> None:
    page = msgspec.Raw(msgspec.json.encode({"tools": [wire(i) for i in range(MANY)]}))

    async def request(params: dict[str, Any]) -> msgspec.Raw:
        return page

    turns, listing = await turns_during(lambda: list_tools("many", request))
    assert len(listing.tools) == MANY
    assert listing.note is None
    assert turns >= 90
    assert gc.isenabled()


async def test_a_tool_that_cannot_be_decoded_costs_itself_alone() -> None:
    async def request(params: dict[str, Any]) -> msgspec.Raw:
        return msgspec.Raw(b'{"tools":[{"name":"a","inputSchema":{"n":1e999}},{"name":"b","inputSchema":{}}]}')

    listing = await list_tools("s", request)
    assert [tool.name for tool in listing.tools] == ["b"]
    assert len(listing.dropped) == 1


async def test_what_is_large_is_computed_in_another_thread_and_one_at_a_time() -> None:
    aside = Aside()
    tools = [Tool.from_wire(wire(i)) for i in range(MANY)]
    threads: list[int] = []

    def make() -> ToolSet:
        threads.append(threading.get_ident())
        return build([("many", tools)])[0]

    turns, toolset = await turns_during(lambda: aside.run(MANY, make))
    assert len(toolset) == MANY
    assert turns > 0
    assert threads[0] != threading.get_ident()
    assert await aside.run(3, threading.get_ident) == threading.get_ident()

    running, most = 0, 0

    def count() -> None:
        nonlocal running, most
        running += 1
        most = max(most, running)
        threading.Event().wait(0.01)
        running -= 1

    async with trio.open_nursery() as nursery:
        for _ in range(5):
            nursery.start_soon(aside.run, MANY, count)
    assert most == 1


async def test_what_a_computation_raises_is_raised() -> None:
    def fail() -> None:
        raise ValueError("no")

    with pytest.raises(ValueError, match="no"):
        await Aside().run(MANY, fail)
    assert gc.isenabled()


def test_large_data_are_out_of_the_collectors_sight_and_still_freed() -> None:
    with large_data():
        assert not gc.isenabled()
        with large_data():  # another one meanwhile changes nothing
            kept = [{"n": [i]} for i in range(10_000)]
        assert not gc.isenabled()
    assert gc.isenabled()
    frozen = gc.get_freeze_count()
    assert frozen > 10_000
    kept.clear()
    assert gc.get_freeze_count() <= frozen - 10_000
