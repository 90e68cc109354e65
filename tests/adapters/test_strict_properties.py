"""Whatever a model may send under a strict form is, once stripped, valid under the original schema."""

from __future__ import annotations

from typing import Any

import jsonschema_rs
from hypothesis import HealthCheck, assume, event, given, settings
from hypothesis import strategies as st

from conduit_daemon.adapters.strict import Fallback, strict_form, strip_nulls

KEYS = st.sampled_from(["a", "b", "c", "*", "type", "properties", "$ref"])
WORDS = st.sampled_from(["x", "y", "", "null", "☃"])


def scalars() -> st.SearchStrategy[dict[str, Any]]:
    bounds = st.integers(-3, 3)
    return st.one_of(
        st.just({"type": "string"}),
        st.just({"type": "boolean"}),
        st.just({"type": "null"}),
        st.builds(lambda low: {"type": "integer", "minimum": low}, bounds),
        st.builds(lambda high: {"type": "number", "maximum": high, "default": 1}, bounds),
        st.builds(lambda low: {"exclusiveMinimum": low}, bounds),
        st.builds(lambda values: {"enum": values}, st.lists(st.one_of(WORDS, bounds, st.none()), min_size=1)),
        st.builds(lambda values: {"type": ["string", "null"], "enum": values}, st.lists(WORDS | st.none(), min_size=1)),
        st.builds(lambda value: {"const": value}, st.one_of(WORDS, bounds, st.booleans(), st.none())),
        st.lists(st.sampled_from(["string", "integer", "number", "boolean", "null"]), min_size=1, unique=True).map(
            lambda types: {"type": types}
        ),
        st.sampled_from([{"$ref": "#/$defs/D"}, {"allOf": [{"$ref": "#/$defs/D"}], "default": None}]),
    )


def objects(inner: st.SearchStrategy[Any]) -> st.SearchStrategy[dict[str, Any]]:
    def made(properties: dict[str, Any], optional: set[str], tag: str | None) -> dict[str, Any]:
        if tag is not None:
            properties = {**properties, "kind": {"const": tag}}
        required = [name for name in properties if name not in optional]
        return {"type": "object", "properties": properties, "required": required}

    return st.builds(
        made, st.dictionaries(KEYS, inner, min_size=1, max_size=3), st.sets(KEYS), st.sampled_from(["p", "q", None])
    )


def compound(inner: st.SearchStrategy[Any]) -> st.SearchStrategy[dict[str, Any]]:
    return st.one_of(
        objects(inner),
        st.builds(lambda items, least: {"type": "array", "items": items, "minItems": least}, inner, st.integers(0, 2)),
        st.builds(lambda items: {"type": ["array", "null"], "items": items}, inner),
        st.builds(lambda branches: {"anyOf": branches}, st.lists(inner, min_size=1, max_size=3)),
        st.builds(lambda branches: {"oneOf": branches}, st.lists(objects(inner) | scalars(), min_size=1, max_size=3)),
    )


SCHEMAS = objects(st.recursive(scalars(), compound, max_leaves=8)).flatmap(
    lambda root: (
        scalars()
        .filter(lambda schema: "$ref" not in schema and "allOf" not in schema)
        .map(lambda named: {**root, "$defs": {"D": named}})
    )
)


@st.composite
def instances(draw: st.DrawFn, schema: dict[str, Any]) -> Any:
    """A value that is valid under a schema of the strict subset."""
    if "anyOf" in schema:
        return draw(instances(draw(st.sampled_from(schema["anyOf"]))))
    if "enum" in schema:
        return draw(st.sampled_from(schema["enum"]))
    declared = schema["type"]
    kind = draw(st.sampled_from(declared)) if isinstance(declared, list) else declared
    if kind == "object":
        return {name: draw(instances(child)) for name, child in schema["properties"].items()}
    if kind == "array":
        return draw(st.lists(instances(schema["items"]), min_size=schema.get("minItems", 0), max_size=3))
    low = schema.get("minimum", schema.get("exclusiveMinimum", -10) + 1)
    high = schema.get("maximum", low + 5)
    simple = {
        "string": WORDS,
        "boolean": st.booleans(),
        "null": st.none(),
        "integer": st.integers(min(low, high), high),
        "number": st.integers(min(low, high), high) | st.floats(min(low, high), high),
    }
    return draw(simple[kind])


@settings(max_examples=200, deadline=None, suppress_health_check=[HealthCheck.filter_too_much, HealthCheck.too_slow])
@given(SCHEMAS, st.data())
def test_a_strict_instance_stripped_is_valid_under_the_original(schema: dict[str, Any], data: st.DataObject) -> None:
    try:
        form = strict_form(schema)
    except Fallback as fallback:
        event(fallback.reason)
        assume(False)
    event("strict")
    sent = data.draw(instances(form.schema))
    assert jsonschema_rs.is_valid(form.schema, sent)
    stripped = strip_nulls(sent, form.null_paths)
    assert jsonschema_rs.is_valid(schema, stripped), (form.schema, form.null_paths, stripped)


@settings(max_examples=200, deadline=None)
@given(
    st.recursive(st.none() | st.integers(), lambda inner: st.lists(inner) | st.dictionaries(KEYS, inner), max_leaves=8),
    st.lists(st.lists(KEYS | st.none(), min_size=1, max_size=3)),
)
def test_stripping_takes_out_nulls_only_and_once(value: Any, paths: list[list[str | None]]) -> None:
    arguments = {"a": value}
    stripped = strip_nulls(arguments, paths)
    assert strip_nulls(stripped, paths) == stripped
    assert _without_nulls(stripped) == _without_nulls(arguments)


def _without_nulls(value: Any) -> Any:
    if isinstance(value, dict):
        return {key: _without_nulls(child) for key, child in value.items() if child is not None}
    if isinstance(value, list):
        return [_without_nulls(child) for child in value]
    return value
