"""Decisions of people that hold for later calls, and exactly what they are bound to."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Final, Literal, final

import msgspec

from conduit_daemon.state_file import StateFile
from conduit_daemon.steady_clock import steady_clock
from conduit_daemon.telemetry.events import EventBus

__all__ = ["Answer", "Binding", "Remembered", "Scope"]

Scope = Literal["args", "tool"]
"""Whether a remembered decision is about the same arguments alone, or about any of the tool's."""

_FILE: Final = "approvals.json"
_MOST: Final = 10_000
_AMISS: Final = 60.0
"""Seconds by which a clock may have been set back over a restart and still be believed."""


class Answer(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True):
    """What somebody decided about a call.

    Attributes:
        decision: Whether it may run.
        approver: Who decided.
        reason: Told to the model where it is denied.
        halt: Whether the agent's loop is to end.
    """

    decision: Literal["approve", "deny"]
    approver: str = ""
    reason: str | None = None
    halt: bool = False


class Binding(msgspec.Struct, frozen=True, kw_only=True):
    """All that a decision is about; another call with the same binding is the same question.

    Attributes:
        principal: Who calls.
        server: The server's id.
        tool: The server's own name of the tool.
        arguments: The digest of the arguments.
        definition: The digest of the tool's definition.
        policy: The digest of the policy.
        rule: The rule that asked. A decision about one rule's question answers no other's.
    """

    principal: str
    server: str
    tool: str
    arguments: str
    definition: str
    policy: str
    rule: str


class _Kept(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True):
    binding: Binding
    scope: Scope
    answer: Answer
    until: float
    seconds: float = 0.0
    once: bool = False


_Key = tuple[str, str, str, str | None]


@final
class Remembered:
    """Remembered decisions, kept in the state directory.

    Args:
        directory: The state directory; None keeps nothing beyond this process.
        bus: Where events about the file go.
        clock: Unix seconds; None for those of a clock that nobody sets.
    """

    def __init__(self, directory: Path | None, bus: EventBus, clock: Callable[[], float] | None = None) -> None:
        self.file = StateFile(None if directory is None else directory / _FILE, list[_Kept], bus)
        self._clock = clock or steady_clock()
        self._kept: dict[_Key, _Kept] = {}

    def __len__(self) -> int:
        return len(self._kept)

    def load(self) -> None:
        """Reads what was kept; what is said to hold for longer than it was given for is not believed."""
        now = self._clock()
        self._kept = {
            _key(kept.binding, kept.scope): kept
            for kept in self.file.load() or ()
            if now < kept.until <= now + kept.seconds + _AMISS
        }

    def recall(self, binding: Binding) -> Answer | None:
        """The answer that was given to this question before and still holds."""
        if not self._kept:
            return None
        for scope in ("args", "tool"):
            key = _key(binding, scope)
            kept = self._kept.get(key)
            if kept is None:
                continue
            if kept.until <= self._clock():
                del self._kept[key]
            elif _same_question(kept.binding, binding):
                if kept.once:
                    del self._kept[key]
                    self._save()
                return kept.answer
        return None

    def keep(self, binding: Binding, answer: Answer, scope: Scope, seconds: float, *, once: bool = False) -> None:
        """Has `answer` hold for the same question, for `seconds`, or until it is asked the next time (`once`)."""
        key = _key(binding, scope)
        self._kept.pop(key, None)
        until = self._clock() + seconds
        self._kept[key] = _Kept(binding=binding, scope=scope, answer=answer, until=until, seconds=seconds, once=once)
        if len(self._kept) > _MOST:
            del self._kept[next(iter(self._kept))]
        self._save()

    def _save(self) -> None:
        self.file.save(self._living)

    def _living(self) -> list[_Kept]:
        now = self._clock()
        self._kept = {key: kept for key, kept in self._kept.items() if kept.until > now}
        return list(self._kept.values())


def _key(binding: Binding, scope: Scope) -> _Key:
    return binding.principal, binding.server, binding.tool, binding.arguments if scope == "args" else None


def _same_question(kept: Binding, asked: Binding) -> bool:
    return (kept.definition, kept.policy, kept.rule) == (asked.definition, asked.policy, asked.rule)
