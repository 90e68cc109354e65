"""A small MCP server over stdio that misbehaves on purpose: one behaviour a name, several at once if asked.

    python stdio_server.py [BEHAVIOUR[=VALUE] ...]

Standard library only, so that it starts fast. Its tools: echo, add, sleep, die, big, tick, fail, pid, received; with
`more`: close, strange, flood, scramble, structured.
"""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import threading
import time
from typing import Any

ASKED = [*sys.argv[1:], *os.environ.get("FAKE_BEHAVIOURS", "").split()]
BEHAVIOURS: dict[str, str] = {item.partition("=")[0]: item.partition("=")[2] for item in ASKED}
"""
hang            never answers initialize
exit=CODE       exits with CODE after a line on stderr, before anything
exit_on_probe   exits when asked server/discover
silent_probe    never answers server/discover
modern          answers server/discover and speaks 2026-07-28
banner          writes garbage before and between its messages
deaf            stops reading its input after the handshake
deaf_once=FILE  as deaf in its first life, of which it leaves FILE as a mark
exit_later=FILE exits with 7 at start once there is FILE
deaf_to_term    ignores EOF and TERM
grandchild      starts a child that keeps its stdout open
detached=FILE   starts a grandchild in a session of its own and writes its pid to FILE
cleared=FILE    as detached, with an empty environment (in its server's session)
free_form       lists a tool whose arguments are any object
malformed_tool  lists a tool without a schema among good ones
pages=N         lists its tools over N pages
circle          a cursor that never advances
late_tool       one more tool, announced by list_changed, after `reveal` is called
silent_change   as late_tool, without an announcement
noise=N         writes N lines to stderr at once
tools=N         lists N further tools
wide            those have many properties, and no strict form
more            lists its stranger tools too
journal=FILE    appends the text of each echo to FILE before it answers
listen_ends     ends each subscription at once, in good order (with modern)
faults          SIGUSR1: writes garbage; SIGUSR2: is slow; SIGHUP: closes its output; SIGWINCH: closes its input
"""

LOCK = threading.RLock()
SUBSCRIPTIONS: list[Any] = []
CANCELLED: list[Any] = []
REVEALED = threading.Event()


def write(text: str) -> None:
    with LOCK:
        data = memoryview(text.encode() + b"\n")
        while data:
            data = data[os.write(1, data) :]


def send(message: dict[str, Any]) -> None:
    if "banner" in BEHAVIOURS:
        write("")
        write("Listening on \x1b[31mport\x1b[0m 8080")
        with LOCK:
            os.write(1, b'\xef\xbb\xbf\xff\xfe{"not": json\n')
            os.write(1, b'[{"jsonrpc":"2.0","id":null,"result":{}}]\n{"jsonrpc":"2.0","id":null,"result":{}}\n')
    write(json.dumps({"jsonrpc": "2.0", **message}))


def text(value: str, **more: Any) -> dict[str, Any]:
    result: dict[str, Any] = {"content": [{"type": "text", "text": value}], **more}
    if "modern" in BEHAVIOURS:
        result["resultType"] = "complete"
    return result


def schema(**properties: str) -> dict[str, Any]:
    return {
        "type": "object",
        "properties": {name: {"type": kind} for name, kind in properties.items()},
        "required": list(properties),
        "additionalProperties": False,
    }


TOOLS: list[dict[str, Any]] = [
    {"name": "echo", "description": "Returns its text.", "inputSchema": schema(text="string")},
    {"name": "add", "description": "Adds two integers.", "inputSchema": schema(a="integer", b="integer")},
    {"name": "sleep", "description": "Answers after some seconds.", "inputSchema": schema(seconds="number")},
    {"name": "die", "description": "Ends the server.", "inputSchema": schema(how="string")},
    {"name": "big", "description": "A text of so many bytes.", "inputSchema": schema(size="integer")},
    {"name": "tick", "description": "Reports progress so many times.", "inputSchema": schema(times="integer")},
    {"name": "fail", "description": "Reports a failure.", "inputSchema": schema(kind="string")},
    {"name": "pid", "description": "Its process id.", "inputSchema": schema()},
    {"name": "received", "description": "Ids of cancelled requests.", "inputSchema": schema()},
]


ANY: dict[str, Any] = {"type": "object"}
SUM: dict[str, Any] = {"type": "object", "properties": {"sum": {"type": "integer"}}, "required": ["sum"]}
MORE: list[dict[str, Any]] = [
    {"name": "close", "description": "Closes its input or output and lives on.", "inputSchema": schema(what="string")},
    {"name": "strange", "description": "A result from the future.", "inputSchema": schema()},
    {"name": "flood", "description": "Tells so many things first.", "inputSchema": schema(count="integer")},
    {"name": "scramble", "description": "Progress out of order.", "inputSchema": schema()},
    {"name": "mismatch", "description": "Not what it promised.", "inputSchema": ANY, "outputSchema": SUM},
    {"name": "bad_schema", "inputSchema": ANY, "outputSchema": {"type": "object", "properties": {"a": {"type": 7}}}},
    {"name": "remote", "inputSchema": ANY, "outputSchema": {"$ref": BEHAVIOURS.get("more") or "http://127.0.0.1:9/"}},
]


NARROW = schema(value="string")
WIDE = {**schema(**{f"property_{i}": "string" for i in range(12)}), "additionalProperties": True, "required": []}


def listed() -> list[Any]:
    tools: list[Any] = list(TOOLS)
    if "more" in BEHAVIOURS:
        tools += MORE
    tools += [
        {"name": f"tool_{i}", "description": f"Number {i}.", "inputSchema": WIDE if "wide" in BEHAVIOURS else NARROW}
        for i in range(int(BEHAVIOURS.get("tools") or 0))
    ]
    if "free_form" in BEHAVIOURS:
        tools.append({"name": "free", "inputSchema": {"type": "object"}})
    if "malformed_tool" in BEHAVIOURS:
        tools[1:1] = [{"name": "broken"}, 7]
    if "late_tool" in BEHAVIOURS or "silent_change" in BEHAVIOURS:
        tools.append({"name": "reveal", "inputSchema": schema()})
        if REVEALED.is_set():
            tools.append({"name": "late", "inputSchema": schema()})
    return tools


def list_tools(params: dict[str, Any]) -> dict[str, Any]:
    tools, cursor = listed(), int(params.get("cursor") or 0)
    if "circle" in BEHAVIOURS:
        return {"tools": tools, "nextCursor": "1"}
    pages = int(BEHAVIOURS.get("pages") or 1)
    size = -(-len(tools) // pages)
    page: dict[str, Any] = {"tools": tools[cursor * size : (cursor + 1) * size]}
    if cursor + 1 < pages:
        page["nextCursor"] = str(cursor + 1)
    return page


def call(request_id: Any, params: dict[str, Any]) -> None:
    name, arguments = params["name"], params.get("arguments") or {}
    meta = params.get("_meta") or {}

    def answer(result: dict[str, Any]) -> None:
        send({"id": request_id, "result": result})

    def raw(result: str) -> None:
        write(f'{{"jsonrpc":"2.0",\r"id":{request_id},"result":{result}}}')

    match name:
        case "echo":
            if "journal" in BEHAVIOURS:
                with open(BEHAVIOURS["journal"], "a") as file:
                    file.write(arguments["text"] + "\n")
            answer(text(arguments["text"]))
        case "add":
            total = arguments["a"] + arguments["b"]
            answer(text(str(total), structuredContent={"sum": total}))
        case "sleep":

            def later() -> None:
                time.sleep(arguments["seconds"])
                answer(text("slept"))

            threading.Thread(target=later, daemon=True).start()
        case "die":
            how = arguments["how"]
            print(f"dying of {how}", file=sys.stderr, flush=True)
            if how.isdigit():
                os._exit(int(how))
            os.kill(os.getpid(), signal.Signals[how])
        case "big":
            answer(text("x" * arguments["size"]))
        case "tick":
            token = meta.get("progressToken")
            for i in range(arguments["times"]):
                if token is not None:
                    send({"method": "notifications/progress", "params": {"progressToken": token, "progress": i + 1}})
                time.sleep(0.05)
            answer(text("ticked"))
        case "fail":
            if arguments["kind"] == "error":
                send({"id": request_id, "error": {"code": -32050, "message": "out of paper", "data": {"tray": 2}}})
            elif arguments["kind"] == "surrogate":
                raw('{"content":[{"type":"text","text":"\\ud800"}]}')
            elif arguments["kind"] == "carriage":
                raw('{"content":\r[]}')
            elif arguments["kind"] == "deep":
                raw("[" * 100_000 + "]" * 100_000)
            elif arguments["kind"] == "list":
                send({"id": request_id, "result": []})
            elif arguments["kind"] == "input":
                send({"id": request_id, "result": {"resultType": "input_required", "inputRequests": {}}})
            elif arguments["kind"] == "nothing":
                send({"id": request_id})
            else:
                answer(text("it failed", isError=True))
        case "pid":
            answer(text(str(os.getpid())))
        case "received":
            answer(text(json.dumps(CANCELLED)))
        case "reveal":
            REVEALED.set()
            answer(text("look again"))
            for _ in range(0 if "silent_change" in BEHAVIOURS else 5):
                changed({"method": "notifications/tools/list_changed"})
        case "close":
            if arguments["what"] == "input":
                os.close(0)
            answer(text("closing"))
            if arguments["what"] == "output":
                os.close(1)
            time.sleep(600)
        case "strange":
            content = [{"type": "hologram", "depth": 3, "big": 2**70}, {"type": "text", "text": "a", "new": None}]
            answer({"content": content, "futureField": {"a": [1]}})
        case "flood":
            for i in range(arguments["count"]):
                send({"method": "notifications/message", "params": {"level": "info", "data": i}})
                if "progressToken" in meta:
                    told = {"progressToken": meta["progressToken"], "progress": i + 1}
                    send({"method": "notifications/progress", "params": told})
            answer(text("flooded"))
        case "scramble":
            for progress in (3, 1, 2, 2):
                params = {"progressToken": meta.get("progressToken"), "progress": progress}
                send({"method": "notifications/progress", "params": params})
            answer(text("scrambled"))
        case "mismatch" | "bad_schema" | "remote":
            answer(text(name, structuredContent={"sum": "many"}))
        case _:
            send({"id": request_id, "error": {"code": -32602, "message": f"no tool {name}"}})


def changed(message: dict[str, Any]) -> None:
    """To each subscription in the newer era, else to all."""
    if "modern" not in BEHAVIOURS:
        send(message)
    for subscription in SUBSCRIPTIONS:
        send({**message, "params": {"_meta": {"io.modelcontextprotocol/subscriptionId": subscription}}})


def subscribe(request_id: Any, params: dict[str, Any]) -> None:
    tag = {"_meta": {"io.modelcontextprotocol/subscriptionId": request_id}}
    acknowledged = {"notifications": params.get("notifications") or {}, **tag}
    send({"method": "notifications/subscriptions/acknowledged", "params": acknowledged})
    if "listen_ends" in BEHAVIOURS:
        send({"id": request_id, "result": {"resultType": "complete", **tag}})
    else:
        SUBSCRIPTIONS.append(request_id)


def take(message: dict[str, Any]) -> None:
    method, request_id, params = message.get("method"), message.get("id"), message.get("params") or {}
    match method:
        case "initialize":
            if "hang" in BEHAVIOURS:
                return
            result = {
                "protocolVersion": params["protocolVersion"],
                "capabilities": {"tools": {"listChanged": True}},
                "serverInfo": {"name": "fake", "version": "1"},
            }
            send({"id": request_id, "result": result})
        case "server/discover" if "exit_on_probe" in BEHAVIOURS:
            os._exit(3)
        case "server/discover" if "silent_probe" in BEHAVIOURS or "hang" in BEHAVIOURS:
            return
        case "server/discover" if "modern" in BEHAVIOURS:
            capabilities = {"tools": {"listChanged": True}}
            result = {"supportedVersions": ["2026-07-28"], "capabilities": capabilities, "resultType": "complete"}
            send({"id": request_id, "result": {**result, "ttlMs": 0, "cacheScope": "private"}})
        case "tools/list":
            result = list_tools(params)
            if "modern" in BEHAVIOURS:
                assert params["_meta"]["io.modelcontextprotocol/protocolVersion"] == "2026-07-28"
                result |= {"resultType": "complete", "ttlMs": 0, "cacheScope": "private"}
            send({"id": request_id, "result": result})
        case "tools/call":
            if "modern" in BEHAVIOURS:
                assert params["_meta"]["io.modelcontextprotocol/protocolVersion"] == "2026-07-28"
            call(request_id, params)
        case "subscriptions/listen" if "modern" in BEHAVIOURS:
            subscribe(request_id, params)
        case "notifications/cancelled":
            CANCELLED.append(params.get("requestId"))
        case "notifications/initialized":
            if "deaf" in BEHAVIOURS:
                time.sleep(0.2)  # the list of tools is still read
        case "ping":
            send({"id": request_id, "result": {}})
        case _ if request_id is not None and method is not None:
            send({"id": request_id, "error": {"code": -32601, "message": "Method not found"}})


def misbehave(number: int, frame: Any) -> None:
    if number == signal.SIGUSR1:
        with LOCK:
            os.write(1, b'\xff\x00 not {"json": \n[]\n{"jsonrpc":"2.0","id":null}\n')
    elif number == signal.SIGUSR2:
        time.sleep(0.3)
    else:
        os.close(1 if number == signal.SIGHUP else 0)
        time.sleep(600)


def main() -> None:
    if "faults" in BEHAVIOURS:
        for number in (signal.SIGUSR1, signal.SIGUSR2, signal.SIGHUP, signal.SIGWINCH):
            signal.signal(number, misbehave)
    for i in range(int(BEHAVIOURS.get("noise") or 0)):
        print(f"noise {i}", file=sys.stderr)
    if "exit" in BEHAVIOURS or os.path.exists(BEHAVIOURS.get("exit_later", "")):
        print("no licence found", file=sys.stderr, flush=True)
        sys.exit(int(BEHAVIOURS.get("exit") or 7))
    mark = BEHAVIOURS.get("deaf_once")
    if mark is not None and not os.path.exists(mark):
        BEHAVIOURS["deaf"] = ""
        with open(mark, "w") as file:
            file.write("deaf")
    if "deaf_to_term" in BEHAVIOURS:
        signal.signal(signal.SIGTERM, signal.SIG_IGN)
    sleeper = [sys.executable, "-c", "import time; time.sleep(600)"]
    if "grandchild" in BEHAVIOURS:
        subprocess.Popen(sleeper)
    for name, own in (("detached", {"start_new_session": True}), ("cleared", {"env": {}})):
        if name in BEHAVIOURS:
            child = subprocess.Popen(sleeper, stdin=subprocess.DEVNULL, stdout=subprocess.DEVNULL, **own)  # type: ignore[call-overload]
            with open(BEHAVIOURS[name], "w") as file:
                file.write(str(child.pid))
    listed_once = False
    for line in sys.stdin.buffer:
        message = json.loads(line)
        take(message)
        listed_once = listed_once or message.get("method") == "tools/list"
        if "deaf" in BEHAVIOURS and listed_once:
            time.sleep(600)
    if "deaf_to_term" in BEHAVIOURS:
        time.sleep(600)


if __name__ == "__main__":
    main()
