"""What a server promises and does not keep, and servers that do not want to end: seen from an agent."""

from __future__ import annotations

import socket
import time
from typing import Any

import pytest


@pytest.mark.parametrize("tool", ["mismatch", "bad_schema", "remote"])
def test_a_result_that_breaks_its_schema_is_delivered_and_nothing_is_fetched(
    start: Any, fake_server: Any, tool: str
) -> None:
    with socket.create_server(("127.0.0.1", 0)) as listener:
        listener.settimeout(0.3)
        port = listener.getsockname()[1]
        daemon = start(fake_server("a", f"more=http://127.0.0.1:{port}/schema.json"))
        daemon.wait_ready("a")
        rpc = daemon.rpc()
        result = rpc.result("conduit/call", {"name": f"a__{tool}"})
        assert result == {"content": [{"type": "text", "text": tool}], "structuredContent": {"sum": "many"}}
        daemon.wait_until(lambda: "call.output_invalid" in daemon.events(), 3)
        reports = [line for line in daemon.log() if line["event"] == "call.output_invalid"]
        assert [(line["server"], line["tool"], line["level"]) for line in reports] == [("a", tool, "warning")]
        with pytest.raises(TimeoutError):
            listener.accept()


def test_servers_that_ignore_everything_are_ended_all_at_once(start: Any, fake_server: Any) -> None:
    names = [f"s{i}" for i in range(5)]
    daemon = start(*(fake_server(name, "deaf_to_term", "grandchild") for name in names))
    daemon.wait_ready(*names)
    pids = [daemon.pid(name) for name in names]
    began = time.monotonic()
    assert daemon.stop() == 0
    assert time.monotonic() - began < 6
    for pid in pids:
        with pytest.raises(FileNotFoundError):
            open(f"/proc/{pid}/stat").close()
