"""Exit codes, and the one sentence that goes with each failure."""

from __future__ import annotations

from typing import Final

from conduit_daemon.agent import AgentError, CallFailed, DaemonUnreachable

__all__ = [
    "DENIED",
    "DONE",
    "FAILED",
    "INTERRUPTED",
    "TOOL_ERROR",
    "UNREACHABLE",
    "UNUSABLE",
    "USAGE",
    "UsageError",
    "exit_code",
]

DONE: Final = 0
FAILED: Final = 1
USAGE: Final = 2
UNREACHABLE: Final = 3
DENIED: Final = 4
TOOL_ERROR: Final = 5
UNUSABLE: Final = 78
"""The configuration cannot be used (sysexits.h's EX_CONFIG, which the systemd unit does not restart on)."""
INTERRUPTED: Final = 130
"""Ctrl-C, as shells report it."""


class UsageError(Exception):
    """The command was given what it cannot use; the message says what it takes."""


def exit_code(error: AgentError) -> int:
    """The exit code of an error that the agent library raises."""
    if isinstance(error, DaemonUnreachable):
        return UNREACHABLE
    if isinstance(error, CallFailed) and error.kind in {"denied", "approval_timeout"}:
        return DENIED
    return FAILED
