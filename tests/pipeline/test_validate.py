"""Arguments against the tools' own schemas."""

import socket
import time
from collections.abc import Callable
from typing import Any

import pytest

from conduit_daemon.config import Config, PolicyConfig
from conduit_daemon.errors import ClientError
from conduit_daemon.hub.toolset import Entry
from conduit_daemon.model import Tool
from conduit_daemon.pipeline.nesting import unfolded_size
from conduit_daemon.pipeline.validate import ArgumentValidator, Validators, check_arguments, too_deep

SCHEMA: dict[str, Any] = {
    "type": "object",
    "properties": {
        "path": {"type": "string", "minLength": 1},
        "n": {"type": "integer", "minimum": 0, "maximum": 5},
        "mode": {"enum": ["read", "write"]},
        "who": {"anyOf": [{"type": "string"}, {"type": "null"}]},
        "list": {"type": "array", "items": {"type": "number"}, "uniqueItems": True, "maxItems": 3},
        "code": {"type": "string", "pattern": "^[a-z]+$"},
        "a/b~c": {"type": "boolean"},
        "form": {"$ref": "#/$defs/form"},
        "map": {"type": "object", "patternProperties": {"^x": {"type": "string"}}, "additionalProperties": False},
    },
    "required": ["path"],
    "dependentRequired": {"n": ["mode"]},
    "additionalProperties": False,
    "$defs": {
        "form": {
            "oneOf": [
                {
                    "type": "object",
                    "properties": {"kind": {"const": "a"}, "v": {"type": "string"}},
                    "required": ["kind", "v"],
                },
                {
                    "type": "object",
                    "properties": {"kind": {"const": "b"}, "w": {"type": "integer"}},
                    "required": ["kind", "w"],
                },
            ]
        }
    },
}
VALIDATOR = ArgumentValidator(SCHEMA)


def words(arguments: dict[str, Any], validator: ArgumentValidator = VALIDATOR) -> list[tuple[str, str]]:
    return [(problem.pointer, problem.message) for problem in validator.problems(arguments)]


def nested(depth: int, leaf: Any = None) -> dict[str, Any]:
    value: dict[str, Any] = {} if leaf is None else leaf
    for _ in range(depth):
        value = {"c": value}
    return value


@pytest.mark.parametrize(
    "arguments",
    [
        {"path": "x"},
        {"path": "x", "n": 3, "mode": "read", "who": None, "list": [1, 2.5], "a/b~c": True},
        {"path": "x", "n": 3.0, "mode": "read"},
        {"path": "x", "form": {"kind": "b", "w": 1}, "map": {"x1": "y"}},
    ],
)
def test_what_fits_has_no_problems(arguments: dict[str, Any]) -> None:
    assert VALIDATOR.problems(arguments) == ()


@pytest.mark.parametrize(
    ("arguments", "expected"),
    [
        ({}, [("", 'the property "path" (a string) is missing')]),
        ({"path": ""}, [("/path", "must have 1 or more characters")]),
        ({"path": 3}, [("/path", "must be a string, not an integer")]),
        ({"path": None}, [("/path", "must be a string, not null")]),
        ({"path": "x", "n": 7, "mode": "read"}, [("/n", "must be at most 5")]),
        ({"path": "x", "n": 1}, [("", 'the property "mode" is missing, which "n" needs')]),
        ({"path": "x", "n": True, "mode": "read"}, [("/n", "must be an integer, not true")]),
        ({"path": "x", "mode": "rw"}, [("/mode", 'must be one of "read", "write"')]),
        ({"path": "x", "who": 3}, [("/who", "must be a string or null, not an integer")]),
        ({"path": "x", "list": [1, "a"]}, [("/list/1", "must be a number, not a string")]),
        ({"path": "x", "list": [1, 1]}, [("/list", "must not have the same item twice")]),
        ({"path": "x", "list": [1, 2, 3, 4]}, [("/list", "must have 3 or fewer items")]),
        (
            {"path": "x", "list": "[1]"},
            [("/list", "must be an array, not a string; give the value itself, not its JSON text")],
        ),
        ({"path": "x", "code": "A"}, [("/code", 'must match the regular expression "^[a-z]+$"')]),
        ({"path": "x", "a/b~c": 1}, [("/a~1b~0c", "must be true or false, not an integer")]),
        ({"path": "x", "form": {"kind": "b"}}, [("/form", 'the property "w" (an integer) is missing')]),
        ({"path": "x", "form": {"kind": "a", "v": 1}}, [("/form/v", "must be a string, not an integer")]),
        ({"path": "x", "form": 1}, [("/form", "must be an object, not an integer")]),
        ({"path": "x", "map": {"y": "z"}}, [("/map/y", "is no property here; there are none")]),
        ({"path": "x", "map": {"x": 1}}, [("/map/x", "must be a string, not an integer")]),
    ],
)
def test_what_does_not_fit_is_said_so_that_a_model_can_correct_it(
    arguments: dict[str, Any], expected: list[tuple[str, str]]
) -> None:
    assert words(arguments) == expected


def test_an_unknown_property_is_told_which_there_are() -> None:
    (problem,) = VALIDATOR.problems({"path": "x", "pth": 1})
    assert problem.pointer == "/pth"
    assert problem.message.startswith('is no property here; there are "path", "n", "mode"')


def test_messages_quote_no_arguments_and_are_short() -> None:
    secret = "s3cr3t" * 1000
    schema = {
        "properties": {"a": {"enum": ["x" * 500] * 50}, "b": {"const": "y" * 500}, "c": {"type": "integer"}},
        "required": [f"r{number}" for number in range(100)],
    }
    problems = ArgumentValidator(schema).problems({"a": secret, "b": secret, "c": secret})
    assert len(problems) == 10
    assert all(secret[:20] not in problem.message and len(problem.message) < 1500 for problem in problems)


@pytest.mark.parametrize(
    "schema",
    [
        {"not": {"required": ["a"]}},
        {"propertyNames": {"maxLength": 0}},
        {"properties": {"a": {"contains": {"const": 1}}}},
        {"if": {"required": ["a"]}, "then": False},
        {"unevaluatedProperties": False},
        False,
    ],
)
def test_keywords_without_words_of_their_own_still_refuse(schema: Any) -> None:
    wrapped = {"allOf": [schema]}
    assert ArgumentValidator(wrapped).problems({"a": [2]})


def test_the_draft_that_is_named_applies() -> None:
    tuple_form = {"properties": {"a": {"items": [{"type": "string"}], "additionalItems": False}}}
    draft7 = ArgumentValidator({"$schema": "http://json-schema.org/draft-07/schema#", **tuple_form})
    assert words({"a": [1]}, draft7) == [("/a/0", "must be a string, not an integer")]
    assert draft7.problems({"a": ["x", "y"]})
    latest = ArgumentValidator({"properties": {"a": {"prefixItems": [{"type": "string"}], "items": False}}})
    assert words({"a": [1]}, latest) == [("/a/0", "must be a string, not an integer")]
    assert latest.problems({"a": ["x", "y"]})


@pytest.mark.parametrize(
    "schema",
    [
        {"type": "objct"},
        {"type": 5},
        {"properties": {"a": {"pattern": "("}}},
        {"$ref": "#/nowhere"},
        {"$schema": "https://example.com/own"},
        {"$schema": 5},
        {"required": "a"},
    ],
)
def test_an_invalid_schema_checks_nothing_and_says_so(schema: dict[str, Any]) -> None:
    validator = ArgumentValidator(schema)
    assert validator.invalid_schema
    assert validator.problems({"anything": 1}) == ()


def test_look_around_is_understood() -> None:
    validator = ArgumentValidator({"properties": {"a": {"pattern": "^(?!secret)"}}})
    assert validator.invalid_schema is None
    assert validator.problems({"a": "secret"})
    assert validator.problems({"a": "open"}) == ()


def test_nothing_outside_the_schema_is_fetched() -> None:
    with socket.create_server(("127.0.0.1", 0)) as server:
        server.settimeout(0.3)
        address = f"http://127.0.0.1:{server.getsockname()[1]}/schema.json"
        schemas: list[dict[str, Any]] = [
            {"$ref": address},
            {"properties": {"a": {"$ref": f"{address}#/x"}}},
            {"properties": {"a": {"$dynamicRef": address}}},
            {"$id": address, "properties": {"a": {"$ref": "other.json"}}},
            {"$schema": address},
            {"$schema": "https://json-schema.org/draft/2019-09/schema", "$recursiveRef": address},
            {"$ref": "file:///etc/hostname"},
        ]
        for schema in schemas:
            validator = ArgumentValidator(schema)
            assert validator.invalid_schema
            assert validator.problems({"a": 1}) == ()
        with pytest.raises(TimeoutError):
            server.accept()


def test_references_inside_the_schema_are_followed() -> None:
    for schema in (
        {"$defs": {"a b[c]": {"type": "string"}}, "properties": {"v": {"$ref": "#/$defs/a%20b%5Bc%5D"}}},
        {"$defs": {"x": {"$anchor": "named", "type": "string"}}, "properties": {"v": {"$ref": "#named"}}},
        {
            "$id": "https://example.com/s",
            "$defs": {"x": {"type": "string"}},
            "properties": {"v": {"$ref": "#/$defs/x"}},
        },
    ):
        validator = ArgumentValidator(schema)
        assert validator.invalid_schema is None
        assert validator.problems({"v": 1})
        assert validator.problems({"v": "x"}) == ()


def explosive(levels: int, keyword: str) -> dict[str, Any]:
    definitions: dict[str, Any] = {"d0": {"type": "string"}}
    for level in range(1, levels):
        twice = [{"$ref": f"#/$defs/d{level - 1}"}] * 2
        definitions[f"d{level}"] = {keyword: twice}
    return {"$defs": definitions, "properties": {"a": {"$ref": f"#/$defs/d{levels - 1}"}}}


@pytest.mark.parametrize("keyword", ["allOf", "anyOf", "oneOf"])
def test_a_schema_that_unfolds_without_end_costs_no_time(keyword: str) -> None:
    began = time.process_time()
    validator = ArgumentValidator(explosive(60, keyword))
    assert validator.invalid_schema == "The schema unfolds to more than 20,000 parts."
    assert validator.problems({"a": 1}) == ()
    modest = ArgumentValidator(explosive(8, keyword))
    assert modest.invalid_schema is None
    assert modest.problems({"a": 1})
    assert time.process_time() - began < 1


def test_recursive_alternatives_cost_no_time_to_explain() -> None:
    child = {"properties": {"c": {"$ref": "#"}}}
    schema = {"anyOf": [{**child, "required": [name]} for name in "xyz"]}
    validator = ArgumentValidator(schema)
    began = time.process_time()
    assert validator.problems(nested(150))
    assert time.process_time() - began < 0.5


def test_explaining_ends_whatever_the_sizes() -> None:
    leaves = {"minLength": 3, "maxLength": 2, "pattern": "(?=(a+)+$)b", "minimum": 1, "multipleOf": 7, "const": 0}
    schema = {
        "properties": {"a": {"items": {**leaves, "anyOf": [leaves, leaves]}}, "z": False},
        "patternProperties": {f"^(a+)+{number}$": leaves for number in range(200)},
    }
    arguments = {"a": ["a" * 50] * 2_000, **{"a" * 30 + str(number): number for number in range(2_000)}, "z": 1}
    validator = ArgumentValidator(schema)
    assert validator.invalid_schema is None
    began = time.process_time()
    assert 1 <= len(validator.problems(arguments)) <= 10
    assert time.process_time() - began < 2


def test_a_huge_schema_is_not_compiled() -> None:
    schema = {"enum": [[] for _ in range(500_000)]}
    began = time.process_time()
    assert ArgumentValidator(schema).invalid_schema
    assert time.process_time() - began < 1


@pytest.mark.parametrize(
    "schema",
    [
        {"$ref": "#"},
        {"$defs": {"a": {"$ref": "#/$defs/b"}, "b": {"$ref": "#/$defs/a"}}, "$ref": "#/$defs/a"},
        {"anyOf": [{"type": "string"}, {"$ref": "#"}]},
        {"properties": {"c": {"$ref": "#"}, "d": {"items": {"$ref": "#"}}}, "required": ["d"]},
    ],
)
def test_schemas_that_refer_to_themselves_end(schema: dict[str, Any]) -> None:
    validator = ArgumentValidator(schema)
    assert validator.invalid_schema is None
    assert isinstance(validator.problems({"c": nested(50)}), tuple)


def test_deep_schemas_are_not_compiled() -> None:
    schema: dict[str, Any] = {"type": "object"}
    for _ in range(5000):
        schema = {"properties": {"a": schema}}
    assert ArgumentValidator(schema).invalid_schema == "The schema is nested deeper than 200 levels."
    while schema:
        schema = schema.get("properties", {}).get("a", {})


def test_depth_is_counted_in_containers() -> None:
    assert not too_deep(1)
    assert not too_deep({}, limit=1)
    assert too_deep({"a": []}, limit=1)
    assert not too_deep({"a": [1, {"b": 2}]}, limit=3)
    assert too_deep([0] * 50 + [[[]]], limit=2)
    assert not too_deep(nested(199))
    assert too_deep(nested(200))


def test_the_unfolded_size_counts_a_cycle_once() -> None:
    assert unfolded_size({}, 100) == 1
    assert unfolded_size({"items": {"$ref": "#"}}, 100) == 3
    assert unfolded_size({"$ref": "https://example.com"}, 100) is None
    assert unfolded_size({"properties": {"$ref": {"type": "string"}}}, 100) == 3


def entry(schema: dict[str, Any]) -> Entry:
    return Entry("files__read", "files", Tool(name="read", input_schema=schema), "digest")


def test_a_call_that_does_not_fit_is_refused_with_every_place() -> None:
    check_arguments(entry(SCHEMA), {"path": "x"}, Validators())
    with pytest.raises(ClientError) as caught:
        check_arguments(entry(SCHEMA), {"n": 9, "mode": 1}, Validators())
    error = caught.value
    assert (error.kind, error.server, error.tool, error.outcome) == ("invalid_arguments", "files", "read", "not_sent")
    assert [problem["pointer"] for problem in error.data["problems"]] == ["", "/n", "/mode"]
    assert error.message.startswith("The arguments of files__read do not fit its schema: the property ")
    assert "/n must be at most 5" in error.message


def test_arguments_that_are_too_deep_are_refused_whatever_the_schema() -> None:
    for schema in ({}, {"type": 5}):
        with pytest.raises(ClientError, match="nested deeper than 200 levels"):
            check_arguments(entry(schema), nested(5000), Validators())


def test_each_schema_is_compiled_once_and_few_are_kept() -> None:
    validators = Validators(remembered=3)
    tool = Tool(name="t", input_schema={"type": "object"})
    first = validators.for_schema(tool.input_schema)
    assert validators.for_schema(tool.input_schema) is first
    others = [Tool(name="t", input_schema={"type": "object", "minProperties": number}) for number in range(3)]
    for number, other in enumerate(others):
        assert bool(validators.for_schema(other.input_schema).problems({})) is (number > 0)
    assert validators.for_schema(tool.input_schema) is not first


def test_patterns_that_compile_to_gigabytes_are_not_compiled() -> None:
    costly = [f"^[\\p{{L}}\\p{{N}}]{{0,{100 + i}}}$|{i}" for i in range(100)]
    schema = {"type": "object", "properties": {f"p{i}": {"pattern": pattern} for i, pattern in enumerate(costly)}}
    began = time.process_time()
    validator = ArgumentValidator(schema)
    assert time.process_time() - began < 1  # three seconds and 800 MB, each with the engine's own limit
    assert validator.invalid_schema is not None
    assert validator.problems({"p1": "!"}) == ()


@pytest.mark.parametrize("keyword", ["pattern", "patternProperties"])
def test_patterns_of_a_megabyte_are_not_compiled(keyword: str) -> None:
    pattern = "ab?" * 330_000
    validator = ArgumentValidator({"properties": {"a": {keyword: pattern if keyword == "pattern" else {pattern: {}}}}})
    assert validator.invalid_schema is not None
    assert "regular expressions" in validator.invalid_schema


def test_patterns_that_people_write_are_checked() -> None:
    words = {"type": "string", "pattern": "^\\p{L}[\\p{L}\\p{N}_. -]{0,127}$"}
    plain = {f"p{i}": {"pattern": f"^[a-z]{{1,{i + 1}}}(-\\d+)?$"} for i in range(50)}
    for schema in ({"properties": {"name": words}}, {"properties": plain}):
        validator = ArgumentValidator(schema)
        assert validator.invalid_schema is None
        assert validator.problems(dict.fromkeys(schema["properties"], "!"))


async def test_a_tool_whose_arguments_cannot_be_checked_is_told_of_once(pipeline: Callable[..., Any]) -> None:
    odd = Tool(name="send", input_schema={"type": "objekt"})
    made = pipeline(Config(policy=PolicyConfig(default="allow")), [odd, Tool(name="list")])

    def told() -> list[tuple[Any, ...]]:
        events = [event for event in made.events if event.type == "client.tool_unchecked"]
        return [(event.level, event.server, event.tool, event.fields["reason"]) for event in events]

    for _ in range(3):
        assert (await made.run("s__send", arguments={"any": "thing"})).kind == "ok"
        assert (await made.run("s__list")).kind == "ok"
    assert [one[:3] for one in told()] == [("warning", "s", "send")]
    assert "The schema is invalid" in told()[0][3]
    made.offer(Tool(name="send", input_schema={"type": "objekt"}))  # listed again, and the same
    await made.run("s__send")
    assert len(told()) == 1
    made.offer(Tool(name="send", input_schema={"$ref": "https://example.com/schema.json"}))
    await made.run("s__send")
    assert "never fetched" in told()[1][3]
