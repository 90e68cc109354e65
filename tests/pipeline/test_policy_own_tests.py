"""``[[policy.tests]]``."""

from conduit_daemon.config.model import PolicyConfig, PolicyRule, PolicyTest
from conduit_daemon.hub.naming import build
from conduit_daemon.model import Tool
from conduit_daemon.pipeline.policy import compile_policy
from conduit_daemon.pipeline.policy_tests import exposed_prefix, run_tests

POLICY = compile_policy(
    PolicyConfig(
        default="deny",
        rules=(
            PolicyRule(effect="deny", tools=("send_*",), tainted_by=("web",)),
            PolicyRule(effect="allow", servers=("mail",), tools=("send_*",), when="args.n < 3"),
            PolicyRule(effect="allow", servers=("21st",), annotations={"readOnlyHint": True}),
            PolicyRule(effect="approve", principals=("bob",), when="assigns.ok"),
            PolicyRule(effect="allow", tools=("resource:file:///srv/*",)),
        ),
    ),
    frozenset({"21st"}),
)
SERVERS = ("mail", "21st", "a", "a_b")


def test_what_is_as_expected_is_not_told() -> None:
    tests = (
        PolicyTest(call="mail__send_message", taint=("web",), expect="deny"),
        PolicyTest(call="mail__send_message", arguments={"n": 1}, expect="allow"),
        PolicyTest(call="_21st__look", annotations={"readOnlyHint": True}, expect="allow"),
        PolicyTest(call="a_b__t", principal="bob", assigns={"ok": True}, expect="approve"),
        PolicyTest(call="a__b__t", expect="deny"),
        PolicyTest(call="a__resource:file:///srv/%2e%2e/etc/passwd", expect="deny"),
        PolicyTest(call="a__resource:file:///srv/notes", expect="allow"),
    )
    assert run_tests(POLICY, tests, SERVERS) == ()


def test_what_is_not_is_told_with_the_rule_that_decided() -> None:
    tests = (
        PolicyTest(call="mail__send_message", arguments={"n": 9}, expect="allow"),
        PolicyTest(call="mail__send_message", arguments={"n": 1}, taint=("web",), expect="allow"),
    )
    first, second = run_tests(POLICY, tests, SERVERS)
    assert (first.index, first.expected, first.got, first.rule) == (0, "allow", "deny", "default")
    assert second.message == (
        "policy.tests[1]: mail__send_message was expected to be allowed, but rules[0] has it denied"
    )


def test_a_call_of_no_server_fails() -> None:
    for call in ("nope__x", "mail", "mail__", "mail_x", ""):
        (failed,) = run_tests(POLICY, (PolicyTest(call=call, expect="deny"),), SERVERS)
        assert failed.got is None
        assert "names no configured server" in failed.message


def test_names_begin_as_the_hub_makes_them() -> None:
    for server in ("mail", "21st", "-x", "A_b"):
        toolset, _ = build([(server, [Tool(name="t")])])
        (entry,) = toolset.entries
        assert entry.exposed == exposed_prefix(server) + "t"
