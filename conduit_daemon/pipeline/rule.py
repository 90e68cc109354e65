"""One rule of the policy, compiled: what it asks of a call, and whether a call is so."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Any, Final, final

import msgspec

from conduit_daemon.config.condition import Work, compile_condition, work_of
from conduit_daemon.config.globs import matcher
from conduit_daemon.config.model import UNTRUSTED, PolicyRule
from conduit_daemon.hub.readings import matches_possibly, matches_surely
from conduit_daemon.model import user_of
from conduit_daemon.pipeline.nesting import MAX_DEPTH, extent, too_deep

__all__ = ["Facts", "Rule"]

# What a hint is where a tool does not give it (ToolAnnotations of the MCP schema).
_DEFAULT_HINTS: Final[Mapping[str, bool]] = {
    "readOnlyHint": False,
    "destructiveHint": True,
    "idempotentHint": False,
    "openWorldHint": True,
}
_OF_THE_CALL: Final = frozenset({"args", "assigns"})
_MOST_STEPS: Final = 250_000
"""Steps of a condition's macros, which stop everybody while they are made: some 0.2 s."""


class Facts(msgspec.Struct, frozen=True, kw_only=True):
    """What rules see of a call.

    Attributes:
        server: The server's id.
        tool: The server's own name for the tool, or ``resource:URI`` or ``prompt:NAME``.
        annotations: The tool's hints as listed; they count on trusted servers alone. The same object for
            the same tool makes deciding fast.
        principal: ``USER`` or ``USER/AGENT``.
        taint: Ids of the servers whose output is in the model's context.
        arguments: The call's arguments.
        assigns: What the caller assigned.
    """

    server: str
    tool: str
    annotations: Mapping[str, Any] = {}
    principal: str = ""
    taint: frozenset[str] = frozenset()
    arguments: Mapping[str, Any] = {}
    assigns: Mapping[str, Any] = {}


@final
class Rule:
    """A compiled rule.

    Attributes:
        name: Its name, or ``rules[N]``.
        effect: What it decides.
        reason: Its words for the model or the person asked.
        condition: Its CEL expression, where it has one.
        looks_at_call: Whether that speaks of arguments or assigns, which differ from call to call.
    """

    def __init__(self, config: PolicyRule, name: str) -> None:
        self.name = name
        self.effect = config.effect
        self.reason = config.reason
        self.condition = config.when
        self._config = config
        self._server = matcher(config.servers)
        self._tool = (matches_surely if config.effect == "allow" else matches_possibly)(config.tools)
        self._principal = matcher(config.principals)
        tainted_by = config.tainted_by
        self._taint = None if tainted_by is None else matcher(glob for glob in tainted_by if glob != UNTRUSTED)
        self._untrusted = tainted_by is not None and UNTRUSTED in tainted_by
        self._program = None
        self._work = Work(0, 1)
        self._variables: frozenset[str] = frozenset()
        if config.when is not None:
            self._work = work_of(config.when)
            try:
                self._program = compile_condition(config.when)
            except ValueError as error:
                raise ValueError(f"{name}: its condition {error}") from None
            self._variables = frozenset(self._program.variables())
        self.looks_at_call = not _OF_THE_CALL.isdisjoint(self._variables)

    def mismatch(self, facts: Facts, trusted: frozenset[str]) -> str | None:
        """Why the rule is not about this call, its condition aside; None where it is."""
        config = self._config
        if not self._server(facts.server):
            return f"server {facts.server!r} matches none of {_listed(config.servers)}"
        if not self._tool(facts.tool):
            return f"tool {facts.tool!r} matches none of {_listed(config.tools)}"
        if not self._is_about(facts.principal):
            return f"principal {facts.principal!r} matches none of {_listed(config.principals)}"
        if self._taint is not None and not (
            any(map(self._taint, facts.taint)) or (self._untrusted and not facts.taint <= trusted)
        ):
            tainted = _listed(sorted(facts.taint)) or "nothing"
            return f"the context is tainted by {tainted}, not by {_listed(config.tainted_by or ())}"
        if config.annotations and facts.server not in trusted:
            return f"server {facts.server!r} is not trusted, so its annotations do not count"
        for hint, wanted in config.annotations.items():
            given = facts.annotations.get(hint, _DEFAULT_HINTS.get(hint))
            if given != wanted or isinstance(given, bool) is not isinstance(wanted, bool):
                return f"the annotation {hint} is not {msgspec.json.encode(wanted).decode()}"
        return None

    def _is_about(self, principal: str) -> bool:
        """Whether the rule is about a principal.

        What is held against a user holds for each agent beneath it, whose name is its own choice: it must not come
        out from under a rule by calling itself something.
        """
        if self._principal(principal):
            return True
        return self.effect != "allow" and self._principal(user_of(principal))

    def holds(self, facts: Facts) -> tuple[bool, str | None]:
        """Whether the condition holds, and what is wrong where it cannot be told.

        What cannot be told counts as no match for a rule that allows, and as a match for one that approves or
        denies, so that a failing rule never opens anything.
        """
        if self._program is None:
            return True, None
        values = {name: _VALUES[name](facts) for name in self._variables if name in _VALUES}
        error = self._unfit(values)
        if error is None:
            try:
                result = self._program.execute(values)
            except (RuntimeError, ValueError, TypeError, LookupError, ArithmeticError) as failure:
                error = f"its condition could not be evaluated: {_kind_of(failure)}"
            else:
                if isinstance(result, bool):
                    return result, None
                error = "its condition gave neither true nor false"
        return self.effect != "allow", error

    def _unfit(self, values: dict[str, Any]) -> str | None:
        """Why the condition is not evaluated on such values: whoever calls chooses them, and all others would wait."""
        for name, value in values.items():
            if too_deep(value):
                return f"its condition was not evaluated: {name} is nested deeper than {MAX_DEPTH} levels"
        if self._work.loops and self._work.steps(*extent(list(values.values()))) > _MOST_STEPS:
            return f"its condition was not evaluated: {' and '.join(sorted(values))} hold too much for its loops"
        return None


_VALUES: Final[Mapping[str, Any]] = {
    "annotations": lambda facts: facts.annotations,
    "args": lambda facts: facts.arguments,
    "assigns": lambda facts: facts.assigns,
    "principal": lambda facts: facts.principal,
    "server": lambda facts: facts.server,
    "taint": lambda facts: sorted(facts.taint),
    "tool": lambda facts: facts.tool,
}


def _kind_of(failure: Exception) -> str:
    """The failure without the values that its message quotes, which may be the call's."""
    if isinstance(failure, KeyError):
        return "it asks for a key that is not there (has(...) tells whether one is)"
    if isinstance(failure, IndexError):
        return "it asks for an item beyond the end of a list"
    if isinstance(failure, ArithmeticError):
        return "a number went out of range, or was divided by zero"
    if isinstance(failure, ValueError):
        return "a value cannot be expressed in CEL"
    return "an operation does not fit the types of its values"


def _listed(names: Iterable[str]) -> str:
    return ", ".join(names)
