"""Conditions in CEL: what they see, and that one which fails never opens anything."""

import time
from collections.abc import Callable
from typing import Any

import pytest

from conduit_daemon.config.condition import compile_condition, work_of
from conduit_daemon.config.model import PolicyConfig, PolicyRule
from conduit_daemon.pipeline.policy import Decision, Facts, compile_policy

FACTS = Facts(
    server="mail",
    tool="send",
    annotations={"readOnlyHint": False},
    principal="root/bot",
    taint=frozenset({"web", "files"}),
    arguments={"to": ["a@x.org"], "n": 5, "text": "hello", "nested": {"deep": None}},
    assigns={"team": "red"},
)


def decide(when: str, effect: Any = "allow", facts: Facts = FACTS) -> Decision:
    policy = compile_policy(PolicyConfig(rules=(PolicyRule(effect=effect, when=when),)), frozenset({"mail"}))
    first = policy.decide(facts)
    assert policy.decide(facts) == first
    return first


@pytest.mark.parametrize(
    "when",
    [
        "server == 'mail' && tool == 'send' && principal == 'root/bot'",
        "'web' in taint && size(taint) == 2 && taint[0] == 'files'",
        "args.n > 4 && args.n < 5.5",
        "args.to.all(address, address.endsWith('@x.org'))",
        "args.text.matches('^h[a-z]+$')",
        "assigns.team == 'red' && !annotations.readOnlyHint",
        "has(args.text) && !has(args.other)",
        "args.nested.deep == null",
        "type(args.n) == int",
    ],
)
def test_what_is_so_matches(when: str) -> None:
    assert decide(when) == Decision("allow", "rules[0]")


@pytest.mark.parametrize("when", ["args.n > 5", "size(args.to) == 2", "'x' in taint", "assigns.team == 'blue'"])
def test_what_is_not_so_does_not_match(when: str) -> None:
    assert decide(when) == Decision("approve", "default")
    assert decide(when, "deny") == Decision("approve", "default")


@pytest.mark.parametrize(
    ("when", "words"),
    [
        ("args.missing == 1", "a key that is not there"),
        ("assigns.missing", "a key that is not there"),
        ("args.to[5] == ''", "beyond the end"),
        ("args.n / 0 == 1", "out of range"),
        ("args.n + 9223372036854775807 > 0", "out of range"),
        ("args.text > 5", "does not fit the types"),
        ("timestamp(args.text) == timestamp('2020-01-01T00:00:00Z')", "does not fit the types"),
        ("args.n", "neither true nor false"),
        ("tool", "neither true nor false"),
        ("args.text.startsWith(args.n)", "does not fit the types"),
    ],
)
def test_what_fails_is_no_match_for_allow_and_a_match_for_the_others(when: str, words: str) -> None:
    allowed, approved, denied = decide(when, "allow"), decide(when, "approve"), decide(when, "deny")
    assert (allowed.effect, allowed.rule) == ("approve", "default")
    assert (approved.effect, approved.rule) == ("approve", "rules[0]")
    assert (denied.effect, denied.rule) == ("deny", "rules[0]")
    for decision in (allowed, approved, denied):
        (error,) = decision.errors
        assert error.startswith("rules[0]: its condition")
        assert words in error


def test_errors_quote_nothing_of_the_call() -> None:
    secret = "s3cr3t-v4lue"
    facts = Facts(server="s", tool="t", arguments={"a": secret, "l": [secret], "n": 1})
    for when in ("args.a > 5", "timestamp(args.a) == 1", "args[args.a] == 1", "int(args.a) == 1", "args.l[0] + 1 == 2"):
        decision = decide(when, "deny", facts)
        assert decision.errors
        assert secret not in repr(decision)


def test_rules_after_one_that_failed_are_still_asked() -> None:
    policy = compile_policy(
        PolicyConfig(
            rules=(
                PolicyRule(effect="allow", when="args.a == 1"),
                PolicyRule(effect="allow", when="taint[7] == ''"),
                PolicyRule(effect="allow", when="args.b == 1"),
                PolicyRule(effect="deny", when="args.c"),
            )
        )
    )
    passed = policy.decide(Facts(server="s", tool="t", arguments={"b": 1}))
    assert (passed.effect, passed.rule) == ("allow", "rules[2]")
    assert [error.partition(":")[0] for error in passed.errors] == ["rules[0]", "rules[1]"]
    at_once = policy.decide(Facts(server="s", tool="t", arguments={"a": 1}))
    assert at_once == Decision("allow", "rules[0]")


def test_the_same_tool_with_other_arguments_is_decided_anew() -> None:
    policy = compile_policy(PolicyConfig(rules=(PolicyRule(effect="allow", when="args.n > 3"),)))
    effects = [policy.decide(Facts(server="s", tool="t", arguments={"n": n})).effect for n in (1, 5, 1, 5)]
    assert effects == ["approve", "allow", "approve", "allow"]


@pytest.mark.parametrize("key", ["args", "assigns"])
def test_what_is_too_deep_is_never_evaluated(key: str) -> None:
    deep: dict[str, Any] = {}
    for _ in range(50_000):
        deep = {"a": deep}
    facts = Facts(server="s", tool="t", **{"arguments" if key == "args" else "assigns": deep})
    assert decide(f"has({key}.a)", "allow", facts).effect == "approve"
    assert decide(f"has({key}.a)", "deny", facts).effect == "deny"
    assert "200 levels" in decide(f"has({key}.a)", "deny", facts).errors[0]
    while deep:  # dropped level by level: freeing it at once is deeper than the C stack likes
        deep = deep["a"]


@pytest.mark.parametrize("value", ["\ud800", 2**70, -(2**70), 1e308, "x" * 100_000, {"": {"": []}}])
def test_any_json_can_be_asked_about(value: Any) -> None:
    facts = Facts(server="s", tool="t", arguments={"v": value})
    assert decide("args.v == 1", "deny", facts).effect in {"deny", "approve"}
    assert decide("args.v == 1", "allow", facts).effect == "approve"


def test_large_numbers_are_larger() -> None:
    assert decide("args.n > 1000", "deny", Facts(server="s", tool="t", arguments={"n": 2**70})).rule == "rules[0]"


@pytest.mark.parametrize(
    ("expression", "words"),
    [
        ("", "no CEL expression: line 1, column 1"),
        ("args.n >", "line 1, column 9"),
        ("arg.n == 1", "'arg'"),
        ("args.l.exists(x, y == 1)", "'y'"),
        ("lower(tool) == 'x'", "the function 'lower'"),
        ("tool.lowerAscii() == 'x'", "the function 'lowerAscii'"),
        ("tool.matches('(')", "no regular expression"),
        ("(" * 51 + "true" + ")" * 51, "nested deeper"),
        ("true || " * 2000 + "true", "longer than"),
    ],
)
def test_what_could_never_be_evaluated_is_found_when_it_is_read(expression: str, words: str) -> None:
    with pytest.raises(ValueError, match=r"^(is|speaks|uses|has) ") as caught:
        compile_condition(expression)
    assert words in str(caught.value)
    with pytest.raises(ValueError, match=r"^rules\[0\]: its condition"):
        compile_policy(PolicyConfig(rules=(PolicyRule(effect="deny", when=expression),)))


HUGE: list[tuple[str, dict[str, Any]]] = [
    ("args.a.exists(x, x == 'z')", {"a": ["a"] * 1_000_000}),
    ("args.a.all(x, args.a.all(y, x == y))", {"a": [1] * 20_000}),
    ("args.a.all(x, args.a.all(y, args.a.all(z, x == z)))", {"a": [1] * 500}),
    ("args.a.map(x, x + args.t).size() > 5", {"a": ["a"] * 2_000, "t": "x" * 100_000}),
    ("args.a.exists(w, args.t.contains(w))", {"a": ["b"] * 20_000, "t": "x" * 1_000_000}),
    ("args.a.exists(w, args.t.matches(w))", {"a": ["(a|b)*c"] * 20_000, "t": "a" * 1_000_000}),
    ("assigns.a.exists(x, x == 1)", {"a": [2] * 1_000_000}),
]


@pytest.mark.parametrize(("when", "values"), HUGE, ids=[when for when, _ in HUGE])
@pytest.mark.parametrize(("effect", "decided"), [("allow", "approve"), ("approve", "approve"), ("deny", "deny")])
def test_no_caller_makes_a_condition_take_long(when: str, values: dict[str, Any], effect: Any, decided: str) -> None:
    rules = (PolicyRule(effect=effect, when=when),)
    policy = compile_policy(PolicyConfig(default="approve", rules=rules))
    began = time.perf_counter()
    decision = policy.decide(Facts(server="s", tool="t", arguments=values, assigns=values))
    assert time.perf_counter() - began < 1
    assert decision.effect == decided
    assert "hold too much for its loops" in decision.errors[0]


@pytest.mark.parametrize(
    ("when", "values"),
    [
        ("args.to.exists(r, !r.endsWith('@corp'))", {"to": ["a@corp", "b@corp"] * 10, "body": "x" * 5_000_000}),
        ("args.a.exists(x, x == 1) && args.b.exists(x, x == 1)", {"a": [2] * 50_000, "b": [2] * 50_000}),
        ("args.t == '.all(x, .all(y, .all(z' && args.a.exists(x, x == 1)", {"a": [2] * 5_000, "t": ""}),
        ("args.t.contains('z')", {"t": "x" * 10_000_000, "a": [1] * 100_000}),
    ],
)
def test_what_people_ask_of_large_arguments_is_evaluated(when: str, values: dict[str, Any]) -> None:
    policy = compile_policy(PolicyConfig(default="allow", rules=(PolicyRule(effect="deny", when=when),)))
    decision = policy.decide(Facts(server="s", tool="t", arguments=values))
    assert (decision.effect, decision.errors) == ("allow", ())


@pytest.mark.parametrize(
    ("expression", "loops"),
    [
        ("size(args.a) > 3", 0),
        ("args.a.all(x, x == 1)", 1),
        ("args.a.all(x, (x == 1)) && args.b.exists(y, y)", 1),
        ("args.a . map (x, args.b.filter(y, y == x)).size() > 0", 2),
        ("args.a.all(x, x == '(') && args.a.all(x, x == r'\\')", 1),
        ('args.a == """it\'s .all(x, """ && args.b.exists_one(y, y.all(z, z))', 2),
        ("args.all == 1", 0),
    ],
)
def test_loops_are_counted_where_they_are_inside_one_another(expression: str, loops: int) -> None:
    assert work_of(expression).loops == loops


async def test_a_condition_that_fails_is_an_event_without_the_calls_values(pipeline: Callable[..., Any]) -> None:
    made = pipeline()
    made.rules(PolicyRule(effect="deny", when="args.secret.startsWith('x')", name="odd"), default="allow")
    assert (await made.run(arguments={"secret": {"k": "hunter2"}})).kind == "denied"
    (event,) = [event for event in made.events if event.type == "policy.condition_failed"]
    assert (event.server, event.tool, event.level) == ("s", "send", "warning")
    assert event.fields["reason"].startswith("odd: its condition could not be evaluated")
    assert "hunter2" not in event.fields["reason"]
