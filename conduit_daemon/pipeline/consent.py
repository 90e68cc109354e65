"""The stage in which a call that a rule wants to be approved gets its answer: a remembered one, or a person's."""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from typing import final

import msgspec
import trio

from conduit_daemon.clients.dispatcher import OnProgress
from conduit_daemon.errors import ClientError
from conduit_daemon.hub.toolset import Entry
from conduit_daemon.model import Call
from conduit_daemon.pipeline import progress
from conduit_daemon.pipeline.approvals import Pending
from conduit_daemon.pipeline.digest import arguments_digest
from conduit_daemon.pipeline.governance import Governance
from conduit_daemon.pipeline.policy import Decision
from conduit_daemon.pipeline.question import Question
from conduit_daemon.pipeline.refusal import nobody_answered
from conduit_daemon.pipeline.remembered import Answer, Binding

__all__ = ["Consent"]


@final
class Consent:
    """What people say about one call.

    Attributes:
        approver: Who answered last; None where nobody was asked.
        pending: The question, once it was asked.
        begun: When it was asked, on trio's clock.
    """

    __slots__ = ("_given", "_governance", "approver", "begun", "pending")

    def __init__(self, governance: Governance) -> None:
        self.approver: str | None = None
        self.pending: Pending | None = None
        self.begun = 0.0
        self._given: Binding | None = None
        self._governance = governance

    def covers(self, entry: Entry) -> bool:
        """Whether somebody has approved this call of the tool as it is defined now, with whatever arguments."""
        given = self._given
        return given is not None and (given.server, given.definition) == (entry.server_id, entry.digest)

    @property
    def waits(self) -> bool:
        """Whether the question is open."""
        return self.pending is not None and not self.pending.over

    @property
    def somebody(self) -> bool:
        """Whether anybody can be asked."""
        return self._governance.approvals.somebody

    def bind(self, call: Call, entry: Entry, decision: Decision, policy: str) -> Binding:
        """All that an answer is about; `policy` is that one's digest."""
        return Binding(
            principal=call.principal.name,
            server=entry.server_id,
            tool=entry.tool.name,
            arguments=arguments_digest(call.arguments),
            definition=entry.digest,
            policy=policy,
            rule=decision.rule,
        )

    def recall(self, binding: Binding) -> Answer | None:
        """The answer given already: to this call, or to one like it before and remembered."""
        if self._given == binding and self.approver is not None:
            return Answer(decision="approve", approver=self.approver)
        answer = self._governance.approvals.recall(binding)
        if answer is None:
            return None
        return msgspec.structs.replace(answer, approver=f"{answer.approver} (remembered)")

    def ask(
        self,
        call: Call,
        entry: Entry,
        decision: Decision,
        binding: Binding,
        taint: frozenset[str],
        on_answer: Callable[[Answer | None], None],
    ) -> None:
        """Asks; `on_answer` is called once, possibly before this returns, unless the question is withdrawn.

        Raises:
            ClientError: ``rate_limited``: too many questions are open, or too many of this caller's.
        """
        question = Question(
            call=call.id,
            server=entry.server_id,
            tool=entry.tool.name,
            exposed_name=entry.exposed,
            arguments=call.arguments,
            annotations=entry.tool.annotations,
            principal=call.principal.name,
            taint=tuple(sorted(taint)),
            rule=decision.rule,
            reason=decision.reason,
        )
        self.begun = trio.current_time()
        self.pending = self._governance.approvals.ask(question, binding, on_answer, asker=call.principal.pid)

    def accept(self, answer: Answer, binding: Binding) -> None:
        """Notes who answered, and what was approved where it was."""
        self.approver = answer.approver
        self._given = binding if answer.decision == "approve" else None

    def unanswered(self) -> ClientError:
        """The error of a call about which nobody decided in time."""
        assert self.pending is not None  # noqa: S101 - it was asked
        return nobody_answered(self.pending.question, trio.current_time() - self.begun)

    def withdraw(self) -> None:
        """Takes the question back."""
        if self.pending is not None:
            self._governance.approvals.withdraw(self.pending)

    def tell_waiting(self, on_progress: OnProgress) -> None:
        """Tells the caller now and then that it waits, so that its host does not give up."""
        if not self.waits:
            return
        now, governance = trio.current_time(), self._governance
        on_progress(progress.waiting(now - self.begun, governance.approvals.timeout))
        governance.deadlines.add(now + progress.EVERY, partial(self.tell_waiting, on_progress))
