"""`conduit policy`: what the rules say of a call, and a configuration's own tests of its rules."""

from __future__ import annotations

import os
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

from cyclopts import Parameter

from conduit_daemon.agent import requests
from conduit_daemon.cli import output
from conduit_daemon.cli.arguments import parse_arguments
from conduit_daemon.cli.connection import HERE, Where, ask
from conduit_daemon.cli.exits import DONE, FAILED

if TYPE_CHECKING:
    from conduit_daemon.config import Config
    from conduit_daemon.pipeline.policy_tests import FailedTest

__all__ = ["check_tests", "explain", "passed", "run_policy_tests"]


def explain(
    name: str,
    /,
    *arguments: str,
    principal: str | None = None,
    taint: Annotated[list[str] | None, Parameter(negative=())] = None,
    json: bool = False,
    where: Where = HERE,
) -> int:
    """Tells what the daemon's rules would say of a call, and why; nothing is called.

    Args:
        name: The tool's name, as `conduit tools` lists it.
        arguments: A JSON object, or name=text and name:=JSON.
        principal: Who would call, as USER or USER/AGENT.
        taint: A server whose output would be in the model's context (may be repeated).
        json: Print the daemon's answer.
    """
    request = requests.policy_explain(name, parse_arguments(arguments), principal=principal, taint=taint)
    with where.open() as conduit:
        answer, verdict = ask(conduit, request)
    if json:
        output.print_json(answer)
        return DONE
    output.print_text(
        f"{name}: {verdict.decision}, by {verdict.rule}" + (f": {verdict.reason}" if verdict.reason else ".")
    )
    if verdict.considered:
        output.print_text("")
        rows = [(each.rule, "yes" if each.matched else "no", each.why) for each in verdict.considered]
        output.table(("rule", "matches", "why"), rows)
    return DONE


def check_tests(config: Path | None = None, *, json: bool = False) -> int:
    """Runs the tests that a configuration has for its own rules.

    Args:
        config: The configuration; else the one that the daemon would find.
        json: Print the outcomes as JSON.
    """
    from conduit_daemon.config import load  # noqa: PLC0415 - the daemon's parts are loaded by those alone who need them
    from conduit_daemon.errors import ConfigError  # noqa: PLC0415

    try:
        loaded = load(config, os.environ)
    except ConfigError as error:
        for problem in error.problems:
            output.print_error(str(problem))
        return FAILED
    tests = loaded.config.policy.tests
    failed = run_policy_tests(loaded.config)
    if json:
        output.print_json({"tests": len(tests), "failed": failed})
    else:
        for each in failed:
            output.print_text(each.message)
        output.print_text(output.sentence(passed(loaded.config, failed)))
        if loaded.path is None:
            output.print_error("; ".join(loaded.warnings))
    return FAILED if failed else DONE


def run_policy_tests(config: Config) -> tuple[FailedTest, ...]:
    """Decides every call of ``[[policy.tests]]`` by the rules, and returns those that come out otherwise."""
    from conduit_daemon.pipeline.policy import compile_policy  # noqa: PLC0415
    from conduit_daemon.pipeline.policy_tests import run_tests  # noqa: PLC0415

    policy = compile_policy(config.policy, config.trusted)
    return run_tests(policy, config.policy.tests, config.servers)


def passed(config: Config, failed: tuple[FailedTest, ...]) -> str:
    """``2 of 3 tests passed``."""
    count = len(config.policy.tests)
    return f"{count - len(failed)} of {output.amount(count, 'test')} passed" if count else "the policy has no tests"
