"""The oracles themselves: they look into lists and refuse unknown keys, which the SDKs' own types do not."""

from __future__ import annotations

from typing import Any

import pytest
from anthropic.types import ToolParam, ToolResultBlockParam
from openai.types.chat import ChatCompletionToolMessageParam

from conduit_daemon.adapters import anthropic, gemini, openai


@pytest.fixture
def conforms(request: pytest.FixtureRequest) -> Any:
    plugin = next(
        plugin for plugin in request.config.pluginmanager.get_plugins() if hasattr(plugin, "check_anthropic_tool")
    )
    return plugin.conforms


@pytest.mark.parametrize(
    ("value", "expected"),
    [
        ({"name": "n"}, ToolParam),
        ({"name": "n", "input_schema": {"type": "object"}, "parameters": {}}, ToolParam),
        ({"name": 5, "input_schema": {"type": "object"}}, ToolParam),
        ({"name": "n", "input_schema": {"type": "object"}, "strict": "yes"}, ToolParam),
        ({"type": "tool_result", "tool_use_id": "1", "content": [{"type": "text"}]}, ToolResultBlockParam),
        ({"type": "tool_result", "tool_use_id": "1", "content": [{"type": "video"}]}, ToolResultBlockParam),
        ({"type": "result", "tool_use_id": "1"}, ToolResultBlockParam),
        ({"role": "tool", "tool_call_id": "1", "content": None}, ChatCompletionToolMessageParam),
    ],
)
def test_what_the_types_forbid_is_refused(conforms: Any, value: Any, expected: Any) -> None:
    with pytest.raises(AssertionError):
        conforms(value, expected)


def test_what_the_types_allow_is_taken(conforms: Any) -> None:
    conforms({"name": "n", "input_schema": {"type": "object", "x": 1}}, ToolParam)
    conforms(
        {"type": "tool_result", "tool_use_id": "1", "content": [{"type": "text", "text": "t"}]}, ToolResultBlockParam
    )


def test_every_adapter_function_is_watched() -> None:
    for module, names in (
        (anthropic, ["tools", "tool_calls", "tool_result"]),
        (openai, ["tools", "tool_calls", "tool_output"]),
        (gemini, ["function_declarations", "function_calls", "function_response"]),
    ):
        for name in names:
            assert getattr(module, name).__name__ == "checked"
