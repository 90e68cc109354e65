"""The stage that decides whether a call is allowed, asked about or denied: the first rule that matches.

Pure: facts in, a decision out. What a rule says of server, tool, principal, taint and annotations is worked out
once for each combination of them and kept, so that deciding the same call again costs a look-up; only conditions
over arguments and assigns are evaluated anew.
"""

from __future__ import annotations

import hashlib
from collections.abc import Mapping
from typing import Any, Final, final

import msgspec

from conduit_daemon.config.model import Effect, PolicyConfig
from conduit_daemon.pipeline.rule import Facts, Rule

__all__ = ["Considered", "Decision", "Explanation", "Facts", "Policy", "compile_policy"]

_REMEMBERED: Final = 4096
_MOST_TAINT: Final = 100  # of what is remembered: a caller names what it likes
_NO_ANNOTATIONS: Final[Mapping[str, Any]] = {}


class Decision(msgspec.Struct, frozen=True):
    """What the policy says about one call.

    Attributes:
        effect: What is to be done.
        rule: The rule that decided: its name, ``rules[N]``, or ``default``.
        reason: The rule's own words, for the model or the person who is asked.
        errors: Conditions that could not be evaluated, one sentence each, without values of the call.
    """

    effect: Effect
    rule: str
    reason: str | None = None
    errors: tuple[str, ...] = ()


class Considered(msgspec.Struct, frozen=True):
    """One rule that was looked at: whether it matched, and why or why not."""

    rule: str
    matched: bool
    why: str


class Explanation(msgspec.Struct, frozen=True, omit_defaults=True):
    """How a decision comes about; as JSON, the result of ``conduit/policy/explain``."""

    decision: Effect
    rule: str
    considered: tuple[Considered, ...]
    reason: str | None = None


class _Plan(msgspec.Struct, frozen=True):
    """What is left to do for a combination of facts: conditions over arguments in order, then the decision.

    Attributes:
        annotations: Those it was made for.
        open: Rules that everything but their condition matches, and errors of others, in the rules' order.
        otherwise: The decision where none of them matches.
    """

    annotations: Mapping[str, Any]
    open: tuple[Rule | str, ...]
    otherwise: Decision


@final
class Policy:
    """Compiled rules. Immutable as far as anyone can see; make one with `compile_policy`.

    Attributes:
        digest: Of all that decides: rules, default and which servers are trusted. A remembered approval
            holds under the same digest only.
    """

    def __init__(self, rules: tuple[Rule, ...], default: Effect, trusted: frozenset[str], digest: str) -> None:
        self._rules = rules
        self._default = Decision(default, "default")
        self._trusted = trusted
        self._plans: dict[tuple[str, str, str, frozenset[str]], _Plan] = {}
        self.digest = digest

    def decide(self, facts: Facts) -> Decision:
        """The decision on a call. Never raises; a condition that fails is in the decision's ``errors``."""
        key = (facts.server, facts.tool, facts.principal, facts.taint)
        plan = self._plans.get(key)
        if plan is None or (plan.annotations is not facts.annotations and facts.server in self._trusted):
            plan = self._plan(facts)
            if len(facts.taint) <= _MOST_TAINT:
                if len(self._plans) >= _REMEMBERED:
                    self._plans.clear()
                self._plans[key] = plan
        if not plan.open:
            return plan.otherwise
        return _follow(plan, self._believed(facts))

    def explain(self, facts: Facts) -> Explanation:
        """The decision on a call with each rule that was looked at on the way, and why it did or did not match."""
        facts = self._believed(facts)
        considered: list[Considered] = []
        for rule in self._rules:
            why = rule.mismatch(facts, self._trusted)
            if why is None:
                matched, error = rule.holds(facts)
                if error is not None:
                    why = f"{error}, which counts as {'a match' if matched else 'no match'} for {rule.effect}"
                elif rule.condition is None:
                    why = "everything it asks for is so"
                else:
                    why = f"its condition is {'true' if matched else 'false'}"
            else:
                matched = False
            considered.append(Considered(rule.name, matched, why))
            if matched:
                return Explanation(rule.effect, rule.name, tuple(considered), rule.reason)
        return Explanation(self._default.effect, self._default.rule, tuple(considered))

    def _believed(self, facts: Facts) -> Facts:
        """The facts without annotations that are not to be believed."""
        if facts.server in self._trusted or not facts.annotations:
            return facts
        return msgspec.structs.replace(facts, annotations=_NO_ANNOTATIONS)

    def _plan(self, facts: Facts) -> _Plan:
        believed = self._believed(facts)
        undecided: list[Rule | str] = []
        for rule in self._rules:
            if rule.mismatch(believed, self._trusted) is not None:
                continue
            if rule.looks_at_call:
                undecided.append(rule)
                continue
            matched, error = rule.holds(believed)
            if error is not None:
                undecided.append(_failed(rule, error))
            if matched:
                return _plan(facts.annotations, undecided, Decision(rule.effect, rule.name, rule.reason))
        return _plan(facts.annotations, undecided, self._default)


def compile_policy(config: PolicyConfig, trusted: frozenset[str] = frozenset()) -> Policy:
    """Compiles the rules of a configuration.

    Args:
        config: The ``[policy]`` table.
        trusted: Ids of the servers with ``trusted = true``.

    Raises:
        ValueError: A rule's ``when`` is no usable CEL expression; the message names the rule.

    Example:
        >>> from conduit_daemon.config.model import PolicyConfig, PolicyRule
        >>> policy = compile_policy(PolicyConfig(rules=(PolicyRule(effect="allow", tools=("read_*",)),)))
        >>> policy.decide(Facts(server="files", tool="read_file")).effect
        'allow'
        >>> policy.decide(Facts(server="files", tool="write_file")).rule
        'default'
    """
    rules = tuple(Rule(rule, rule.name or f"rules[{index}]") for index, rule in enumerate(config.rules))
    content = msgspec.json.encode([config.default, config.rules, sorted(trusted)], order="sorted")
    return Policy(rules, config.default, trusted, hashlib.sha256(content).hexdigest())


def _plan(annotations: Mapping[str, Any], undecided: list[Rule | str], otherwise: Decision) -> _Plan:
    if undecided and all(isinstance(step, str) for step in undecided):
        errors = tuple(step for step in undecided if isinstance(step, str))
        return _Plan(annotations, (), msgspec.structs.replace(otherwise, errors=errors))
    return _Plan(annotations, tuple(undecided), otherwise)


def _follow(plan: _Plan, facts: Facts) -> Decision:
    errors: list[str] = []
    for step in plan.open:
        if isinstance(step, str):
            errors.append(step)
            continue
        matched, error = step.holds(facts)
        if error is not None:
            errors.append(_failed(step, error))
        if matched:
            return Decision(step.effect, step.name, step.reason, tuple(errors))
    return msgspec.structs.replace(plan.otherwise, errors=tuple(errors)) if errors else plan.otherwise


def _failed(rule: Rule, error: str) -> str:
    return f"{rule.name}: {error}"
