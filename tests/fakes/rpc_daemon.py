"""A daemon in name only: a real process with two real sockets that answers by script.

    python rpc_daemon.py FOLDER

It listens at FOLDER/agent.sock and FOLDER/control.sock and appends every line that it receives to FOLDER/log.
What a call does is in its arguments' name: echo, sleep, error, tool_error, progress, die, garbage, big, quit.
"""

import json
import os
import socket
import sys
import threading
import time
from pathlib import Path

STATUS = {
    "version": "9.9.9",
    "pid": os.getpid(),
    "uptime": 3661.5,
    "health": "degraded",
    "from_the_future": {"x": 1},
    "servers": {
        "files": {
            "state": "ready",
            "transport": "stdio",
            "tools": 3,
            "calls": 12,
            "errors": 1,
            "p50_ms": 1.25,
            "new": 1,
        },
        "search": {"state": "backoff", "reason": "exited with code 1 at once.", "retry_in": 4.2, "restarts": 3},
    },
    "calls": {"in_flight": 1, "total": 12, "errors": 1},
}
TREE = {
    "id": "root",
    "kind": "supervisor",
    "state": "running",
    "restarts": 0,
    "uptime": 12.0,
    "children": [
        {"id": "hub", "kind": "actor", "name": "hub", "state": "running", "uptime": 12.0, "mailbox": 2, "children": []},
        {
            "id": "clients",
            "kind": "supervisor",
            "state": "running",
            "children": [{"id": "client:files", "kind": "actor", "state": "ready", "restarts": 1, "busy_for": 0.5}],
        },
    ],
}
TOOLS = {
    "toolset": "ts-1",
    "tools": [
        {"name": "files__read", "description": "Reads a file.\nAnd more.", "input_schema": {"type": "object"}},
        {"name": "files__\u001b[31mred", "description": "", "input_schema": {"type": "object"}},
    ],
    "null_paths": {},
    "fallbacks": {},
    "dropped": [{"exposed": "a__b", "members": [["a", "b"], ["a", "B"]], "reason": "collision"}],
    "missing": [{"server": "search", "state": "backoff", "reason": "exited with code 1 at once."}],
}
EXPLAIN = {
    "server": "files",
    "state": "backoff",
    "reason": "The server exited with code 1.",
    "next_retry": 3.5,
    "waiting": 2,
    "running": [
        {
            "id": "r-1",
            "name": "files__read",
            "server": "files",
            "tool": "read",
            "principal": "ann/x",
            "since": 1700000000.0,
            "phase": "slot",
        }
    ],
    "timeline": [
        {"time": 1700000000.0, "event": "client.connecting", "text": "It is being started."},
        {"time": 1700000001.5, "event": "client.down", "text": "exited with code 1"},
    ],
    "stderr": ["Traceback: no such file"],
}


class Connection:
    def __init__(self, sock, log, control):
        self.sock = sock
        self.log = log
        self.control = control
        self.lock = threading.Lock()
        self.cancelled = {}

    def send(self, message):
        with self.lock:
            self.sock.sendall(json.dumps({"jsonrpc": "2.0", **message}).encode() + b"\n")

    def answer(self, number, result):
        self.send({"id": number, "result": result})

    def fail(self, number, code, message, **data):
        self.send({"id": number, "error": {"code": code, "message": message, "data": data}})

    def serve(self):
        with self.sock, self.sock.makefile("rb") as lines:
            for line in lines:
                if not line.endswith(b"\n"):
                    break
                os.write(self.log, line)
                message = json.loads(line)
                if message.get("method") == "notifications/cancelled":
                    self.cancelled[message["params"]["requestId"]].set()
                elif "method" in message and "id" in message:
                    self.cancelled[message["id"]] = threading.Event()
                    threading.Thread(target=self.handle, args=(message,), daemon=True).start()
            for cancelled in self.cancelled.values():
                cancelled.set()

    def handle(self, message):
        try:
            self.respond(message["id"], message["method"], message.get("params", {}), self.cancelled[message["id"]])
        except OSError:
            return

    def respond(self, number, method, params, cancelled):
        match method:
            case "conduit/status":
                self.answer(number, STATUS)
            case "conduit/tree" if self.control:
                self.answer(number, TREE)
            case "conduit/servers/explain" if self.control:
                self.answer(number, EXPLAIN)
            case "conduit/metrics" if self.control:
                self.answer(number, {"text": "# TYPE conduit_up gauge\nconduit_up 1.0\n"})
            case "conduit/tree" | "conduit/servers/explain":
                self.fail(number, -31009, f"{method} is for the control socket.", kind="forbidden")
            case "conduit/tools":
                self.answer(number, TOOLS)
            case "conduit/execute":
                outcome = {"call_id": "c1", "server": "files", "tool": "read", "kind": "ok", "duration": 0.01}
                self.answer(number, {"status": "ok", "results": [params], "taint": ["files"], "outcomes": [outcome]})
            case "conduit/call" | "tools/call":
                self.call(number, params, cancelled)
            case "conduit/events":
                count = params.get("backlog", 3)
                for seq in range(count):
                    note = {
                        "subscription": number,
                        "seq": seq,
                        "time": 1.0,
                        "type": "client.ready",
                        "server": "files",
                        "tools": seq,
                    }
                    self.send({"method": "conduit/event", "params": note})
                if params.get("servers") == ["refused"]:
                    self.fail(number, -32602, "There is no server 'refused'.", kind="invalid_params")
                elif params.get("servers") == ["ends"]:
                    self.answer(number, {})
            case "ping":
                self.answer(number, {})
            case _:
                self.fail(number, -32601, f"There is no method {method}.")

    def call(self, number, params, cancelled):
        arguments = params.get("arguments", {})
        match params["name"]:
            case "echo":
                self.answer(number, {"content": [{"type": "text", "text": json.dumps(arguments)}], "isError": False})
            case "text":
                self.answer(number, {"content": [{"type": "text", "text": arguments["a"]}], "isError": False})
            case "sleep":
                if not cancelled.wait(arguments["seconds"]):
                    self.answer(number, {"content": [{"type": "text", "text": "slept"}], "isError": False})
                else:
                    os.write(self.log, b'{"cancelled": true}\n')
            case "error":
                self.fail(
                    number, -31001, "The rule 'no mail' denies it.", kind="denied", outcome="not_sent", tool="send"
                )
            case "tool_error":
                self.answer(number, {"content": [{"type": "text", "text": "No such file."}], "isError": True})
            case "structured":
                self.answer(number, {"content": [], "structuredContent": None, "_meta": {"a": 1}})
            case "wrong":
                self.answer(number, {"content": "not a list"})
            case "progress":
                token = params_token(params)
                for step in range(3):
                    note = {"progressToken": token, "progress": step, "total": 3, "message": f"step {step}"}
                    self.send({"method": "notifications/progress", "params": note})
                self.answer(number, {"content": [{"type": "text", "text": "done"}]})
            case "ask":
                self.send({"id": "from-daemon", "method": "sampling/createMessage", "params": {}})
                self.answer(number, {"content": []})
            case "close":
                self.sock.shutdown(socket.SHUT_RDWR)
            case "garbage":
                with self.lock:
                    self.sock.sendall(b"this is not json\n")
            case "full":
                self.send(
                    {"id": None, "error": {"code": -31004, "message": "Too many.", "data": {"kind": "unavailable"}}}
                )
                self.sock.shutdown(socket.SHUT_RDWR)
            case "big":
                self.answer(number, {"content": [{"type": "text", "text": "x" * arguments["size"]}]})
            case "quit":
                os._exit(9)


def params_token(params):
    return params.get("_meta", {}).get("progressToken")


def listen(path, log, control):
    path.unlink(missing_ok=True)
    listener = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM)
    listener.bind(str(path))
    listener.listen(128)

    def accept():
        while True:
            sock, _ = listener.accept()
            threading.Thread(target=Connection(sock, log, control).serve, daemon=True).start()

    threading.Thread(target=accept, daemon=True).start()


def main():
    folder = Path(sys.argv[1])
    log = os.open(folder / "log", os.O_WRONLY | os.O_CREAT | os.O_APPEND)
    listen(folder / "control.sock", log, True)
    listen(folder / "agent.sock", log, False)
    print("listening", flush=True)
    while os.getppid() != 1:
        time.sleep(0.2)


main()
