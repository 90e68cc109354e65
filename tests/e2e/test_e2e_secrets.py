"""A server that has a secret and tells it in what goes wrong: nobody reads it in what the daemon says."""

from __future__ import annotations

import json
import sys
from pathlib import Path
from typing import Any

import pytest

SECRET = "sk-live/4f9e+verysecret"

TELLTALE = """
import json, os, sys
secret = os.environ["API_TOKEN"]
def say(**message):
    print(json.dumps({"jsonrpc": "2.0", **message}), flush=True)
for line in sys.stdin:
    asked = json.loads(line)
    method, number, params = asked.get("method"), asked.get("id"), asked.get("params") or {}
    if method == "initialize":
        info = {"name": "telltale", "version": "1"}
        agreed = {"protocolVersion": params["protocolVersion"], "capabilities": {"tools": {}}}
        say(id=number, result={**agreed, "serverInfo": info})
    elif method == "tools/list":
        names = ("error", "type", "long", "huge")
        say(id=number, result={"tools": [{"name": name, "inputSchema": {"type": "object"}} for name in names]})
    elif method == "tools/call" and params["name"] == "error":
        say(id=number, error={"code": -32050, "message": f"401 for {secret}", "data": {secret: [f"Bearer {secret}"]}})
    elif method == "tools/call" and params["name"] == "type":
        say(id=number, result={"resultType": secret})
    elif method == "tools/call" and params["name"] == "huge":
        say(id=number, error={"code": -32050, "message": "x" * 3_000_000})
    elif method == "tools/call":
        print("x" * 990 + secret, file=sys.stderr, flush=True)
        print("y" * 190 + secret, flush=True)
        say(id=number, result={"content": []})
    elif number is not None:
        say(id=number, error={"code": -32601, "message": "Method not found"})
"""


@pytest.fixture
def daemon(start: Any, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Any:
    monkeypatch.setenv("API_TOKEN", SECRET)
    script = tmp_path / "telltale.py"
    script.write_text(TELLTALE)
    env = '{ API_TOKEN = "${env:API_TOKEN}" }'
    started = start(
        f'[servers.t]\ncommand = "{sys.executable}"\nargs = ["{script}"]\nenv = {env}\n',
        '[servers.gone]\ncommand = "/nonexistent/${env:API_TOKEN}"\n',
    )
    started.wait_ready("t")
    return started


def test_in_no_error_and_in_no_state(daemon: Any) -> None:
    agent, control = daemon.rpc(), daemon.rpc(control=True)
    said = []
    for name in ("t__error", "t__type"):
        said += [agent.ask("conduit/call", {"name": name}), agent.ask("tools/call", {"name": name})]
    assert "[masked]" in said[0]["error"]["message"]
    assert said[0]["error"]["data"]["error"]["data"] == {"[masked]": ["Bearer [masked]"]}
    daemon.wait_until(lambda: daemon.state("gone") == "needs_attention")
    said += [agent.ask("conduit/status"), control.ask("conduit/servers/explain", {"server": "gone"})]
    for one in said:
        assert "[masked]" in json.dumps(one)
        assert "verysecret" not in json.dumps(one)


def test_not_even_a_part_of_it_where_a_line_is_cut(daemon: Any) -> None:
    agent, control = daemon.rpc(), daemon.rpc(control=True)
    agent.result("conduit/call", {"name": "t__long"})

    def told() -> list[str]:
        return control.result("conduit/servers/explain", {"server": "t"})["stderr"]  # type: ignore[no-any-return]

    daemon.wait_until(lambda: bool(told()))
    assert told()[0].startswith("x" * 990)
    assert "sk-" not in json.dumps(told())
    daemon.wait_until(lambda: any(line.get("line", "").startswith("yyy") for line in daemon.log()))
    assert "sk-" not in daemon.log_path.read_text()


def test_a_servers_endless_words_are_not_kept_for_ever(daemon: Any) -> None:
    agent = daemon.rpc()
    error = agent.ask("conduit/call", {"name": "t__huge"})["error"]
    assert len(error["message"]) < 3000
    assert len(error["data"]["error"]["message"]) == 3_000_000
