"""The table of eras: the host's, the server's, the method; every cell against a real server of its era."""

from __future__ import annotations

import json
from typing import Any

import pytest

PREFIX = "io.modelcontextprotocol/"
MODERN = {
    f"{PREFIX}protocolVersion": "2026-07-28",
    f"{PREFIX}clientInfo": {"name": "test", "version": "0"},
    f"{PREFIX}clientCapabilities": {},
}
SHAKE = {"protocolVersion": "2025-11-25", "clientInfo": {"name": "test", "version": "0"}, "capabilities": {}}
CACHED = {"ttlMs", "cacheScope"}
ERAS = ("2025-11-25", "2026-07-28")
METHODS: dict[str, tuple[dict[str, Any], set[str]]] = {
    "tools/list": ({}, {"tools"}),
    "tools/call": ({"name": "s__echo", "arguments": {"text": "hi"}}, {"content"}),
}
"""By method: its params, and what its result has whatever the era."""


def shaken(rpc: Any, era: str) -> Any:
    if era == ERAS[0]:
        assert rpc.result("initialize", SHAKE)["protocolVersion"] == era
        rpc.notify("notifications/initialized", {})
    return rpc


def ask(rpc: Any, era: str, method: str, params: dict[str, Any]) -> dict[str, Any]:
    if era == ERAS[1]:
        params = {**params, "_meta": {**MODERN, **params.get("_meta", {})}}
    result: dict[str, Any] = rpc.result(method, params)
    return result


@pytest.fixture(params=ERAS)
def served(request: Any, start: Any, fake_server: Any) -> Any:
    daemon = start(fake_server("s", *(["modern"] if request.param == ERAS[1] else [])))
    daemon.wait_ready("s")
    assert daemon.status()["servers"]["s"]["protocol_version"] == request.param
    return daemon


def test_every_method_fits_the_hosts_era_whatever_the_servers(served: Any) -> None:
    for era in ERAS:
        rpc = shaken(served.rpc(), era)
        for method, (params, members) in METHODS.items():
            result = ask(rpc, era, method, params)
            assert members <= set(result), (era, method, result)
            if era == ERAS[0]:
                assert not {"resultType", *CACHED} & set(result), (method, result)
            else:
                assert result["resultType"] == "complete", (method, result)
                assert CACHED.issubset(result) is (method != "tools/call"), (method, result)


def test_failures_fit_the_hosts_era_too(served: Any) -> None:
    for era in ERAS:
        rpc = shaken(served.rpc(), era)
        wrong = ask(rpc, era, "tools/call", {"name": "s__add", "arguments": {"a": 1}})
        assert wrong["isError"] is True
        assert ("resultType" in wrong) is (era == ERAS[1])


def test_discovery_names_versions_capabilities_and_server(start: Any, fake_server: Any) -> None:
    rpc = start(fake_server("s")).rpc()
    found = rpc.result("server/discover", {"_meta": MODERN})
    assert found["resultType"] == "complete"
    assert "2026-07-28" in found["supportedVersions"]
    assert found["capabilities"]["tools"] == {"listChanged": True}
    assert found["ttlMs"] >= 0
    assert found["cacheScope"] == "private"
    assert found["_meta"][f"{PREFIX}serverInfo"]["name"] == "conduit"


def test_a_version_that_is_not_spoken_is_refused_with_those_that_are(start: Any, fake_server: Any) -> None:
    rpc = start(fake_server("s")).rpc()
    for method, params in (("tools/list", {}), ("tools/call", {"name": "s__echo", "arguments": {"text": "x"}})):
        error = rpc.ask(method, {**params, "_meta": {**MODERN, f"{PREFIX}protocolVersion": "2031-01-01"}})["error"]
        assert error["code"] == -32022
        assert error["data"] == {"supported": ["2026-07-28"], "requested": "2031-01-01"}
        bare = {f"{PREFIX}protocolVersion": "2026-07-28"}
        assert rpc.ask(method, {**params, "_meta": bare})["error"]["code"] == -32602


@pytest.mark.parametrize("wanted", ["2024-11-05", "2025-03-26", "2025-06-18", "2025-11-25"])
def test_the_handshake_agrees_on_what_the_host_speaks(start: Any, fake_server: Any, wanted: str) -> None:
    rpc = start(fake_server("s")).rpc()
    result = rpc.result("initialize", {**SHAKE, "protocolVersion": wanted})
    assert result["protocolVersion"] == wanted
    assert result["serverInfo"]["name"] == "conduit"
    assert rpc.result("logging/setLevel", {"level": "warning"}) == {}
    assert rpc.ask("logging/setLevel", {"level": "loud"})["error"]["code"] == -32602


def test_listening_is_acknowledged_first_marked_throughout_and_answered_at_a_graceful_end(
    start: Any, fake_server: Any
) -> None:
    daemon = start(fake_server("s", "late_tool"))
    daemon.wait_ready("s")
    listener, other, deaf = daemon.rpc(), shaken(daemon.rpc(), ERAS[0]), daemon.rpc()
    wanted = {"toolsListChanged": True, "promptsListChanged": False, "unheardOf": True}
    request_id = listener.send("subscriptions/listen", {"notifications": wanted, "_meta": MODERN})
    first = listener.receive()
    mark = {f"{PREFIX}subscriptionId": request_id}
    assert first["method"] == "notifications/subscriptions/acknowledged"
    assert first["params"] == {"notifications": {"toolsListChanged": True}, "_meta": mark}
    cancelled = listener.send("subscriptions/listen", {"notifications": {"toolsListChanged": True}, "_meta": MODERN})
    assert listener.receive()["params"]["_meta"] == {f"{PREFIX}subscriptionId": cancelled}
    listener.notify("notifications/cancelled", {"requestId": cancelled})
    assert other.call("s__reveal")["content"]
    changed = listener.receive()
    assert changed == {
        "jsonrpc": "2.0",
        "method": "notifications/tools/list_changed",
        "params": {"_meta": mark},
    }
    assert other.receive()["method"] == "notifications/tools/list_changed"
    assert deaf.result("ping") == {}
    assert deaf.notifications == []  # it never shook hands, nor listens
    daemon.process.terminate()
    ended = listener.receive()
    assert ended == {"jsonrpc": "2.0", "id": request_id, "result": {"resultType": "complete", "_meta": mark}}


def test_a_half_close_ends_streams_and_answers_calls(start: Any, fake_server: Any) -> None:
    daemon = start(fake_server("s"))
    daemon.wait_ready("s")
    rpc = daemon.rpc()
    rpc.send("conduit/events", {"types": ["daemon.started"], "backlog": 10})
    rpc.send("subscriptions/listen", {"notifications": {"toolsListChanged": True}, "_meta": MODERN})
    call = rpc.send("tools/call", {"name": "s__sleep", "arguments": {"seconds": 0.3}})
    rpc.sock.shutdown(1)
    assert rpc.wait(call)["result"]["content"][0]["text"] == "slept"
    assert {note["method"] for note in rpc.notifications} == {
        "conduit/event",
        "notifications/subscriptions/acknowledged",
    }
    with pytest.raises(EOFError):
        rpc.receive()


def test_a_host_confined_to_a_toolset_sees_and_calls_that_alone(start: Any, fake_server: Any) -> None:
    daemon = start(fake_server("a"), fake_server("b"), '[toolsets.small]\nservers = ["a"]\ntools = ["echo", "a*"]\n')
    daemon.wait_ready("a", "b")
    rpc = daemon.rpc()
    assert "small" in rpc.ask("conduit/use", {"set": "smal"})["error"]["message"]
    assert rpc.result("conduit/use", {"set": "small"}) == {"set": "small"}
    assert [tool["name"] for tool in rpc.result("tools/list")["tools"]] == ["a__echo", "a__add"]
    assert rpc.call("a__echo", {"text": "in"})["content"][0]["text"] == "in"
    for name in ("a__pid", "b__echo"):
        assert rpc.ask("tools/call", {"name": name})["error"]["data"]["kind"] == "unknown_tool"


def test_a_confinement_holds_for_the_very_next_line(start: Any, fake_server: Any) -> None:
    daemon = start(fake_server("a"), '[toolsets.small]\ntools = ["echo"]\n')
    daemon.wait_ready("a")
    rpc = daemon.rpc()
    lines = [("conduit/use", {"set": "small"}), ("tools/call", {"name": "a__pid", "arguments": {}})]
    requests = [
        {"jsonrpc": "2.0", "id": id, "method": method, "params": params} for id, (method, params) in enumerate(lines)
    ]
    rpc.sock.sendall(b"".join(json.dumps(request).encode() + b"\n" for request in requests))
    assert rpc.wait(1)["error"]["data"]["kind"] == "unknown_tool"
    assert rpc.wait(0)["result"] == {"set": "small"}


def test_progress_of_a_listing_that_waits_for_servers(start: Any, fake_server: Any) -> None:
    daemon = start(fake_server("slow", "hang", connect_timeout="2"), fake_server("b"))
    rpc = daemon.rpc()
    methods = ("tools/list", "conduit/tools")
    ids = [rpc.send(method, {"_meta": {"progressToken": method}}) for method in methods]
    for method, request_id in zip(methods, ids, strict=True):
        assert any(tool["name"] == "b__echo" for tool in rpc.wait(request_id)["result"]["tools"])
        told = [note["params"] for note in rpc.notifications if note["params"]["progressToken"] == method]
        assert told[-1]["message"] == "Waiting for servers to start: slow."
        progress = [one["progress"] for one in told]
        assert progress == sorted(set(progress))
