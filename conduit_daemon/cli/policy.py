"""`conduit policy test`: a configuration's own tests of its rules, run without a daemon."""

from __future__ import annotations

import os
from pathlib import Path
from typing import TYPE_CHECKING

from conduit_daemon.cli import output
from conduit_daemon.cli.exits import DONE, FAILED

if TYPE_CHECKING:
    from conduit_daemon.config import Config
    from conduit_daemon.pipeline.policy_tests import FailedTest

__all__ = ["check_tests", "passed", "run_policy_tests"]


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
        output.print_text(f"{passed(loaded.config, failed)}.")
    return FAILED if failed else DONE


def run_policy_tests(config: Config) -> tuple[FailedTest, ...]:
    """Decides every call of ``[[policy.tests]]`` by the rules, and returns those that come out otherwise."""
    from conduit_daemon.pipeline.policy import compile_policy  # noqa: PLC0415
    from conduit_daemon.pipeline.policy_tests import run_tests  # noqa: PLC0415

    policy = compile_policy(config.policy, frozenset(name for name, server in config.servers.items() if server.trusted))
    return run_tests(policy, config.policy.tests, config.servers)


def passed(config: Config, failed: tuple[FailedTest, ...]) -> str:
    """``2 of 3 tests passed``."""
    count = len(config.policy.tests)
    return f"{count - len(failed)} of {output.amount(count, 'test')} passed" if count else "it has no tests"
