"""Reading a server's tools: every page, and each tool on its own."""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from typing import Any, Final

import msgspec

from conduit_daemon.clients.port import Listing
from conduit_daemon.errors import ClientError
from conduit_daemon.model import Dropped, Tool

__all__ = ["MAX_TOOLS", "list_tools"]

MAX_TOOLS: Final = 10_000


class _Page(msgspec.Struct):
    tools: list[Any]
    nextCursor: str | None = None


_decode = msgspec.json.Decoder(_Page).decode


async def list_tools(server: str, request: Callable[[dict[str, Any]], Awaitable[msgspec.Raw]]) -> Listing:
    """All tools of a server.

    A malformed tool is left out and reported; a cursor that does not advance, a page that cannot be read or more
    than 10,000 tools end the listing there, and what came before is kept.

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
    while True:
        try:
            page = _decode(await request(params))
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
        for wire in page.tools:
            try:
                tools.append(Tool.from_wire(wire))
            except ValueError as error:
                name = wire.get("name") if isinstance(wire, dict) else None
                member = (server, name if isinstance(name, str) else "")
                dropped.append(Dropped("", (member,), f"malformed: {error}"))
        if len(tools) > MAX_TOOLS:
            return _cut(tools[:MAX_TOOLS], dropped, f"it lists more than {MAX_TOOLS} tools")
        if not page.nextCursor:
            return Listing(tuple(tools), tuple(dropped))
        if page.nextCursor in cursors:
            return _cut(tools, dropped, "its list of tools goes in a circle (a cursor came twice)")
        cursors.add(page.nextCursor)
        params = {"cursor": page.nextCursor}


def _cut(tools: list[Tool], dropped: list[Dropped], why: str) -> Listing:
    return Listing(tuple(tools), tuple(dropped), why)
