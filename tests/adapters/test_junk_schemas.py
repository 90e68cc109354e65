"""Whatever a server calls a schema, no listing fails, and what is listed is valid."""

from __future__ import annotations

import copy
from typing import Any

from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from conduit_daemon.adapters import anthropic, gemini, openai, plain
from conduit_daemon.adapters._schema import LISTS_OF_SCHEMAS, MAPS_OF_SCHEMAS, SCHEMAS
from conduit_daemon.adapters.strict_inline import HARD, SOFT
from conduit_daemon.hub.naming import build

KEYWORDS = sorted(
    {*LISTS_OF_SCHEMAS, *MAPS_OF_SCHEMAS, *SCHEMAS, *HARD, *SOFT, "$id", "$anchor", "$schema", "dependencies"}
    | {"default", "description", "title", "examples", "definitions", "x-a"}
)
WORDS = st.sampled_from(
    ["object", "string", "array", "null", "#", "#/$defs/a", "#/properties/a", "#a", "a", "", "any", "\u200b", "\ud800"]
)
JUNK = st.recursive(
    st.none() | st.booleans() | st.integers(-3, 2**70) | st.floats(allow_nan=False, allow_infinity=False) | WORDS,
    lambda inner: (
        st.lists(inner, max_size=3)
        | st.dictionaries(st.sampled_from(KEYWORDS), inner, max_size=4)
        | st.dictionaries(WORDS, inner, max_size=3)
    ),
    max_leaves=12,
)


@settings(max_examples=300, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(st.dictionaries(st.sampled_from(KEYWORDS), JUNK, max_size=5))
def test_no_schema_fails_a_listing(schema: dict[str, Any]) -> None:
    before = copy.deepcopy(schema)
    tools = [{"name": "t", "inputSchema": schema}, {"name": "u", "inputSchema": {"type": "object"}}]
    toolset, _ = build([("s", tools)])
    for listed, reports in (
        (anthropic.tools(toolset), anthropic.dropped(toolset)),
        (openai.tools(toolset, api="chat").tools, openai.dropped(toolset)),
        (openai.tools(toolset, api="responses").tools, openai.tools(toolset, api="responses").dropped),
        (gemini.function_declarations(toolset), gemini.dropped(toolset)),
        (plain.tools(toolset), plain.dropped(toolset)),
    ):
        assert len(listed) + len(reports) == len(toolset)
    assert schema == before
