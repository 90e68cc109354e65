"""Anthropic's calls and results."""

from __future__ import annotations

import base64
import json
from typing import Any

import pytest
from anthropic.types import Message

from conduit_daemon.adapters import anthropic
from conduit_daemon.errors import ClientError
from conduit_daemon.model import Rejected, ToolCall, ToolResult

PNG = base64.b64encode(b"\x89PNG\r\n\x1a\n" + bytes(4)).decode()
JPEG = base64.b64encode(b"\xff\xd8\xff\xe0" + bytes(4)).decode()
OPEN: dict[str, Any] = {"type": "object"}


def text(value: str) -> dict[str, Any]:
    return {"type": "text", "text": value}


def image(data: str, kind: str) -> dict[str, Any]:
    return {"type": "image", "data": data, "mimeType": kind}


def message(*blocks: dict[str, Any]) -> dict[str, Any]:
    given = {
        "id": "msg_1",
        "type": "message",
        "role": "assistant",
        "model": "claude",
        "content": list(blocks),
        "stop_reason": "tool_use",
        "stop_sequence": None,
        "usage": {"input_tokens": 1, "output_tokens": 1},
    }
    Message.model_validate(given)
    return given


def test_cache_control_stands_on_the_last_tool_only(make: Any) -> None:
    control = {"type": "ephemeral"}
    first, last = anthropic.tools(make(OPEN, OPEN), cache_control=control)
    assert "cache_control" not in first
    assert last["cache_control"] == control
    assert last["cache_control"] is not control
    assert anthropic.tools(make(), cache_control=control) == []


def test_no_strict_and_no_blank_description(make: Any) -> None:
    (tool,) = anthropic.tools(make(OPEN, description="  "))
    assert tool == {"name": "s__t", "input_schema": {"type": "object", "properties": {}}}


def test_calls_and_rejections_come_in_the_models_order(make: Any) -> None:
    response = message(
        {"type": "thinking", "thinking": "...", "signature": "s"},
        text("Let me see."),
        {"type": "tool_use", "id": "1", "name": "s__t", "input": {"a": 1}},
        {"type": "tool_use", "id": "2", "name": "nope", "input": {}},
        {"type": "server_tool_use", "id": "3", "name": "web_search", "input": {}},
        {"type": "tool_use", "id": "4", "name": "s__t1", "input": {}},
    )
    found = anthropic.tool_calls(response, make(OPEN, OPEN))
    assert found[0] == ToolCall("1", "s", "t", "s__t", {"a": 1})
    assert isinstance(found[1], Rejected)
    assert (found[1].call_id, found[1].exposed_name, found[1].kind) == ("2", "nope", "unknown_tool")
    assert found[1].answer["tool_use_id"] == "2"
    assert found[1].answer["is_error"] is True
    assert "nope" in found[1].answer["content"]
    assert found[2] == ToolCall("4", "s", "t1", "s__t1", {})
    assert len(found) == 3


@pytest.mark.parametrize("given", [None, [], "{}", 5])
def test_an_input_that_is_no_object_is_rejected(make: Any, given: Any) -> None:
    block = {"type": "tool_use", "id": "1", "name": "s__t", "input": given}
    (found,) = anthropic.tool_calls([block], make(OPEN))
    assert isinstance(found, Rejected)
    assert found.kind == "invalid_arguments"


@pytest.mark.parametrize("name", [None, 5, ["s__t"], "S__T", "s__t ", "x" * 5000, "a\u200b\x1b[31m\nb"])
def test_names_resolve_exactly_and_are_shown_safely(make: Any, name: Any) -> None:
    (found,) = anthropic.tool_calls([{"type": "tool_use", "id": "1", "name": name, "input": {}}], make(OPEN))
    assert isinstance(found, Rejected)
    assert len(found.answer["content"]) < 300
    assert "\u200b" not in found.answer["content"]


def test_a_response_may_be_a_message_its_blocks_or_the_sdks_own(make: Any) -> None:
    given = message({"type": "tool_use", "id": "1", "name": "s__t", "input": {}})
    calls = [ToolCall("1", "s", "t", "s__t", {})]
    parsed = Message.model_validate(given)
    for response in (given, given["content"], parsed, parsed.content):
        assert anthropic.tool_calls(response, make(OPEN)) == calls
    assert anthropic.tool_calls({"role": "assistant", "content": "Hello."}, make(OPEN)) == []
    for wrong in ({"choices": []}, None, "text", 5):
        with pytest.raises(ValueError, match="Anthropic"):
            anthropic.tool_calls(wrong, make(OPEN))


def test_a_text_result_is_a_string() -> None:
    answer = anthropic.tool_result("1", ToolResult(content=[text("a"), text("b")]))
    assert answer == {"type": "tool_result", "tool_use_id": "1", "content": "a\nb"}


def test_an_empty_result_says_so() -> None:
    for content in ([], [text("")], [text(" \n")]):
        assert anthropic.tool_result("1", ToolResult(content=content))["content"] == "(empty result)"


def test_native_images_make_a_list_of_blocks() -> None:
    result = ToolResult(content=[text("See:"), text(" "), image(PNG, "image/png"), text("!")])
    assert anthropic.tool_result("1", result)["content"] == [
        text("See:"),
        {"type": "image", "source": {"type": "base64", "media_type": "image/png", "data": PNG}},
        text("!"),
    ]
    shown = "See:\n \n[image: image/png, 12 bytes]\n!"
    assert anthropic.tool_result("1", result, media="placeholder")["content"] == shown


def test_a_lying_media_type_goes_under_the_type_of_its_bytes() -> None:
    (block,) = anthropic.tool_result("1", ToolResult(content=[image(JPEG, "image/png")]))["content"]
    assert block["source"]["media_type"] == "image/jpeg"


@pytest.mark.parametrize(
    "block",
    [
        image(base64.b64encode(b"<html>").decode(), "image/png"),
        image("not base64", "image/png"),
        image(base64.b64encode(b"<svg/>").decode(), "image/svg+xml"),
        {"type": "audio", "data": PNG, "mimeType": "audio/wav"},
    ],
)
def test_what_is_no_image_by_its_bytes_becomes_a_placeholder(block: dict[str, Any]) -> None:
    content = anthropic.tool_result("1", ToolResult(content=[block]))["content"]
    assert isinstance(content, str)
    assert content.startswith(f"[{block['type']}: ")


def test_structured_content_beside_a_native_image() -> None:
    result = ToolResult(content=[text("t"), image(PNG, "image/png")], structured_content={"a": 1})
    kinds = [block["type"] for block in anthropic.tool_result("1", result)["content"]]
    assert kinds == ["text", "image", "text"]
    preferred = anthropic.tool_result("1", result, structured="prefer")["content"]
    assert [block.get("text") for block in preferred] == ['{"a":1}', None]


@pytest.mark.parametrize("value", [[1, 2], None, "s", 5, True])
def test_structured_content_that_is_no_object(value: Any) -> None:
    content = anthropic.tool_result("1", ToolResult(structured_content=value))["content"]
    assert json.loads(content) == value


def test_failures_are_text_only() -> None:
    failed = ToolResult(content=[text("No."), image(PNG, "image/png")], is_error=True)
    assert anthropic.tool_result("1", failed) == {
        "type": "tool_result",
        "tool_use_id": "1",
        "content": "No.\n[image: image/png, 12 bytes]",
        "is_error": True,
    }
    error = ClientError("denied", "Denied\u200b: ask.\r\n", server="s", tool="t")
    answer = anthropic.tool_result("1", error)
    assert (answer["content"], answer["is_error"]) == ("Denied: ask.\n", True)
    assert len(anthropic.tool_result("1", ClientError("server_error", "x" * 9000))["content"].encode()) <= 4096
    assert anthropic.tool_result("1", ClientError("timeout", " "))["content"].strip()


@pytest.mark.parametrize("options", [{"structured": "maybe"}, {"media": "video"}])
def test_unknown_options_are_refused(options: dict[str, Any]) -> None:
    with pytest.raises(ValueError):
        anthropic.tool_result("1", ToolResult(), **options)
