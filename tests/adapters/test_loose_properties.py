"""What is sent without strict mode refuses nothing that the server itself accepts."""

from __future__ import annotations

from typing import Any

import jsonschema_rs
from hypothesis import HealthCheck, assume, given, settings
from hypothesis import strategies as st

from conduit_daemon.adapters import anthropic, gemini, openai
from conduit_daemon.hub.naming import build

KEYS = st.sampled_from(["a", "b", "c"])
VALUES = st.recursive(
    st.none() | st.booleans() | st.integers(-2, 3) | st.sampled_from(["x", "y", 0.5]),
    lambda inner: st.lists(inner, max_size=2) | st.dictionaries(KEYS, inner, max_size=2),
    max_leaves=4,
)
REFS = st.sampled_from(["#/$defs/D", "#/$defs/E", "#/definitions/F", "#", "#/properties/a", "#/$defs/None", "urn:x"])
LEAVES = st.one_of(
    st.just({}),
    st.booleans(),
    st.sampled_from(["string", "integer", "number", "null", "object", "array"]).map(lambda name: {"type": name}),
    st.builds(lambda value: {"const": value}, VALUES),
    st.builds(lambda values: {"enum": values}, st.lists(VALUES, min_size=1, max_size=3)),
    st.builds(lambda ref: {"$ref": ref}, REFS),
    st.sampled_from(
        [
            {"minimum": 0, "exclusiveMinimum": True},
            {"exclusiveMaximum": 2},
            {"pattern": "x", "minLength": 1},
            {"type": ["string", "null"], "nullable": True},
        ]
    ),
)


def compound(inner: st.SearchStrategy[Any]) -> st.SearchStrategy[dict[str, Any]]:
    many = st.lists(inner, min_size=1, max_size=2)
    properties = st.dictionaries(KEYS, inner, max_size=2)
    return st.one_of(
        st.builds(lambda p, r: {"properties": p, "required": sorted(r)}, properties, st.sets(KEYS, max_size=1)),
        st.builds(lambda p: {"type": "object", "properties": p, "additionalProperties": False}, properties),
        st.builds(
            lambda p, child: {"properties": p, "patternProperties": {"^a": child}, "additionalProperties": False},
            properties,
            inner,
        ),
        st.builds(lambda items: {"type": "array", "items": items}, inner),
        st.builds(lambda items, rest: {"items": items, "additionalItems": rest}, many, inner),
        st.builds(lambda keyword, parts: {keyword: parts}, st.sampled_from(["anyOf", "oneOf"]), many),
        st.builds(lambda parts: {"allOf": parts}, many),
        st.builds(lambda ref, child: {"$ref": ref, "properties": {"b": child}}, REFS, inner),
        st.builds(lambda child: {"not": child}, inner),
        st.builds(lambda child: {"if": child, "then": {"required": ["a"]}}, inner),
        st.builds(lambda child: {"dependencies": {"a": child, "b": ["c"]}}, inner),
    )


SCHEMA = st.recursive(LEAVES, compound, max_leaves=6)
ROOTS = st.builds(
    lambda properties, d, e, f, more: {
        **more,
        "type": "object",
        "properties": properties,
        "$defs": {"D": d, "E": e},
        "definitions": {"F": f},
    },
    st.dictionaries(KEYS, SCHEMA, min_size=1, max_size=3),
    SCHEMA,
    SCHEMA,
    SCHEMA,
    st.sampled_from([{}, {"allOf": [{"required": ["a"]}, {"properties": {"b": {"type": "string"}}}]}]),
)
INSTANCES = st.dictionaries(KEYS, VALUES, max_size=3)


def _accepts(schema: dict[str, Any], instance: Any) -> bool | None:
    """None where a schema cannot be compiled, as with a reference that is external or refers to itself."""
    try:
        return jsonschema_rs.Draft202012Validator(schema, retriever=_refuse).is_valid(instance)
    except (ValueError, RecursionError):
        return None


def _refuse(uri: str) -> Any:
    raise ValueError(uri)


@settings(
    max_examples=300,
    deadline=None,
    suppress_health_check=[HealthCheck.filter_too_much, HealthCheck.too_slow, HealthCheck.function_scoped_fixture],
)
@given(ROOTS, INSTANCES)
def test_what_the_server_accepts_is_accepted(root: dict[str, Any], instance: dict[str, Any]) -> None:
    toolset, _ = build([("s", [{"name": "t", "inputSchema": root}])])
    sent = [tool["input_schema"] for tool in anthropic.tools(toolset)]
    sent += [tool["parameters"] for tool in openai.tools(toolset, api="responses", strict=False).tools]
    sent += [tool["parametersJsonSchema"] for tool in gemini.function_declarations(toolset)]
    assert len(sent) == 3
    as_seen = {**root, "$defs": {**root["$defs"], **root["definitions"]}}
    assume(_accepts(_lifted_for_test(as_seen), instance))
    for schema in sent:
        assert _accepts(schema, instance) is not False, (schema, instance)


def _lifted_for_test(node: Any) -> Any:
    """The old keywords that the generator uses, said in draft 2020-12; unresolvable references accept all."""
    if isinstance(node, list):
        return [_lifted_for_test(child) for child in node]
    if not isinstance(node, dict):
        return node
    made = {key: _lifted_for_test(value) for key, value in node.items()}
    if made.get("$ref") in ("#/$defs/None", "urn:x"):
        del made["$ref"]
    elif made.get("$ref") == "#/definitions/F":
        made["$ref"] = "#/$defs/F"
    if isinstance(made.get("items"), list):
        made["prefixItems"] = made.pop("items")
        made["items"] = made.pop("additionalItems")
    if made.get("exclusiveMinimum") is True:
        made["exclusiveMinimum"] = made.pop("minimum")
    if "dependencies" in made:
        dependencies = made.pop("dependencies")
        made["dependentSchemas"] = {"a": dependencies["a"]}
        made["dependentRequired"] = {"b": dependencies["b"]}
    return made
