"""`conduit check`: everything that is wrong with a configuration, and what a right one holds."""

from __future__ import annotations

import os
from pathlib import Path
from typing import TYPE_CHECKING, Any

from conduit_daemon.cli import output
from conduit_daemon.cli.exits import DONE, FAILED
from conduit_daemon.cli.policy import passed, run_policy_tests

if TYPE_CHECKING:
    from conduit_daemon.config import Loaded, ServerConfig

__all__ = ["check"]


def check(config: Path | None = None, *, json: bool = False) -> int:
    """Says everything that is wrong with a configuration, or what it holds.

    Args:
        config: The configuration; else the one that the daemon would find.
        json: Print the findings as JSON.
    """
    from conduit_daemon.config import installed_sockets, load, without_effect  # noqa: PLC0415 - the daemon's parts are loaded by those alone who need them
    from conduit_daemon.errors import ConfigError  # noqa: PLC0415

    try:
        loaded = load(config, os.environ)
    except ConfigError as error:
        if json:
            output.print_json({"ok": False, "problems": error.problems})
        else:
            output.print_text("\n".join(str(problem) for problem in error.problems))
            output.print_error(f"{output.amount(len(error.problems), 'problem')}; nothing would be started")
        return FAILED
    units = without_effect(loaded.config, installed_sockets(loaded.path, os.environ))
    warnings = [*map(loaded.shown, loaded.warnings), *(f"{loaded.path}: {each}" for each in units)]
    failed = run_policy_tests(loaded.config)
    if json:
        output.print_json({"ok": not failed, **_summary(loaded, warnings), "failed_tests": failed})
    else:
        _print(loaded, passed(loaded.config, failed), warnings)
        for each in failed:
            output.print_text(loaded.shown(each.message))
    return FAILED if failed else DONE


def _summary(loaded: Loaded, warnings: list[str]) -> dict[str, Any]:
    policy = loaded.config.policy
    return {
        "file": None if loaded.path is None else str(loaded.path),
        "warnings": warnings,
        "servers": {
            name: {
                "transport": server.kind,
                "enabled": server.enabled,
                "start": server.start,
                "target": loaded.shown(_target(server)),
            }
            for name, server in loaded.config.servers.items()
        },
        "policy": {"default": policy.default, "rules": len(policy.rules), "tests": len(policy.tests)},
    }


def _print(loaded: Loaded, tested: str, warnings: list[str]) -> None:
    output.print_text(f"{loaded.path or 'The default configuration'} can be used.")
    rows = [
        (name, server.kind, server.start if server.enabled else "disabled", loaded.shown(_target(server)))
        for name, server in loaded.config.servers.items()
    ]
    if rows:
        output.print_text("")
        output.table(("server", "transport", "start", "command or URL"), rows)
    else:
        output.print_text("It has no servers.")
    policy = loaded.config.policy
    rules = output.amount(len(policy.rules), "rule")
    output.print_text(f"\nPolicy: {rules}; a call that none matches: {policy.default}; {tested}.")
    for warning in warnings:
        output.print_text(f"warning: {warning}")


def _target(server: ServerConfig) -> str:
    # The arguments are left out: unlike the environment they are not masked, and may hold a secret.
    return server.command or (server.url or "").partition("?")[0]
