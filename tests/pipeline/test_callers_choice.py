"""What a caller may choose freely costs the others no memory and no time."""

from __future__ import annotations

import time
from typing import Any

import msgspec
import pytest

from conduit_daemon.config.model import LimitsConfig, PolicyConfig, PolicyRule
from conduit_daemon.errors import ClientError
from conduit_daemon.hub.catalogue import Catalogue
from conduit_daemon.hub.naming import build
from conduit_daemon.model import Call, Outcome, Principal, Tool
from conduit_daemon.pipeline.gate import Gate
from conduit_daemon.pipeline.policy import Facts, compile_policy
from conduit_daemon.pipeline.resolve import unknown_tool
from conduit_daemon.published import Published
from conduit_daemon.rpc import protocol
from conduit_daemon.rpc.params import CallParams, EventsParams, ExecuteParams, ToolsParams
from conduit_daemon.telemetry.events import EventBus

LONG = "x" * 300


@pytest.mark.parametrize(
    ("kind", "params"),
    [
        (CallParams, {"principal": LONG}),
        (CallParams, {"session": LONG}),
        (CallParams, {"taint": [LONG]}),
        (CallParams, {"taint": ["x"] * 1001}),
        (ExecuteParams, {"provider": "openai", "principal": LONG}),
        (ExecuteParams, {"provider": "openai", "taint": [LONG]}),
        (ToolsParams, {"prefix": "x" * 65}),
        (EventsParams, {"types": [LONG]}),
        (EventsParams, {"servers": ["x"] * 101}),
    ],
)
def test_what_is_no_name_is_refused(kind: type[Any], params: dict[str, Any]) -> None:
    with pytest.raises(ClientError) as caught:
        protocol.decode_params(msgspec.Raw(msgspec.json.encode(params)), kind)
    assert caught.value.kind == "invalid_params"
    assert "length <=" in caught.value.message


@pytest.mark.parametrize(
    "agent", ["a\nb", "\x1b[2Ka", "a\u202eb", "a\u200bb", "a\x00", " a", "a ", "\ud800", "a\u2028"]
)
def test_a_name_that_is_not_what_it_looks_is_refused(agent: str) -> None:
    with pytest.raises(ClientError) as caught:
        Principal("ann").narrowed(agent)
    assert caught.value.kind == "invalid_params"
    assert caught.value.message.isprintable()


def test_names_in_any_script_are_taken() -> None:
    assert Principal("ann").narrowed("調査 \u0440\u0430").name == "ann/調査 \u0440\u0430"


def catalogue(count: int) -> Catalogue:
    tools, _ = build([("s", tuple(Tool(name=f"get_very_common_prefix_{i:05}") for i in range(count)))])
    return Catalogue(offered=tools, known=tools)


@pytest.mark.parametrize("name", ["s__get_very_common_prefixx_00001", "get_" * 5_000_000])
def test_the_nearest_name_is_not_looked_for_at_any_price(name: str) -> None:
    known = catalogue(9_000)
    began = time.process_time()
    error = unknown_tool(name, known)
    assert time.process_time() - began < 0.3  # half a second and five seconds, where all are compared
    assert error.kind == "unknown_tool"
    assert len(error.message) < 300


def test_a_name_that_no_tool_has_is_kept_in_part() -> None:
    call = Call(id="1", name="n" * 5_000_000, arguments={}, principal=Principal("ann"))
    assert Outcome(call=call, kind="unknown_tool").asked == "n" * 200
    assert Outcome(call=call, kind="ok", tool="t").asked == "t"


def test_few_large_toolsets_are_remembered_and_many_small_ones() -> None:
    def gate() -> Gate:
        known = catalogue(1)
        return Gate(catalogue=Published(known), policy=None, ports={}, limits=LimitsConfig(), bus=EventBus())

    tools = tuple(Tool(name=f"t{i}") for i in range(30_000))
    large = [build([("s", tools)], prefix=f"p{i}_")[0] for i in range(8)]
    small = [build([("s", tools[:1])], prefix=f"p{i}_")[0] for i in range(1100)]
    of_large, of_small = gate(), gate()
    for toolset in (*large, large[-1]):
        of_large.remember(toolset)
    for toolset in small:
        of_small.remember(toolset)
    assert [of_large.recall(toolset.id) is not None for toolset in large] == [False] * 2 + [True] * 6
    assert [of_small.recall(toolset.id) is not None for toolset in small] == [False] * 100 + [True] * 1000


def test_decisions_for_a_long_taint_are_not_kept() -> None:
    policy = compile_policy(PolicyConfig(rules=(PolicyRule(effect="deny", tainted_by=("x1",)),), default="allow"))
    for size, kept in ((1000, 0), (100, 1)):
        facts = Facts(server="s", tool="t", taint=frozenset(f"x{i}" for i in range(size)))
        assert policy.decide(facts).effect == "deny"
        assert len(policy._plans) == kept
