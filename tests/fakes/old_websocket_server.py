"""A server of the SDK's first generation over its WebSocket transport; runs in an environment of its own.

PORT=... python old_websocket_server.py
"""

from __future__ import annotations

import os

import uvicorn
from mcp.server.fastmcp import FastMCP
from mcp.server.websocket import websocket_server
from starlette.applications import Starlette
from starlette.routing import WebSocketRoute
from starlette.websockets import WebSocket

server = FastMCP("old")


@server.tool()
def echo(text: str) -> str:
    """Returns its text."""
    return text


@server.tool(structured_output=False)
def big(size: int) -> str:
    """A text of so many bytes."""
    return "x" * size


async def handle(socket: WebSocket) -> None:
    async with websocket_server(socket.scope, socket.receive, socket.send) as (read, write):
        inner = server._mcp_server
        await inner.run(read, write, inner.create_initialization_options())


if __name__ == "__main__":
    app = Starlette(routes=[WebSocketRoute("/ws", handle)])
    uvicorn.run(app, host="127.0.0.1", port=int(os.environ["PORT"]), log_level="error")
