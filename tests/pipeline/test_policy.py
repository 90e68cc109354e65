"""Rules: what they match, which one decides, and what an explanation says."""

import time
from fnmatch import fnmatchcase
from typing import Any

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st

from conduit_daemon.config import matcher
from conduit_daemon.config.model import Effect, PolicyConfig, PolicyRule
from conduit_daemon.pipeline.policy import Facts, compile_policy

ALLOW = PolicyRule(effect="allow")


def decide(*rules: PolicyRule, trusted: tuple[str, ...] = (), default: Effect = "approve", **facts: Any) -> str:
    policy = compile_policy(PolicyConfig(default=default, rules=rules), frozenset(trusted))
    whole = Facts(**{"server": "files", "tool": "read_file", **facts})
    decision = policy.decide(whole)
    explanation = policy.explain(whole)
    assert policy.decide(whole) == decision
    assert (explanation.decision, explanation.rule, explanation.reason) == (
        decision.effect,
        decision.rule,
        decision.reason,
    )
    assert [step.matched for step in explanation.considered[:-1]] == [False] * len(explanation.considered[:-1])
    return f"{decision.effect} by {decision.rule}"


def test_no_rule_leaves_it_to_the_default() -> None:
    assert decide() == "approve by default"
    assert decide(default="deny") == "deny by default"


def test_the_first_match_decides() -> None:
    deny = PolicyRule(effect="deny", name="never", tools=("read_*",))
    assert decide(deny, ALLOW) == "deny by never"
    assert decide(ALLOW, deny) == "allow by rules[0]"
    assert decide(deny, ALLOW, tool="write") == "allow by rules[1]"


@pytest.mark.parametrize(
    ("rule", "facts", "matches"),
    [
        ({"servers": ("files",)}, {}, True),
        ({"servers": ("f*", "g")}, {}, True),
        ({"servers": ("Files",)}, {}, False),
        ({"tools": ("read_*", "list")}, {}, True),
        ({"tools": ("read",)}, {}, False),
        ({"tools": ("[rw]*_file",)}, {}, True),
        ({"tools": ("[!r]*",)}, {}, False),
        ({"tools": ("read_????",)}, {}, True),
        ({"tools": ("resource:file:///srv/*",)}, {"tool": "resource:file:///srv/a/b"}, True),
        ({"tools": ("prompt:*",)}, {"tool": "prompt:x"}, True),
        ({"tools": ("read_*",)}, {"tool": "read_\n"}, True),
        ({"tools": ("read_file",)}, {"tool": "read_file\n"}, False),
        ({"principals": ("root/*",)}, {"principal": "root/researcher"}, True),
        ({"principals": ("root/*",)}, {"principal": "root"}, False),
        ({"principals": ("alice",)}, {"principal": ""}, False),
        ({"tainted_by": ("web",)}, {"taint": frozenset({"web", "x"})}, True),
        ({"tainted_by": ("web",)}, {"taint": frozenset({"x"})}, False),
        ({"tainted_by": ("web",)}, {}, False),
        ({"tainted_by": ("w*",)}, {"taint": frozenset({"web"})}, True),
        ({"tainted_by": ("untrusted",)}, {"taint": frozenset({"web"})}, True),
        ({"tainted_by": ("untrusted",)}, {"taint": frozenset({"good"})}, False),
        ({"tainted_by": ("untrusted",)}, {"taint": frozenset({"good", "gone"})}, True),
        ({"tainted_by": ("untrusted",)}, {}, False),
        ({"tainted_by": ("good",)}, {"taint": frozenset({"good"})}, True),
        ({"tainted_by": ()}, {"taint": frozenset({"web"})}, False),
        ({"annotations": {"readOnlyHint": True}}, {"server": "good", "annotations": {"readOnlyHint": True}}, True),
        ({"annotations": {"readOnlyHint": True}}, {"server": "good", "annotations": {"readOnlyHint": False}}, False),
        ({"annotations": {"readOnlyHint": True}}, {"server": "good"}, False),
        ({"annotations": {"readOnlyHint": True}}, {"server": "good", "annotations": {"readOnlyHint": 1}}, False),
        ({"annotations": {"readOnlyHint": True}}, {"server": "bad", "annotations": {"readOnlyHint": True}}, False),
        ({"annotations": {"destructiveHint": True}}, {"server": "good"}, True),
        ({"annotations": {"destructiveHint": True}}, {"server": "bad"}, False),
        ({"annotations": {"title": "x"}}, {"server": "good"}, False),
        ({"servers": ("files",), "tools": ("write",)}, {}, False),
    ],
)
def test_a_rule_matches_what_is_all_it_says(rule: dict[str, Any], facts: dict[str, Any], matches: bool) -> None:
    found = decide(PolicyRule(effect="allow", **rule), trusted=("good",), **facts)
    assert found == ("allow by rules[0]" if matches else "approve by default")


def test_an_untrusted_server_cannot_annotate_itself_past_a_condition() -> None:
    rule = PolicyRule(effect="allow", when="has(annotations.readOnlyHint) && annotations.readOnlyHint")
    hints = {"readOnlyHint": True}
    assert decide(rule, trusted=("good",), server="good", annotations=hints) == "allow by rules[0]"
    assert decide(rule, trusted=("good",), server="bad", annotations=hints) == "approve by default"
    by_args = PolicyRule(effect="allow", when="has(annotations.readOnlyHint) && args == {}")
    assert decide(by_args, trusted=("good",), server="bad", annotations=hints) == "approve by default"


def test_changed_annotations_of_a_tool_are_seen() -> None:
    policy = compile_policy(
        PolicyConfig(rules=(PolicyRule(effect="allow", annotations={"readOnlyHint": True}),)), frozenset({"good"})
    )
    for hint, effect in ((True, "allow"), (False, "approve"), (True, "allow")):
        assert policy.decide(Facts(server="good", tool="t", annotations={"readOnlyHint": hint})).effect == effect


def test_callers_do_not_share_what_differs() -> None:
    policy = compile_policy(
        PolicyConfig(
            rules=(
                PolicyRule(effect="deny", tainted_by=("web",)),
                PolicyRule(effect="allow", principals=("alice",)),
            )
        )
    )
    base = Facts(server="s", tool="t", principal="alice")
    for _ in range(2):
        assert policy.decide(base).effect == "allow"
        assert policy.decide(msgspec.structs.replace(base, principal="bob")).effect == "approve"
        assert policy.decide(msgspec.structs.replace(base, taint=frozenset({"web"}))).effect == "deny"
        assert policy.decide(msgspec.structs.replace(base, server="u")).effect == "allow"


def test_what_is_remembered_is_bounded() -> None:
    policy = compile_policy(PolicyConfig(rules=(ALLOW,)))
    for number in range(10_000):
        assert policy.decide(Facts(server="s", tool=f"t{number}")).effect == "allow"
    assert len(policy._plans) <= 4096


def test_the_explanation_says_why() -> None:
    policy = compile_policy(
        PolicyConfig(
            rules=(
                PolicyRule(effect="allow", servers=("mail",)),
                PolicyRule(effect="allow", tools=("list_*",)),
                PolicyRule(effect="allow", principals=("alice",)),
                PolicyRule(effect="allow", tainted_by=("web",)),
                PolicyRule(effect="allow", annotations={"readOnlyHint": True}),
                PolicyRule(effect="allow", when="args.n > 3"),
                PolicyRule(effect="deny", when="args.missing", name="broken", reason="because"),
                PolicyRule(effect="deny"),
            )
        )
    )
    found = policy.explain(
        Facts(server="files", tool="read", principal="bob", taint=frozenset({"x"}), arguments={"n": 1})
    )
    assert (found.decision, found.rule, found.reason) == ("deny", "broken", "because")
    assert [(step.rule, step.matched) for step in found.considered] == [
        *((f"rules[{index}]", False) for index in range(6)),
        ("broken", True),
    ]
    why = [step.why for step in found.considered]
    assert why[0] == "server 'files' matches none of mail"
    assert why[1] == "tool 'read' matches none of list_*"
    assert why[2] == "principal 'bob' matches none of alice"
    assert why[3] == "the context is tainted by x, not by web"
    assert why[4] == "server 'files' is not trusted, so its annotations do not count"
    assert why[5] == "its condition is false"
    assert "counts as a match for deny" in why[6]


def test_the_digest_is_of_what_decides() -> None:
    rules = (PolicyRule(effect="allow", tools=("a",)),)
    digest = compile_policy(PolicyConfig(rules=rules)).digest
    assert digest == compile_policy(PolicyConfig(rules=rules, approval_timeout=5)).digest
    others = [
        compile_policy(PolicyConfig(rules=(PolicyRule(effect="allow", tools=("b",)),))),
        compile_policy(PolicyConfig(rules=rules, default="deny")),
        compile_policy(PolicyConfig(rules=rules), frozenset({"s"})),
    ]
    assert len({digest, *(other.digest for other in others)}) == 4


names = st.text("ab_*?[]!-\n", max_size=5)
globs = st.lists(names, max_size=3).map(tuple)


@given(st.lists(st.tuples(st.sampled_from(["allow", "approve", "deny"]), globs, globs), max_size=4), names, names)
def test_deciding_agrees_with_the_plain_reading(rules: list[Any], server: str, tool: str) -> None:
    expected = "approve by default"
    for index, (effect, servers, tools) in enumerate(rules):
        if any(fnmatchcase(server, glob) for glob in servers) and any(fnmatchcase(tool, glob) for glob in tools):
            expected = f"{effect} by rules[{index}]"
            break
    compiled = [PolicyRule(effect=effect, servers=servers, tools=tools) for effect, servers, tools in rules]
    assert decide(*compiled, server=server, tool=tool) == expected


@pytest.mark.parametrize(
    ("effect", "principals", "principal", "decided"),
    [
        ("deny", ("ann",), "ann/helper", "deny"),
        ("approve", ("a*n",), "ann/helper", "approve"),
        ("deny", ("ann/helper",), "ann", "allow"),
        ("deny", ("ann/helper",), "ann/other", "allow"),
        ("deny", ("ann",), "anna/ann", "allow"),
    ],
)
def test_no_agent_names_itself_out_from_under_a_rule(
    effect: Any, principals: tuple[str, ...], principal: str, decided: str
) -> None:
    policy = compile_policy(PolicyConfig(rules=(PolicyRule(effect=effect, principals=principals),), default="allow"))
    facts = Facts(server="s", tool="t", principal=principal)
    assert policy.decide(facts).effect == policy.explain(facts).decision == decided


def test_what_a_user_may_is_not_what_each_agent_beneath_it_may() -> None:
    policy = compile_policy(PolicyConfig(rules=(PolicyRule(effect="allow", principals=("ann",)),), default="deny"))
    assert policy.decide(Facts(server="s", tool="t", principal="ann/helper")).effect == "deny"


GLOBS = st.lists(st.text("ab*?[]!_", min_size=1, max_size=5), max_size=4)


@given(GLOBS, st.text("ab_[]!*\n", max_size=6))
def test_globs_of_every_form_match_as_fnmatch_has_it(globs: list[str], name: str) -> None:
    assert matcher(globs)(name) == any(fnmatchcase(name, glob) for glob in globs)


def test_ten_thousand_rules_are_read_and_asked_in_time() -> None:
    rules = tuple(
        PolicyRule(effect="deny", servers=(f"s{n}*",), tools=(f"tool_{n}_*", "*_x"), principals=(f"p{n}",))
        for n in range(10_000)
    )
    began = time.process_time()
    policy = compile_policy(PolicyConfig(rules=rules, default="allow"))
    assert time.process_time() - began < 3
    began = time.process_time()
    assert policy.decide(Facts(server="srv", tool="t", principal="ann")).effect == "allow"
    assert time.process_time() - began < 0.2
    assert policy.decide(Facts(server="s9999", tool="t_x", principal="p9999")).rule == "rules[9999]"
