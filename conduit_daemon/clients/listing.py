"""A server's tools, and reading them: every page, and each tool on its own.

A page is cut into its tools first, and they are decoded one by one with pauses between, so that ten thousand of them
stop nobody else's calls and one that cannot be decoded costs itself alone.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from contextlib import nullcontext
from typing import Any, Final

import msgspec
import trio

from conduit_daemon.collector import large_data
from conduit_daemon.errors import ClientError
from conduit_daemon.model import Dropped, Tool

__all__ = ["MAX_TOOLS", "Listing", "list_tools"]

MAX_TOOLS: Final = 10_000
_LARGEST: Final = 32 << 20
_SLICE: Final = 100


class Listing(msgspec.Struct, frozen=True):
    """What a server last said it has.

    Attributes:
        tools: In the server's order.
        dropped: Malformed entries, and why.
        note: What cut the listing short, where something did.
    """

    tools: tuple[Tool, ...] = ()
    dropped: tuple[Dropped, ...] = ()
    note: str | None = None


class _Page(msgspec.Struct):
    tools: list[msgspec.Raw]
    nextCursor: str | None = None


_decode = msgspec.json.Decoder(_Page).decode
_decode_tool = msgspec.json.Decoder(Any).decode


async def list_tools(server: str, request: Callable[[dict[str, Any]], Awaitable[msgspec.Raw]]) -> Listing:
    """All tools of a server.

    A malformed tool is left out and reported; a cursor that does not advance, a page that cannot be read, more
    than 10,000 tools or pages, or more than 32 MiB in all end the listing there, and what came before is kept.

    Args:
        server: The server's id.
        request: Sends one ``tools/list`` with these params and returns its raw result.

    Raises:
        ClientError: The first page could not be had.
    """
    tools: list[Tool] = []
    dropped: list[Dropped] = []
    cursors: set[str] = set()
    params: dict[str, Any] = {}
    size = 0
    while True:
        try:
            raw_page = await request(params)
            page = _decode(raw_page)
        except (msgspec.MsgspecError, UnicodeDecodeError, RecursionError) as error:
            if not cursors:
                raise ClientError(
                    "protocol", f"Server {server} broke the protocol: its list of tools is no list ({error}).", server
                ) from None
            return _cut(tools, dropped, f"a page of its list of tools cannot be read ({error})")
        except ClientError as error:
            if not cursors:
                raise
            return _cut(tools, dropped, f"a page of its list of tools failed ({error.message})")
        size += len(raw_page)
        if cursors and size > _LARGEST:
            return _cut(tools, dropped, f"its pages have more than {_LARGEST >> 20} MiB")
        with large_data() if len(page.tools) > _SLICE else nullcontext():
            for number, raw in enumerate(page.tools):
                if number % _SLICE == _SLICE - 1:
                    await trio.lowlevel.checkpoint()
                if len(tools) + len(dropped) >= MAX_TOOLS:
                    return _cut(tools, dropped, f"it lists more than {MAX_TOOLS} tools")
                _add(server, raw, tools, dropped)
        if not page.nextCursor:
            return Listing(tuple(tools), tuple(dropped))
        if len(cursors) >= MAX_TOOLS:
            return _cut(tools, dropped, f"its list of tools has more than {MAX_TOOLS} pages")
        if page.nextCursor in cursors:
            return _cut(tools, dropped, "its list of tools goes in a circle (a cursor came twice)")
        cursors.add(page.nextCursor)
        params = {"cursor": page.nextCursor}


def _add(server: str, raw: msgspec.Raw, tools: list[Tool], dropped: list[Dropped]) -> None:
    wire: Any = None
    try:
        wire = _decode_tool(raw)
        tools.append(Tool.from_wire(wire))
    except (ValueError, RecursionError) as error:  # msgspec's and unicode's errors are ValueErrors
        name = wire.get("name") if isinstance(wire, dict) else None
        member = (server, name if isinstance(name, str) else "")
        dropped.append(Dropped("", (member,), f"malformed: {error}"))


def _cut(tools: list[Tool], dropped: list[Dropped], why: str) -> Listing:
    return Listing(tuple(tools), tuple(dropped), why)
