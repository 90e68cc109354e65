"""The servers that everybody uses, as their registries publish them, through a real daemon."""

from __future__ import annotations

import base64
import http.server
import json
import os
import subprocess
import sys
import threading
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

VERSION = "2026.8.31"
NPM = tuple(f"@modelcontextprotocol/server-{name}@{VERSION}" for name in ("everything", "filesystem", "memory"))


def table(server: str, command: Path, *args: object, **keys: str) -> str:
    more = "".join(f"{key} = {value}\n" for key, value in keys.items())
    return f'[servers.{server}]\ncommand = "{command}"\nargs = {json.dumps([str(arg) for arg in args])}\n{more}'


def text(result: dict[str, Any]) -> str:
    assert result.get("isError") is not True, result
    found: str = result["content"][0]["text"]
    return found


def names(rpc: Any) -> set[str]:
    return {tool["name"] for tool in rpc.result("tools/list")["tools"]}


@pytest.fixture
def everything(start: Any, npm_install: Any, tmp_path: Path) -> Iterator[Any]:
    bin = npm_install(*NPM)
    daemon = start(
        table("everything", bin / "mcp-server-everything", env='{ LOUD = "yes" }', roots=json.dumps([str(tmp_path)]))
    )
    daemon.wait_ready("everything", seconds=30)
    yield daemon
    assert daemon.stop() == 0


@pytest.mark.npm
def test_everything_links_pictures_structures_and_the_environment(everything: Any) -> None:
    rpc = everything.rpc()
    assert everything.status()["servers"]["everything"]["protocol_version"] == "2025-11-25"
    assert text(rpc.call("everything__echo", {"message": "hello"})) == "Echo: hello"
    links = rpc.call("everything__get-resource-links", {"count": 3})["content"]
    assert [block["type"] for block in links] == ["text", *["resource_link"] * 3]
    assert all(link["uri"].startswith("demo://") for link in links[1:])
    picture = next(block for block in rpc.call("everything__get-tiny-image")["content"] if block["type"] == "image")
    assert picture["mimeType"] == "image/png"
    assert base64.b64decode(picture["data"]).startswith(b"\x89PNG")
    structured = rpc.call("everything__get-structured-content", {"location": "Chicago"})["structuredContent"]
    assert set(structured) == {"temperature", "conditions", "humidity"}
    embedded = rpc.call("everything__get-resource-reference", {"resourceType": "Blob", "resourceId": 2})["content"]
    assert any(block["type"] == "resource" and "blob" in block["resource"] for block in embedded)
    annotated = rpc.call("everything__get-annotated-message", {"messageType": "error"})["content"]
    assert annotated[0]["annotations"] == {"priority": 1, "audience": ["user", "assistant"]}
    environment = json.loads(text(rpc.call("everything__get-env")))
    assert environment["LOUD"] == "yes"
    assert "PYTEST_CURRENT_TEST" in os.environ
    assert "PYTEST_CURRENT_TEST" not in environment  # never the daemon's whole environment


@pytest.mark.npm
def test_everything_reports_progress_and_can_be_cancelled(everything: Any) -> None:
    rpc = everything.rpc()
    params = {
        "name": "everything__trigger-long-running-operation",
        "arguments": {"duration": 1, "steps": 4},
        "_meta": {"progressToken": "mine"},
    }
    assert "completed" in text(rpc.result("tools/call", params))
    seen = [note["params"] for note in rpc.notifications if note["method"] == "notifications/progress"]
    assert [(note["progressToken"], note["progress"], note["total"]) for note in seen] == [
        ("mine", step, 4) for step in (1, 2, 3, 4)
    ]
    long = rpc.send(
        "tools/call", {**params, "arguments": {"duration": 60, "steps": 60}, "_meta": {"progressToken": "long"}}
    )
    while not any(note["params"].get("progressToken") == "long" for note in rpc.notifications):
        rpc.result("ping")
        time.sleep(0.05)
    rpc.notify("notifications/cancelled", {"requestId": long})
    everything.wait_until(lambda: everything.status()["calls"]["in_flight"] == 0, 2)
    assert text(rpc.call("everything__echo", {"message": "next"})) == "Echo: next"


@pytest.mark.npm
def test_everything_announces_the_tool_that_comes_with_roots_and_is_told_them(everything: Any, tmp_path: Path) -> None:
    rpc = everything.rpc()
    everything.wait_until(lambda: "everything__get-roots-list" in names(rpc), 10)
    assert tmp_path.as_uri() in text(rpc.call("everything__get-roots-list"))


@pytest.mark.npm
def test_filesystem_keeps_to_its_roots(start: Any, npm_install: Any, tmp_path: Path) -> None:
    inside, outside = tmp_path / "inside", tmp_path / "outside.txt"
    inside.mkdir()
    outside.write_text("secret")
    (inside / "dot.png").write_bytes(b"\x89PNG\r\n\x1a\n")
    daemon = start(table("files", npm_install(*NPM) / "mcp-server-filesystem", inside))
    daemon.wait_ready("files", seconds=30)
    rpc = daemon.rpc()
    rpc.call("files__write_file", {"path": str(inside / "a.txt"), "content": "first\nsecond\n"})
    assert (inside / "a.txt").read_text() == "first\nsecond\n"
    assert text(rpc.call("files__read_text_file", {"path": str(inside / "a.txt"), "head": 1})) == "first"
    assert "a.txt" in text(rpc.call("files__list_directory", {"path": str(inside)}))
    assert rpc.call("files__read_text_file", {"path": str(outside)})["isError"] is True
    media = rpc.call("files__read_media_file", {"path": str(inside / "dot.png")})["content"]
    assert (media[0]["type"], media[0]["mimeType"]) == ("image", "image/png")
    invalid = rpc.call("files__read_text_file", {"path": 7})
    assert invalid["isError"] is True
    assert "path" in invalid["content"][0]["text"]
    assert daemon.stop() == 0


@pytest.mark.npm
def test_memory_remembers_across_its_own_death(start: Any, npm_install: Any, tmp_path: Path) -> None:
    store = tmp_path / "memory.jsonl"
    daemon = start(table("memory", npm_install(*NPM) / "mcp-server-memory", env=f'{{ MEMORY_FILE_PATH = "{store}" }}'))
    daemon.wait_ready("memory", seconds=30)
    rpc = daemon.rpc()
    entity = {"name": "Ada", "entityType": "person", "observations": ["wrote the first program"]}
    rpc.call("memory__create_entities", {"entities": [entity]})
    os.kill(daemon.pid("memory"), 9)
    daemon.wait_until(lambda: daemon.status()["servers"]["memory"]["restarts"] == 1)
    daemon.wait_ready("memory")
    found = rpc.call("memory__search_nodes", {"query": "program"})
    assert found["structuredContent"]["entities"] == [entity]
    assert daemon.stop() == 0


class Page(http.server.BaseHTTPRequestHandler):
    def do_GET(self) -> None:
        body = b"" if self.path == "/robots.txt" else b"<html><body><h1>Hub</h1><p>All is well.</p></body></html>"
        self.send_response(404 if self.path == "/robots.txt" else 200)
        self.send_header("content-type", "text/html")
        self.send_header("content-length", str(len(body)))
        self.end_headers()
        self.wfile.write(body)

    def log_message(self, *args: Any) -> None:
        """Says nothing."""


@pytest.mark.npm
def test_fetch_brings_a_page(start: Any, pip_install: Any) -> None:
    bin = pip_install("mcp-server-fetch==2026.10.24")
    with http.server.ThreadingHTTPServer(("127.0.0.1", 0), Page) as web:
        threading.Thread(target=web.serve_forever, daemon=True).start()
        daemon = start(table("fetch", bin / "mcp-server-fetch", "--allow-private-ips"))
        daemon.wait_ready("fetch", seconds=40)
        rpc = daemon.rpc()
        page = text(rpc.call("fetch__fetch", {"url": f"http://127.0.0.1:{web.server_port}/page"}))
        assert "All is well." in page
        assert rpc.call("fetch__fetch", {"url": "http://127.0.0.1:9/"})["isError"] is True
        assert daemon.stop() == 0
        web.shutdown()


def test_time_and_git_tell_the_truth(start: Any, tmp_path: Path) -> None:
    bin = Path(sys.executable).parent
    identity = ["-c", "user.name=a", "-c", "user.email=a@b"]
    for command in (["init", "-q"], [*identity, "commit", "-q", "--allow-empty", "-m", "first of all"]):
        subprocess.run(["git", *command], cwd=tmp_path, check=True)
    daemon = start(
        table("time", bin / "mcp-server-time", "--local-timezone", "UTC"),
        table("git", bin / "mcp-server-git", "--repository", tmp_path),
    )
    daemon.wait_ready("time", "git", seconds=40)
    rpc = daemon.rpc()
    converted = json.loads(
        text(
            rpc.call(
                "time__convert_time",
                {"source_timezone": "UTC", "target_timezone": "Asia/Kolkata", "time": "12:00"},
            )
        )
    )
    assert converted["time_difference"] == "+5.5h"
    assert "first of all" in text(rpc.call("git__git_log", {"repo_path": str(tmp_path)}))
    assert rpc.call("git__git_show", {"repo_path": str(tmp_path), "revision": "nowhere"})["isError"] is True
    assert daemon.stop() == 0
