"""The toolset as a value: lookups, order, and an id that changes exactly with what is shown."""

from typing import Any

import pytest

from conduit_daemon.hub.naming import build
from conduit_daemon.hub.toolset import ToolSet

BASE: dict[str, Any] = {
    "name": "read",
    "description": "Reads.",
    "inputSchema": {"type": "object", "properties": {"a": {"type": "string"}}},
}


def made(*tools: dict[str, Any], server: str = "s", **options: Any) -> ToolSet:
    return build([(server, tools)], **options)[0]


def test_the_same_tools_have_the_same_id() -> None:
    reordered = {**BASE, "inputSchema": {"properties": {"a": {"type": "string"}}, "type": "object"}}
    assert made(BASE).id == made(dict(BASE)).id == made(reordered).id
    assert made(BASE) == made(dict(BASE))
    assert hash(made(BASE)) == hash(made(dict(BASE)))


@pytest.mark.parametrize(
    "other",
    [
        {**BASE, "description": "Reads!"},
        {**BASE, "inputSchema": {"type": "object"}},
        {**BASE, "name": "read2"},
        {**BASE, "title": "Read"},
        {**BASE, "annotations": {"readOnlyHint": True}},
        {**BASE, "outputSchema": {"type": "object"}},
        {**BASE, "_meta": {"a": 1}},
    ],
)
def test_anything_shown_changes_the_id(other: dict[str, Any]) -> None:
    assert made(BASE).id != made(other).id


def test_server_prefix_and_order_change_the_id() -> None:
    second = {**BASE, "name": "write"}
    ids = {
        made(BASE).id,
        made(BASE, server="t").id,
        made(BASE, prefix="p").id,
        made(BASE, namespace=False).id,
        made(BASE, second).id,
        made(second, BASE).id,
        ToolSet.of([]).id,
    }
    assert len(ids) == 7


def test_the_order_is_of_servers_then_of_their_tools() -> None:
    toolset, _ = build([("z", [{**BASE, "name": "b"}, {**BASE, "name": "a"}]), ("a", [BASE])])
    assert [entry.exposed for entry in toolset] == ["z__b", "z__a", "a__read"]


def test_lookups_are_exact() -> None:
    toolset = made(BASE)
    assert "s__read" in toolset
    for wrong in ("S__read", "read", "s__read ", "", None, 3, ["s__read"], {}):
        assert toolset.resolve(wrong) is None
        assert wrong not in toolset
    assert toolset.exposed_name("s", "read") == "s__read"
    assert toolset.exposed_name("s", "s__read") is None
    assert toolset.exposed_name("t", "read") is None


def test_a_part_of_a_toolset_keeps_its_names() -> None:
    toolset = made(BASE, {**BASE, "name": "write"})
    part = toolset.only(lambda entry: entry.tool.name == "write")
    assert [entry.exposed for entry in part] == ["s__write"]
    assert part.id != toolset.id
    assert toolset.only(lambda entry: True) == toolset


def test_an_entry_digest_follows_the_definition_only() -> None:
    digest = made(BASE).entries[0].digest
    assert made(BASE, server="t", prefix="p").entries[0].digest == digest
    assert made({**BASE, "icons": []}).entries[0].digest == digest
    assert made({**BASE, "description": "Other."}).entries[0].digest != digest


def test_a_toolset_cannot_be_changed() -> None:
    with pytest.raises(AttributeError):
        made(BASE).id = "other"  # type: ignore[misc]


def test_a_toolset_without_tools_is_the_empty_one() -> None:
    assert ToolSet() == ToolSet.of([]) == made()
    assert not ToolSet()
