"""Remote servers through a whole daemon: HTTP and WebSocket, killed and started again."""

from __future__ import annotations

import json
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

FAKES = Path(__file__).parents[1] / "fakes"


@pytest.fixture
def remote() -> Iterator[Callable[..., Any]]:
    """Starts a fake that listens; gives its port and a way to kill it."""
    running: list[subprocess.Popen[bytes]] = []

    def remote(script: str, *behaviours: str, port: int = 0) -> tuple[int, Callable[[], None]]:
        process = subprocess.Popen([sys.executable, FAKES / script, str(port), *behaviours], stdout=subprocess.PIPE)
        running.append(process)
        assert process.stdout is not None

        def kill() -> None:
            process.kill()
            process.wait()

        return int(process.stdout.readline()), kill

    yield remote
    for process in running:
        process.kill()
        process.wait()
        assert process.stdout is not None
        process.stdout.close()


@pytest.mark.parametrize(("script", "scheme"), [("http_server.py", "http"), ("websocket_server.py", "ws")])
def test_a_remote_server_is_used_lost_and_found_again(start: Any, remote: Any, script: str, scheme: str) -> None:
    port, kill = remote(script)
    daemon = start(f'[servers.far]\nurl = "{scheme}://127.0.0.1:{port}/mcp"\nbackoff = {{ initial = 0.1 }}\n')
    daemon.wait_ready("far")
    assert daemon.status()["servers"]["far"]["transport"] == ("http" if scheme == "http" else "websocket")
    rpc = daemon.rpc()
    assert rpc.call("far__echo", {"text": "hi"})["content"][0]["text"] == "hi"
    time.sleep(0.3)
    sleeping = rpc.send("conduit/call", {"name": "far__sleep", "arguments": {"seconds": 60}})
    time.sleep(0.3)
    killed = time.monotonic()
    kill()
    error = rpc.wait(sleeping)["error"]
    assert time.monotonic() - killed < 1
    assert (error["data"]["kind"], error["data"]["outcome"]) == ("unavailable", "outcome_unknown")
    daemon.wait_until(lambda: daemon.state("far") != "ready", 2)
    assert rpc.result("tools/list", {})["tools"] == []
    remote(script, port=port)
    daemon.wait_ready("far", seconds=10)
    assert rpc.call("far__echo", {"text": "back"})["content"][0]["text"] == "back"
    assert daemon.stop() == 0


def test_a_server_that_wants_a_login_needs_attention_and_says_why(start: Any, remote: Any) -> None:
    port, _ = remote("http_server.py", "token=sesame-open")
    daemon = start(f'[servers.far]\nurl = "http://127.0.0.1:{port}/mcp"\n')
    daemon.wait_until(lambda: daemon.state("far") == "needs_attention", 20)
    assert "HTTP status 401" in daemon.status()["servers"]["far"]["reason"]
    control = daemon.rpc(control=True)
    text = daemon.config.read_text() + 'headers = { Authorization = "Bearer sesame-open" }\n'
    daemon.config.write_text(text)
    control.result("conduit/reload")
    daemon.wait_ready("far")
    headers = json.loads(daemon.rpc().call("far__headers")["content"][0]["text"])
    assert headers["authorization"] == "Bearer sesame-open"
    assert "sesame-open" not in daemon.log_path.read_text()
