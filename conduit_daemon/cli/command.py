"""The command line as a whole: its verbs, and how each way to end becomes an exit code."""

from __future__ import annotations

import os
import sys
from collections.abc import Callable, Sequence
from io import TextIOWrapper

from cyclopts import App, CycloptsError, Parameter

from conduit_daemon.agent import AgentError, CallFailed
from conduit_daemon.cli import (
    administration,
    approvals,
    audit,
    bench,
    check,
    completion,
    demo,
    events,
    import_servers,
    init,
    look,
    mcp,
    output,
    policy,
    run_daemon,
    schema,
    servers,
    top,
    use,
)
from conduit_daemon.cli.exits import FAILED, INTERRUPTED, USAGE, UsageError, exit_code

__all__ = ["application", "run"]

_HELP = """A local hub for MCP servers: it owns the connections, agents call tools through its socket."""
_EPILOGUE = (
    "Exit codes: 0 done, 1 failed, 2 usage, 3 no daemon answers, 4 denied, 5 the tool reports an error, "
    "78 the configuration cannot be used."
)


_VERBS: tuple[Callable[..., int], ...] = (
    run_daemon.run,
    demo.demo,
    check.check,
    init.init,
    look.status,
    top.top,
    use.tools,
    use.call,
    use.execute,
    mcp.mcp,
    look.tree,
    look.explain,
    events.events,
    audit.audit,
    servers.reload,
    administration.log_level,
    administration.metrics,
    bench.bench,
)
_SERVERS: dict[str, Callable[..., int]] = {
    "restart": servers.restart,
    "start": servers.start,
    "stop": servers.stop,
    "explain": look.explain,
    "accept": servers.accept,
    "add": servers.add,
    "remove": servers.remove,
}
_APPROVALS: dict[str, Callable[..., int]] = {"approve": approvals.approve, "deny": approvals.deny}


def application() -> App:
    """The `conduit` command with all its verbs."""
    app = App(
        name="conduit",
        help=_HELP,
        help_epilogue=_EPILOGUE,
        help_format="plaintext",
        suppress_keyboard_interrupt=False,
        version=_version,
        default_parameter=Parameter(negative=(), show_default=False),
    )
    for place, verb in enumerate(_VERBS):
        app.command(verb, sort_key=place)
    app.command(_group("servers", "Has a server restarted, stopped, started, explained, added, ...", _SERVERS))
    app.command(
        _group("policy", "Explains and tests the rules.", {"explain": policy.explain, "test": policy.check_tests})
    )
    app.command(_group("taint", "Forgets whose output models have read.", {"reset": administration.reset_taint}))
    app.command(_group("config", "Prints the configuration's schema for editors.", {"schema": schema.schema}))
    asking = _group("approvals", "Shows, watches and decides calls that wait for a person.", _APPROVALS)
    asking.default(approvals.pending)
    app.command(asking)
    app.command(import_servers.import_servers, name="import", sort_key=_VERBS.index(check.check))
    app.command(completion.install_completion, name="--install-completion")
    return app


def _group(name: str, help: str, verbs: dict[str, Callable[..., int]]) -> App:
    group = App(name=name, help=help, help_format="plaintext", sort_key=len(_VERBS))
    for word, verb in verbs.items():
        group.command(verb, name=word)
    return group


def run(words: Sequence[str]) -> int:
    """Runs one command and returns its exit code; what goes wrong is one sentence on stderr.

    Args:
        words: The arguments, without the program's name.
    """
    if isinstance(sys.stdout, TextIOWrapper):
        sys.stdout.reconfigure(errors="backslashreplace")  # a terminal that cannot show a character is no failure
    try:
        result = application()(list(words), exit_on_error=False, print_error=False, result_action="return_value")
        sys.stdout.flush()
    except CycloptsError as error:
        return _failed(f"{error} See 'conduit --help'.", USAGE)
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
