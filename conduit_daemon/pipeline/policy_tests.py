"""The policy's own tests: ``[[policy.tests]]`` of a configuration, run against its rules."""

from __future__ import annotations

from collections.abc import Iterable

import msgspec

from conduit_daemon.config.model import Effect, PolicyTest
from conduit_daemon.pipeline.policy import Facts, Policy

__all__ = ["FailedTest", "run_tests"]


class FailedTest(msgspec.Struct, frozen=True):
    """A test whose call does not come out as expected.

    Attributes:
        index: Its place among the tests, from 0.
        call: The exposed name it is about.
        expected: The effect that it expects.
        got: The effect that the rules have; None where no server has such a tool.
        rule: The rule that decided; None likewise.
        message: One sentence for people.
    """

    index: int
    call: str
    expected: Effect
    got: Effect | None
    rule: str | None
    message: str


def run_tests(policy: Policy, tests: Iterable[PolicyTest], servers: Iterable[str]) -> tuple[FailedTest, ...]:
    """Runs tests without any server: a call's name is taken apart by the ids in `servers`.

    What follows the id is taken for the server's own name of the tool, which it is unless the tool's name had to
    be changed to be exposed.
    """
    prefixes = {exposed_prefix(server): server for server in servers}
    failed: list[FailedTest] = []
    for index, test in enumerate(tests):
        prefix = next((prefix for prefix in prefixes if test.call.startswith(prefix)), None)
        if prefix is None or prefix == test.call:
            known = ", ".join(prefixes) or "none"
            message = f"policy.tests[{index}]: {test.call} names no configured server; names begin with {known}"
            failed.append(FailedTest(index, test.call, test.expect, None, None, message))
            continue
        decision = policy.decide(
            Facts(
                server=prefixes[prefix],
                tool=test.call.removeprefix(prefix),
                annotations=test.annotations,
                principal=test.principal,
                taint=frozenset(test.taint),
                arguments=test.arguments,
                assigns=test.assigns,
            )
        )
        if decision.effect != test.expect:
            message = (
                f"policy.tests[{index}]: {test.call} was expected to be {_participle(test.expect)}, "
                f"but {decision.rule} has it {_participle(decision.effect)}"
            )
            failed.append(FailedTest(index, test.call, test.expect, decision.effect, decision.rule, message))
    return tuple(failed)


def exposed_prefix(server: str) -> str:
    """What the exposed names of a server's tools begin with (see the naming rules of the hub)."""
    return f"{server}__" if server[:1].isalpha() or server[:1] == "_" else f"_{server}__"


def _participle(effect: Effect) -> str:
    return {"allow": "allowed", "approve": "asked about", "deny": "denied"}[effect]
