"""Gemini's calls and results."""

from __future__ import annotations

import base64
from typing import Any

import pytest
from google.genai import types as genai

from conduit_daemon.adapters import gemini
from conduit_daemon.errors import ClientError
from conduit_daemon.model import Rejected, ToolCall, ToolResult

PNG = base64.b64encode(b"\x89PNG\r\n\x1a\n" + bytes(4)).decode()
OPEN: dict[str, Any] = {"type": "object"}


def text(value: str) -> dict[str, Any]:
    return {"type": "text", "text": value}


def response(*parts: dict[str, Any]) -> dict[str, Any]:
    given = {"candidates": [{"content": {"role": "model", "parts": list(parts)}}]}
    genai.GenerateContentResponse.model_validate(given)
    return given


def output(result: ToolResult, **options: Any) -> Any:
    return gemini.function_response("s__t", result, **options)["functionResponse"]["response"]["output"]


def test_a_tool_without_a_description_has_an_empty_one(make: Any) -> None:
    (declaration,) = gemini.function_declarations(make(OPEN, description=None))
    assert declaration == {
        "name": "s__t",
        "description": "",
        "parametersJsonSchema": {"type": "object", "properties": {}},
    }


def test_calls_and_rejections_come_in_the_models_order_with_or_without_ids(make: Any) -> None:
    given = response(
        {"text": "Let me see."},
        {"functionCall": {"name": "s__t", "args": {"a": 1}}, "thoughtSignature": "c2ln"},
        {"functionCall": {"id": "2", "name": "nope", "args": {}}},
        {"functionCall": {"name": "nope"}},
        {"functionCall": {"id": "4", "name": "s__t1", "args": None}},
    )
    found = gemini.function_calls(given, make(OPEN, OPEN))
    assert found[0] == ToolCall(None, "s", "t", "s__t", {"a": 1})
    assert isinstance(found[1], Rejected)
    assert found[1].answer["functionResponse"]["id"] == "2"
    assert isinstance(found[2], Rejected)
    assert found[2].call_id is None
    assert "id" not in found[2].answer["functionResponse"]
    assert found[2].answer["functionResponse"]["name"] == "nope"
    assert found[3] == ToolCall("4", "s", "t1", "s__t1", {})


@pytest.mark.parametrize("args", [[], "{}", 5, False])
def test_args_that_are_no_object_are_rejected(make: Any, args: Any) -> None:
    (found,) = gemini.function_calls([{"functionCall": {"name": "s__t", "args": args}}], make(OPEN))
    assert isinstance(found, Rejected)
    assert found.kind == "invalid_arguments"


def test_what_counts_as_a_response(make: Any) -> None:
    calls = [ToolCall(None, "s", "t", "s__t", {})]
    given = response({"functionCall": {"name": "s__t", "args": {}}})
    content = given["candidates"][0]["content"]
    parsed = genai.GenerateContentResponse.model_validate(given)
    for one in (given, content, content["parts"], parsed, parsed.candidates[0].content):  # type: ignore[index]
        assert gemini.function_calls(one, make(OPEN)) == calls
    for none in ({"candidates": []}, {"promptFeedback": {}}, {"candidates": [{"finishReason": "SAFETY"}]}, []):
        assert gemini.function_calls(none, make(OPEN)) == []
    for wrong in ({"choices": []}, 5, {"parts": 7}):
        with pytest.raises(ValueError, match="Gemini"):
            gemini.function_calls(wrong, make(OPEN))


def test_structured_content_itself_is_the_output() -> None:
    assert output(ToolResult(content=[text("t")], structured_content={"a": [1, None]})) == {"a": [1, None]}
    assert output(ToolResult(structured_content=[1])) == [1]
    assert output(ToolResult(content=[text("t")], structured_content=None)) is None
    assert output(ToolResult(content=[text("t")])) == "t"
    assert output(ToolResult()) == "(empty result)"


@pytest.mark.parametrize(
    ("value", "is_text"),
    [
        ({"a": {"$ref": "#/x"}}, True),
        ([{"$ref": 1}], True),
        ({"n": 2**53}, False),
        ({"n": 2**53 + 1}, True),
        ({"n": [-(2**53) - 1]}, True),
        ({"x": "$ref", "b": True, "f": 1e300}, False),
    ],
)
def test_what_would_be_altered_on_its_way_goes_as_text(value: Any, is_text: bool) -> None:
    assert isinstance(output(ToolResult(structured_content=value)), str) is is_text


@pytest.mark.parametrize(
    ("mode", "shown"), [("auto", 't\n{"a":1}'), ("append", 't\n{"a":1}'), ("ignore", "t"), ("prefer", {"a": 1})]
)
def test_the_ways_to_treat_structured_content(mode: Any, shown: Any) -> None:
    assert output(ToolResult(content=[text("t")], structured_content={"a": 1}), structured=mode) == shown


def test_the_id_is_echoed_where_given() -> None:
    answer = gemini.function_response("s__t", ToolResult(), id="7")
    assert answer == {"functionResponse": {"id": "7", "name": "s__t", "response": {"output": "(empty result)"}}}


def test_failures_stand_under_error() -> None:
    failed = ToolResult(content=[text("No.")], structured_content={"code": 5}, is_error=True)
    answer = gemini.function_response("s__t", failed)["functionResponse"]
    assert answer["response"] == {"error": 'No.\n{"code":5}'}
    error = gemini.function_response("s__t", ClientError("timeout", "Too\u200b slow."), id="1")["functionResponse"]
    assert error == {"id": "1", "name": "s__t", "response": {"error": "Too slow."}}


def test_media() -> None:
    picture = {"type": "image", "data": PNG, "mimeType": "image/jpeg"}
    gif = {"type": "image", "data": base64.b64encode(b"GIF89a").decode(), "mimeType": "image/gif"}
    part = {"inlineData": {"mimeType": "image/png", "data": PNG}}
    result = ToolResult(content=[text("t"), picture, gif])
    assert output(result) == "t\n[image: image/jpeg, 12 bytes]\n[image: image/gif, 6 bytes]"
    native = gemini.function_response("s__t", result, media="native")["functionResponse"]
    assert native["parts"] == [part]
    assert native["response"] == {"output": "t\n[image: image/gif, 6 bytes]"}
    alone = gemini.function_response("s__t", ToolResult(content=[picture]), media="native")["functionResponse"]
    assert alone["response"] == {"output": "[image: image/jpeg, 12 bytes]"}
    structured = ToolResult(content=[text("t"), picture], structured_content={"a": 1})
    both = gemini.function_response("s__t", structured, media="native")["functionResponse"]
    assert (both["response"], both["parts"]) == ({"output": {"a": 1}}, [part])
    assert output(structured) == {"a": 1}
    assert "parts" not in gemini.function_response("s__t", structured)["functionResponse"]


@pytest.mark.parametrize("options", [{"structured": "maybe"}, {"media": "video"}])
def test_unknown_options_are_refused(options: dict[str, Any]) -> None:
    with pytest.raises(ValueError):
        gemini.function_response("s__t", ToolResult(), **options)
