"""A server's list of tools, read page by page, with an end to what it may cost."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import msgspec
import pytest

from conduit_daemon.clients.listing import MAX_TOOLS, list_tools


def tool(name: str, description: str = "") -> dict[str, Any]:
    return {"name": name, "description": description, "inputSchema": {"type": "object"}}


@pytest.mark.parametrize(
    ("page", "note", "tools"),
    [
        (lambda n: {"tools": [tool(f"t{n}", "x" * (1 << 20))], "nextCursor": str(n + 1)}, "32 MiB", 31),
        (lambda n: {"tools": [], "nextCursor": str(n + 1)}, f"more than {MAX_TOOLS} pages", 0),
        (lambda n: {"tools": [7] * 3 * MAX_TOOLS}, f"more than {MAX_TOOLS} tools", 0),
        (lambda n: {"tools": [tool(f"t{i}") for i in range(3 * MAX_TOOLS)]}, f"more than {MAX_TOOLS} tools", MAX_TOOLS),
        (lambda n: {"tools": [tool("t", "x" * (33 << 20))]}, None, 1),
    ],
    ids=["large pages", "pages without end", "what is no tool", "tools", "one large page"],
)
async def test_a_listing_has_an_end(page: Callable[[int], dict[str, Any]], note: str | None, tools: int) -> None:
    async def request(params: dict[str, Any]) -> msgspec.Raw:
        return msgspec.Raw(msgspec.json.encode(page(int(params.get("cursor") or 0))))

    listing = await list_tools("s", request)
    assert len(listing.tools) == tools
    assert len(listing.tools) + len(listing.dropped) <= MAX_TOOLS
    assert (listing.note is None) if note is None else (listing.note is not None and note in listing.note)
