"""`conduit policy test`: a configuration's own tests of its rules, run without a daemon."""

from __future__ import annotations

import os
from pathlib import Path
from typing import TYPE_CHECKING

import msgspec

from conduit_daemon.cli import output
from conduit_daemon.cli.exits import DONE, FAILED

if TYPE_CHECKING:
    from conduit_daemon.config import Config

__all__ = ["Tested", "check_tests", "run_policy_tests"]


class Tested(msgspec.Struct, frozen=True):
    """One test of the policy and what came of it; `rule` is the one that decided."""

    call: str
    expect: str
    got: str
    rule: str
    passed: bool


def check_tests(config: Path | None = None, *, json: bool = False) -> int:
    """Runs the tests that a configuration has for its own rules.

    Args:
        config: The configuration; else the one that the daemon would find.
        json: Print the outcomes as JSON.
    """
    from conduit_daemon.config import load  # noqa: PLC0415 - the daemon's parts are loaded by those alone who need them
    from conduit_daemon.errors import ConfigError  # noqa: PLC0415

    try:
        tests = run_policy_tests(load(config, os.environ).config)
    except ConfigError as error:
        for problem in error.problems:
            output.print_error(str(problem))
        return FAILED
    if json:
        output.print_json({"tests": tests})
    elif not tests:
        output.print_text("The configuration has no [[policy.tests]].")
    else:
        rows = [("ok" if each.passed else "failed", each.call, each.expect, each.got, each.rule) for each in tests]
        output.table(("test", "call", "expected", "decided", "by"), rows)
    return DONE if all(each.passed for each in tests) else FAILED


def run_policy_tests(config: Config) -> list[Tested]:
    """Decides every call of ``[[policy.tests]]`` by the rules."""
    from conduit_daemon.pipeline.policy import Facts, compile_policy  # noqa: PLC0415

    policy = compile_policy(config.policy, frozenset(name for name, server in config.servers.items() if server.trusted))
    outcomes = []
    for wanted in config.policy.tests:
        server, tool = _split(wanted.call, config)
        decision = policy.decide(
            Facts(
                server=server,
                tool=tool,
                annotations=wanted.annotations,
                principal=wanted.principal,
                taint=frozenset(wanted.taint),
                arguments=wanted.arguments,
                assigns=wanted.assigns,
            )
        )
        outcomes.append(
            Tested(wanted.call, wanted.expect, decision.effect, decision.rule, decision.effect == wanted.expect)
        )
    return outcomes


def _split(call: str, config: Config) -> tuple[str, str]:
    """The server and the tool that an exposed name means; no server's id holds ``__``, so there is one way."""
    for server in config.servers:
        for prefix in (f"{server}__", f"_{server}__"):  # the second where a name may not begin as the id does
            if call.startswith(prefix):
                return server, call.removeprefix(prefix)
    server, _, tool = call.partition("__")
    return server, tool
