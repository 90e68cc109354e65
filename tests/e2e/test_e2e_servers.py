"""Servers that nobody here wrote, listed and called in every provider's format, judged by the providers' own types."""

from __future__ import annotations

import json
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import anthropic.types as claude
import pytest
from google.genai import types as gemini
from openai.types import chat, responses
from openai.types.responses import response_input_item_param
from pydantic import TypeAdapter

BIN = Path(sys.executable).parent


@pytest.fixture
def daemon(start: Any, tmp_path: Path) -> Iterator[Any]:
    for command in (
        ["init", "-q"],
        ["-c", "user.name=a", "-c", "user.email=a@b", "commit", "-q", "--allow-empty", "-m", "x"],
    ):
        subprocess.run(["git", *command], cwd=tmp_path, check=True)
    running = start(
        f'[servers.time]\ncommand = "{BIN}/mcp-server-time"\nargs = ["--local-timezone", "UTC"]\n',
        f'[servers.git]\ncommand = "{BIN}/mcp-server-git"\nargs = ["--repository", "{tmp_path}"]\n',
    )
    running.wait_ready("time", "git", seconds=40)
    yield running
    assert running.stop() == 0


def check(kind: Any, value: Any) -> Any:
    """The value as the SDK's own type; keys that it does not know are refused."""
    made = TypeAdapter(kind).validate_python(value, strict=False)
    known = getattr(kind, "__annotations__", None)
    if isinstance(value, dict) and known is not None and not hasattr(kind, "model_fields"):
        assert set(value) <= set(known), set(value) - set(known)
    return made


def names(listing: dict[str, Any]) -> set[str]:
    return {tool["name"] for tool in listing["tools"]}


def test_they_are_ready_and_every_providers_tools_are_valid(daemon: Any) -> None:
    rpc = daemon.rpc()
    plain = names(rpc.result("conduit/tools"))
    assert {"time__get_current_time", "git__git_status", "git__git_log"} <= plain
    assert names(rpc.result("tools/list")) == plain
    for tool in rpc.result("conduit/tools", {"provider": "anthropic"})["tools"]:
        check(claude.ToolParam, tool)
    for tool in rpc.result("conduit/tools", {"provider": "openai", "api": "chat"})["tools"]:
        check(chat.ChatCompletionFunctionToolParam, tool)
    for tool in rpc.result("conduit/tools", {"provider": "openai", "api": "responses"})["tools"]:
        check(responses.FunctionToolParam, tool)
    declarations = rpc.result("conduit/tools", {"provider": "gemini"})["tools"]
    gemini.Tool.model_validate({"functionDeclarations": declarations})
    assert names({"tools": declarations}) == plain
    servers = daemon.status()["servers"]
    assert {server: servers[server]["protocol_version"] for server in servers} == {
        "time": "2026-07-28",
        "git": "2026-07-28",
    }


GOOD = ("time__get_current_time", {"timezone": "UTC"})
UNKNOWN = ("time__what_is_it", {"timezone": "UTC"})
BAD = ("time__get_current_time", {"timezone": 5})
CALLS = [("call-1", *GOOD), ("call-2", *UNKNOWN), ("call-3", *BAD)]


def test_anthropic_answers_three_parallel_calls_in_order(daemon: Any) -> None:
    blocks = [{"type": "tool_use", "id": i, "name": name, "input": arguments} for i, name, arguments in CALLS]
    response = {
        "id": "msg_1",
        "type": "message",
        "role": "assistant",
        "model": "claude",
        "content": [{"type": "text", "text": "Let me look."}, *blocks],
        "stop_reason": "tool_use",
        "stop_sequence": None,
        "usage": {"input_tokens": 1, "output_tokens": 1},
    }
    claude.Message.model_validate(response)
    rpc = daemon.rpc()
    listing = rpc.result("conduit/tools", {"provider": "anthropic"})
    done = rpc.result("conduit/execute", {"provider": "anthropic", "response": response, "toolset": listing["toolset"]})
    check(claude.MessageParam, {"role": "user", "content": done["results"]})
    for result in done["results"]:
        check(claude.ToolResultBlockParam, result)
    assert [result["tool_use_id"] for result in done["results"]] == ["call-1", "call-2", "call-3"]
    assert [result.get("is_error", False) for result in done["results"]] == [False, True, True]
    judge(done)


def judge(done: dict[str, Any]) -> None:
    assert done["status"] == "ok"
    assert done["taint"] == ["time"]
    assert [outcome["kind"] for outcome in done["outcomes"]] == ["ok", "unknown_tool", "invalid_arguments"]
    assert [outcome["outcome"] for outcome in done["outcomes"]] == ["done", "not_sent", "not_sent"]
    assert [outcome["duration"] >= 0 for outcome in done["outcomes"]] == [True] * 3


def test_openai_chat_answers_three_parallel_calls_in_order(daemon: Any) -> None:
    calls = [
        {"id": i, "type": "function", "function": {"name": name, "arguments": json.dumps(arguments)}}
        for i, name, arguments in CALLS
    ]
    response = {
        "id": "c",
        "object": "chat.completion",
        "created": 1,
        "model": "gpt",
        "choices": [
            {
                "index": 0,
                "finish_reason": "tool_calls",
                "message": {"role": "assistant", "content": None, "tool_calls": calls, "refusal": None},
                "logprobs": None,
            }
        ],
    }
    chat.ChatCompletion.model_validate(response)
    rpc = daemon.rpc()
    listing = rpc.result("conduit/tools", {"provider": "openai", "api": "chat"})
    params = {"provider": "openai", "api": "chat", "response": response, "toolset": listing["toolset"]}
    done = rpc.result("conduit/execute", params)
    for result in done["results"]:
        check(chat.ChatCompletionToolMessageParam, result)
    assert [result["tool_call_id"] for result in done["results"]] == ["call-1", "call-2", "call-3"]
    assert [result["content"].startswith("Error: ") for result in done["results"]] == [False, True, True]
    judge(done)


def test_openai_responses_answers_three_parallel_calls_in_order(daemon: Any) -> None:
    output = [
        {"type": "function_call", "id": f"fc_{i}", "call_id": i, "name": name, "arguments": json.dumps(arguments)}
        for i, name, arguments in CALLS
    ]
    for item in output:
        responses.ResponseFunctionToolCall.model_validate(item)
    params = {"provider": "openai", "api": "responses", "response": {"output": output}}
    done = daemon.rpc().result("conduit/execute", params)
    for result in done["results"]:
        check(response_input_item_param.FunctionCallOutput, result)
    assert [result["call_id"] for result in done["results"]] == ["call-1", "call-2", "call-3"]
    assert [result["output"].startswith("Error: ") for result in done["results"]] == [False, True, True]
    judge(done)


@pytest.mark.parametrize("with_ids", [True, False])
def test_gemini_answers_three_parallel_calls_in_order(daemon: Any, with_ids: bool) -> None:
    parts = [
        {"functionCall": {"name": name, "args": arguments} | ({"id": i} if with_ids else {})}
        for i, name, arguments in CALLS
    ]
    response = {"candidates": [{"content": {"role": "model", "parts": parts}, "finishReason": "STOP"}]}
    gemini.GenerateContentResponse.model_validate(response)
    done = daemon.rpc().result("conduit/execute", {"provider": "gemini", "response": response})
    gemini.Content.model_validate({"role": "user", "parts": done["results"]})
    answers = [part["functionResponse"] for part in done["results"]]
    assert [answer["name"] for answer in answers] == [name for _, name, _ in CALLS]
    assert [answer.get("id") for answer in answers] == [i if with_ids else None for i, _, _ in CALLS]
    assert [set(answer["response"]) for answer in answers] == [{"output"}, {"error"}, {"error"}]
    judge(done)


def test_an_old_toolset_is_said_to_be_unknown(daemon: Any) -> None:
    error = daemon.rpc().ask("conduit/execute", {"provider": "gemini", "calls": [], "toolset": "0" * 32})["error"]
    assert (error["code"], error["data"]["kind"]) == (-31011, "unknown_toolset")
    assert "list the tools again" in error["message"]


def test_one_clients_tools_have_their_own_names_and_can_be_called_so(daemon: Any) -> None:
    rpc = daemon.rpc()
    listing = rpc.result("conduit/tools", {"provider": "anthropic", "client": "time"})
    assert names(listing) == {"get_current_time", "convert_time"}
    block = {"type": "tool_use", "id": "1", "name": "get_current_time", "input": {"timezone": "UTC"}}
    params = {"provider": "anthropic", "calls": [block], "toolset": listing["toolset"]}
    assert rpc.result("conduit/execute", params)["outcomes"][0]["kind"] == "ok"


def test_the_tree_shows_who_supervises_whom(daemon: Any) -> None:
    tree = daemon.rpc(control=True).result("conduit/tree")
    assert (tree["id"], tree["kind"]) == ("root", "supervisor")
    children = {child["id"]: child for child in tree["children"]}
    assert list(children) == ["audit", "approvals", "clients", "hub", "rpc", "service"]
    clients = {child["id"]: child for child in children["clients"]["children"]}
    assert clients.keys() == {"time", "git"}
    assert clients["time"]["name"] == "client:time"
    assert (clients["time"]["kind"], clients["time"]["state"], clients["time"]["restarts"]) == ("actor", "running", 0)
    assert {child["id"] for child in children["rpc"]["children"]} >= {"acceptor:agent", "acceptor:control"}
