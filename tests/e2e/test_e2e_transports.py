"""A URL alone is enough: which of the two HTTP transports a server speaks is found out, unless it is configured."""

from __future__ import annotations

import subprocess
import sys
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

FAKES = Path(__file__).parents[1] / "fakes"
BACKOFF = "backoff = { initial = 0.2, maximum = 0.5 }\n"


@pytest.fixture
def serve() -> Iterator[Callable[..., tuple[subprocess.Popen[bytes], int]]]:
    """Starts a fake that listens; gives its process and its port."""
    running: list[subprocess.Popen[bytes]] = []

    def serve(script: str, *args: str, port: int = 0) -> tuple[subprocess.Popen[bytes], int]:
        command = [sys.executable, str(FAKES / script), str(port), *args]
        running.append(subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL))
        output = running[-1].stdout
        assert output is not None
        return running[-1], int(output.readline())

    yield serve
    for process in running:
        process.kill()
        process.wait()
        assert process.stdout is not None
        process.stdout.close()


def table(port: int, path: str, more: str = "") -> str:
    return f'[servers.far]\nurl = "http://127.0.0.1:{port}{path}"\n{BACKOFF}{more}'


def timeline(daemon: Any) -> list[str]:
    explained = daemon.rpc(control=True).result("conduit/servers/explain", {"server": "far"})
    return [entry["text"] for entry in explained["timeline"]]


def test_a_server_that_takes_no_post_is_spoken_to_over_the_older_transport(start: Any, serve: Any) -> None:
    process, port = serve("sdk_server.py", "sse")
    daemon = start(table(port, "/sse"))
    daemon.wait_ready("far")
    assert daemon.rpc().call("far__echo", {"text": "hello"})["content"][0]["text"] == "hello"
    told = timeline(daemon)
    assert any("HTTP status 405" in text and "the older transport, HTTP with SSE" in text for text in told), told
    assert not any("is tried again in" in text for text in told)  # that was no failure of the server's
    process.kill()
    daemon.wait_until(lambda: daemon.state("far") != "ready", 10)
    serve("sdk_server.py", "sse", port=port)
    daemon.rpc(control=True).result("conduit/servers/restart", {"server": "far"})
    daemon.wait_ready("far")
    assert daemon.rpc().call("far__echo", {"text": "again"})["content"][0]["text"] == "again"


def test_a_configured_transport_is_kept_to(start: Any, serve: Any) -> None:
    _, port = serve("sdk_server.py", "sse")
    daemon = start(table(port, "/sse", 'transport = "http"\n'))
    daemon.wait_until(lambda: daemon.state("far") == "waiting", 20)
    assert "HTTP status 405" in daemon.status()["servers"]["far"]["reason"]
    assert not any("older transport" in text for text in timeline(daemon))


@pytest.mark.parametrize(
    ("behaviour", "state", "tried"), [("status=404", "waiting", True), ("token=x", "needs_attention", False)]
)
def test_what_is_said_of_a_server_that_speaks_neither_is_what_the_first_attempt_said(
    start: Any, serve: Any, behaviour: str, state: str, tried: bool
) -> None:
    _, port = serve("http_server.py", behaviour)
    daemon = start(table(port, "/mcp"))
    daemon.wait_until(lambda: daemon.state("far") == state, 20)
    status = "404" if tried else "401"
    assert f"HTTP status {status}" in daemon.status()["servers"]["far"]["reason"]
    assert any("older transport" in text for text in timeline(daemon)) is tried
