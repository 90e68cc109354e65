"""Secrets planted wherever one can stand, and everything that the daemon says searched for them, in each log format."""

from __future__ import annotations

import json
import os
import socket
import subprocess
import sys
import tempfile
import threading
import time
from collections.abc import Callable, Iterator
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any
from urllib.parse import quote

import pytest

JOURNALLED = Path(__file__).parents[1] / "fakes" / "journal_daemon.py"
CONDUIT = Path(sys.executable).with_name("conduit")

PLANTED = {
    place: f"planted/{place}+5e1f"
    for place in ("env", "file", "credential", "literal", "header", "password", "query", "argument", "oauth")
}
"""Each is another, so that what leaks says where it came from."""

QUOTED = quote(PLANTED["password"], safe="")

SERVER = """
import json, os, sys
secrets = [os.environ[name] for name in ("API_TOKEN", "FROM_FILE", "FROM_CREDENTIAL", "DB_PASSWORD")] + sys.argv[1:]
everything = " ".join(secrets)
def say(**message):
    print(json.dumps({"jsonrpc": "2.0", **message}), flush=True)
print("starting with", everything, file=sys.stderr, flush=True)
tools = [{"name": name, "inputSchema": {"type": "object"}} for name in ("echo", "error", "tool_error", "slow", "die")]
tools += [{"name": "typed", "inputSchema": {"type": "object", "properties": {"n": {"type": "integer"}}}}]
tools += [{"name": "promised", "inputSchema": {"type": "object"},
           "outputSchema": {"type": "object", "properties": {"n": {"const": secrets[0]}}, "required": ["n"]}}]
tools += [{"name": secrets[0], "description": everything}, {"name": "bad", "inputSchema": everything}]
for line in sys.stdin:
    asked = json.loads(line)
    method, number, params = asked.get("method"), asked.get("id"), asked.get("params") or {}
    name = params.get("name")
    if method == "initialize":
        info = {"name": everything, "version": secrets[0]}
        say(id=number, result={"protocolVersion": params["protocolVersion"], "serverInfo": info,
            "capabilities": {"tools": {"listChanged": True}, "logging": {}}, "instructions": everything})
    elif method == "tools/list":
        say(id=number, result={"tools": tools})
    elif method == "tools/call":
        for secret in secrets:
            print("called with", secret, file=sys.stderr, flush=True)
        say(method="notifications/message", params={"level": "error", "data": everything})
        say(method="notifications/progress", params={"progressToken": 1, "progress": 1, "message": everything})
        print("no JSON at all: " + everything, flush=True)
        if name == "error":
            say(id=number, error={"code": -32050, "message": everything, "data": {"all": secrets, secrets[0]: 1}})
        elif name == "slow":
            continue
        elif name == "die":
            print("dying of", everything, file=sys.stderr, flush=True)
            os._exit(3)
        elif name == "tool_error":
            say(id=number, result={"content": [{"type": "text", "text": everything}], "isError": True})
        elif name == "promised":
            say(id=number, result={"content": [], "structuredContent": {"n": everything}})
        else:
            say(id=number, result={"content": [{"type": "text", "text": everything}]})
    elif number is not None:
        say(id=number, error={"code": -32601, "message": everything})
"""

HOOKS = """
import os
from conduit_daemon.pipeline.hooks import Refusal

def before(call):
    if "raise" in call.arguments:
        raise RuntimeError("the hook knows " + os.environ["API_TOKEN"])
    if "refuse" in call.arguments:
        return Refusal("no, because of " + os.environ["API_TOKEN"])
"""


def config(folder: Path, url: str, format: str) -> str:
    return f"""
[rpc]
agent_socket = "{folder}/agent.sock"
control_socket = "{folder}/control.sock"
[state]
directory = "{folder}/state"
[log]
format = "{format}"
level = "debug"
[audit]
arguments = true
[hooks]
before_call = ["planted_hooks:before"]
[servers.s]
command = "{sys.executable}"
args = ["{folder}/server.py"]
env.API_TOKEN = "${{env:API_TOKEN}}"
env.FROM_FILE = "${{file:secret}}"
env.FROM_CREDENTIAL = "${{credential:secret}}"
env.DB_PASSWORD = "{PLANTED["literal"]}"
[servers.web]
url = "{url.replace("//", f"//me:{QUOTED}@")}/mcp?api_key={PLANTED["query"]}"
[servers.web.headers]
Authorization = "Bearer {PLANTED["header"]}"
[servers.gone]
command = "/nonexistent/${{env:API_TOKEN}}"
[servers.away]
url = "http://me:{QUOTED}@127.0.0.1:9/mcp?api_key={PLANTED["query"]}"
backoff = {{ initial = 0.2 }}
[policy]
default = "allow"
[[policy.rules]]
name = "told"
effect = "deny"
when = "has(args.denied)"
reason = "it may be told {PLANTED["literal"]}"
[[policy.rules]]
effect = "approve"
when = "has(args.ask)"
reason = "ask about {PLANTED["literal"]}"
[[policy.rules]]
effect = "deny"
when = "has(args.broken) && args.broken + 1 == 2"
"""


class Web:
    """A server that answers every request by telling what it was sent."""

    def __init__(self) -> None:
        class Handler(BaseHTTPRequestHandler):
            def do_POST(self) -> None:
                self.rfile.read(int(self.headers.get("Content-Length", 0)))
                told = f"401 for {dict(self.headers)} at {self.path}".encode()
                self.send_response(500)
                self.send_header("Content-Length", str(len(told)))
                self.end_headers()
                self.wfile.write(told)

            do_GET = do_DELETE = do_POST

            def log_message(self, *_: Any) -> None: ...

        self.server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
        self.url = f"http://127.0.0.1:{self.server.server_port}"
        threading.Thread(target=self.server.serve_forever, daemon=True).start()


class Told:
    """Everything that was said, by where."""

    def __init__(self) -> None:
        self.by_place: dict[str, str] = {}

    def note(self, place: str, said: Any) -> Any:
        text = said if isinstance(said, str) else json.dumps(said)
        self.by_place[place] = self.by_place.get(place, "") + text + "\n"
        return said

    def leaks(self) -> list[str]:
        return [
            f"{secret} in {place}: ...{text[max(0, at - 150) : at + 60]}"
            for place, text in self.by_place.items()
            for secret, value in PLANTED.items()
            for form in (value, quote(value), quote(value, safe=""), value.replace("/", "\\/"))
            if (at := text.find(form)) >= 0
            # What the agent gives and the daemon does not know for a secret is for the person who approves it to see.
            if (place, secret) != ("approvals", "argument")
        ]


class Datagrams:
    """Takes what is sent to a socket: the service manager's, or the journal's."""

    def __init__(self, path: Path) -> None:
        self.sock = socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM)
        self.sock.bind(str(path))
        self.received: list[str] = []
        self.thread = threading.Thread(target=self._receive, daemon=True)
        self.thread.start()

    def _receive(self) -> None:
        while data := self.sock.recv(1 << 20):
            self.received.append(data.decode(errors="replace"))

    def close(self) -> str:
        """Everything that came."""
        with socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM) as sock:
            sock.sendto(b"", self.sock.getsockname())
        self.thread.join()
        self.sock.close()
        return "\n".join(self.received)


@pytest.fixture
def folder() -> Iterator[Path]:
    with tempfile.TemporaryDirectory(prefix="cd-") as name:
        yield Path(name)


@pytest.mark.parametrize("format", ["json", "console", "journal"])
def test_no_planted_secret_is_said_anywhere(folder: Path, format: str, rpc_to: Callable[[Path], Any]) -> None:
    told, web = Told(), Web()
    (folder / "server.py").write_text(SERVER)
    (folder / "planted_hooks.py").write_text(HOOKS)
    (folder / "secret").write_text(PLANTED["file"] + "\n")
    (folder / "credentials").mkdir()
    (folder / "credentials" / "secret").write_text(PLANTED["credential"])
    path = folder / "conduit.toml"
    path.write_text(config(folder, web.url, format))
    environ = {
        **os.environ,
        "API_TOKEN": PLANTED["env"],
        "CREDENTIALS_DIRECTORY": str(folder / "credentials"),
        "NOTIFY_SOCKET": str(folder / "notify"),
        "OTEL_TRACES_EXPORTER": "console",
        "OTEL_EXPORTER_OTLP_HEADERS": f"authorization=Bearer {PLANTED['oauth']}",
    }
    manager, journal = Datagrams(folder / "notify"), Datagrams(folder / "journal")
    command = [str(CONDUIT)] if format != "journal" else [sys.executable, str(JOURNALLED), str(folder / "journal")]
    with (folder / "log").open("wb") as log:
        daemon = subprocess.Popen([*command, "run", "--config", str(path)], stdout=log, stderr=log, env=environ)
    try:
        _live(folder, told, rpc_to)
        if format == "json":
            for manner in (["status"], ["explain", "s"], ["audit"], ["servers", "explain", "gone"]):
                command = [CONDUIT, *manner, "--socket", folder / "control.sock"]
                done = subprocess.run(command, capture_output=True, text=True, check=False)
                told.note("commands", done.stdout + done.stderr)
    finally:
        daemon.terminate()
        assert daemon.wait(20) == 0
        web.server.shutdown()
        web.server.server_close()
    told.note("log", (folder / "log").read_text())
    told.note("journal", journal.close())
    told.note("status line", manager.close())
    if format == "json":  # it is nothing to what is said elsewhere
        _check(path, environ, told)

    said = told.by_place
    assert not (found := told.leaks()), "\n".join(found)
    assert "[masked]" in said["log" if format != "journal" else "journal"]
    searched = {"events", "explain", "errors", "status", "audit", "approvals", "policy"}
    for place in searched | ({"check", "commands"} if format == "json" else set()):
        assert "[masked]" in said[place], f"nothing secret came to {place}: the test proves nothing of it"
    assert "servers ready" in said["status line"]
    assert "tools/call" in said["log"], "the spans are there"


def _check(path: Path, environ: dict[str, str], told: Told) -> None:
    for manner in ([], ["--json"]):
        done = subprocess.run(
            [CONDUIT, "check", path, *manner], env=environ, capture_output=True, text=True, check=True
        )
        told.note("check", done.stdout + done.stderr)
    path.write_text(path.read_text().replace("[hooks]", "[hooks]\nnothing = 1").replace('"/nonexistent/', '"\\n/'))
    done = subprocess.run([CONDUIT, "check", path], env=environ, capture_output=True, text=True, check=False)
    assert done.returncode == 1
    told.note("check of a bad file", done.stdout + done.stderr)


def _live(folder: Path, told: Told, rpc_to: Callable[[Path], Any]) -> None:
    """Lets everything happen in which a secret can come up, and notes what is said of it."""
    until = time.monotonic() + 20
    while not (folder / "control.sock").is_socket():
        assert time.monotonic() < until, (folder / "log").read_text()
        time.sleep(0.02)
    control, watcher = rpc_to(folder / "control.sock"), rpc_to(folder / "control.sock")
    events = rpc_to(folder / "control.sock")
    events.send("conduit/events", {"backlog": 1000})
    watcher.send("conduit/approvals", {"watch": True})

    def ready() -> bool:
        states = {name: server["state"] for name, server in control.result("conduit/status")["servers"].items()}
        return states["s"] == "ready" and states["gone"] == "needs_attention" and states["web"] != "connecting"

    while not ready():
        assert time.monotonic() < until, (folder / "log").read_text()
        time.sleep(0.05)
    given = {"text": PLANTED["env"], "password": PLANTED["argument"], "nested": [{PLANTED["file"]: PLANTED["literal"]}]}
    for name in ("echo", "error", "tool_error", "promised", "die", "nothing", PLANTED["env"]):
        for method in ("conduit/call", "tools/call"):
            answer = control.ask(method, {"name": f"s__{name}", "arguments": given})
            failed = "error" in answer or answer["result"].get("_meta", {}).get("conduit")
            told.note("errors" if failed else "results", answer) if failed else None
        if name == "die":
            while not ready():
                time.sleep(0.05)
    for more in ({"denied": 1}, {"raise": 1}, {"refuse": 1}, {"broken": "x"}):
        for method in ("conduit/call", "tools/call"):
            told.note("errors", control.ask(method, {"name": "s__echo", "arguments": {**given, **more}}))
    for name in ("web__x", "away__x", "gone__x", "s__bad"):
        told.note("errors", control.ask("conduit/call", {"name": name, "arguments": given}))
    told.note("errors", control.ask("conduit/call", {"name": "s__typed", "arguments": {"n": PLANTED["env"]}}))
    told.note("errors", control.ask("conduit/call", {"name": "s__slow", "arguments": given, "timeout": 0.2}))
    told.note("errors", control.ask("conduit/call", {"name": f"s__{PLANTED['env']}x", "arguments": given}))
    waiting = control.send("conduit/call", {"name": "s__echo", "arguments": {**given, "ask": 1}})
    while not (asked := told.note("approvals", rpc_once(folder, rpc_to, "conduit/approvals"))["approvals"]):
        time.sleep(0.02)
    rpc_once(folder, rpc_to, "conduit/approvals/decide", id=asked[0]["id"], decision="deny", reason=PLANTED["env"])
    told.note("errors", control.wait(waiting))
    told.note("status", control.result("conduit/status"))
    for server in ("s", "web", "gone", "away"):
        told.note("explain", control.result("conduit/servers/explain", {"server": server}))
    told.note("tree", control.result("conduit/tree"))
    told.note("metrics", control.result("conduit/metrics")["text"])
    explained = {"name": "s__echo", "arguments": {"denied": 1}}
    told.note("policy", control.result("conduit/policy/explain", explained))
    told.note("errors", control.ask("conduit/servers/add", {"server": "n", "config": {"comand": PLANTED["env"]}}))
    told.note("missing", {key: control.result("conduit/tools")[key] for key in ("missing", "dropped", "fallbacks")})
    told.note("audit", control.result("conduit/audit", {"limit": 1000}))
    for connection, place in ((events, "events"), (watcher, "approvals")):
        connection.sock.settimeout(0.3)
        try:
            while True:
                told.note(place, connection.receive())
        except TimeoutError:
            continue


def rpc_once(folder: Path, rpc_to: Callable[[Path], Any], method: str, **params: Any) -> Any:
    return rpc_to(folder / "control.sock").result(method, params)
