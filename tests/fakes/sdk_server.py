"""The SDK's own server over HTTP, under uvicorn, as its users write one.

    python sdk_server.py PORT http|json|sse

It prints its port when it listens.
"""

from __future__ import annotations

import asyncio
import os
import socket
import sys

import uvicorn
from mcp.server.mcpserver import Context, MCPServer

server = MCPServer("sdk")


@server.tool()
def echo(text: str) -> str:
    """Returns its text."""
    return text


@server.tool(structured_output=False)
def big(size: int) -> str:
    """A text of so many bytes."""
    return "x" * size


@server.tool()
def pid() -> str:
    """Its process id."""
    return str(os.getpid())


@server.tool()
async def tick(times: int, ctx: Context) -> str:
    """Reports progress so many times."""
    for i in range(times):
        await ctx.report_progress(i + 1, times, f"tick {i + 1}")
        await asyncio.sleep(0.05)
    return "ticked"


@server.tool()
async def sleep(seconds: float) -> str:
    """Answers after some seconds."""
    await asyncio.sleep(seconds)
    return "slept"


@server.tool()
async def reveal(ctx: Context) -> str:
    """Adds a tool."""

    def late() -> str:
        """Came later."""
        return "late"

    server.add_tool(late)
    await ctx.session.send_tool_list_changed()  # for the older era
    await ctx.notify_tools_changed()  # for the newer one
    return "look again"


def main() -> None:
    kind = sys.argv[2]
    app = server.sse_app() if kind == "sse" else server.streamable_http_app(json_response=kind == "json")
    listener = socket.socket(proto=socket.IPPROTO_TCP)  # else asyncio leaves Nagle on
    listener.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
    listener.bind(("127.0.0.1", int(sys.argv[1])))
    listener.listen(64)
    print(listener.getsockname()[1], flush=True)
    uvicorn.Server(uvicorn.Config(app, log_level="error")).run(sockets=[listener])


if __name__ == "__main__":
    main()
