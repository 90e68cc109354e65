"""Streams of events: numbered, filtered, masked, and lossy for a reader that falls behind, for nobody else."""

from __future__ import annotations

import time
from typing import Any

SECRET = "a-token-of-many-letters"


def stream(rpc: Any, count: int, **params: Any) -> tuple[int, list[dict[str, Any]]]:
    request_id = rpc.send("conduit/events", params)
    return request_id, [following(rpc) for _ in range(count)]


def following(rpc: Any) -> dict[str, Any]:
    message = rpc.receive()
    assert message["method"] == "conduit/event", message
    params: dict[str, Any] = message["params"]
    return params


def test_events_are_numbered_filtered_and_end_with_their_request(start: Any, fake_server: Any) -> None:
    daemon = start(fake_server("a"), fake_server("b"))
    daemon.wait_ready("a", "b")
    rpc, other = daemon.rpc(), daemon.rpc()
    request_id, backlog = stream(rpc, 2, types=["client.ready"], servers=["?"], backlog=100)
    assert {event["server"] for event in backlog} == {"a", "b"}
    assert [event["seq"] for event in backlog] == [1, 2]
    assert all(event["subscription"] == request_id and event["time"] <= time.time() for event in backlog)
    second = rpc.send("conduit/events", {"types": ["call.*"], "servers": ["b"]})
    assert rpc.result("ping") == {}
    for name in ("a__echo", "b__echo"):
        other.call(name, {"text": "not to be seen"})
    event = following(rpc)
    assert (event["subscription"], event["seq"], event["server"], event["tool"]) == (second, 1, "b", "echo")
    assert event["kind"] == "ok"
    assert "not to be seen" not in str(event)
    rpc.notify("notifications/cancelled", {"requestId": second})
    assert rpc.result("ping") == {}
    other.call("b__echo", {"text": "x"})
    assert rpc.result("ping") == {}  # neither an answer to the cancelled request nor an event came between
    assert not rpc.notifications


def test_secrets_are_masked_in_events(start: Any, fake_server: Any) -> None:
    daemon = start(fake_server("a", env=f'{{ API_TOKEN = "${{env:CONDUIT_NO_SUCH_TOKEN:-{SECRET}}}" }}'))
    daemon.wait_ready("a")
    rpc, other = daemon.rpc(), daemon.rpc()
    rpc.send("conduit/events", {"types": ["client.*", "call.*"], "servers": ["a"]})
    assert rpc.result("ping") == {}
    other.call("a__die", {"how": SECRET})
    seen: list[dict[str, Any]] = []
    while not seen or seen[-1]["type"] != "client.ready":
        seen.append(following(rpc))
    assert SECRET not in str(seen)
    assert "dying of [masked]" in str(seen)


def test_a_malformed_stream_is_refused_by_name(start: Any, fake_server: Any) -> None:
    rpc = start(fake_server("a")).rpc()
    for params, word in (
        ({"tpyes": ["*"]}, "tpyes"),
        ({"types": "call.*"}, "types"),
        ({"types": ["call.[a"]}, "never closed"),
        ({"backlog": -1}, "backlog"),
    ):
        error = rpc.ask("conduit/events", params)["error"]
        assert error["code"] == -32602
        assert word in error["message"]


def test_a_slow_reader_is_told_what_it_lost_and_slows_nobody(start: Any, fake_server: Any) -> None:
    daemon = start(fake_server("a"))
    daemon.wait_ready("a")
    slow, busy = daemon.rpc(), daemon.rpc()
    slow.send("conduit/events", {"types": ["call.finished"]})
    assert slow.result("ping") == {}
    count, began, longest = 6000, time.monotonic(), 0.0
    for first in range(0, count, 100):
        ids = [busy.send("tools/call", {"name": "a__echo", "arguments": {"text": "x"}}) for _ in range(100)]
        for request_id in ids:
            busy.wait(request_id)
        longest = max(longest, time.monotonic() - began)
        began = time.monotonic()
        assert first < count
    assert longest < 3
    seen = lost = 0
    while seen + lost < count:
        event = following(slow)
        if event["type"] == "events.dropped":
            lost += event["count"]
            assert event["count"] > 0
        else:
            seen += 1
        assert event["seq"] == seen + lost
    assert lost > 1000
    assert seen > 100
    busy.call("a__echo", {"text": "again"})
    assert following(slow)["seq"] == count + 1
