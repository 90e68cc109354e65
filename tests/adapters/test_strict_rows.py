"""OpenAI's strict form: each row of the page's table, and each rule and reason beside it."""

from __future__ import annotations

import json
import socket
from typing import Any

import pytest

from conduit_daemon.adapters import openai
from conduit_daemon.adapters.strict import strip_nulls
from conduit_daemon.errors import StrictSchemaError

Schema = dict[str, Any]
STR: Schema = {"type": "string"}
INT: Schema = {"type": "integer"}
NUM: Schema = {"type": "number"}
NULL: Schema = {"type": "null"}


def obj(properties: dict[str, Any], required: str = "", **more: Any) -> Schema:
    """An object; `required` names the required ones, with blanks between."""
    return {"type": "object", "properties": properties, "required": required.split(), **more}


def closed(**properties: Any) -> Schema:
    return {
        "type": "object",
        "properties": properties,
        "required": list(properties),
        "additionalProperties": False,
    }


def strict_of(make: Any, schema: Schema) -> tuple[Any, Any]:
    """(the strict schema, its null paths), or (None, the reason for the fallback)."""
    made = openai.tools(make(schema), api="responses")
    if "s__t" in made.fallbacks:
        assert made.tools[0]["strict"] is False
        assert "s__t" not in made.null_paths
        return None, made.fallbacks["s__t"]
    assert made.tools[0]["strict"] is True
    return made.tools[0]["parameters"], made.null_paths["s__t"]


@pytest.mark.parametrize(
    ("schema", "strict", "paths"),
    [
        (obj({"q": STR}, "q"), closed(q=STR), []),
        (
            obj({"q": STR, "n": {"type": "integer", "minimum": 1, "default": 20}}, "q"),
            closed(q=STR, n={"type": ["integer", "null"], "minimum": 1, "description": "(default: 20)"}),
            [["n"]],
        ),
        (obj({"q": {"type": ["string", "null"]}}), closed(q={"type": ["string", "null"]}), []),
        (
            obj({"u": {"enum": ["C", "F"]}}),
            closed(u={"anyOf": [{"type": "string", "enum": ["C", "F"]}, NULL]}),
            [["u"]],
        ),
        (
            obj({"f": {"type": "array", "items": obj({"k": STR, "op": STR}, "k")}}, "f"),
            closed(f={"type": "array", "items": closed(k=STR, op={"type": ["string", "null"]})}),
            [["f", None, "op"]],
        ),
        (
            obj({"r": obj({"a": NUM, "b": NUM}, "a")}),
            closed(r={"anyOf": [closed(a=NUM, b={"type": ["number", "null"]}), NULL]}),
            [["r"], ["r", "b"]],
        ),
        (
            obj({"t": {"oneOf": [obj({"k": {"const": "a"}, "v": STR}, "k"), obj({"k": {"const": "b"}}, "k")]}}, "t"),
            closed(
                t={
                    "anyOf": [
                        closed(k={"type": "string", "enum": ["a"]}, v={"type": ["string", "null"]}),
                        closed(k={"type": "string", "enum": ["b"]}),
                    ]
                }
            ),
            [["t", "v"]],
        ),
        ({"type": "object", "additionalProperties": False}, closed(), []),
    ],
)
def test_a_row_with_a_strict_form(make: Any, schema: Schema, strict: Schema, paths: list[Any]) -> None:
    assert strict_of(make, schema) == (strict, paths)


@pytest.mark.parametrize(
    ("schema", "reason"),
    [
        # the page's rows
        (
            obj({"t": {"anyOf": [obj({"v": STR}), obj({"v": {"type": ["integer", "null"]}, "w": INT}, "v w")]}}, "t"),
            "ambiguous_null",
        ),
        ({"type": "object"}, "free_form_object"),
        (obj({"env": {"type": "object", "additionalProperties": STR}}, "env"), "open_object"),
        ({**obj({"a": STR, "b": STR}), "anyOf": [{"required": ["a"]}, {"required": ["b"]}]}, "root_anyOf"),
        (obj({"child": {"$ref": "#"}}), "recursive"),
        # and the rules
        ({"type": "object", "properties": {}}, "free_form_object"),
        (obj({"a": True}), "boolean_schema"),
        (obj({"a": {}}), "untyped_schema"),
        (obj({"a": {"description": "anything"}}), "untyped_schema"),
        (obj({"a": STR}, additionalProperties=True), "open_object"),
        (obj({"a": STR}, additionalProperties={}), "open_object"),
        (obj({"a": STR}, "a b"), "undeclared_required"),
        (obj({"a": {"type": "array"}}), "array_without_items"),
        (obj({"a": {"type": "array", "items": [STR, INT]}}), "tuple"),
        (obj({"a": {"type": "array", "prefixItems": [STR], "items": False}}), "tuple"),
        (obj({"a": STR}, patternProperties={"^x": STR}), "unsupported_keyword: patternProperties"),
        (obj({"a": STR}, propertyNames={"pattern": "x"}), "unsupported_keyword: propertyNames"),
        (obj({"a": {"type": "string", "not": {"const": "x"}}}), "unsupported_keyword: not"),
        (obj({"a": STR, "b": STR}, dependentRequired={"a": ["b"]}), "unsupported_keyword: dependentRequired"),
        (obj({"a": STR, "b": STR}, dependencies={"a": ["b"]}), "unsupported_keyword: dependentRequired"),
        (obj({"a": STR}, unevaluatedProperties=False), "unsupported_keyword: unevaluatedProperties"),
        ({**obj({"a": STR}), "if": {"required": ["a"]}, "then": {}}, "unsupported_keyword: if"),
        (obj({"a": {"allOf": [STR, {"minLength": 1}]}}), "allOf"),
        (obj({"a": {"type": "string", "allOf": [{"minLength": 1}]}}), "allOf"),
        ({"$ref": "#/$defs/A", "$defs": {"A": obj({"a": STR})}}, "root_ref"),
        ({"oneOf": [obj({"a": STR}, "a"), obj({"b": STR}, "b")]}, "root_oneOf"),
        (obj({"a": {"type": "string", "anyOf": [{"enum": ["x"]}, {"enum": ["y"]}]}}), "union_siblings"),
        (obj({"a": {"anyOf": [STR, INT], "oneOf": [STR, INT]}}), "union_siblings"),
        (obj({"a": {"type": "string", "enum": ["x"], "pattern": "x"}}), "enum_siblings"),
        ({**obj({"a": {"$ref": "#/$defs/A", "minLength": 3}}), "$defs": {"A": STR}}, "ref_siblings"),
        (obj({"a": {"$ref": "https://example.com/a.json"}}), "external_ref"),
        (obj({"a": {"$ref": "#/$defs/Missing"}}), "dangling_ref"),
        (
            {
                **obj({"a": {"$ref": "#/$defs/A"}}),
                "$defs": {"A": obj({"b": {"$ref": "#/$defs/B"}}), "B": obj({"a": {"$ref": "#/$defs/A"}})},
            },
            "recursive",
        ),
        (obj({"a": {"oneOf": [INT, NUM]}}), "oneOf"),
        (obj({"a": {"oneOf": [obj({"x": STR}), obj({"y": STR})]}}), "oneOf"),
        (obj({"a": {"oneOf": [obj({"k": {"const": 1}}, "k"), obj({"k": {"const": 1.0}}, "k")]}}), "oneOf"),
        (obj({"a": {"enum": [{"x": 1}, {"x": 2}]}}), "enum_values"),
        (obj({"a": {"type": "string", "enum": [1, 2]}}), "enum_values"),
        (obj({f"p{n}": STR for n in range(5001)}), "limits: more than 5,000 properties"),
        (obj({"a": {"enum": [str(n) for n in range(1001)]}}), "limits: more than 1,000 enum values"),
        (obj({"x" * 120_001: STR}), "limits: more than 120,000 characters of names and values"),
        (
            obj({"a": {"enum": [f"{n:060}" for n in range(251)]}}),
            "limits: an enum of 251 values has over 15,000 characters",
        ),
    ],
)
def test_a_schema_without_a_strict_form(make: Any, schema: Schema, reason: str) -> None:
    assert strict_of(make, schema) == (None, reason)
    with pytest.raises(StrictSchemaError) as refusal:
        openai.tools(make(schema), api="chat", strict=True)
    assert (refusal.value.tool, refusal.value.reason) == ("s__t", reason)


@pytest.mark.parametrize(
    ("within", "strict", "paths"),
    [
        # annotations go, what the subset lacks is told
        (
            {"type": "string", "minLength": 1, "maxLength": 9, "examples": ["x"], "x-order": 1, "deprecated": True},
            {"type": ["string", "null"], "description": "(minLength: 1, maxLength: 9)"},
            [["a"]],
        ),
        (
            {"type": "string", "description": "Where.", "format": "uri", "default": "/", "nullable": True},
            {"type": ["string", "null"], "description": 'Where. (default: "/", format: "uri")'},
            [["a"]],
        ),
        ({"type": "string", "format": "uuid"}, {"type": ["string", "null"], "format": "uuid"}, [["a"]]),
        (
            {"type": "integer", "format": "int64"},
            {"type": ["integer", "null"], "description": '(format: "int64")'},
            [["a"]],
        ),
        ({"type": "string", "pattern": "^a+$"}, {"type": ["string", "null"], "pattern": "^a+$"}, [["a"]]),
        (
            {"type": "string", "pattern": "^(?!x)"},
            {"type": ["string", "null"], "description": '(pattern: "^(?!x)")'},
            [["a"]],
        ),
        # types inferred and split
        ({"minimum": 3}, {"type": ["number", "null"], "minimum": 3}, []),
        ({"type": ["string", "integer"]}, {"anyOf": [STR, INT, NULL]}, [["a"]]),
        ({"type": ["string", "integer", "null"]}, {"anyOf": [STR, INT, NULL]}, []),
        (
            {"type": ["array", "null"], "items": STR, "title": "T"},
            {"anyOf": [{"type": "array", "items": STR}, NULL], "title": "T"},
            [],
        ),
        # enums and consts
        (
            {"type": "integer", "enum": [1, 2]},
            {"anyOf": [{"type": "integer", "enum": [1, 2]}, NULL]},
            [["a"]],
        ),
        ({"enum": ["x", None]}, {"anyOf": [{"type": "string", "enum": ["x"]}, NULL]}, []),
        (
            {"enum": ["x", 1, 1.5, True, "x"]},
            {
                "anyOf": [
                    {"type": "string", "enum": ["x"]},
                    {"type": "number", "enum": [1, 1.5]},
                    {"type": "boolean", "enum": [True]},
                    NULL,
                ]
            },
            [["a"]],
        ),
        ({"const": 7}, {"anyOf": [{"type": "integer", "enum": [7]}, NULL]}, [["a"]]),
        ({"const": None}, NULL, []),
        # unions
        ({"anyOf": [STR, NULL], "default": None}, {"anyOf": [STR, NULL], "description": "(default: null)"}, []),
        ({"anyOf": [STR, INT], "description": "D"}, {"anyOf": [STR, INT, NULL], "description": "D"}, [["a"]]),
        ({"oneOf": [STR, INT]}, {"anyOf": [STR, INT, NULL]}, [["a"]]),
        (
            {"oneOf": [{"const": "x", "title": "X"}, {"const": "y"}]},
            {
                "anyOf": [
                    {"type": "string", "enum": ["x"], "title": "X"},
                    {"type": "string", "enum": ["y"]},
                    NULL,
                ]
            },
            [["a"]],
        ),
        ({"allOf": [STR], "description": "D"}, {"type": ["string", "null"], "description": "D"}, [["a"]]),
        # nullable around a container: its annotations are hoisted
        (
            {"type": "array", "items": INT, "description": "D", "minItems": 1},
            {"anyOf": [{"type": "array", "items": INT, "minItems": 1}, NULL], "description": "D"},
            [["a"]],
        ),
    ],
)
def test_an_optional_property(make: Any, within: Schema, strict: Schema, paths: list[Any]) -> None:
    assert strict_of(make, obj({"a": within})) == (closed(a=strict), paths)


@pytest.mark.parametrize(
    "ref",
    ["#/$defs/A", "#/definitions/A", "#/properties/b", "#a", "https://example.com/s.json#/$defs/A", "#/$defs/A%7E1b"],
)
def test_an_acyclic_reference_is_inlined(make: Any, ref: str) -> None:
    target = {"type": "string", "pattern": "x"}
    keyword = "definitions" if "definitions" in ref else "$defs"
    schema = {
        "$id": "https://example.com/s.json",
        **obj({"a": {"$ref": ref, "description": "D"}, "b": target}, "a b"),
        keyword: {"A": {**target, "$anchor": "a"}, "A/b": target},
    }
    assert strict_of(make, schema) == (closed(a={**target, "description": "D"}, b=target), [])


@pytest.mark.parametrize(("levels", "is_strict"), [(10, True), (11, False)])
def test_depth(make: Any, levels: int, is_strict: bool) -> None:
    schema = obj({"p": STR}, "p")
    for _ in range(levels - 1):
        schema = obj({"p": schema}, "p")
    strict, reason = strict_of(make, schema)
    assert (strict is not None) is is_strict
    assert is_strict or reason == "limits: nested deeper than 10"


def test_the_limits_themselves_are_allowed(make: Any) -> None:
    values = [str(n) for n in range(1000)]
    strict, _ = strict_of(make, obj({f"p{n}": STR for n in range(4999)} | {"e": {"enum": values}}))
    assert strict is not None
    assert len(strict["properties"]) == 5000


def test_references_that_would_explode_fall_back_quickly(make: Any) -> None:
    definitions: Schema = {
        f"D{n}": obj({"a": {"$ref": f"#/$defs/D{n + 1}"}, "b": {"$ref": f"#/$defs/D{n + 1}"}}) for n in range(40)
    }
    _, reason = strict_of(make, {**obj({"x": {"$ref": "#/$defs/D0"}}), "$defs": {**definitions, "D40": STR}})
    assert reason.startswith("limits: ")


def test_strict_false_never_converts(make: Any) -> None:
    made = openai.tools(make(obj({"q": STR}, "q")), api="chat", strict=False)
    assert made.tools[0]["function"]["strict"] is False
    assert made.tools[0]["function"]["parameters"] == obj({"q": STR}, "q")
    assert (made.null_paths, made.fallbacks) == ({}, {})


def test_the_toolsets_schemas_are_not_altered(make: Any) -> None:
    schema = obj({"q": {"type": "array", "items": {"type": "string", "default": "x"}}})
    before = json.dumps(schema)
    toolset = make(schema)
    made = openai.tools(toolset, api="chat")
    made.tools[0]["function"]["parameters"]["properties"].clear()
    assert json.dumps(toolset.entries[0].tool.input_schema) == before


@pytest.mark.parametrize(
    ("arguments", "paths", "stripped"),
    [
        ({"n": None, "q": None}, [["n"]], {"q": None}),
        ({"n": 0}, [["n"]], {"n": 0}),
        ({"f": [{"op": None, "k": 1}, {"op": 2}, None, 7]}, [["f", None, "op"]], {"f": [{"k": 1}, {"op": 2}, None, 7]}),
        ({"r": None}, [["r"], ["r", "b"]], {}),
        ({"r": {"b": None}}, [["r"], ["r", "b"]], {"r": {}}),
        ({"r": "text"}, [["r", "b"]], {"r": "text"}),
        ({"r": [None]}, [["r", None]], {"r": [None]}),
        ({"*": None, "a": [{"x": None}]}, [["*"], ["a", "*", "x"]], {"a": [{"x": None}]}),
        ({"a": {"b": None}}, [[], ["a", None, "b"]], {"a": {"b": None}}),
    ],
)
def test_stripping(arguments: Any, paths: Any, stripped: Any) -> None:
    before = json.dumps(arguments)
    assert strip_nulls(arguments, paths) == stripped
    assert json.dumps(arguments) == before


def test_a_call_of_a_strict_tool_loses_its_nulls_and_of_another_keeps_them(make: Any) -> None:
    toolset = make(obj({"n": INT}), {"type": "object"})
    listed = openai.tools(toolset, api="responses")
    calls = [
        {"type": "function_call", "call_id": "1", "name": name, "arguments": '{"n": null}'}
        for name in ("s__t", "s__t1")
    ]
    strict, loose = openai.tool_calls(calls, toolset, api="responses", null_paths=listed.null_paths)
    assert (strict.arguments, loose.arguments) == ({}, {"n": None})  # type: ignore[union-attr]


def test_a_reference_inside_what_is_only_told_is_never_fetched(make: Any) -> None:
    with socket.socket() as listener:
        listener.bind(("127.0.0.1", 0))
        listener.listen()
        listener.setblocking(False)
        ref = f"http://127.0.0.1:{listener.getsockname()[1]}/schema.json"
        schema = obj({"a": {"type": ["array", "null"], "items": STR, "contains": {"$ref": ref}}})
        assert strict_of(make, schema) == (None, "invalid_schema")
        with pytest.raises(BlockingIOError):
            listener.accept()
