"""The command line as a whole: its verbs, and how each way to end becomes an exit code."""

from __future__ import annotations

import os
import sys
from collections.abc import Collection, Sequence
from importlib import import_module
from io import TextIOWrapper
from typing import Final

from cyclopts import App, CycloptsError, Parameter

from conduit_daemon.agent import AgentError, CallFailed
from conduit_daemon.cli import output
from conduit_daemon.cli.exits import FAILED, INTERRUPTED, USAGE, UsageError, exit_code
from conduit_daemon.cli.front import EPILOGUE, HELP
from conduit_daemon.cli.verbs import GROUPS, VERBS, Group, Verb

__all__ = ["application", "run"]

_COMPLETION: Final = Verb(
    "--install-completion", "completion:install_completion", "Has the shell complete verbs and options."
)


def application(words: Collection[str] = ()) -> App:
    """The `conduit` command with all its verbs.

    Args:
        words: What was typed: the verbs among it have all their help, the others their line in the list.
    """
    app = App(
        name="conduit",
        help=HELP,
        help_epilogue=EPILOGUE,
        help_format="plaintext",
        suppress_keyboard_interrupt=False,
        version=_version,
        default_parameter=Parameter(negative=(), show_default=False),
    )
    for place, verb in enumerate(VERBS):
        _add(app, verb, words, place)
    for group in GROUPS:
        app.command(_group(group, words))
    _add(app, _COMPLETION, words, len(VERBS))
    return app


def _group(group: Group, words: Collection[str]) -> App:
    made = App(name=group.name, help=group.line, help_format="plaintext", sort_key=len(VERBS))
    if group.default is not None and group.name in words:
        module, _, function = group.default.partition(":")
        made.default(getattr(import_module(f"{__package__}.{module}"), function))
    for place, verb in enumerate(group.verbs):
        _add(made, verb, words, place)
    return made


def _add(app: App, verb: Verb, words: Collection[str], place: int) -> None:
    # A line that is given here takes the place of the whole docstring.
    app.command(
        f"{__package__}.{verb.function}", name=verb.name, sort_key=place, help=None if verb.name in words else verb.line
    )


def run(words: Sequence[str]) -> int:
    """Runs one command and returns its exit code; what goes wrong is one sentence on stderr.

    Args:
        words: The arguments, without the program's name.
    """
    if isinstance(sys.stdout, TextIOWrapper):
        sys.stdout.reconfigure(errors="backslashreplace")  # a terminal that cannot show a character is no failure
    try:
        result = application(words)(list(words), exit_on_error=False, print_error=False, result_action="return_value")
        sys.stdout.flush()
    except CycloptsError as error:
        return _failed(f"{error} See '{' '.join(['conduit', *(error.command_chain or ()), '--help'])}'.", USAGE)
    except UsageError as error:
        return _failed(str(error), USAGE)
    except AgentError as error:
        if isinstance(error, CallFailed) and "--json" in words:
            output.print_json({"error": {"code": error.code, "message": error.message, "data": error.data}})
        return _failed(str(error), exit_code(error))
    except BrokenPipeError:
        # Who read our output has what it wanted; the interpreter must not complain while it exits.
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
        return FAILED
    except OSError as error:
        return _failed(f"{error.filename or 'The output'}: {error.strerror or error}.", FAILED)
    except KeyboardInterrupt:
        return INTERRUPTED
    return result if isinstance(result, int) else 0


def _failed(message: str, code: int) -> int:
    output.print_error(message)
    return code


def _version() -> str:
    from importlib.metadata import version  # noqa: PLC0415 - only --version needs it

    return version("conduit-daemon")
