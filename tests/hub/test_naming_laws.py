"""Laws of exposed names: always well-formed, independent of order and of other servers, never ambiguous."""

from __future__ import annotations

import re
from typing import Any

from hypothesis import given, settings
from hypothesis import strategies as st

from conduit_daemon.hub.naming import build, exposed_name

PATTERN = re.compile(r"^[A-Za-z_][A-Za-z0-9_-]{0,63}\Z")

SERVER_IDS = st.from_regex(r"\A[A-Za-z0-9-]{1,9}(_[A-Za-z0-9-]{1,30}){0,2}\Z")
TOOL_NAMES = st.one_of(
    st.text(st.characters(), max_size=80),
    st.text(st.sampled_from("ab_.-/é\u0301天A"), max_size=4),
    st.text(st.characters(categories=["Cs", "Lu"]), max_size=3),
)
HUBS = st.dictionaries(SERVER_IDS, st.lists(TOOL_NAMES, max_size=6), max_size=4)


def listed(hub: dict[str, list[str]]) -> list[tuple[str, list[dict[str, Any]]]]:
    return [(server, [{"name": name, "inputSchema": {}} for name in names]) for server, names in hub.items()]


@settings(max_examples=300, deadline=None)
@given(HUBS, st.booleans(), st.sampled_from(["", "p_", "9", "très/"]))
def test_every_tool_is_exposed_once_or_reported(hub: dict[str, list[str]], namespace: bool, prefix: str) -> None:
    toolset, dropped = build(listed(hub), namespace=namespace, prefix=prefix)
    exposed = [entry.exposed for entry in toolset]
    assert len(set(exposed)) == len(exposed)
    assert all(PATTERN.match(name) for name in exposed)
    shown = [(entry.server_id, entry.tool.name) for entry in toolset]
    reported = [member for report in dropped for member in report.members]
    assert sorted(shown + reported) == sorted((server, name) for server, names in hub.items() for name in names)
    for entry in toolset:
        assert toolset.resolve(entry.exposed) is entry
        assert toolset.exposed_name(entry.server_id, entry.tool.name) == entry.exposed
    for report in dropped:
        assert toolset.resolve(report.exposed) is None


@settings(max_examples=200, deadline=None)
@given(HUBS, st.randoms())
def test_names_do_not_depend_on_order(hub: dict[str, list[str]], random: Any) -> None:
    servers = list(hub.items())
    random.shuffle(servers)
    shuffled = {server: random.sample(names, len(names)) for server, names in servers}
    one, other = build(listed(hub))[0], build(listed(shuffled))[0]
    assert {(e.exposed, e.server_id, e.tool.name) for e in one} == {
        (e.exposed, e.server_id, e.tool.name) for e in other
    }


@settings(max_examples=200, deadline=None)
@given(HUBS)
def test_names_do_not_depend_on_which_other_servers_are_up(hub: dict[str, list[str]]) -> None:
    together = build(listed(hub))[0]
    for server, names in hub.items():
        for entry in build(listed({server: names}))[0]:
            assert together.exposed_name(server, entry.tool.name) == entry.exposed


@settings(max_examples=300, deadline=None)
@given(SERVER_IDS, SERVER_IDS, TOOL_NAMES.filter(bool), TOOL_NAMES.filter(bool))
def test_two_servers_never_compose_one_name(one: str, other: str, tool: str, second: str) -> None:
    if one != other:
        assert exposed_name(one, tool) != exposed_name(other, second)
