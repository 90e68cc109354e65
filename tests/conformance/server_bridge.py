"""The agent socket as a Streamable HTTP server on the loopback interface, for the official conformance suite.

    python server_bridge.py AGENT_SOCKET SERVER [PORT]

It carries messages and adds what belongs to HTTP: sessions, streams, headers, status codes. The suite calls tools
by plain names, so that SERVER's prefix is put before names on the way in and taken off on the way out.
"""

from __future__ import annotations

import itertools
import json
import queue
import socket
import sys
import threading
import uuid
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any, ClassVar

from mcp.shared.inbound import ERROR_CODE_HTTP_STATUS, InboundLadderRejection, classify_inbound_request

Json = dict[str, Any]
META = "io.modelcontextprotocol/"
LISTED = {"tools/list": "tools", "prompts/list": "prompts", "resources/list": "resources"}
LOCAL = {"localhost", "127.0.0.1", "[::1]"}


class Link:
    """One connection to the daemon, and the HTTP streams that its messages belong to."""

    def __init__(self, path: str, prefix: str) -> None:
        self.sock = socket.socket(socket.AF_UNIX)
        self.sock.connect(path)
        self.prefix = prefix
        self.streams: dict[str, tuple[Json, queue.Queue[Json | None]]] = {}
        self.standing: queue.Queue[Json | None] = queue.Queue()
        self.ids = itertools.count(1)
        self.lock = threading.Lock()
        threading.Thread(target=self._read, daemon=True).start()

    def write(self, message: Json) -> None:
        with self.lock:
            self.sock.sendall(json.dumps(message).encode() + b"\n")

    def open(self, request: Json) -> tuple[str, queue.Queue[Json | None]]:
        """Sends a request under an id of ours; its stream gets all that belongs to it, then its answer."""
        key = f"http-{next(self.ids)}"
        stream: queue.Queue[Json | None] = queue.Queue()
        self.streams[key] = (request, stream)
        self.write({**self._inward(request), "id": key})
        return key, stream

    def _inward(self, request: Json) -> Json:
        params = dict(request.get("params") or {})
        if request["method"] in {"tools/call", "prompts/get"} and isinstance(params.get("name"), str):
            params["name"] = f"{self.prefix}{params['name']}"
        ref = params.get("ref")
        if isinstance(ref, dict) and ref.get("type") == "ref/prompt":
            params["ref"] = {**ref, "name": f"{self.prefix}{ref.get('name')}"}
        return {**request, "params": params}

    def _outward(self, request: Json, message: Json) -> Json:
        member = LISTED.get(request["method"])
        if member is not None and "result" in message:
            for entry in message["result"][member]:
                entry["name"] = entry["name"].removeprefix(self.prefix)
        return {**message, "id": request["id"]}

    def _read(self) -> None:
        for line in self.sock.makefile("rb"):
            self._take(json.loads(line))
        for _, stream in [*self.streams.values(), ({}, self.standing)]:
            stream.put(None)

    def _take(self, message: Json) -> None:
        if "method" not in message:
            request, stream = self.streams.pop(message["id"], (None, self.standing))
            if request is not None:
                stream.put(self._outward(request, message))
            return
        params = message.get("params") or {}
        mark = (params.get("_meta") or {}).get(f"{META}subscriptionId")
        for key, (request, stream) in list(self.streams.items()):
            if mark == key:
                params["_meta"][f"{META}subscriptionId"] = request["id"]
                stream.put(message)
                return
            token = ((request.get("params") or {}).get("_meta") or {}).get("progressToken")
            if message["method"] == "notifications/progress" and token == params.get("progressToken"):
                stream.put(message)
                return
        if self.streams and message["method"] != "notifications/progress":
            next(reversed(self.streams.values()))[1].put(message)
        else:
            self.standing.put(message)


def _is_newer(message: Json) -> bool:
    return f"{META}protocolVersion" in ((message.get("params") or {}).get("_meta") or {})


class Handler(BaseHTTPRequestHandler):
    protocol_version = "HTTP/1.1"
    path_to_daemon = ""
    prefix = ""
    sessions: ClassVar[dict[str, Link]] = {}
    modern: ClassVar[Link | None] = None

    def log_message(self, *args: Any) -> None:
        return

    def _refuse(self, status: int, code: int, text: str, request_id: Any = None, data: Any = None) -> None:
        error: Json = {"code": code, "message": text, **({} if data is None else {"data": data})}
        self._json(status, {"jsonrpc": "2.0", "id": request_id, "error": error})

    def _json(self, status: int, body: Json | None, **headers: str) -> None:
        data = b"" if body is None else json.dumps(body).encode()
        self.send_response(status)
        self.send_header("Content-Type", "application/json")
        self.send_header("Content-Length", str(len(data)))
        for name, value in headers.items():
            self.send_header(name.replace("_", "-"), value)
        self.end_headers()
        self.wfile.write(data)

    def _local(self) -> bool:
        host = self.headers.get("Host", "").rpartition(":")[0] or self.headers.get("Host", "")
        origin = self.headers.get("Origin")
        if host in LOCAL and (origin is None or origin.partition("://")[2].rpartition(":")[0] in LOCAL):
            return True
        self._refuse(403, -32600, "Only this machine may ask.")
        return False

    def do_POST(self) -> None:
        body = self.rfile.read(int(self.headers.get("Content-Length") or 0))
        if not self._local():
            return
        try:
            message = json.loads(body)
        except ValueError:
            self._refuse(400, -32700, "no JSON")
            return
        session = self.headers.get("Mcp-Session-Id")
        if session is not None and session not in self.sessions:
            self._refuse(404, -32001, "no such session", message.get("id"))
        elif session is not None:
            self._legacy(self.sessions[session], message)
        elif message.get("method") == "initialize" and not _is_newer(message):
            self._initialize(message)
        else:
            self._newer(message)

    def _initialize(self, message: Json) -> None:
        link = Link(self.path_to_daemon, self.prefix)
        session = uuid.uuid4().hex
        self.sessions[session] = link
        _, stream = link.open(message)
        self._json(200, stream.get(), Mcp_Session_Id=session)

    def _legacy(self, link: Link, message: Json) -> None:
        if "method" in message and "id" in message:
            key, stream = link.open(message)
            self._stream(link, key, stream)
            return
        link.write(message)
        self._json(202, None)

    def _newer(self, message: Json) -> None:
        headers = {name.lower(): value for name, value in self.headers.items()}
        found = classify_inbound_request(message, headers=headers)
        if isinstance(found, InboundLadderRejection):
            status = ERROR_CODE_HTTP_STATUS.get(found.code, 400)
            self._refuse(status, found.code, found.message, message.get("id"), found.data)
            return
        link = Handler.modern
        if link is None:
            link = Handler.modern = Link(self.path_to_daemon, self.prefix)
        if "id" not in message:
            self._json(202, None)
            return
        key, stream = link.open(message)
        first = stream.get()
        if first is not None and "method" not in first:
            code = first.get("error", {}).get("code")
            self._json(200 if code is None else ERROR_CODE_HTTP_STATUS.get(code, 200), first)
            return
        self._stream(link, key, stream, first)

    def do_GET(self) -> None:
        if not self._local():
            return
        link = self.sessions.get(self.headers.get("Mcp-Session-Id", ""))
        if link is None:
            self._json(405, None)
            return
        self._stream(link, None, link.standing)

    def do_DELETE(self) -> None:
        link = self.sessions.pop(self.headers.get("Mcp-Session-Id", ""), None)
        if link is not None:
            link.sock.shutdown(socket.SHUT_RDWR)
        self._json(200 if link is not None else 404, None)

    def _stream(self, link: Link, key: str | None, stream: queue.Queue[Json | None], first: Json | None = None) -> None:
        self.send_response(200)
        self.send_header("Content-Type", "text/event-stream")
        self.send_header("Cache-Control", "no-cache")
        self.send_header("Connection", "close")
        self.end_headers()
        self.close_connection = True
        try:
            message = first
            while True:
                if message is not None:
                    self.wfile.write(f"event: message\ndata: {json.dumps(message)}\n\n".encode())
                    self.wfile.flush()
                    if "method" not in message:
                        return
                try:
                    message = stream.get(timeout=1)
                except queue.Empty:
                    message = None
                    self.wfile.write(b": alive\n\n")
                    self.wfile.flush()
                    continue
                if message is None:
                    return
        except OSError:
            if key is not None and link.streams.pop(key, None) is not None:
                link.write({"jsonrpc": "2.0", "method": "notifications/cancelled", "params": {"requestId": key}})


if __name__ == "__main__":
    Handler.path_to_daemon, Handler.prefix = sys.argv[1], f"{sys.argv[2]}__"
    server = ThreadingHTTPServer(("127.0.0.1", int(sys.argv[3]) if len(sys.argv) > 3 else 0), Handler)
    print(server.server_address[1], flush=True)
    server.serve_forever()
