"""The table of eras: each method of MCP, from a host of each era, with a server of each era behind the daemon.

A row is a function that does as a host of either era would, and says in a word what came of it; `TABLE` says what has
to. tests/README.md shows the table.
"""

from __future__ import annotations

import json
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any, Final

import pytest

FAKE = Path(__file__).parents[1] / "fakes" / "offering_server.py"
README = Path(__file__).parents[1] / "README.md"
OLD, NEW = ERAS = ("2025-11-25", "2026-07-28")
PREFIX = "io.modelcontextprotocol/"
ABLE: dict[str, Any] = {"elicitation": {"form": {}}, "sampling": {}, "roots": {"listChanged": True}}
ANSWERS: dict[str, tuple[str, dict[str, Any]]] = {
    "elicit": ("elicitation/create", {"action": "accept", "content": {"name": "Ann"}}),
    "sample": ("sampling/createMessage", {"role": "assistant", "content": {"type": "text", "text": "m"}, "model": "m"}),
    "roots": ("roots/list", {"roots": [{"uri": "file:///work"}]}),
}
LISTED = {"resources": "resources/list", "prompts": "prompts/list", "tools": "tools/list"}

TABLE: Final[dict[str, tuple[str, str, str, str]]] = {
    "initialize": ("plain", "plain", "-32601", "-32601"),
    "server/discover": ("plain", "plain", "cached", "cached"),
    "ping": ("plain", "plain", "-32601", "-32601"),
    "tools/list": ("plain", "plain", "cached", "cached"),
    "tools/call": ("plain", "plain", "typed", "typed"),
    "tools/call that fails": ("plain isError", "plain isError", "typed isError", "typed isError"),
    "tools/call unknown": ("-32602", "-32602", "-32602", "-32602"),
    "resources/list": ("plain", "plain", "cached", "cached"),
    "resources/templates/list": ("plain", "plain", "cached", "cached"),
    "resources/read": ("plain", "plain", "cached", "cached by the server"),
    "resources/read of a template": ("plain", "plain", "cached", "cached by the server"),
    "resources/read unknown": ("-32002", "-32002", "-32602", "-32602"),
    "resources/subscribe, updated": ("told", "told", "-32601", "-32601"),
    "resources/unsubscribe": ("plain", "plain", "-32601", "-32601"),
    "subscriptions/listen, updated": ("told, marked", "told, marked", "told, marked", "told, marked"),
    "prompts/list": ("plain", "plain", "cached", "cached"),
    "prompts/get": ("plain", "plain", "typed", "typed"),
    "completion/complete": ("plain", "plain", "typed", "typed"),
    "logging/setLevel": ("plain", "plain", "-32601", "-32601"),
    "notifications/message": ("warning", "warning", "warning", "warning"),
    "notifications/progress": ("1 2", "1 2", "1 2", "1 2"),
    "notifications/cancelled": ("server told", "server told", "server told", "server told"),
    "elicitation/create": ("request", "request", "input_required", "input_required"),
    "sampling/createMessage": ("request", "request", "input_required", "input_required"),
    "roots/list": ("declined", "request", "declined", "input_required"),
    "roots/list of its own server": ("request", "request", "input_required", "input_required"),
    "notifications/roots/list_changed to its own server": ("server told", "no such", "no such", "no such"),
    "logging/setLevel to its own server": ("server told", "with each call", "no such", "with each call"),
    "tools/list_changed": ("told", "told", "told, marked", "told, marked"),
    "resources/list_changed": ("told", "told", "told, marked", "told, marked"),
    "prompts/list_changed": ("told", "told", "told, marked", "told, marked"),
}
"""By method: what comes of it for hosts of 2025 with servers of 2025 and 2026, then for hosts of 2026 with both."""


class Host:
    """A host of one era, on a connection of its own, before a server of one era."""

    def __init__(self, daemon: Any, era: str, server_era: str) -> None:
        self.daemon, self.era, self.server_era = daemon, era, server_era
        self.rpc = daemon.rpc()
        self.asked: list[str] = []
        if era == OLD:
            self.rpc.result("initialize", self.shake())
            self.rpc.notify("notifications/initialized", {})

    def shake(self) -> dict[str, Any]:
        return {"protocolVersion": OLD, "clientInfo": {"name": "host", "version": "0"}, "capabilities": ABLE}

    def params(self, params: dict[str, Any], **meta: Any) -> dict[str, Any]:
        if self.era == NEW:
            meta |= {f"{PREFIX}protocolVersion": NEW, f"{PREFIX}clientCapabilities": ABLE}
        return {**params, "_meta": meta} if meta else params

    def ask(self, method: str, params: dict[str, Any] | None = None, **meta: Any) -> dict[str, Any]:
        """The answer; what the server asks meanwhile is answered, in the way of the host's era."""
        wanted = self.params(params or {}, **meta)
        while True:
            answer = self._await(self.rpc.send(method, wanted))
            result = answer.get("result", {})
            if result.get("resultType") != "input_required":
                return answer
            self.asked.append("input_required")
            responses = {key: self._reply(question) for key, question in result["inputRequests"].items()}
            wanted = {**wanted, "inputResponses": responses, "requestState": result["requestState"]}

    def _await(self, request_id: int) -> dict[str, Any]:
        while True:
            message: dict[str, Any] = self.rpc.receive()
            if "method" not in message and message["id"] == request_id:
                return message
            if "id" in message and "method" in message:
                self.asked.append("request")
                reply = {"jsonrpc": "2.0", "id": message["id"], "result": self._reply(message)}
                self.rpc.sock.sendall(json.dumps(reply).encode() + b"\n")
            else:
                self.rpc.notifications.append(message)

    def _reply(self, question: dict[str, Any]) -> dict[str, Any]:
        return next(reply for method, reply in ANSWERS.values() if method == question["method"])

    def call(self, name: str, arguments: dict[str, Any] | None = None, **meta: Any) -> Any:
        """What a tool of the server answers as text, decoded."""
        answer = self.ask("tools/call", {"name": name, "arguments": arguments or {}}, **meta)
        text = answer["result"]["content"][0]["text"]
        return json.loads(text) if text[:1] in "[{n" else text

    def seen(self, server: str = "s") -> list[dict[str, Any]]:
        """What the server was asked and told so far."""
        found: list[dict[str, Any]] = self.call(f"{server}__seen")
        return found

    def told(self, method: str) -> dict[str, Any]:
        """The params of the next notification of a method."""
        while True:
            for place, note in enumerate(self.rpc.notifications):
                if note["method"] == method:
                    params: dict[str, Any] = self.rpc.notifications.pop(place).get("params", {})
                    return params
            self.rpc.notifications.append(self.rpc.receive())


def form(answer: dict[str, Any]) -> str:
    """Which era's form an answer has."""
    if "error" in answer:
        return str(answer["error"]["code"])
    result = answer["result"]
    failed = " isError" if result.get("isError") else ""
    if "resultType" not in result:
        assert not {"ttlMs", "cacheScope"} & set(result), result
        return f"plain{failed}"
    assert result["resultType"] == "complete"
    if "ttlMs" not in result:
        return f"typed{failed}"
    return "cached by the server" if (result["ttlMs"], result["cacheScope"]) == (5000, "public") else "cached"


def asking(method: str, params: dict[str, Any], *members: str) -> Callable[[Host], str]:
    """A row that asks and looks at the answer's form."""

    def row(host: Host) -> str:
        answer = host.ask(method, params)
        assert set(members) <= set(answer.get("result", members)), answer
        return form(answer)

    return row


def marked(params: dict[str, Any], listening: int | None) -> str:
    mark = params.get("_meta", {}).get(f"{PREFIX}subscriptionId")
    assert mark == listening, params
    return "told" if mark is None else "told, marked"


def listen(host: Host, **wanted: Any) -> int:
    request_id: int = host.rpc.send("subscriptions/listen", host.params({"notifications": wanted}))
    acknowledged = host.told("notifications/subscriptions/acknowledged")
    assert acknowledged["notifications"] == wanted
    return request_id


def touched(host: Host, uri: str) -> None:
    host.daemon.wait_until(lambda: uri in host.call("s__touch"))


def subscribe(host: Host) -> str:
    answer = host.ask("resources/subscribe", {"uri": "note://today"})
    if "error" in answer:
        return form(answer)
    touched(host, "note://today")
    updated = host.told("notifications/resources/updated")
    assert updated["uri"] == "note://today"
    return marked(updated, None)


def unsubscribe(host: Host) -> str:
    host.ask("resources/subscribe", {"uri": "note://today"})
    return form(host.ask("resources/unsubscribe", {"uri": "note://today"}))


def listen_to_resource(host: Host) -> str:
    listening = listen(host, resourceSubscriptions=["day://today"])
    touched(host, "day://today")
    updated = host.told("notifications/resources/updated")
    assert updated["uri"] == "day://today"
    return marked(updated, listening)


def changed(what: str) -> Callable[[Host], str]:
    """A row in which a list changes: its server's are revealed, and hidden again with a new process."""

    def row(host: Host) -> str:
        listening = listen(host, **{f"{what}ListChanged": True}) if host.era == NEW else None
        host.call("s__reveal")
        told = marked(host.told(f"notifications/{what}/list_changed"), listening)

        def extra() -> bool:
            return any("extra" in entry["name"] for entry in host.ask(LISTED[what])["result"][what])

        host.daemon.wait_until(extra)
        restarts = host.daemon.status()["servers"]["s"]["restarts"]
        host.daemon.rpc(control=True).result("conduit/servers/restart", {"server": "s"})
        host.daemon.wait_until(lambda: host.daemon.status()["servers"]["s"]["restarts"] > restarts)
        host.daemon.wait_until(lambda: host.daemon.state("s") == "ready" and not extra())
        return told

    return row


def message(host: Host) -> str:
    meta = {}
    if host.era == OLD:
        host.ask("logging/setLevel", {"level": "info"})
    else:
        meta = {f"{PREFIX}logLevel": "info"}
    assert host.call("s__log", **meta) == "logged"
    logs = [note["params"] for note in host.rpc.notifications if note["method"] == "notifications/message"]
    assert [log["logger"] for log in logs] == ["s"]
    return " ".join(log["level"] for log in logs)


def progress(host: Host) -> str:
    assert host.call("s__work", progressToken="mine") == "worked"
    told = [note["params"] for note in host.rpc.notifications if note["method"] == "notifications/progress"]
    assert {note["progressToken"] for note in told} == {"mine"}
    return " ".join(str(note["progress"]) for note in told)


def cancelled(host: Host) -> str:
    before = len(host.seen())
    params = host.params({"name": "s__hang"}, progressToken="hangs")
    request_id = host.rpc.send("tools/call", params)
    host.told("notifications/progress")
    host.rpc.notify("notifications/cancelled", {"requestId": request_id})
    host.daemon.wait_until(lambda: "notifications/cancelled" in [one["method"] for one in host.seen()[before:]])
    assert request_id not in host.rpc.answers
    return "server told"


def question(kind: str, server: str = "s") -> Callable[[Host], str]:
    def row(host: Host) -> str:
        wait_for_own(host, server)
        host.asked.clear()
        (answer,) = host.call(f"{server}__ask", {"kind": kind})
        if not host.asked:
            assert answer["code"] < 0, answer
            return "declined"
        assert answer == ANSWERS[kind][1]
        return " ".join(host.asked)

    return row


def wait_for_own(host: Host, server: str = "own") -> None:
    """A server of the caller's own begins with its first call, and may ask for roots at once."""
    if server == "own":
        host.call("own__echo", {"text": "hello"})
        if host.server_era == OLD:
            host.daemon.wait_until(lambda: host.call("own__roots") is not None)


def roots_changed(host: Host) -> str:
    wait_for_own(host)
    host.rpc.notify("notifications/roots/list_changed", {})
    heard = [one["method"] for one in host.seen("own")]
    if host.era == NEW or host.server_era == NEW:
        assert "notifications/roots/list_changed" not in heard
        return "no such"
    host.daemon.wait_until(lambda: "notifications/roots/list_changed" in [one["method"] for one in host.seen("own")])
    return "server told"


def own_level(host: Host) -> str:
    if host.era == OLD:
        host.ask("logging/setLevel", {"level": "error"})
    wait_for_own(host)
    if host.era == OLD:
        host.ask("logging/setLevel", {"level": "warning"})
        meta = {}
    else:
        meta = {f"{PREFIX}logLevel": "warning"}
    host.call("own__log", **meta)
    seen = host.seen("own")
    levels = [one["params"]["level"] for one in seen if one["method"] == "logging/setLevel"]
    if levels:
        assert levels == ["error", "warning"]  # the one in force when it started, then the new one
        return "server told"
    with_calls = [one["params"].get("_meta", {}).get(f"{PREFIX}logLevel") for one in seen]
    return "with each call" if host.server_era == NEW and "warning" in with_calls else "no such"


ROWS: Final[dict[str, Callable[[Host], str]]] = {
    "initialize": lambda host: form(host.ask("initialize", host.shake())),
    "server/discover": asking("server/discover", {}, "supportedVersions", "capabilities"),
    "ping": asking("ping", {}),
    "tools/list": asking("tools/list", {}, "tools"),
    "tools/call": asking("tools/call", {"name": "s__echo", "arguments": {"text": "hi"}}, "content"),
    "tools/call that fails": asking("tools/call", {"name": "down__echo"}, "content", "isError"),
    "tools/call unknown": asking("tools/call", {"name": "s__nothing"}),
    "resources/list": asking("resources/list", {}, "resources"),
    "resources/templates/list": asking("resources/templates/list", {}, "resourceTemplates"),
    "resources/read": asking("resources/read", {"uri": "note://today"}, "contents"),
    "resources/read of a template": asking("resources/read", {"uri": "day://monday"}, "contents"),
    "resources/read unknown": asking("resources/read", {"uri": "nowhere://x"}),
    "resources/subscribe, updated": subscribe,
    "resources/unsubscribe": unsubscribe,
    "subscriptions/listen, updated": listen_to_resource,
    "prompts/list": asking("prompts/list", {}, "prompts"),
    "prompts/get": asking("prompts/get", {"name": "s__greet", "arguments": {"who": "Ann"}}, "messages"),
    "completion/complete": asking(
        "completion/complete",
        {"ref": {"type": "ref/prompt", "name": "s__greet"}, "argument": {"name": "who", "value": "A"}},
        "completion",
    ),
    "logging/setLevel": asking("logging/setLevel", {"level": "info"}),
    "notifications/message": message,
    "notifications/progress": progress,
    "notifications/cancelled": cancelled,
    "elicitation/create": question("elicit"),
    "sampling/createMessage": question("sample"),
    "roots/list": question("roots"),
    "roots/list of its own server": question("roots", "own"),
    "notifications/roots/list_changed to its own server": roots_changed,
    "logging/setLevel to its own server": own_level,
    "tools/list_changed": changed("tools"),
    "resources/list_changed": changed("resources"),
    "prompts/list_changed": changed("prompts"),
}


def offering(name: str, era: str, more: str = "") -> str:
    words = [str(FAKE), *(["modern"] if era == NEW else [])]
    return f'[servers.{name}]\ncommand = "{sys.executable}"\nargs = {json.dumps(words)}\n{more}\n'


@pytest.fixture(scope="module", params=ERAS)
def served(request: Any, start_for_all: Any) -> tuple[Any, str]:
    """A daemon before servers of one era: one that all share, one for each connection, and one that is stopped."""
    era: str = request.param
    daemon = start_for_all(
        offering("s", era),
        offering("own", era, 'scope = "connection"'),
        offering("down", era),
        *(f'[servers.{name}.tools]\ndeny = ["resource:*", "prompt:*"]\n' for name in ("own", "down")),
    )
    daemon.wait_ready("s", "down")
    daemon.wait_until(lambda: daemon.state("own") == "idle")
    assert daemon.status()["servers"]["s"]["protocol_version"] == era
    daemon.rpc(control=True).result("conduit/servers/stop", {"server": "down"})
    return daemon, era


@pytest.mark.parametrize("era", ERAS)
@pytest.mark.parametrize("method", TABLE)
def test_every_cell(served: Any, era: str, method: str) -> None:
    daemon, server_era = served
    host = Host(daemon, era, server_era)
    expected = TABLE[method][2 * ERAS.index(era) + ERAS.index(server_era)]
    assert ROWS[method](host) == expected
    host.rpc.close()


def test_the_readme_shows_the_table() -> None:
    rows = [f"| `{method.replace(' ', '` ', 1)}" if " " in method else f"| `{method}`" for method in TABLE]
    text = README.read_text()
    for row, cells in zip(rows, TABLE.values(), strict=True):
        assert f"{row} | {' | '.join(cells)} |" in text, f"{row} | {' | '.join(cells)} |"
