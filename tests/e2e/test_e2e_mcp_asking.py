"""What servers ask in the middle of a call (sampling, elicitation, roots): put to the host that called, and back.

Every cell of host's era x server's era x question has a server of that era and a host of that one.
"""

from __future__ import annotations

import json
import sys
from pathlib import Path
from typing import Any

import pytest

FAKE = Path(__file__).parents[1] / "fakes" / "offering_server.py"
PREFIX = "io.modelcontextprotocol/"
ABLE: dict[str, Any] = {"elicitation": {"form": {}}, "sampling": {}, "roots": {"listChanged": True}}
SHAKE = {"protocolVersion": "2025-11-25", "clientInfo": {"name": "test", "version": "0"}, "capabilities": ABLE}
ANSWERS = {
    "elicit": {"action": "accept", "content": {"name": "Ann"}},
    "sample": {"role": "assistant", "content": {"type": "text", "text": "hm"}, "model": "m"},
    "roots": {"roots": [{"uri": "file:///work"}]},
}
METHODS = {"elicit": "elicitation/create", "sample": "sampling/createMessage", "roots": "roots/list"}
ERAS = ("2025-11-25", "2026-07-28")


def offering(name: str, era: str) -> str:
    words = [str(FAKE), *(["modern"] if era == ERAS[1] else [])]
    return f'[servers.{name}]\ncommand = "{sys.executable}"\nargs = {json.dumps(words)}\n'


def modern(**capabilities: Any) -> dict[str, Any]:
    return {f"{PREFIX}protocolVersion": "2026-07-28", f"{PREFIX}clientCapabilities": capabilities}


class Host:
    """A host of either era that answers what it is asked."""

    def __init__(self, rpc: Any, era: str, **capabilities: Any) -> None:
        self.rpc, self.era, self.capabilities = rpc, era, capabilities
        self.asked: list[dict[str, Any]] = []
        self.rounds = 0
        if era == ERAS[0]:
            rpc.result("initialize", {**SHAKE, "capabilities": capabilities})

    def reply(self, question: dict[str, Any]) -> dict[str, Any]:
        self.asked.append(question)
        kind = next(kind for kind, method in METHODS.items() if method == question["method"])
        return ANSWERS[kind]

    def call(self, name: str, **arguments: Any) -> dict[str, Any]:
        params: dict[str, Any] = {"name": name, "arguments": arguments}
        if self.era == ERAS[0]:
            return self._call_and_answer(params)
        params["_meta"] = modern(**self.capabilities)
        result: dict[str, Any] = self.rpc.result("tools/call", params)
        while result["resultType"] == "input_required":
            self.rounds += 1
            responses = {key: self.reply(question) for key, question in result["inputRequests"].items()}
            again = {**params, "inputResponses": responses, "requestState": result["requestState"]}
            result = self.rpc.result("tools/call", again)
        return result

    def _call_and_answer(self, params: dict[str, Any]) -> dict[str, Any]:
        request_id = self.rpc.send("tools/call", params)
        while True:
            message = self.rpc.receive()
            if message.get("id") == request_id and "method" not in message:
                result: dict[str, Any] = message["result"]
                return result
            if "id" in message:
                answer = {"jsonrpc": "2.0", "id": message["id"], "result": self.reply(message)}
                self.rpc.sock.sendall(json.dumps(answer).encode() + b"\n")


@pytest.fixture(params=ERAS)
def served(request: Any, start: Any) -> Any:
    daemon = start(offering("s", request.param))
    daemon.wait_ready("s")
    daemon.era = request.param
    return daemon


def said(result: dict[str, Any]) -> Any:
    assert not result.get("isError"), result
    return json.loads(result["content"][0]["text"])


@pytest.mark.parametrize("era", ERAS)
@pytest.mark.parametrize("kind", ANSWERS)
def test_a_question_reaches_the_host_that_called_and_its_answer_the_server(served: Any, era: str, kind: str) -> None:
    host = Host(served.rpc(), era, **ABLE)
    answers = said(host.call("s__ask", kind=kind))
    if kind == "roots" and served.era == ERAS[0]:  # one for all has no roots; see the test of a host's own server
        assert "offers no roots" in answers[0]["message"]
        assert not host.asked
        return
    assert answers == [ANSWERS[kind]]
    (question,) = host.asked
    assert question["method"] == METHODS[kind]
    assert len(served.status()["servers"]) == 1
    assert said(host.call("s__echo", text="1")) == 1


@pytest.mark.parametrize("era", ERAS)
def test_several_rounds_and_several_questions_at_once(served: Any, era: str) -> None:
    host = Host(served.rpc(), era, **ABLE)
    twice = said(host.call("s__ask_twice"))
    assert twice[-1] == ANSWERS["elicit"]
    assert len(host.asked) == 2
    if served.era == ERAS[1]:
        host.asked.clear()
        host.rounds = 0
        assert said(host.call("s__ask_all")) == list(ANSWERS.values())
        assert len(host.asked) == 3
        assert era == ERAS[0] or host.rounds == 1


@pytest.mark.parametrize("era", ERAS)
def test_a_host_that_cannot_is_not_asked(served: Any, era: str) -> None:
    host = Host(served.rpc(), era, sampling={})
    result = host.call("s__ask", kind="elicit")
    assert host.asked == []
    if served.era == ERAS[1]:
        assert result["isError"] is True
        assert result["_meta"]["conduit"]["kind"] == "protocol"
    else:
        assert "offers no elicitation" in said(result)[0]["message"]
    agent = served.rpc()
    outcome = agent.ask("conduit/call", {"name": "s__ask", "arguments": {"kind": "sample"}})
    assert "offers no" in str(outcome) or outcome["error"]["data"]["kind"] == "protocol"


def test_a_server_is_told_with_each_call_what_its_caller_can_do(start: Any) -> None:
    daemon = start(offering("s", ERAS[1]))
    daemon.wait_ready("s")
    for era in ERAS:
        host = Host(daemon.rpc(), era, sampling={"tools": {}}, experimental={"x": {}})
        host.call("s__echo", text="1")
    seen = [one["params"]["_meta"] for one in said(Host(daemon.rpc(), ERAS[0]).call("s__seen"))]
    told = [meta[f"{PREFIX}clientCapabilities"] for meta in seen]
    assert told == [{"sampling": {"tools": {}}}, {"sampling": {"tools": {}}}, {}]


def test_with_two_calls_running_an_older_server_is_declined(start: Any) -> None:
    daemon = start(offering("s", ERAS[0]))
    daemon.wait_ready("s")
    first, second = daemon.rpc(), daemon.rpc()
    for rpc in (first, second):
        rpc.result("initialize", SHAKE)
    waiting = first.send("tools/call", {"name": "s__ask", "arguments": {"kind": "elicit"}})
    question = first.receive()
    assert question["method"] == "elicitation/create"
    result = second.result("tools/call", {"name": "s__ask", "arguments": {"kind": "elicit"}})
    assert "not certain" in said(result)[0]["message"]
    answer = {"jsonrpc": "2.0", "id": question["id"], "result": ANSWERS["elicit"]}
    first.sock.sendall(json.dumps(answer).encode() + b"\n")
    assert said(first.wait(waiting)["result"]) == [ANSWERS["elicit"]]


def test_a_server_of_the_callers_own_may_ask_it_for_roots(start: Any) -> None:
    daemon = start(offering("s", ERAS[0]) + 'scope = "connection"\n')
    daemon.wait_until(lambda: "s" in daemon.status()["servers"])
    host = Host(daemon.rpc(), ERAS[0], **ABLE)
    daemon.wait_until(lambda: bool(host.rpc.result("tools/list")["tools"]))
    assert said(host.call("s__ask", kind="roots")) == [ANSWERS["roots"]]
    # Started for this host's first call, it asked for its roots before that call reached it.
    assert said(host.call("s__roots")) == ANSWERS["roots"]
    assert [question["method"] for question in host.asked] == ["roots/list"] * 2


@pytest.mark.parametrize("era", ERAS)
def test_a_host_that_leaves_or_cancels_ends_the_call_that_waits_for_it(served: Any, era: str) -> None:
    rpc = served.rpc()
    params: dict[str, Any] = {"name": "s__ask", "arguments": {"kind": "elicit"}}
    if era == ERAS[0]:
        rpc.result("initialize", SHAKE)
        request_id = rpc.send("tools/call", params)
        assert rpc.receive()["method"] == "elicitation/create"
        rpc.notify("notifications/cancelled", {"requestId": request_id})
        served.wait_until(lambda: served.status()["calls"]["in_flight"] == 0)
        assert rpc.receive()["method"] == "notifications/cancelled"  # of the question
        rpc.send("tools/call", params)
        assert rpc.receive()["method"] == "elicitation/create"
    else:
        asked = rpc.result("tools/call", {**params, "_meta": modern(**ABLE)})
        assert asked["resultType"] == "input_required"
    rpc.close()
    served.wait_until(lambda: served.status()["calls"]["in_flight"] == 0)


def test_input_that_is_missing_is_asked_for_again_and_a_foreign_state_refused(served: Any) -> None:
    rpc = served.rpc()
    params: dict[str, Any] = {"name": "s__ask", "arguments": {"kind": "elicit"}, "_meta": modern(**ABLE)}
    asked = rpc.result("tools/call", params)
    (key,) = asked["inputRequests"]
    state = {"requestState": asked["requestState"]}
    again = rpc.result("tools/call", {**params, **state, "inputResponses": {"other": {}}})
    assert again["resultType"] == "input_required"
    assert list(again["inputRequests"]) == [key]
    assert again["requestState"] != asked["requestState"]
    assert rpc.ask("tools/call", {**params, **state})["error"]["code"] == -32602  # each state is good once
    state = {"requestState": again["requestState"]}
    wrong = rpc.ask("tools/call", {**params, "requestState": "x" + again["requestState"]})["error"]
    assert wrong["code"] == -32602
    other = rpc.ask("tools/call", {**params, "name": "s__echo", **state})["error"]
    assert "another request" in other["message"]
    done = rpc.result("tools/call", {**params, **state, "inputResponses": {key: ANSWERS["elicit"], "more": 1}})
    assert said(done) == [ANSWERS["elicit"]]
    gone = rpc.ask("tools/call", {**params, **state})["error"]
    assert gone["code"] == -32602


@pytest.mark.parametrize(("era", "kind"), [(ERAS[0], "elicit"), (ERAS[1], "sample"), (ERAS[1], "roots")])
def test_a_servers_question_taints_though_its_call_never_ends(
    start: Any, fake_server: Any, era: str, kind: str
) -> None:
    policy = '[policy]\ndefault = "allow"\n[[policy.rules]]\neffect = "deny"\ntools = ["add"]\ntainted_by = ["notes"]\n'
    daemon = start(offering("notes", era), fake_server("a"), policy=policy)
    daemon.wait_ready("notes", "a")
    host = Host(daemon.rpc(), era, **ABLE)
    meta = {} if era == ERAS[0] else {"_meta": modern(**ABLE)}
    call = {"name": "notes__ask", "arguments": {"kind": kind}, **meta}
    request_id = host.rpc.send("tools/call", call)
    if era == ERAS[0]:
        assert host.rpc.receive()["method"] == METHODS[kind]
        host.rpc.notify("notifications/cancelled", {"requestId": request_id})
    else:
        assert host.rpc.wait(request_id)["result"]["resultType"] == "input_required"
    added = host.rpc.result("tools/call", {"name": "a__add", "arguments": {"a": 1, "b": 2}, **meta})
    assert added.get("isError", False) is (kind != "roots")  # a question for roots says nothing
