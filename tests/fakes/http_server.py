"""A small MCP server over HTTP that misbehaves on purpose: one behaviour a name, several at once if asked.

    python http_server.py PORT [BEHAVIOUR[=VALUE] ...]

Standard library only. It prints its port when it listens. Its tools: echo, big, sleep, tick, fail, forget, received,
headers, reveal.
"""

from __future__ import annotations

import contextlib
import json
import os
import socket
import ssl
import struct
import sys
import threading
import time
import uuid
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any

BEHAVIOURS: dict[str, str] = {item.partition("=")[0]: item.partition("=")[2] for item in sys.argv[2:]}
"""
modern          speaks 2026-07-28 and knows no sessions
json            answers with JSON instead of events
pretty          writes its JSON over several lines
no_stream       has no stream for what it says unasked (405)
status=CODE     answers every request with this status
retry_after=S   with this Retry-After
token=TOKEN     wants this bearer token
bare            answers what it does not know with a bare 400
page            answers GET with a page
slow_404=S      tells the first request of a lost session so after so many seconds
late_stream=S   answers GET after so many seconds
crlf            ends the lines of its events with CR LF
tls=FILE        speaks TLS with the certificate and key in this file
journal=FILE    appends the text of each echo to FILE before it answers
faults          does to the next requests what its input says, a line each: 500, 404, 429 or 503 (in place of an
                answer), reset, slow, cut (the answer, once the tool has run); at once: hang_up (its streams), relent
"""

ORDERS: list[str] = []

SESSIONS: set[str] = set()
RECEIVED: list[Any] = []
STREAMS: list[Any] = []
ONCE: dict[str, int] = {}
LOCK = threading.Lock()


def text(value: str, **more: Any) -> dict[str, Any]:
    result: dict[str, Any] = {"content": [{"type": "text", "text": value}], **more}
    return result | ({"resultType": "complete"} if "modern" in BEHAVIOURS else {})


def tools() -> list[dict[str, Any]]:
    names = ["echo", "big", "sleep", "tick", "fail", "forget", "received", "headers", "reveal", "ask"]
    listed: list[dict[str, Any]] = [{"name": name, "inputSchema": {"type": "object"}} for name in names]
    marked = {"type": "object", "properties": {"region": {"type": "string", "x-mcp-header": "Region"}}}
    wrong = {"type": "object", "properties": {"region": {"type": "string", "x-mcp-header": "not a token"}}}
    listed += [{"name": "marked", "inputSchema": marked}, {"name": "wrong", "inputSchema": wrong}]
    return listed + ([{"name": "late", "inputSchema": {"type": "object"}}] if "revealed" in ONCE else [])


class Handler(BaseHTTPRequestHandler):
    protocol_version = "HTTP/1.1"

    def log_message(self, format: str, *args: Any) -> None: ...

    def answer(self, status: int, body: bytes = b"", kind: str = "application/json", **headers: str) -> None:
        self.send_response(status)
        for name, value in headers.items():
            self.send_header(name.replace("_", "-"), value)
        self.send_header("Content-Type", kind)
        self.send_header("Content-Length", str(len(body)))
        self.end_headers()
        self.wfile.write(body)

    def begin_events(self, **headers: str) -> None:
        self.send_response(200)
        self.send_header("Content-Type", "text/event-stream")
        self.send_header("Transfer-Encoding", "chunked")
        for name, value in headers.items():
            self.send_header(name.replace("_", "-"), value)
        self.end_headers()

    def write_event(self, data: str = "", **fields: str) -> None:
        end = "\r\n" if "crlf" in BEHAVIOURS else "\n"
        lines = [f"{name}: {value}" for name, value in fields.items()]
        lines += [f"data: {line}" for line in data.split("\n")] if data else []
        chunk = (end.join(lines) + 2 * end).encode()
        self.wfile.write(f"{len(chunk):x}\r\n".encode() + chunk + b"\r\n")
        self.wfile.flush()

    def end_events(self) -> None:
        self.wfile.write(b"0\r\n\r\n")

    def dump(self, message: dict[str, Any]) -> str:
        return json.dumps({"jsonrpc": "2.0", **message}, indent=1 if "pretty" in BEHAVIOURS else None)

    def let_in(self) -> bool:
        if "token" in BEHAVIOURS and self.headers.get("Authorization") != f"Bearer {BEHAVIOURS['token']}":
            self.answer(401, www_authenticate="Bearer")
            return False
        if "status" in BEHAVIOURS:
            more = {"retry_after": BEHAVIOURS["retry_after"]} if "retry_after" in BEHAVIOURS else {}
            self.answer(int(BEHAVIOURS["status"]), **more)
            return False
        session = self.headers.get("Mcp-Session-Id")
        if session is not None and session not in SESSIONS:
            with LOCK:
                first = (
                    "slow_404" in BEHAVIOURS and ONCE.setdefault("told", threading.get_ident()) == threading.get_ident()
                )
            time.sleep(float(BEHAVIOURS["slow_404"]) if first else 0)
            self.answer(
                404, self.dump({"id": None, "error": {"code": -32001, "message": "Session not found"}}).encode()
            )
            return False
        return True

    def do_OPTIONS(self) -> None:
        self.answer(204)

    def do_DELETE(self) -> None:
        RECEIVED.append(["DELETE", self.headers.get("Mcp-Session-Id")])
        SESSIONS.discard(self.headers.get("Mcp-Session-Id") or "")
        self.answer(200)

    def do_GET(self) -> None:
        if not self.let_in():
            return
        resumed = self.headers.get("Last-Event-ID")
        if resumed is not None and resumed.startswith("cut-"):
            self.begin_events()
            self.write_event(self.dump({"id": int(resumed[4:]), "result": text("resumed")}), id="done")
            self.end_events()
            return
        if "page" in BEHAVIOURS:
            RECEIVED.append(["GET", None])
            self.answer(200, b"<html>data: x", "text/html")
            return
        time.sleep(float(BEHAVIOURS.get("late_stream") or 0))
        RECEIVED.append(["GET", None])
        if "no_stream" in BEHAVIOURS or "modern" in BEHAVIOURS:
            self.answer(405)
            return
        self.begin_events()
        STREAMS.append(self)
        time.sleep(600)

    def do_POST(self) -> None:
        body = self.rfile.read(int(self.headers.get("Content-Length") or 0))
        if self.path == "/old":
            self.answer(307, location="/mcp")
            return
        if self.path == "/away":
            self.answer(307, location="http://elsewhere.invalid/mcp")
            return
        if not self.let_in():
            return
        message = json.loads(body)
        method, request_id = message.get("method"), message.get("id")
        with LOCK:
            RECEIVED.append([method, message.get("params", {}).get("requestId")])
        if request_id is None or method is None:
            if method is None:
                ONCE["answer"] = message
            self.answer(202)
            return
        with LOCK:
            self.fault = ORDERS.pop(0) if ORDERS else ""
        if self.fault == "404":
            SESSIONS.clear()
        if self.fault.isdecimal():
            self.answer(int(self.fault), **({"retry_after": "1"} if self.fault in ("429", "503") else {}))
        else:
            self.take(method, request_id, message.get("params") or {})

    fault = ""

    def result(self, request_id: Any, result: dict[str, Any], **headers: str) -> None:
        self.reply({"id": request_id, "result": result}, **headers)

    def reply(self, message: dict[str, Any], **headers: str) -> None:
        if self.fault:
            self.reply_badly(self.dump(message).encode(), headers)
            return
        if "json" in BEHAVIOURS:
            self.answer(200, self.dump(message).encode(), **headers)
            return
        self.begin_events(**headers)
        self.write_event(self.dump(message))
        self.end_events()

    def reply_badly(self, body: bytes, headers: dict[str, str]) -> None:
        """The answer in two halves: after the first the connection is reset, or ends in good order, or is slow."""
        events = self.fault == "cut"
        body = b"data: " + body + b"\n\n" if events else body
        self.send_response(200)
        for name, value in headers.items():
            self.send_header(name.replace("_", "-"), value)
        self.send_header("Content-Type", "text/event-stream" if events else "application/json")
        self.send_header("Connection", "close")
        if not events:
            self.send_header("Content-Length", str(len(body)))
        self.end_headers()
        self.wfile.write(body[: len(body) // 2])
        self.wfile.flush()
        self.close_connection = True
        if self.fault == "slow":
            time.sleep(1)
            self.wfile.write(body[len(body) // 2 :])
        elif self.fault == "reset":
            self.connection.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))
            os.close(self.connection.detach())

    def take(self, method: str, request_id: Any, params: dict[str, Any]) -> None:
        modern = {"resultType": "complete", "ttlMs": 0, "cacheScope": "private"} if "modern" in BEHAVIOURS else {}
        capabilities = {"tools": {"listChanged": True}}
        match method:
            case "initialize" if "modern" not in BEHAVIOURS:
                session = uuid.uuid4().hex
                SESSIONS.add(session)
                result = {
                    "protocolVersion": params["protocolVersion"],
                    "capabilities": capabilities,
                    "serverInfo": {"name": "fake", "version": "1"},
                }
                self.result(request_id, result, mcp_session_id=session)
            case "server/discover" if "modern" in BEHAVIOURS:
                result = {"supportedVersions": ["2026-07-28"], "capabilities": capabilities, **modern}
                self.result(request_id, result)
            case "tools/list":
                self.result(request_id, {"tools": tools(), **modern})
            case "tools/call":
                self.call(request_id, params)
            case "ping":
                self.result(request_id, {})
            case _ if "bare" in BEHAVIOURS:
                self.answer(400, b"Bad Request", "text/plain")
            case _:
                error = {"code": -32601, "message": "Method not found"}
                self.answer(
                    404 if "modern" in BEHAVIOURS else 400, self.dump({"id": request_id, "error": error}).encode()
                )

    def call(self, request_id: Any, params: dict[str, Any]) -> None:
        arguments, token = params.get("arguments") or {}, (params.get("_meta") or {}).get("progressToken")
        match params["name"]:
            case "echo":
                if "journal" in BEHAVIOURS:
                    with open(BEHAVIOURS["journal"], "a") as file:
                        file.write(arguments["text"] + "\n")
                self.result(request_id, text(arguments["text"]))
            case "big":
                self.result(request_id, text("x" * arguments["size"]))
            case "sleep":
                time.sleep(arguments["seconds"])
                self.result(request_id, text("slept"))
            case "tick":
                self.begin_events()
                for i in range(arguments["times"]):
                    progress = {"progressToken": token, "progress": i + 1}
                    self.write_event(self.dump({"method": "notifications/progress", "params": progress}))
                    time.sleep(0.05)
                self.write_event(self.dump({"id": request_id, "result": text("ticked")}))
                self.end_events()
            case "fail":
                self.fail(request_id, arguments)
            case "forget":
                SESSIONS.clear()
                self.result(request_id, text("forgotten"))
            case "received":
                self.result(request_id, text(json.dumps(RECEIVED)))
            case "headers" | "marked":
                self.result(request_id, text(json.dumps({k.lower(): v for k, v in self.headers.items()})))
            case "reveal":
                ONCE["revealed"] = 1
                self.result(request_id, text("look again"))
                for stream in STREAMS:
                    stream.write_event(self.dump({"method": "notifications/tools/list_changed"}))
            case "ask":
                self.ask(request_id, params, arguments)

    def ask(self, request_id: Any, params: dict[str, Any], arguments: dict[str, Any]) -> None:
        method = arguments["method"]
        if "modern" in BEHAVIOURS:
            if "inputResponses" in params:
                got = [params["inputResponses"], params.get("requestState")]
                self.result(request_id, text(json.dumps(got)))
            else:
                wanted = {"one": {"method": method, "params": {}}}
                self.result(
                    request_id, {"resultType": "input_required", "inputRequests": wanted, "requestState": "s-1"}
                )
            return
        ONCE.pop("answer", None)
        self.begin_events()
        self.write_event(self.dump({"id": "asked", "method": method, "params": {}}))
        while "answer" not in ONCE:
            time.sleep(0.01)
        self.write_event(self.dump({"id": request_id, "result": text(json.dumps(ONCE["answer"]))}))
        self.end_events()

    def fail(self, request_id: Any, arguments: dict[str, Any]) -> None:
        match arguments["kind"]:
            case "status":
                body = json.dumps(arguments["body"]).encode() if "body" in arguments else b"no"
                more = {"retry_after": arguments["retry_after"]} if "retry_after" in arguments else {}
                self.answer(arguments["status"], body, **more)
            case "reset":
                self.close_connection = True
                self.connection.shutdown(2)
            case "cut":
                self.begin_events()
                self.write_event(id=f"cut-{request_id}", retry="50")
                self.end_events()
            case "half":
                self.begin_events()
                self.write_event(self.dump({"method": "notifications/message", "params": {"level": "info", "data": 1}}))
                self.end_events()
            case "accepted":
                self.answer(202)
            case "html":
                self.answer(200, b"<html>", "text/html")
            case "garbage":
                self.answer(200, b'{"jsonrpc": "2.0", "id"')
            case "other":
                self.answer(200, self.dump({"id": "other", "result": {}}).encode())


def obey() -> None:
    """Takes orders from its input."""
    for line in sys.stdin:
        if line.strip() == "relent":
            ORDERS.clear()
        elif line.strip() == "hang_up":
            while STREAMS:
                with contextlib.suppress(OSError):  # its client has left
                    STREAMS.pop().connection.shutdown(socket.SHUT_RDWR)
        else:
            ORDERS.append(line.strip())


class Server(ThreadingHTTPServer):
    daemon_threads = True
    request_queue_size = 64


def main() -> None:
    server = Server(("127.0.0.1", int(sys.argv[1])), Handler)
    if "tls" in BEHAVIOURS:
        context = ssl.create_default_context(ssl.Purpose.CLIENT_AUTH)
        context.load_cert_chain(BEHAVIOURS["tls"])
        server.socket = context.wrap_socket(server.socket, server_side=True)
    if "faults" in BEHAVIOURS:
        threading.Thread(target=obey, daemon=True).start()
    print(server.server_address[1], flush=True)
    server.serve_forever(poll_interval=0.05)


if __name__ == "__main__":
    main()
