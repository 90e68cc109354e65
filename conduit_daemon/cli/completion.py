"""`conduit --install-completion`: verbs and options at the Tab key."""

from __future__ import annotations

from pathlib import Path
from typing import Literal

from conduit_daemon.cli import output
from conduit_daemon.cli.exits import DONE, UsageError

__all__ = ["install_completion"]


def install_completion(shell: Literal["bash", "zsh", "fish"] | None = None, *, to: Path | None = None) -> int:
    """Has the shell complete verbs and options.

    Args:
        shell: Which shell; the present one without.
        to: Write the script to this file alone, and leave the shell's own files as they are.
    """
    from cyclopts.completion.detect import ShellDetectionError, detect_shell  # noqa: PLC0415 - once in a lifetime

    from conduit_daemon.cli.command import application  # noqa: PLC0415 - it imports this module

    try:
        which = shell or detect_shell()
    except ShellDetectionError as error:
        raise UsageError("Which shell this is cannot be told; name it: bash, zsh or fish.") from error
    path = application(["approvals"]).install_completion(shell=which, output=to, add_to_startup=to is None)
    sourced = "" if to is not None or which == "fish" else f", and in {which}'s start-up file a line that reads it"
    output.print_text(f"Written: {path}{sourced}. It holds for shells that are started from now on.")
    return DONE
