"""A small MCP server over WebSocket that misbehaves on purpose: one behaviour a name, several at once if asked.

    python websocket_server.py PORT [BEHAVIOUR[=VALUE] ...]

It prints its port when it listens. Its tools: echo, big, sleep, fail, received, headers.
"""

from __future__ import annotations

import json
import ssl
import sys
from functools import partial
from typing import Any

import trio
from trio_websocket import ConnectionClosed, WebSocketConnection, WebSocketRequest, serve_websocket

BEHAVIOURS: dict[str, str] = {item.partition("=")[0]: item.partition("=")[2] for item in sys.argv[2:]}
"""
modern          speaks 2026-07-28
status=CODE     refuses the handshake with this status
plain           selects no subprotocol
token=TOKEN     wants this bearer token, else 401
tls=FILE        speaks TLS with the certificate and key in this file
pretty          writes its JSON over several lines
"""

RECEIVED: list[Any] = []


def text(value: str) -> dict[str, Any]:
    result: dict[str, Any] = {"content": [{"type": "text", "text": value}]}
    return result | ({"resultType": "complete"} if "modern" in BEHAVIOURS else {})


async def send(socket: WebSocketConnection, message: dict[str, Any]) -> None:
    await socket.send_message(json.dumps({"jsonrpc": "2.0", **message}, indent=1 if "pretty" in BEHAVIOURS else None))


async def call(socket: WebSocketConnection, headers: dict[str, str], request_id: Any, params: dict[str, Any]) -> None:
    arguments = params.get("arguments") or {}
    match params["name"]:
        case "echo":
            result = text(arguments["text"])
        case "big":
            result = text("x" * arguments["size"])
        case "sleep":
            await trio.sleep(arguments["seconds"])
            result = text("slept")
        case "received":
            result = text(json.dumps(RECEIVED))
        case "headers":
            result = text(json.dumps(headers))
        case "fail" if arguments["kind"] == "close":
            await socket.aclose(4321, "enough")
            return
        case "fail" if arguments["kind"] == "garbage":
            await socket.send_message(f'{{"id": {request_id}, "result": [1, 2')
            return
        case _:
            await send(socket, {"id": request_id, "error": {"code": -32602, "message": "no such tool"}})
            return
    await send(socket, {"id": request_id, "result": result})


async def handle(request: WebSocketRequest) -> None:
    headers = {name.decode().lower(): value.decode() for name, value in request.headers}
    headers["sec-websocket-protocol"] = ",".join(request.proposed_subprotocols)
    if "status" in BEHAVIOURS:
        await request.reject(int(BEHAVIOURS["status"]), extra_headers=[(b"Retry-After", b"3")], body=b"no")
        return
    if "token" in BEHAVIOURS and headers.get("authorization") != f"Bearer {BEHAVIOURS['token']}":
        await request.reject(401, body=b"no")
        return
    socket = await request.accept(subprotocol=None if "plain" in BEHAVIOURS else request.proposed_subprotocols[0])
    try:
        async with trio.open_nursery() as nursery:
            while True:
                message = json.loads(await socket.get_message())
                method, request_id, params = message.get("method"), message.get("id"), message.get("params") or {}
                RECEIVED.append([method, params.get("requestId")])
                modern = {"resultType": "complete", "ttlMs": 0, "cacheScope": "private"}
                result: dict[str, Any]
                match method:
                    case "initialize" if "modern" not in BEHAVIOURS:
                        info = {"serverInfo": {"name": "fake", "version": "1"}, "capabilities": {"tools": {}}}
                        result = {"protocolVersion": params["protocolVersion"], **info}
                    case "server/discover" if "modern" in BEHAVIOURS:
                        result = {"supportedVersions": ["2026-07-28"], "capabilities": {"tools": {}}, **modern}
                    case "tools/list":
                        names = ["echo", "big", "sleep", "fail", "received", "headers"]
                        result = {"tools": [{"name": name, "inputSchema": {"type": "object"}} for name in names]}
                        result |= modern if "modern" in BEHAVIOURS else {}
                    case "tools/call":
                        nursery.start_soon(call, socket, headers, request_id, params)
                        continue
                    case _:
                        if request_id is not None:
                            error = {"code": -32601, "message": "Method not found"}
                            await send(socket, {"id": request_id, "error": error})
                        continue
                await send(socket, {"id": request_id, "result": result})
    except* ConnectionClosed:
        RECEIVED.append(["closed", None])


async def main() -> None:
    context = None
    if "tls" in BEHAVIOURS:
        context = ssl.create_default_context(ssl.Purpose.CLIENT_AUTH)
        context.load_cert_chain(BEHAVIOURS["tls"])
    async with trio.open_nursery() as nursery:
        serve = partial(serve_websocket, handle, "127.0.0.1", int(sys.argv[1]), context, max_message_size=1 << 24)
        server = await nursery.start(serve)
        print(server.port, flush=True)


if __name__ == "__main__":
    trio.run(main)
