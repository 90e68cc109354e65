"""The names of the toolset: the page's table, the edges of each rule, and the reports."""

import hashlib
import re
import time
from typing import Any

import pytest

from conduit_daemon.errors import InvalidServerId
from conduit_daemon.hub.naming import build, exposed_name
from conduit_daemon.model import Tool

PATTERN = re.compile(r"^[A-Za-z_][A-Za-z0-9_-]{0,63}\Z")


def wire(name: str, **more: Any) -> dict[str, Any]:
    return {"name": name, "inputSchema": {"type": "object"}} | more


@pytest.mark.parametrize(
    ("server", "tool", "exposed"),
    [
        ("files", "read_file", "files__read_file"),
        ("files", "fs.read/file", "files__fs_read_file"),
        ("fs", "天気", "fs__tool_f41e3658"),
        ("fs", "weather_天気", "fs__weather___"),
        ("21st", "magic_builder", "_21st__magic_builder"),
        ("f", "caf\u00e9", "f__caf_"),
        ("f", "cafe\u0301", "f__caf_"),
        (
            "jira-cloud",
            "get_" + "very_long_" * 7 + "name",
            "jira-cloud__get_very_long_very_long_very_long_very_long_fea75304",
        ),
        ("s", "a..b", "s__a__b"),
        ("s", "-", "s__tool_" + hashlib.sha256(b"s\0-").hexdigest()[:8]),
        ("s", "b\ud800", "s__b_"),
        ("-", "x", "_-__x"),
        ("s", "a" * 61, "s__" + "a" * 61),
    ],
)
def test_a_row_of_the_table(server: str, tool: str, exposed: str) -> None:
    toolset, dropped = build([(server, [wire(tool)])])
    assert [entry.exposed for entry in toolset] == [exposed]
    assert PATTERN.match(exposed)
    assert not dropped
    entry = toolset.resolve(exposed)
    assert entry is not None
    assert (entry.server_id, entry.tool.name) == (server, tool)
    assert toolset.exposed_name(server, tool) == exposed


def test_a_name_of_65_characters_is_shortened_and_one_of_64_is_not() -> None:
    assert exposed_name("s", "a" * 61) == "s__" + "a" * 61
    shortened = exposed_name("s", "a" * 62)
    assert shortened == "s__" + "a" * 52 + "_" + hashlib.sha256(b"s\0" + b"a" * 62).hexdigest()[:8]
    assert len(shortened) == 64


@pytest.mark.parametrize("tools", [["a.b", "a_b"], ["caf\u00e9", "cafe\u0301"], ["x", "x"]])
def test_all_members_of_a_collision_are_dropped_and_reported(tools: list[str]) -> None:
    toolset, dropped = build([("files", [wire(tools[0]), wire("fine"), wire(tools[1])])])
    assert [entry.tool.name for entry in toolset] == ["fine"]
    assert [(d.members, d.reason) for d in dropped] == [(tuple(("files", name) for name in tools), "collision")]
    assert dropped == toolset.dropped
    assert toolset.resolve(dropped[0].exposed) is None


@pytest.mark.parametrize("server", ["a__b", "_a", "a_", "", "a b", "a.b", "a\n", "é", "_", "a__", 7])
def test_a_server_id_that_could_compose_ambiguously_is_refused(server: Any) -> None:
    with pytest.raises(InvalidServerId) as refusal:
        build([(server, [wire("c")])])
    assert isinstance(refusal.value, ValueError)


def test_without_namespace_tools_keep_their_own_names() -> None:
    toolset, _ = build([("files", [wire("read.file"), wire("3d")])], namespace=False)
    assert [entry.exposed for entry in toolset] == ["read_file", "_3d"]


def test_a_prefix_stands_first_and_counts_before_shortening() -> None:
    toolset, _ = build([("files", [wire("read"), wire("a" * 60)])], prefix="my.app_")
    short, long = (entry.exposed for entry in toolset)
    assert short == "my_app_files__read"
    assert len(long) == 64
    assert long.startswith("my_app_files__aaa")
    assert build([("f", [wire("x")])], prefix="9_")[0].entries[0].exposed == "_9_f__x"


def test_without_namespace_two_servers_may_collide() -> None:
    toolset, dropped = build([("a", [wire("x")]), ("b", [wire("x"), wire("y")])], namespace=False)
    assert [entry.exposed for entry in toolset] == ["y"]
    assert dropped[0].members == (("a", "x"), ("b", "x"))


def test_an_empty_name_is_dropped() -> None:
    toolset, dropped = build([("s", [wire(""), Tool(name="")])])
    assert not toolset
    assert [(d.exposed, d.members, d.reason) for d in dropped] == [("", (("s", ""),), "invalid_name")] * 2


@pytest.mark.parametrize(
    ("tool", "says"),
    [
        (5, "object"),
        ({"inputSchema": {}}, "name"),
        ({"name": 3, "inputSchema": {}}, "name"),
        ({"name": "x"}, "inputSchema"),
        ({"name": "x", "inputSchema": True}, "inputSchema"),
        ({"name": "x", "inputSchema": {"type": "object"}, "description": 7}, "description"),
        ({"name": "x", "inputSchema": {"type": object()}}, "JSON"),
    ],
)
def test_a_malformed_tool_is_reported_and_the_others_stay(tool: Any, says: str) -> None:
    toolset, dropped = build([("s", [tool, wire("fine")])])
    assert [entry.exposed for entry in toolset] == ["s__fine"]
    assert len(dropped) == 1
    assert dropped[0].reason.startswith("malformed: ")
    assert says in dropped[0].reason


@pytest.mark.parametrize("key", ["inputSchema", "outputSchema"])
@pytest.mark.parametrize("levels", [150, 60_000])
def test_a_schema_nested_too_deeply_is_malformed(key: str, levels: int) -> None:
    deep: dict[str, Any] = {"type": "object"}
    for _ in range(levels):
        deep = {"properties": {"p": deep}}
    toolset, dropped = build([("s", [wire("deep", **{key: deep}), wire("fine")])])
    assert [entry.exposed for entry in toolset] == ["s__fine"]
    assert "nested deeper than 200" in dropped[0].reason
    while deep:  # taken apart by hand: the interpreter's own deallocation of it is recursive
        deep = deep.get("properties", {}).get("p", {})


def test_names_that_differ_by_case_only_are_kept_with_a_warning() -> None:
    toolset, dropped = build([("s", [wire("Read"), wire("read"), wire("other")])])
    assert len(toolset) == 3
    assert not dropped
    assert len(toolset.warnings) == 1
    assert "s__Read, s__read" in toolset.warnings[0]
    assert toolset.resolve("s__READ") is None


def test_a_thousand_tools_are_built_in_under_50_ms() -> None:
    schema = {"type": "object", "properties": {f"p{n}": {"type": "string", "description": "é" * 50} for n in range(8)}}
    servers = [
        (f"s{s}", [wire(f"tool_{t}", description="x" * 300, inputSchema=schema) for t in range(100)]) for s in range(10)
    ]
    taken = []
    for _ in range(3):
        started = time.process_time()
        toolset, _ = build(servers)
        taken.append(time.process_time() - started)
    assert len(toolset) == 1000
    assert min(taken) < 0.05


@pytest.mark.parametrize("name", ["resource:file:///srv/a", "prompt:greet"])
def test_no_tool_passes_for_a_resource_or_a_prompt_in_rules(name: str) -> None:
    toolset, dropped = build([("s", [wire(name), wire("a_resource:b")])])
    assert [entry.tool.name for entry in toolset] == ["a_resource:b"]
    assert dropped[0].members == (("s", name),)
    assert "resources and prompts" in dropped[0].reason
