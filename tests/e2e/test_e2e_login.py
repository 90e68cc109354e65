"""Logging in to a server: by a person in a browser, once, and by the daemon itself with credentials of its own."""

from __future__ import annotations

import json
import os
import re
import stat
import subprocess
import sys
import time
import urllib.request
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

FAKES = Path(__file__).parents[1] / "fakes"
ALLOW = '[policy]\ndefault = "allow"\n'
CONDUIT = Path(sys.executable).with_name("conduit")


@pytest.fixture
def guarded() -> Iterator[Callable[..., int]]:
    """Starts a server that wants a login; gives its port."""
    running: list[subprocess.Popen[bytes]] = []

    def guarded(*behaviours: str) -> int:
        command = [sys.executable, FAKES / "oauth_server.py", "0", *behaviours]
        running.append(subprocess.Popen(command, stdout=subprocess.PIPE))
        output = running[-1].stdout
        assert output is not None
        return int(output.readline())

    yield guarded
    for process in running:
        process.kill()
        process.wait()
        assert process.stdout is not None
        process.stdout.close()


def get(url: str) -> Any:
    with urllib.request.urlopen(url, timeout=10) as answer:
        body = answer.read()
    return json.loads(body) if body[:1] in (b"[", b"{") else body.decode()


def log_in(daemon: Any, server: str, *, browser: bool = True) -> subprocess.CompletedProcess[str]:
    """Runs `conduit login`, and does in the browser what a person would."""
    command = [CONDUIT, "login", server, "--config", daemon.config, "--socket", daemon.agent, "--no-browser"]
    process = subprocess.Popen(
        command, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True, env={**os.environ, "NO_COLOR": "1"}
    )
    assert process.stderr is not None
    told = ""
    while "http" not in told and process.poll() is None:
        told += process.stderr.readline()
    found = re.search(r"http://\S+", told)
    if found and browser:
        try:
            get(found[0])
        except urllib.error.HTTPError as error:
            told += error.read().decode()
    output, errors = process.communicate(timeout=30)
    return subprocess.CompletedProcess(command, process.returncode, output, told + errors)


def test_a_person_logs_in_once_and_the_daemon_goes_on_from_there(start: Any, guarded: Any) -> None:
    port = guarded("expires_in=2")
    base = f"http://127.0.0.1:{port}"
    table = f'[servers.far]\nurl = "{base}/mcp"\nauth = {{ type = "oauth" }}\n'
    daemon = start(table)
    daemon.wait_until(lambda: daemon.state("far") == "needs_attention", 20)
    assert "run `conduit login far`" in daemon.status()["servers"]["far"]["reason"]
    assert get(f"{base}/grants") == []  # nothing is registered before somebody is there
    done = log_in(daemon, "far")
    assert (done.returncode, done.stdout) == (0, "Logged in to far. The daemon connects to it now.\n"), done.stderr
    daemon.wait_ready("far")
    kept = daemon.folder / "state" / "auth" / "far.json"
    assert stat.S_IMODE(kept.stat().st_mode) == 0o600
    assert stat.S_IMODE(kept.parent.stat().st_mode) == 0o700
    rpc = daemon.rpc()
    assert rpc.call("far__echo", {"text": "in"})["content"][0]["text"] == "in"
    time.sleep(2.5)  # the token has ended meanwhile
    assert rpc.call("far__echo", {"text": "still"})["content"][0]["text"] == "still"
    assert get(f"{base}/grants").count("authorization_code") == 1
    assert "refresh_token" in get(f"{base}/grants")
    tokens = json.loads(kept.read_text())["tokens"]
    assert tokens["access_token"] not in daemon.log_path.read_text()
    assert daemon.stop() == 0
    time.sleep(2.5)
    again = type(daemon)(daemon.folder, ALLOW + table)
    try:
        again.wait_ready("far")
        assert again.rpc().call("far__echo", {"text": "again"})["content"][0]["text"] == "again"
        assert get(f"{base}/grants").count("authorization_code") == 1
        get(f"{base}/revoke?all=1")
        error = again.rpc().ask("conduit/call", {"name": "far__echo", "arguments": {"text": "?"}})["error"]
        assert "conduit login far" in error["message"]
        again.wait_until(lambda: again.state("far") == "needs_attention", 5)
    finally:
        assert again.stop() == 0


def tell(rpc: Any, secrets: list[str]) -> dict[str, Any]:
    """Has the server repeat secrets in an error of its own."""
    body = {"jsonrpc": "2.0", "id": None, "error": {"code": -1, "message": f"bad: {' '.join(secrets)}"}}
    answer: dict[str, Any] = rpc.ask(
        "conduit/call", {"name": "far__fail", "arguments": {"kind": "status", "status": 400, "body": body}}
    )
    return answer["error"]


def test_tokens_are_shown_nowhere_however_the_daemon_came_by_them(start: Any, guarded: Any) -> None:
    port = guarded("expires_in=2")
    table = f'[servers.far]\nurl = "http://127.0.0.1:{port}/mcp"\nauth = {{ type = "oauth" }}\n'
    daemon = start(table)
    daemon.wait_until(lambda: daemon.state("far") == "needs_attention", 20)
    watcher = daemon.rpc(control=True)
    watcher.send("conduit/events")
    assert log_in(daemon, "far").returncode == 0
    daemon.wait_ready("far")
    kept = daemon.folder / "state" / "auth" / "far.json"

    def secrets() -> list[str]:
        tokens = json.loads(kept.read_text())["tokens"]
        return [tokens["access_token"], tokens["refresh_token"]]

    seen, shown = secrets(), []
    rpc = daemon.rpc()
    shown.append(tell(rpc, seen))
    time.sleep(2.5)
    rpc.call("far__echo", {"text": "renewed"})
    assert not set(seen) & set(secrets())
    shown.append(tell(rpc, secrets() + seen))  # what ended is still in late lines
    seen += secrets()
    shown += [daemon.status(), daemon.rpc(control=True).result("conduit/servers/explain", {"server": "far"})]
    watcher.wait(watcher.send("ping"))
    shown.append(watcher.notifications)
    assert any(n["params"].get("type") == "call.finished" for n in watcher.notifications)
    assert daemon.stop() == 0
    logs = daemon.log_path.read_text()
    again = type(daemon)(daemon.folder, ALLOW + table)
    try:
        again.wait_ready("far")
        told = again.rpc()
        seen += secrets()
        shown.append(tell(told, secrets()))
    finally:
        for connection in again.connections:
            connection.close()
        assert again.stop() == 0
    logs += again.log_path.read_text()
    text = json.dumps(shown)
    assert text.count("bad: [masked] [masked]") >= 3
    assert "call.finished" in logs
    assert [secret for secret in seen if secret in text or secret in logs] == []


def test_a_login_that_is_refused_says_so(start: Any, guarded: Any) -> None:
    port = guarded("deny")
    daemon = start(f'[servers.far]\nurl = "http://127.0.0.1:{port}/mcp"\nauth = {{ type = "oauth" }}\n')
    done = log_in(daemon, "far")
    assert done.returncode == 1
    assert "The login to server far failed: the person refused." in done.stderr
    assert not (daemon.folder / "state" / "auth" / "far.json").exists() or "tokens" not in json.loads(
        (daemon.folder / "state" / "auth" / "far.json").read_text()
    )


def test_the_daemon_logs_in_itself_with_its_credentials(start: Any, guarded: Any) -> None:
    port = guarded("expires_in=2")
    auth = 'auth = { type = "client_credentials", client_id = "robot", client_secret = "open-sesame" }'
    daemon = start(f'[servers.far]\nurl = "http://127.0.0.1:{port}/mcp"\n{auth}\n')
    daemon.wait_ready("far")
    rpc = daemon.rpc()
    time.sleep(2.5)
    assert rpc.call("far__echo", {"text": "in"})["content"][0]["text"] == "in"
    assert set(get(f"http://127.0.0.1:{port}/grants")) == {"client_credentials"}
    done = log_in(daemon, "far", browser=False)
    assert done.returncode == 1
    assert "has no login" in done.stderr
