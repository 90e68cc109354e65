"""The verbs of the command line: where each is defined, and its line in the list of all.

Nothing of them is imported here, so that the list is printed at once; whoever asks for one loads that one alone.
"""

from __future__ import annotations

from typing import Final, NamedTuple

__all__ = ["GROUPS", "VERBS", "Group", "Verb"]


class Verb(NamedTuple):
    """One verb.

    Attributes:
        name: As it is typed.
        function: ``module:function`` in this package.
        line: The first sentence of that function's docstring.
    """

    name: str
    function: str
    line: str


class Group(NamedTuple):
    """Verbs under one word.

    Attributes:
        name: The word.
        line: What they are for.
        verbs: The verbs.
        default: ``module:function`` of what the word alone does; None for showing the group's help.
    """

    name: str
    line: str
    verbs: tuple[Verb, ...]
    default: str | None = None


_EXPLAIN: Final = Verb("explain", "look:explain", "Tells why a server is in its state, as a timeline.")

VERBS: Final = (
    Verb("run", "run_daemon:run", "Runs the daemon in the foreground, until it is told to stop."),
    Verb("demo", "demo:demo", "Shows the whole in a few seconds, on a daemon of its own that is removed again."),
    Verb("init", "init:init", "Writes a configuration to begin with, all of it explained; never over one that exists."),
    Verb(
        "import",
        "import_servers:import_servers",
        "Prints the servers of another MCP host as TOML, their secrets replaced by ${env:...}.",
    ),
    Verb("check", "check:check", "Says everything that is wrong with a configuration, or what it holds."),
    Verb("status", "look:status", "Shows the daemon's health and the state of every server."),
    Verb("top", "top:top", "Shows the servers, their calls and the supervision tree, live; q or Ctrl-C ends it."),
    Verb("tools", "use:tools", "Lists the tools, plain or in a model provider's format."),
    Verb("call", "use:call", "Calls one tool and prints its result."),
    Verb("execute", "use:execute", "Runs the tool calls of a model's response (stdin or a file)."),
    Verb("mcp", "mcp:mcp", "Serves the daemon's tools on stdin and stdout, as an MCP server for any MCP host."),
    Verb("tree", "look:tree", "Shows the supervision tree as it stands."),
    _EXPLAIN,
    Verb("events", "events:events", "Follows the daemon's events, one a line, until Ctrl-C."),
    Verb("audit", "audit:audit", "Lists past calls and decisions, newest first."),
    Verb("reload", "servers:reload", "Has the daemon read its configuration again; a wrong one changes nothing."),
    Verb("login", "login:login", "Logs in to a server by OAuth; the daemon uses and renews what comes of it."),
    Verb(
        "log-level",
        "administration:log_level",
        "Changes from which level on the daemon logs, until it is restarted.",
    ),
    Verb("metrics", "administration:metrics", "Prints the daemon's metrics, in the text format of Prometheus."),
    Verb(
        "bench",
        "bench:bench",
        "Measures calls: of the example server through a daemon of its own, or of a tool of the running daemon.",
    ),
)
"""The verbs that stand alone, in the order in which they are listed."""

GROUPS: Final = (
    Group(
        "servers",
        "Has a server restarted, stopped, started, explained, added, ...",
        (
            Verb(
                "restart",
                "servers:restart",
                "Restarts a server, or tries one at once that waits before its next attempt.",
            ),
            Verb("start", "servers:start", "Starts a server that was stopped."),
            Verb("stop", "servers:stop", "Stops a server until it is started again."),
            _EXPLAIN,
            Verb(
                "accept",
                "servers:accept",
                "Accepts the changed definition of a pinned tool; on a terminal it is shown first, and asked about.",
            ),
            Verb("add", "servers:add", "Adds a server until the next reload."),
            Verb("remove", "servers:remove", "Removes a server until the next reload."),
        ),
    ),
    Group(
        "approvals",
        "Shows, watches and decides calls that wait for a person.",
        (
            Verb("approve", "approvals:approve", "Lets a waiting call run."),
            Verb("deny", "approvals:deny", "Denies a waiting call."),
        ),
        default="approvals:pending",
    ),
    Group(
        "policy",
        "Explains and tests the rules.",
        (
            Verb(
                "explain",
                "policy:explain",
                "Tells what the daemon's rules would say of a call, and why; nothing is called.",
            ),
            Verb("test", "policy:check_tests", "Runs the tests that a configuration has for its own rules."),
        ),
    ),
    Group(
        "taint",
        "Forgets whose output models have read.",
        (
            Verb(
                "reset",
                "administration:reset_taint",
                "Forgets whose output models have read, of all conversations or of those named.",
            ),
        ),
    ),
    Group(
        "config",
        "Prints the configuration's schema for editors.",
        (
            Verb(
                "schema",
                "schema:schema",
                "Prints the JSON Schema of the configuration, with which editors complete keys and mark mistakes.",
            ),
        ),
    ),
)
"""The verbs that stand under a word."""
