"""OpenAI's calls and results, in both of its APIs."""

from __future__ import annotations

import base64
from typing import Any

import pytest
from openai.types.chat import ChatCompletion
from openai.types.responses import Response, ResponseFunctionToolCall

from conduit_daemon.adapters import openai
from conduit_daemon.errors import ClientError
from conduit_daemon.model import Rejected, ToolCall, ToolResult

PNG = base64.b64encode(b"\x89PNG\r\n\x1a\n" + bytes(4)).decode()
PDF = base64.b64encode(b"%PDF-1.7").decode()
OPEN: dict[str, Any] = {"type": "object"}
APIS = ["chat", "responses"]


def text(value: str) -> dict[str, Any]:
    return {"type": "text", "text": value}


def call(api: str, name: Any, arguments: Any, call_id: str = "1") -> dict[str, Any]:
    if api == "chat":
        return {"id": call_id, "type": "function", "function": {"name": name, "arguments": arguments}}
    return {"type": "function_call", "id": "fc_9", "call_id": call_id, "name": name, "arguments": arguments}


def completion(*calls: dict[str, Any]) -> dict[str, Any]:
    message = {"role": "assistant", "content": None, "refusal": None, "tool_calls": list(calls)}
    given = {
        "id": "c",
        "object": "chat.completion",
        "created": 1,
        "model": "m",
        "choices": [{"index": 0, "finish_reason": "tool_calls", "logprobs": None, "message": message}],
    }
    ChatCompletion.model_validate(given)
    return given


def response(*items: dict[str, Any]) -> dict[str, Any]:
    given = {
        "id": "r",
        "object": "response",
        "created_at": 1,
        "model": "m",
        "output": list(items),
        "parallel_tool_calls": True,
        "tool_choice": "auto",
        "tools": [],
    }
    Response.model_validate(given)
    return given


def test_the_two_forms_of_a_tool(make: Any) -> None:
    parameters = {"type": "object", "properties": {}}
    function = {"name": "s__t", "description": "Does it.", "parameters": parameters, "strict": False}
    assert openai.tools(make(OPEN), api="chat").tools == [{"type": "function", "function": function}]
    assert openai.tools(make(OPEN), api="responses").tools == [{"type": "function", **function}]


def test_unknown_options_are_refused(make: Any) -> None:
    with pytest.raises(ValueError, match="api"):
        openai.tools(make(OPEN), api="assistants")  # type: ignore[arg-type]
    with pytest.raises(ValueError, match="strict"):
        openai.tools(make(OPEN), api="chat", strict="yes")  # type: ignore[arg-type]
    with pytest.raises(ValueError, match="text from tools only"):
        openai.tool_output("1", ToolResult(), api="chat", media="native")
    with pytest.raises(ValueError, match="media"):
        openai.tool_output("1", ToolResult(), api="chat", media="x")  # type: ignore[arg-type]


def test_chat_calls_in_order(make: Any) -> None:
    given = completion(
        call("chat", "s__t", '{"a": 1}', "1"),
        call("chat", "nope", "{}", "2"),
        {"id": "3", "type": "custom", "custom": {"name": "s__t", "input": "x"}},
        call("chat", "s__t1", "", "4"),
    )
    found = openai.tool_calls(given, make(OPEN, OPEN), api="chat")
    assert [one.call_id for one in found] == ["1", "2", "3", "4"]
    assert found[0] == ToolCall("1", "s", "t", "s__t", {"a": 1})
    assert isinstance(found[1], Rejected)
    assert found[1].answer["content"].startswith("Error: ")
    assert isinstance(found[2], Rejected)
    assert (found[2].answer["role"], found[2].answer["tool_call_id"]) == ("tool", "3")
    assert found[3] == ToolCall("4", "s", "t1", "s__t1", {})


def test_responses_calls_in_order(make: Any) -> None:
    given = response(
        {"type": "reasoning", "id": "rs", "summary": []},
        call("responses", "s__t", '{"a": 1}', "1"),
        {"type": "custom_tool_call", "id": "ct", "call_id": "2", "name": "x", "input": "y"},
        {"type": "web_search_call", "id": "ws", "status": "completed", "action": {"type": "search", "query": "q"}},
        call("responses", "nope", "{}", "3"),
    )
    found = openai.tool_calls(given, make(OPEN), api="responses", error_prefix="Failed: ")
    assert [one.call_id for one in found] == ["1", "2", "3"]
    assert isinstance(found[1], Rejected)
    assert found[1].answer["type"] == "custom_tool_call_output"
    assert isinstance(found[2], Rejected)
    assert found[2].answer["type"] == "function_call_output"
    assert found[2].answer["output"].startswith("Failed: ")


@pytest.mark.parametrize("api", APIS)
@pytest.mark.parametrize("arguments", [None, "", "  \n", "{}", " {} ", "null", {}])
def test_blank_arguments_are_an_empty_object(make: Any, api: Any, arguments: Any) -> None:
    (found,) = openai.tool_calls([call(api, "s__t", arguments)], make(OPEN), api=api)
    assert found == ToolCall("1", "s", "t", "s__t", {})


@pytest.mark.parametrize("api", APIS)
@pytest.mark.parametrize(
    "arguments",
    ["{", "[]", "5", '"{}"', '{"a": NaN}', '{"a": Infinity}', "{'a': 1}", '{"a": "\\ud800"}', "[" * 100_000, [], 7],
)
def test_bad_arguments_are_rejected_with_an_answer(make: Any, api: Any, arguments: Any) -> None:
    (found,) = openai.tool_calls([call(api, "s__t", arguments)], make(OPEN), api=api)
    assert isinstance(found, Rejected)
    assert found.kind == "invalid_arguments"
    (unknown,) = openai.tool_calls([call(api, "nope", arguments)], make(OPEN), api=api)
    assert isinstance(unknown, Rejected)
    assert unknown.kind == "unknown_tool"


def test_large_integers_survive(make: Any) -> None:
    (found,) = openai.tool_calls(
        [call("chat", "s__t", '{"n": 123456789012345678901234567890}')], make(OPEN), api="chat"
    )
    assert isinstance(found, ToolCall)
    assert found.arguments == {"n": 123456789012345678901234567890}


def test_what_counts_as_a_response(make: Any) -> None:
    calls = [ToolCall("1", "s", "t", "s__t", {})]
    given = completion(call("chat", "s__t", "{}"))
    message = given["choices"][0]["message"]
    for chat in (given, ChatCompletion.model_validate(given), message, message["tool_calls"]):
        assert openai.tool_calls(chat, make(OPEN), api="chat") == calls
    assert openai.tool_calls({"role": "assistant", "content": "Hi."}, make(OPEN), api="chat") == []
    item = call("responses", "s__t", "{}")
    ResponseFunctionToolCall.model_validate(item)
    whole = response(item)
    for one in (whole, Response.model_validate(whole), [item]):
        assert openai.tool_calls(one, make(OPEN), api="responses") == calls
    for wrong in ({"content": []}, None, 5):
        for api in APIS:
            with pytest.raises(ValueError, match="response"):
                openai.tool_calls(wrong, make(OPEN), api=api)  # type: ignore[arg-type]


@pytest.mark.parametrize("api", APIS)
def test_answers(api: Any) -> None:
    key = "content" if api == "chat" else "output"

    def said(outcome: Any, **options: Any) -> Any:
        answer = openai.tool_output("1", outcome, api=api, **options)
        assert answer.pop("tool_call_id" if api == "chat" else "call_id") == "1"
        return answer[key]

    assert said(ToolResult(content=[text("a"), text("b")])) == "a\nb"
    assert said(ToolResult()) == "(empty result)"
    assert said(ToolResult(content=[text("t")], structured_content=[1])) == "t\n[1]"
    assert said(ToolResult(structured_content=None)) == "null"
    picture = {"type": "image", "data": PNG, "mimeType": "image/png"}
    assert said(ToolResult(content=[picture])) == "[image: image/png, 12 bytes]"
    assert said(ToolResult(content=[text("No.")], is_error=True)) == "Error: No."
    assert said(ToolResult(is_error=True), error_prefix="") == "(empty result)"
    assert said(ClientError("denied", "Denied.\u200b"), error_prefix="Failed: ") == "Failed: Denied."


def test_native_media_of_responses() -> None:
    result = ToolResult(
        content=[
            text("See:"),
            {"type": "image", "data": PNG, "mimeType": "image/jpeg"},
            {"type": "resource", "resource": {"uri": "file:///a/b.pdf", "blob": PDF, "mimeType": "application/pdf"}},
            {"type": "resource", "resource": {"uri": "file:///c", "blob": "aGk="}},
            {"type": "audio", "data": "aGk=", "mimeType": "audio/wav"},
            {"type": "image", "data": "?", "mimeType": "image/png"},
            text(" "),
        ]
    )
    assert openai.tool_output("1", result, api="responses", media="native")["output"] == [
        {"type": "input_text", "text": "See:"},
        {"type": "input_image", "image_url": f"data:image/png;base64,{PNG}", "detail": "auto"},
        {"type": "input_file", "filename": "b.pdf", "file_data": f"data:application/pdf;base64,{PDF}"},
        {"type": "input_text", "text": "[resource: file:///c, 2 bytes]"},
        {"type": "input_text", "text": "[audio: audio/wav, 2 bytes]"},
        {"type": "input_text", "text": "[image: image/png, invalid data]"},
    ]
    only_text = openai.tool_output("1", ToolResult(content=[text("t")]), api="responses", media="native")
    assert only_text["output"] == "t"
    failed = ToolResult(content=[{"type": "image", "data": PNG}], is_error=True)
    assert openai.tool_output("1", failed, api="responses", media="native")["output"] == "Error: [image: 12 bytes]"
