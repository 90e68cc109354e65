"""An MCP server over stdio whose tools are what a file says, and that notes each call that reaches it.

    python governed_server.py FILE

FILE holds a list of tools as JSON, read anew at each tools/list; a tool's own key ``result`` is what a call of it is
answered with (``raw`` the same as text, written as it is), else a text that says "done". Each call is appended to
FILE.calls as a line of JSON, with the ``_meta`` that it came with.
"""

from __future__ import annotations

import json
import sys
from pathlib import Path
from typing import Any

FILE = Path(sys.argv[1])
DONE = {"content": [{"type": "text", "text": "done"}]}


def tools() -> list[dict[str, Any]]:
    found: list[dict[str, Any]] = json.loads(FILE.read_text())
    return found


class Raw(str):
    """JSON that is written as it is."""


def answer(method: str, params: dict[str, Any]) -> dict[str, Any] | Raw:
    if method == "initialize":
        info = {"name": "governed", "version": "1"}
        return {"protocolVersion": params["protocolVersion"], "capabilities": {"tools": {}}, "serverInfo": info}
    if method == "tools/list":
        return {
            "tools": [{key: value for key, value in tool.items() if key not in {"result", "raw"}} for tool in tools()]
        }
    if method == "tools/call":
        with Path(f"{FILE}.calls").open("a") as calls:
            noted = {"name": params["name"], "arguments": params.get("arguments")}
            calls.write(json.dumps(noted | ({"meta": params["_meta"]} if "_meta" in params else {})) + "\n")
        tool = next(tool for tool in tools() if tool["name"] == params["name"])
        if "raw" in tool:
            return Raw(tool["raw"])
        result: dict[str, Any] = tool.get("result", DONE)
        return result
    if method == "ping":
        return {}
    raise LookupError(method)


for line in sys.stdin:
    message = json.loads(line)
    if "id" not in message:
        continue
    reply = {"jsonrpc": "2.0", "id": message["id"]}
    try:
        reply["result"] = answer(message["method"], message.get("params") or {})
    except LookupError as error:
        reply["error"] = {"code": -32601, "message": str(error)}
    if isinstance(reply.get("result"), Raw):
        print(f'{{"jsonrpc":"2.0","id":{json.dumps(message["id"])},"result":{reply["result"]}}}', flush=True)
    else:
        print(json.dumps(reply), flush=True)
