"""The official SDKs' types as oracles: all that the adapters give out in any test of this folder is checked.

TypedDicts ignore unknown keys and validate iterables lazily; `conforms` does neither.
"""

from __future__ import annotations

import collections.abc
import json
import types
import typing
from collections.abc import Callable, Iterator
from typing import Any, Literal, Union, get_args, get_origin, get_type_hints

import jsonschema_rs
import pytest
import typing_extensions
from anthropic.types import MessageParam, ToolParam, ToolResultBlockParam
from anthropic.types.tool_param import InputSchemaTyped
from google.genai import types as genai
from openai.types.chat import ChatCompletionFunctionToolParam, ChatCompletionToolMessageParam
from openai.types.responses import FunctionToolParam, ResponseCustomToolCallOutputParam
from openai.types.responses.response_input_item_param import FunctionCallOutput

from conduit_daemon.adapters import anthropic, gemini, openai, plain
from conduit_daemon.hub.naming import build
from conduit_daemon.hub.toolset import ToolSet
from conduit_daemon.model import Rejected

Make = Callable[..., ToolSet]


def conforms(value: Any, expected: Any, where: str = "$") -> None:
    """Asserts that `value` is of the type, with every part looked at and no unknown key."""
    origin = get_origin(expected)
    if expected in (Any, object):
        return
    if expected is None or expected is type(None):
        assert value is None, where
    elif typing_extensions.is_typeddict(expected):
        _conforms_to_dict(value, expected, where)
    elif origin in (Union, types.UnionType):
        _conforms_to_one(value, get_args(expected), where)
    elif origin is Literal:
        assert value in get_args(expected), f"{where}: {value!r}"
    elif origin is not None and issubclass(origin, collections.abc.Mapping):
        assert isinstance(value, dict), where
        for key, child in value.items():
            conforms(key, get_args(expected)[0], where)
            conforms(child, get_args(expected)[1], f"{where}.{key}")
    elif origin is not None and issubclass(origin, collections.abc.Iterable):
        assert isinstance(value, list), where
        for at, child in enumerate(value):
            conforms(child, get_args(expected)[0], f"{where}[{at}]")
    else:
        assert isinstance(value, expected), f"{where}: {value!r} is no {expected}"
        assert expected is bool or not isinstance(value, bool), where


def _conforms_to_dict(value: Any, expected: Any, where: str) -> None:
    assert isinstance(value, dict), f"{where}: {value!r}"
    hints = get_type_hints(expected, include_extras=True)
    may_have_more = getattr(expected, "__pydantic_config__", {}).get("extra") == "allow"
    assert may_have_more or value.keys() <= hints.keys(), f"{where}: unknown {value.keys() - hints.keys()}"
    for key, hint in hints.items():
        if get_origin(hint) in (typing.Required, typing.NotRequired):
            assert key in value or get_origin(hint) is typing.NotRequired, f"{where}: {key} is missing"
        if key in value:
            wrapped = get_origin(hint) in (typing.Required, typing.NotRequired)
            conforms(value[key], get_args(hint)[0] if wrapped else hint, f"{where}.{key}")


def _conforms_to_one(value: Any, branches: tuple[Any, ...], where: str) -> None:
    failures = []
    for branch in branches:
        try:
            conforms(value, branch, where)
        except AssertionError as failure:
            failures.append(str(failure))
        else:
            return
    raise AssertionError(f"{where}: {failures}")


def is_json(value: Any) -> None:
    """Asserts that `value` can be sent: JSON without NaN, and valid UTF-8."""
    json.dumps(value, allow_nan=False, ensure_ascii=False).encode()


def _schema_is_valid(schema: dict[str, Any]) -> None:
    assert schema["type"] == "object"
    jsonschema_rs.meta.validate({**schema, "$schema": "https://json-schema.org/draft/2020-12/schema"})
    is_json(schema)


def check_anthropic_tool(tool: dict[str, Any]) -> None:
    conforms(tool, ToolParam)
    conforms(tool["input_schema"], InputSchemaTyped)
    _schema_is_valid(tool["input_schema"])
    assert not {"anyOf", "oneOf", "allOf", "$schema"} & tool["input_schema"].keys()
    assert "properties" in tool["input_schema"]


def check_anthropic_answer(answer: dict[str, Any]) -> None:
    conforms(answer, ToolResultBlockParam)
    conforms({"role": "user", "content": [answer]}, MessageParam)
    content = answer["content"]
    texts = [content] if isinstance(content, str) else [part["text"] for part in content if part["type"] == "text"]
    assert content
    assert all(text.strip() for text in texts)
    is_json(answer)


def check_openai_tool(tool: dict[str, Any], api: str) -> None:
    conforms(tool, ChatCompletionFunctionToolParam if api == "chat" else FunctionToolParam)
    function = tool["function"] if api == "chat" else tool
    assert isinstance(function["strict"], bool)
    _schema_is_valid(function["parameters"])
    assert not {"anyOf", "oneOf", "allOf", "not", "enum", "$schema"} & function["parameters"].keys()
    if function["strict"]:
        check_strict(function["parameters"])


def check_strict(schema: Any) -> None:
    """Asserts that a schema keeps to the strict subset, everywhere."""
    allowed = {
        *("type", "properties", "required", "additionalProperties", "items", "enum", "anyOf", "description", "title"),
        *("pattern", "format", "multipleOf", "minimum", "maximum", "exclusiveMinimum", "exclusiveMaximum"),
        *("minItems", "maxItems"),
    }
    assert isinstance(schema, dict)
    assert schema.keys() <= allowed, schema
    assert ("type" in schema) != ("anyOf" in schema), schema
    if schema.get("type") == "object":
        assert schema["additionalProperties"] is False
        assert schema["required"] == list(schema["properties"])
    if schema.get("type") == "array":
        assert "items" in schema
    for child in (*schema.get("properties", {}).values(), *schema.get("anyOf", [])):
        check_strict(child)
    if "items" in schema:
        check_strict(schema["items"])


def check_openai_answer(answer: dict[str, Any], api: str) -> None:
    if api == "chat":
        conforms(answer, ChatCompletionToolMessageParam)
        assert answer["content"].strip()
    else:
        is_custom = answer["type"] == "custom_tool_call_output"
        conforms(answer, ResponseCustomToolCallOutputParam if is_custom else FunctionCallOutput)
        output = answer["output"]
        texts = [output] if isinstance(output, str) else [part["text"] for part in output if "text" in part]
        assert output
        assert all(text.strip() for text in texts)
    is_json(answer)


GEMINI_KEYWORDS = {
    *("$id", "$defs", "$ref", "$anchor", "type", "format", "title", "description", "enum", "items"),
    *("prefixItems", "minItems", "maxItems", "minimum", "maximum", "anyOf", "oneOf", "properties"),
    *("additionalProperties", "required"),
}


def check_gemini_tool(tool: dict[str, Any]) -> None:
    genai.FunctionDeclaration.model_validate(tool)
    genai.Tool.model_validate({"functionDeclarations": [tool]})
    assert tool.keys() == {"name", "description", "parametersJsonSchema"}
    _schema_is_valid(tool["parametersJsonSchema"])
    _check_gemini_schema(tool["parametersJsonSchema"])


def _check_gemini_schema(schema: Any) -> None:
    assert isinstance(schema, dict), schema
    assert schema.keys() <= GEMINI_KEYWORDS, schema
    if "$ref" in schema:
        assert all(key.startswith("$") for key in schema)
    children = [*schema.get("properties", {}).values(), *schema.get("$defs", {}).values()]
    for key in ("anyOf", "oneOf", "prefixItems"):
        children += schema.get(key, [])
    children += [schema[key] for key in ("items", "additionalProperties") if isinstance(schema.get(key), dict)]
    for child in children:
        _check_gemini_schema(child)


def check_gemini_answer(part: dict[str, Any]) -> None:
    genai.Part.model_validate(part)
    genai.Content.model_validate({"role": "user", "parts": [part]})
    response = part["functionResponse"]["response"]
    assert len(response.keys() & {"output", "error"}) == 1
    for value in response.values():
        assert not isinstance(value, str) or value.strip()
    is_json(part)


def _rejections(found: list[Any]) -> Iterator[dict[str, Any]]:
    return (one.answer for one in found if isinstance(one, Rejected))


@pytest.fixture(autouse=True)
def _checked(monkeypatch: pytest.MonkeyPatch) -> None:
    """Every adapter function, followed by a look at what it gave."""

    def wrap(module: Any, name: str, check: Callable[[Any, dict[str, Any]], None]) -> None:
        original = getattr(module, name)

        def checked(*args: Any, **options: Any) -> Any:
            given = original(*args, **options)
            check(given, options)
            return given

        monkeypatch.setattr(module, name, checked)

    def each(check: Callable[[Any], None]) -> Callable[[Any, dict[str, Any]], None]:
        return lambda given, _: [check(one) for one in given][:0] and None

    wrap(anthropic, "tools", each(check_anthropic_tool))
    wrap(anthropic, "tool_calls", lambda found, _: each(check_anthropic_answer)(list(_rejections(found)), {}))
    wrap(anthropic, "tool_result", lambda answer, _: check_anthropic_answer(answer))
    wrap(openai, "tools", lambda made, options: [check_openai_tool(one, options["api"]) for one in made.tools] and None)
    wrap(
        openai,
        "tool_calls",
        lambda found, options: [check_openai_answer(one, options["api"]) for one in _rejections(found)] and None,
    )
    wrap(openai, "tool_output", lambda answer, options: check_openai_answer(answer, options["api"]))
    wrap(gemini, "function_declarations", each(check_gemini_tool))
    wrap(gemini, "function_calls", lambda found, _: each(check_gemini_answer)(list(_rejections(found)), {}))
    wrap(gemini, "function_response", lambda answer, _: check_gemini_answer(answer))
    wrap(plain, "tools", each(is_json))


@pytest.fixture
def make() -> Make:
    """A toolset of server ``s`` with tools ``t``, ``t1``, ... that have these input schemas."""

    def made(*schemas: dict[str, Any], **more: Any) -> ToolSet:
        tools = [
            {"name": f"t{at or ''}", "description": "Does it.", "inputSchema": schema, **more}
            for at, schema in enumerate(schemas)
        ]
        return build([("s", tools)])[0]

    return made
