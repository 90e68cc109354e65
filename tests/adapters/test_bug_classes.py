"""The kinds of schema that are publicly known to break requests, one test each, for every provider."""

from __future__ import annotations

from typing import Any

import pytest

from conduit_daemon.adapters import anthropic, gemini, openai, plain
from conduit_daemon.hub.naming import build
from conduit_daemon.hub.toolset import ToolSet

Schema = dict[str, Any]
STR: Schema = {"type": "string"}
INT: Schema = {"type": "integer"}


class Sent:
    """What each provider is sent for one schema."""

    def __init__(self, toolset: ToolSet) -> None:
        (a,) = anthropic.tools(toolset)
        (o,) = openai.tools(toolset, api="responses", strict=False).tools
        (g,) = gemini.function_declarations(toolset)
        self.anthropic: Schema = a["input_schema"]
        self.openai: Schema = o["parameters"]
        self.gemini: Schema = g["parametersJsonSchema"]
        self.all = (self.anthropic, self.openai, self.gemini)
        self.descriptions = (a.get("description"), o.get("description"), g["description"])


@pytest.fixture
def sent(make: Any) -> Any:
    return lambda schema, **more: Sent(make(schema, **more))


def of(prop: Any) -> Schema:
    return {"type": "object", "properties": {"p": prop}}


@pytest.mark.parametrize("combinator", ["anyOf", "oneOf"])
def test_root_union_of_required_lists(sent: Any, combinator: str) -> None:
    properties = {"id": STR, "name": STR}
    schema = {"type": "object", "properties": properties, combinator: [{"required": ["id"]}, {"required": ["name"]}]}
    made = sent(schema)
    for one in made.all:
        assert one == {"type": "object", "properties": properties}
    for description in made.descriptions:
        assert description.startswith("Does it.\n\nGive ")
        assert "(id) or (name)" in description


def test_root_union_of_objects_keeps_what_every_branch_requires(sent: Any) -> None:
    one = {"type": "object", "properties": {"k": {"const": "a"}, "v": STR}, "required": ["k", "v"]}
    other = {"type": "object", "properties": {"k": {"const": "b"}, "w": INT}, "required": ["k"]}
    made = sent({"properties": {"x": STR}, "required": ["x"], "oneOf": [one, other, {"type": "null"}]})
    for schema in made.all:
        assert schema["required"] == ["x", "k"]
        assert list(schema["properties"]) == ["x", "k", "v", "w"]
    assert made.anthropic["properties"]["k"] == {"anyOf": [{"const": "a"}, {"const": "b"}]}
    assert '(k="a", v) or (k="b", w (optional))' in made.descriptions[0]


def test_root_all_of_unites_required_and_disagreeing_properties(sent: Any) -> None:
    made = sent(
        {
            "allOf": [
                {"properties": {"a": STR, "b": STR}, "required": ["a"]},
                {"properties": {"a": INT}, "required": ["b"]},
            ]
        }
    )
    for schema in made.all:
        assert schema["required"] == ["a", "b"]
        assert schema["properties"] == {"a": {"anyOf": [STR, INT]}, "b": STR}


def test_root_union_behind_references(sent: Any) -> None:
    made = sent(
        {
            "anyOf": [{"$ref": "#/definitions/A"}, {"$ref": "#/definitions/B"}],
            "definitions": {
                "A": {"type": "object", "properties": {"a": STR}},
                "B": {"allOf": [{"properties": {"b": {"$ref": "#/definitions/S"}}}]},
                "S": STR,
            },
        }
    )
    assert [list(schema["properties"]) for schema in made.all] == [["a", "b"]] * 3
    assert made.gemini["properties"]["b"] == STR
    assert made.anthropic["$defs"] == {"S": STR}


def test_a_root_reference(sent: Any) -> None:
    made = sent({"$ref": "#/$defs/A", "$defs": {"A": {"type": "object", "properties": {"a": STR}, "required": ["a"]}}})
    for schema in made.all:
        assert schema == {"type": "object", "properties": {"a": STR}, "required": ["a"]}


@pytest.mark.parametrize("key", ["a b", "a/b", "a$", "café", "", "x" * 65, "a\n"])
def test_odd_keys_drop_the_tool_for_anthropic_only(make: Any, key: str) -> None:
    toolset = make(of({"type": "array", "items": {"type": "object", "properties": {key: STR}}}), of(STR))
    assert [tool["name"] for tool in anthropic.tools(toolset)] == ["s__t1"]
    (report,) = anthropic.dropped(toolset)
    assert (report.exposed, report.members) == ("s__t", (("s", "t"),))
    assert report.reason.startswith("invalid_property_key: ")
    assert len(openai.tools(toolset, api="chat").tools) == len(gemini.function_declarations(toolset)) == 2
    (call,) = anthropic.tool_calls([{"type": "tool_use", "id": "1", "name": "s__t", "input": {}}], toolset)
    assert call.answer["is_error"]  # type: ignore[union-attr]


@pytest.mark.parametrize("key", ["a.b", "a-b", "a_b", "x" * 64, "0"])
def test_keys_that_anthropic_takes(sent: Any, key: str) -> None:
    assert key in sent({"type": "object", "properties": {key: STR}}).anthropic["properties"]


@pytest.mark.parametrize("schema", [{}, {"type": "object"}, {"properties": {}}, {"type": ["object", "null"]}])
def test_missing_type_and_properties(sent: Any, schema: Schema) -> None:
    for one in sent(schema).all:
        assert one == {"type": "object", "properties": {}}


def test_an_array_without_items(sent: Any) -> None:
    made = sent(of({"type": "array"}))
    assert made.openai["properties"]["p"] == {"type": "array", "items": {}}
    assert sent(of({"type": ["array", "null"]})).openai["properties"]["p"]["items"] == {}


def test_a_reference_with_siblings(sent: Any) -> None:
    made = sent({**of({"$ref": "#/$defs/E", "description": "Which."}), "$defs": {"E": {"enum": ["a"]}}})
    assert made.gemini == of({"description": "Which.", "enum": ["a"]})
    recursive = {"type": "object", "properties": {"next": {"$ref": "#/$defs/N", "description": "The next."}}}
    made = sent({**of({"$ref": "#/$defs/N"}), "$defs": {"N": recursive}})
    assert made.gemini["$defs"]["N"]["properties"]["next"] == {"$ref": "#/$defs/N"}


def test_one_of_of_plain_types(make: Any) -> None:
    made = openai.tools(make({**of({"oneOf": [STR, INT]}), "required": ["p"]}), api="chat")
    assert made.tools[0]["function"]["parameters"]["properties"]["p"] == {"anyOf": [STR, INT]}


def test_optional_enums_under_strict(make: Any) -> None:
    made = openai.tools(make(of({"type": "string", "enum": ["C", "F"]})), api="chat")
    assert made.tools[0]["function"]["parameters"]["properties"]["p"] == {
        "anyOf": [{"type": "string", "enum": ["C", "F"]}, {"type": "null"}]
    }


def test_integer_enums_stay_integers(sent: Any, make: Any) -> None:
    for schema in sent(of({"type": "integer", "enum": [1, 2]})).all:
        assert schema["properties"]["p"]["enum"] == [1, 2]


def test_type_lists_stay_valid(sent: Any, make: Any) -> None:
    for schema in sent(of({"type": ["string", "null"]})).all:
        assert schema["properties"]["p"] == {"type": ["string", "null"]}
    strict = openai.tools(make(of({"type": ["string", "integer"]})), api="chat").tools[0]["function"]
    assert strict["parameters"]["properties"]["p"] == {"anyOf": [STR, INT, {"type": "null"}]}


def test_definitions_under_any_of(sent: Any) -> None:
    nested = {"anyOf": [{"$ref": "#/properties/p/$defs/A"}, {"type": "null"}], "$defs": {"A": STR}}
    made = sent(of(nested))
    assert made.gemini == of({"anyOf": [STR, {"type": "null"}]})
    assert made.anthropic == {**of({"anyOf": [{"$ref": "#/$defs/A"}, {"type": "null"}]}), "$defs": {"A": STR}}


@pytest.mark.parametrize("rest", [True, False, STR, {}])
def test_additional_properties(sent: Any, make: Any, rest: Any) -> None:
    schema = of({"type": "object", "properties": {"a": STR}, "additionalProperties": rest})
    for one in sent(schema).all:
        assert one["properties"]["p"]["additionalProperties"] == rest
    fallbacks = openai.tools(make(schema), api="chat").fallbacks
    assert fallbacks == ({} if rest is False else {"s__t": "open_object"})


def test_empty_properties(make: Any) -> None:
    assert openai.tools(make({"type": "object", "properties": {}}), api="chat").fallbacks == {
        "s__t": "free_form_object"
    }
    closed = {"type": "object", "properties": {}, "additionalProperties": False}
    assert openai.tools(make(closed), api="chat").null_paths == {"s__t": []}


def test_const(sent: Any) -> None:
    made = sent(of({"const": "a"}))
    assert made.gemini == of({"enum": ["a"]})
    assert made.anthropic == made.openai == of({"const": "a"})


def test_recursion(sent: Any, make: Any) -> None:
    schema = {**of({"$ref": "#/definitions/N"}), "definitions": {"N": of({"$ref": "#/definitions/N"})}}
    for one in sent(schema).all:
        assert one["properties"]["p"] == {"$ref": "#/$defs/N"}
        assert one["$defs"]["N"]["properties"]["p"] == {"$ref": "#/$defs/N"}
    assert openai.tools(make(schema), api="chat").fallbacks == {"s__t": "recursive"}
    to_root = sent(of({"$ref": "#"}))
    assert all(one["properties"]["p"]["$ref"].startswith("#/$defs/") for one in to_root.all)


def test_references_that_would_explode_stay(sent: Any) -> None:
    definitions: Schema = {
        f"D{n}": {"properties": {"a": {"$ref": f"#/$defs/D{n + 1}"}, "b": {"$ref": f"#/$defs/D{n + 1}"}}}
        for n in range(40)
    }
    made = sent({**of({"$ref": "#/$defs/D0"}), "$defs": {**definitions, "D40": STR}})
    assert len(made.gemini["$defs"]) == 41


def test_boolean_schemas(sent: Any) -> None:
    schema = {
        "type": "object",
        "properties": {
            "any": True,
            "no": False,
            "list": {"type": "array", "items": True},
            "none": {"type": "array", "items": False},
            "u": {"anyOf": [True, False, STR]},
        },
    }
    made = sent(schema)
    assert made.anthropic == schema
    assert made.gemini["properties"] == {
        "any": {},
        "list": {"type": "array", "items": {}},
        "none": {"type": "array"},
        "u": {"anyOf": [{}, STR]},
    }


def test_older_drafts_are_lifted(sent: Any) -> None:
    made = sent(
        {
            "$schema": "http://json-schema.org/draft-04/schema#",
            "type": "object",
            "properties": {
                "t": {"type": "array", "items": [STR, INT], "additionalItems": False},
                "n": {"type": "integer", "minimum": 3, "exclusiveMinimum": True, "required": True},
                "m": {"type": "integer", "maximum": 9, "exclusiveMaximum": False},
            },
            "dependencies": {"t": ["n"], "n": {"required": ["m"]}},
            "required": ["t", "t"],
        }
    )
    assert made.anthropic == {
        "type": "object",
        "properties": {
            "t": {"type": "array", "prefixItems": [STR, INT], "items": False},
            "n": {"type": "integer", "exclusiveMinimum": 3},
            "m": {"type": "integer", "maximum": 9},
        },
        "dependentRequired": {"t": ["n"]},
        "dependentSchemas": {"n": {"required": ["m"]}},
        "required": ["t"],
    }
    assert made.gemini["properties"]["n"] == {"type": "integer", "minimum": 3}


@pytest.mark.parametrize(
    "schema", [of({"type": "int"}), of({"type": "string", "minLength": -1}), {"type": "string"}, of({"enum": "a"})]
)
def test_what_stays_invalid_is_dropped(make: Any, schema: Schema) -> None:
    toolset = make(schema, of(STR))
    for module, names in (
        (anthropic, [tool["name"] for tool in anthropic.tools(toolset)]),
        (openai, [tool["name"] for tool in openai.tools(toolset, api="responses").tools]),
        (gemini, [tool["name"] for tool in gemini.function_declarations(toolset)]),
    ):
        assert names == ["s__t1"]
        assert [report.reason.split(":")[0] for report in module.dropped(toolset)] == ["invalid_schema"]


def test_nulls_and_malformed_annotations_are_no_reason_to_drop(sent: Any) -> None:
    noted = {"type": "string", "description": None, "title": 5, "enum": None, "format": None, "default": None}
    made = sent(
        {
            "type": "object",
            "properties": {"p": {**noted, "examples": "x", "deprecated": "yes"}, "q": {"const": None}},
            "required": None,
            "additionalProperties": None,
            "$defs": None,
        }
    )
    assert made.anthropic == {
        "type": "object",
        "properties": {"p": {"type": "string", "default": None}, "q": {"const": None}},
    }
    assert sent({"type": "object", "properties": None}).openai == {"type": "object", "properties": {}}


def test_a_long_chain_of_references_is_kept(sent: Any) -> None:
    chain = {f"D{n}": {"type": "array", "items": {"$ref": f"#/$defs/D{n + 1}"}} for n in range(400)}
    made = sent({**of({"$ref": "#/$defs/D0"}), "$defs": {**chain, "D400": STR}})
    assert len(made.gemini["$defs"]) == len(made.anthropic["$defs"]) == 401


@pytest.mark.parametrize("ref", ["https://example.com/x.json", "#/$defs/Missing", "other.json#/a", 7])
def test_references_to_nowhere_accept_all(make: Any, sent: Any, ref: Any) -> None:
    for schema in sent(of({"$ref": ref, "description": "D"})).all:
        assert schema == of({"description": "D"})


@pytest.mark.parametrize("levels", [90, 190])
def test_deep_schemas_are_converted_or_reported_but_never_crash(make: Any, levels: int) -> None:
    deep: Schema = {"type": "string"}
    for _ in range(levels):
        deep = {"type": "array", "items": deep}
    toolset = make(of(deep), of(STR))
    for count in (
        len(anthropic.tools(toolset)),
        len(openai.tools(toolset, api="chat").tools),
        len(gemini.function_declarations(toolset)),
        len(plain.tools(toolset)),
    ):
        assert count == 2


# Hidden characters, in every place of a listing

HIDDEN = "\u200b"


@pytest.mark.parametrize(
    "schema",
    [
        of({"enum": ["a" + HIDDEN]}),
        of({"const": {"k" + HIDDEN: 1}}),
        of({"const": [HIDDEN]}),
        of({"type": "string", "pattern": "a" + HIDDEN}),
        of({"type": "string", "format": "a" + HIDDEN}),
        of({"type": "object", "properties": {"a" + HIDDEN: STR}}),
        of({"type": "object", "patternProperties": {"a" + HIDDEN: STR}}),
        {**of(STR), "required": ["p", "q" + HIDDEN]},
        of({"enum": ["\x1b[31mred"]}),
        of({"enum": ["\ud800"]}),
        of({"enum": ["tag\U000e0041"]}),
        {**of(STR), "dependencies": {"p": ["q" + HIDDEN]}},
    ],
)
def test_hidden_characters_where_none_may_be_altered_drop_the_tool(make: Any, schema: Schema) -> None:
    toolset = make(schema, of(STR))
    for module, names in (
        (anthropic, [tool["name"] for tool in anthropic.tools(toolset)]),
        (openai, [tool["name"] for tool in openai.tools(toolset, api="responses").tools]),
        (gemini, [tool["name"] for tool in gemini.function_declarations(toolset)]),
        (plain, [tool["name"] for tool in plain.tools(toolset)]),
    ):
        assert names == ["s__t1"]
        (report,) = module.dropped(toolset)
        assert report.reason.startswith("hidden_characters: ")
        assert report.reason.isascii()


@pytest.mark.parametrize("value", ["می\u200cخواهم", "👨\u200d👩\u200d👧", "a\r\n", "\u2764\ufe0f"])
def test_joiners_that_spelling_needs_and_line_ends_are_no_reason_to_drop(sent: Any, value: str) -> None:
    for schema in sent(of({"enum": [value]})).all:
        assert schema["properties"]["p"]["enum"] == [value]


def test_hidden_characters_in_annotations_are_taken_out(sent: Any, make: Any) -> None:
    noted = {
        "type": "string",
        "title": f"t{HIDDEN}",
        "description": f"d{HIDDEN}\r\n\x1b[1m.",
        "default": f"e{HIDDEN}",
        "examples": [{f"k{HIDDEN}": f"x{HIDDEN}"}],
        f"x-note{HIDDEN}": f"n{HIDDEN}",
    }
    made = sent(of(noted), description=f"D{HIDDEN}")
    assert made.descriptions == ("D",) * 3
    assert made.anthropic["properties"]["p"] == {
        "type": "string",
        "title": "t",
        "description": "d\n.",
        "default": "e",
        "examples": [{"k": "x"}],
        "x-note": "n",
    }
    for listing in (
        anthropic.tools(make(of(noted))),
        openai.tools(make(of(noted)), api="chat").tools,
        gemini.function_declarations(make(of(noted))),
        plain.tools(make(of(noted), title=f"T{HIDDEN}", annotations={"title": f"A{HIDDEN}"}, outputSchema=of(noted))),
    ):
        assert HIDDEN not in repr(listing)
        assert "\\u200b" not in repr(listing)


def test_descriptions_are_capped_everywhere(make: Any) -> None:
    toolset = make(of({"type": "string", "description": "y" * 9000}), description="x" * 9000)
    for limit, longest in ((None, 4096), (100, 100), (5, 5)):
        options: dict[str, Any] = {} if limit is None else {"max_description_chars": limit}
        (a,) = anthropic.tools(toolset, **options)
        (o,) = openai.tools(toolset, api="responses", **options).tools
        (g,) = gemini.function_declarations(toolset, **options)
        (p,) = plain.tools(toolset, **options)
        for text in (
            a["description"],
            a["input_schema"]["properties"]["p"]["description"],
            o["description"],
            o["parameters"]["properties"]["p"]["description"],
            g["description"],
            p["description"],
        ):
            assert len(text.encode() if limit is None else text) <= longest
            assert limit == 5 or text.endswith("… [truncated]")
    with pytest.raises(ValueError, match="negative"):
        anthropic.tools(toolset, max_description_chars=-1)


def test_only_tools_of_the_toolset_are_listed_and_in_its_order() -> None:
    wire = [{"name": name, "inputSchema": {"type": "object"}} for name in ("b", "a.x", "a_x", "a")]
    toolset, dropped = build([("z", wire), ("y", wire[:1])])
    assert len(dropped) == 1
    names = ["z__b", "z__a", "y__b"]
    assert [tool["name"] for tool in anthropic.tools(toolset)] == names
    assert [tool["function"]["name"] for tool in openai.tools(toolset, api="chat").tools] == names
    assert [tool["name"] for tool in gemini.function_declarations(toolset)] == names
