"""A small MCP server over stdio that offers resources, templates, prompts and completion, and asks its host things.

    python offering_server.py [modern] [NAME=VALUE ...]

``modern`` speaks 2026-07-28 and asks by results; else it shakes hands and asks by requests. Standard library only.
"""

from __future__ import annotations

import json
import sys
import threading
from typing import Any

WORDS = {item.partition("=")[0]: item.partition("=")[2] for item in sys.argv[1:]}
"""
modern      speaks 2026-07-28
text=TEXT   what its resource holds
shared      offers a resource that others offer too
bare        has no tools that ask
slow_read   never answers a resources/read
"""
MODERN = "modern" in WORDS
LOCK = threading.Lock()
WAITING: dict[Any, Any] = {}
EXTRA = threading.Event()
LISTENING: list[Any] = []
LEVELS = ("debug", "info", "notice", "warning", "error", "critical", "alert", "emergency")
META = "io.modelcontextprotocol/"
WATCHED: dict[str, Any] = {}
SEEN: list[dict[str, Any]] = []
RECORDED = {
    "completion/complete",
    "logging/setLevel",
    "notifications/cancelled",
    "notifications/roots/list_changed",
    "prompts/get",
    "resources/read",
    "tools/call",
}
SCHEMA = {"type": "object", "properties": {"name": {"type": "string"}}}
QUESTIONS: dict[str, tuple[str, dict[str, Any]]] = {
    "elicit": ("elicitation/create", {"message": "Your name?", "requestedSchema": SCHEMA}),
    "sample": ("sampling/createMessage", {"messages": [], "maxTokens": 10}),
    "roots": ("roots/list", {}),
}


def send(message: dict[str, Any]) -> None:
    with LOCK:
        sys.stdout.write(json.dumps({"jsonrpc": "2.0", **message}) + "\n")
        sys.stdout.flush()


def answer(request_id: Any, result: dict[str, Any], cached: bool = False) -> None:
    if MODERN:
        result = {"resultType": "complete", **result}
        if cached:
            result |= {"ttlMs": 5000, "cacheScope": "public"}
    send({"id": request_id, "result": result})


def text(value: Any) -> dict[str, Any]:
    return {"content": [{"type": "text", "text": value if isinstance(value, str) else json.dumps(value)}]}


def tools() -> list[dict[str, Any]]:
    schema = {"type": "object"}
    names = ["echo", "reveal", "seen", "touch", "log", "roots", "work", "hang"]
    names += ["extra"] if EXTRA.is_set() else []
    names += [] if "bare" in WORDS else ["ask", "ask_twice", "ask_all"]
    return [{"name": name, "inputSchema": schema} for name in names]


def resources() -> list[dict[str, Any]]:
    found = [{"uri": "note://today", "name": "today", "description": "A note.", "mimeType": "text/plain"}]
    found.append({"uri": "hidden://a\u200bb", "name": "hidden"})
    if "shared" in WORDS:
        found.append({"uri": "note://shared", "name": "shared"})
    if EXTRA.is_set():
        found.append({"uri": "note://extra", "name": "extra"})
    return found


def prompts() -> list[dict[str, Any]]:
    found = [{"name": "greet", "description": "Greets.", "arguments": [{"name": "who", "required": True}]}]
    return found + ([{"name": "extra"}] if EXTRA.is_set() else [])


def read(request_id: Any, params: dict[str, Any]) -> None:
    uri = params["uri"]
    if uri.startswith(("note://", "day://")):
        held = WORDS.get("text", "nothing much")
        contents = [{"uri": uri, "mimeType": "text/plain", "text": f"{uri}: {held}"}]
        answer(request_id, {"contents": contents}, cached=True)
    else:
        send({"id": request_id, "error": {"code": -32602, "message": "no such resource", "data": {"uri": uri}}})


def ask(request_id: Any, params: dict[str, Any], kinds: list[str]) -> None:
    """Asks the host and answers with what it said: by requests, or by results that want input."""
    if not MODERN:

        def later() -> None:
            said = []
            for kind in kinds:
                done = threading.Event()
                key = f"q{request_id}{len(WAITING)}"
                WAITING[key] = done
                method, asked = QUESTIONS[kind]
                send({"id": key, "method": method, "params": asked})
                done.wait(20)
                said.append(WAITING[key])
            answer(request_id, text(said))

        threading.Thread(target=later, daemon=True).start()
        return
    given = params.get("inputResponses") or {}
    if set(given) == set(kinds):
        assert params["requestState"] == f"state of {params['name']}"
        answer(request_id, text([given[kind] for kind in kinds]))
        return
    wanted = {kind: {"method": QUESTIONS[kind][0], "params": QUESTIONS[kind][1]} for kind in kinds}
    result = {"resultType": "input_required", "inputRequests": wanted, "requestState": f"state of {params['name']}"}
    send({"id": request_id, "result": result})


def call(request_id: Any, params: dict[str, Any]) -> None:
    name, arguments = params["name"], params.get("arguments") or {}
    if name == "reveal":
        EXTRA.set()
        answer(request_id, text("look"))
        mark = {"params": {"_meta": {f"{META}subscriptionId": LISTENING[-1]}}} if LISTENING else {}
        for what in ("tools", "resources", "prompts"):
            send({"method": f"notifications/{what}/list_changed", **mark})
    elif name == "touch":
        for uri in sorted(WATCHED):
            mark = {"_meta": {f"{META}subscriptionId": WATCHED[uri]}} if MODERN else {}
            send({"method": "notifications/resources/updated", "params": {"uri": uri, **mark}})
        answer(request_id, text(sorted(WATCHED)))
    elif name == "log":
        lowest = params.get("_meta", {}).get(f"{META}logLevel", "none" if MODERN else "debug")
        for level in ("debug", "warning"):
            if lowest in LEVELS and LEVELS.index(level) >= LEVELS.index(lowest):
                send({"method": "notifications/message", "params": {"level": level, "data": level}})
        answer(request_id, text("logged"))
    elif name == "work":
        for progress in (1, 2):
            told = {"progressToken": params["_meta"]["progressToken"], "progress": progress, "total": 2}
            send({"method": "notifications/progress", "params": told})
        answer(request_id, text("worked"))
    elif name == "hang":
        send({"method": "notifications/progress", "params": {"progressToken": request_id, "progress": 0}})
    elif name == "roots":
        answer(request_id, text(WAITING.get("early")))
    elif name == "seen":
        answer(request_id, text(SEEN))
    elif name == "ask":
        ask(request_id, params, [arguments["kind"]])
    elif name == "ask_all":
        ask(request_id, params, list(QUESTIONS))
    elif name == "ask_twice":
        if not MODERN:
            ask(request_id, params, ["elicit", "elicit"])
            return
        round_number = int(params.get("requestState") or 0)
        if round_number == 2:
            answer(request_id, text([params["inputResponses"]["again"]]))
            return
        wanted = {"again": {"method": QUESTIONS["elicit"][0], "params": QUESTIONS["elicit"][1]}}
        state = str(round_number + 1)
        result = {"resultType": "input_required", "inputRequests": wanted, "requestState": state}
        send({"id": request_id, "result": result})
    else:
        answer(request_id, text(arguments.get("text", "")))


def capabilities() -> dict[str, Any]:
    changing = {"listChanged": True}
    return {"tools": changing, "resources": {**changing}, "prompts": changing, "completions": {}, "logging": {}}


def take(message: dict[str, Any]) -> None:
    method, request_id, params = message.get("method"), message.get("id"), message.get("params") or {}
    if method is None:
        waiting = WAITING.get(request_id)
        WAITING[request_id] = message.get("result", message.get("error"))
        if isinstance(waiting, threading.Event):
            waiting.set()
        return
    if MODERN and method not in {"server/discover", "notifications/cancelled"}:
        assert params["_meta"][f"{META}protocolVersion"] == "2026-07-28", message
    if method in RECORDED:
        SEEN.append({"method": method, "params": params})
    match method:
        case "initialize":
            result = {"capabilities": capabilities(), "serverInfo": {"name": "offering", "version": "1"}}
            SEEN.append({"method": method, "params": params})
            answer(request_id, {"protocolVersion": "2025-11-25", **result})
        case "server/discover" if MODERN:
            answer(request_id, {"supportedVersions": ["2026-07-28"], "capabilities": capabilities()}, cached=True)
        case "subscriptions/listen" if MODERN:
            mark = {f"{META}subscriptionId": request_id}
            told = {"notifications": params["notifications"], "_meta": mark}
            LISTENING.append(request_id)
            WATCHED.clear()
            WATCHED.update(dict.fromkeys(params["notifications"].get("resourceSubscriptions") or (), request_id))
            send({"method": "notifications/subscriptions/acknowledged", "params": told})
        case "resources/subscribe" if not MODERN:
            WATCHED[params["uri"]] = None
            answer(request_id, {})
        case "resources/unsubscribe" if not MODERN:
            WATCHED.pop(params["uri"], None)
            answer(request_id, {})
        case "notifications/initialized" if "roots" in SEEN[0]["params"].get("capabilities", {}):
            WAITING["early"] = None
            send({"id": "early", "method": "roots/list", "params": {}})
        case "ping" | "logging/setLevel":
            answer(request_id, {})
        case "tools/list":
            answer(request_id, {"tools": tools()}, cached=True)
        case "tools/call":
            call(request_id, params)
        case "resources/list":
            cursor = int(params.get("cursor") or 0)
            page: dict[str, Any] = {"resources": resources()[cursor : cursor + 1]}
            if cursor + 1 < len(resources()):
                page["nextCursor"] = str(cursor + 1)
            answer(request_id, page, cached=True)
        case "resources/templates/list":
            template = {"uriTemplate": "day://{date}", "name": "day", "mimeType": "text/plain"}
            answer(request_id, {"resourceTemplates": [template]}, cached=True)
        case "resources/read" if "slow_read" not in WORDS:
            read(request_id, params)
        case "prompts/list":
            answer(request_id, {"prompts": prompts()}, cached=True)
        case "prompts/get":
            content = {"type": "text", "text": f"Hello {params['arguments'].get('who')}"}
            answer(request_id, {"messages": [{"role": "user", "content": content}]})
        case "completion/complete":
            values = [f"{params['ref']['type']}:{params['argument']['value']}!"]
            answer(request_id, {"completion": {"values": values, "total": 1, "hasMore": False}})
        case "resources/read":
            return
        case _ if request_id is not None:
            send({"id": request_id, "error": {"code": -32601, "message": "Method not found"}})


for line in sys.stdin:
    take(json.loads(line))
