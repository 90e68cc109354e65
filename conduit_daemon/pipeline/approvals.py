"""Calls that wait for a person's word: who can be asked, what is asked, and what is answered.

A question is a few facts and a callback; the call that waits for its answer takes no task. Whoever watches is told
of each question; the first answer counts. Nothing here can be reached from the agents' socket.
"""

from __future__ import annotations

import traceback
from collections import Counter, OrderedDict
from collections.abc import Awaitable, Callable
from functools import partial
from typing import Any, Final, Literal, final

import msgspec
import trio

from conduit_daemon.clients.deadlines import Deadline, Deadlines
from conduit_daemon.errors import ClientError
from conduit_daemon.pipeline.background import Background, settled
from conduit_daemon.pipeline.question import Change, Decided, Question, Remember
from conduit_daemon.pipeline.remembered import Answer, Binding, Remembered
from conduit_daemon.telemetry.events import EventBus

__all__ = ["Answer", "Approvals", "Approver", "Change", "Decided", "Pending", "Question", "Remember"]

LATE: Final = 600.0
"""Seconds for which a decision holds that came after its caller had gone."""

_MOST: Final = 1000
_MOST_OF_ONE: Final = 100
"""Questions of one process that may be open, so that no agent takes the place of all others' questions."""
_OVER: Final = 1000


OnAnswer = Callable[[Answer | None], None]
"""Called at most once: with the answer, or with None where nobody answered in time."""

Watcher = Callable[[Change], None]

Approver = Callable[[Question], Answer | Awaitable[Answer | None] | None]
"""Answers a question, or leaves it (None) to others or to a later `Approvals.decide`."""


@final
class Pending:
    """A question that waits for its answer.

    Attributes:
        question: What is asked.
        expires_at: When it is denied for want of an answer, on trio's clock.
        over: Whether it waits no more.
    """

    __slots__ = ("_asker", "_binding", "_deadline", "_on_answer", "_stop_asking", "expires_at", "over", "question")

    def __init__(
        self, question: Question, binding: Binding, on_answer: OnAnswer, expires_at: float, asker: object
    ) -> None:
        self.question = question
        self._asker = asker
        self.expires_at = expires_at
        self.over = False
        self._binding = binding
        self._on_answer = on_answer
        self._deadline: Deadline | None = None
        self._stop_asking: list[Callable[[], None]] = []

    @property
    def expires_in(self) -> float:
        """Seconds that are left."""
        return round(max(0.0, self.expires_at - trio.current_time()), 3)


class _Over(msgspec.Struct, frozen=True):
    """A question that is over: why, and what a late answer would be bound to."""

    why: str
    binding: Binding | None


@final
class Approvals:
    """The questions that are open, and those who can answer them. Outlives every restart in the tree.

    Args:
        remembered: Decisions that hold for later calls.
        deadlines: For the time that an answer may take.
        background: Runs approvers that take their time.
        bus: Where ``approval.*`` events go.
    """

    def __init__(self, remembered: Remembered, deadlines: Deadlines, background: Background, bus: EventBus) -> None:
        self.timeout = 300.0
        self.pending: dict[str, Pending] = {}
        self._open_of: Counter[object] = Counter()
        self._remembered = remembered
        self._deadlines = deadlines
        self._background = background
        self._bus = bus
        self._watchers: list[Watcher] = []
        self._approvers: list[tuple[str, Approver]] = []
        self._over: OrderedDict[str, _Over] = OrderedDict()

    @property
    def somebody(self) -> bool:
        """Whether anybody can be asked."""
        return bool(self._watchers or self._approvers)

    # ---- those who can be asked

    def watch(self, watcher: Watcher) -> Callable[[], None]:
        """Tells `watcher` of every change from now on, and of the questions that are open, until the returned
        function is called."""
        for pending in list(self.pending.values()):
            watcher(Change(type="requested", question=pending.question, expires_in=pending.expires_in))
        self._watchers.append(watcher)
        return lambda: self._watchers.remove(watcher)

    def register(self, name: str, approver: Approver) -> Callable[[], None]:
        """Has `approver`, code in this process, asked about every call that needs consent, until the returned
        function is called.

        Args:
            name: Who it is, for the audit.
            approver: A function, or a coroutine function (trio), that takes a `Question`. One that raises has
                not answered; an event says so.
        """
        registered = (name, approver)
        self._approvers.append(registered)
        for pending in list(self.pending.values()):
            self._ask_approver(registered, pending)
        return lambda: self._approvers.remove(registered)

    async def saved(self) -> bool:
        """Waits, two seconds at most, until remembered decisions are safe from a restart; tells whether they are."""
        return await self._remembered.file.saved()

    # ---- asking

    def recall(self, binding: Binding) -> Answer | None:
        """The answer that was given to this question before and still holds."""
        return self._remembered.recall(binding)

    def ask(self, question: Question, binding: Binding, on_answer: OnAnswer, *, asker: object = None) -> Pending:
        """Asks everybody; `on_answer` is called once, possibly before this returns, unless it is withdrawn.

        Args:
            question: What is asked.
            binding: What an answer is about.
            on_answer: Gets the answer.
            asker: Whose call it is: its process; the principal where that is not known.

        Raises:
            ClientError: ``rate_limited``: a thousand questions are open already, or a hundred of this asker's.
        """
        asker = question.principal if asker is None else asker
        if len(self.pending) >= _MOST or self._open_of[asker] >= _MOST_OF_ONE:
            full = f"{_MOST} calls wait" if len(self.pending) >= _MOST else f"{_MOST_OF_ONE} calls of this agent wait"
            raise ClientError(
                "rate_limited",
                f"{full} for approval already; try again when some of them are decided.",
                question.server,
                question.tool,
                retry_after=10.0,
            )
        pending = Pending(question, binding, on_answer, trio.current_time() + self.timeout, asker)
        self.pending[question.id] = pending
        self._open_of[asker] += 1
        pending._deadline = self._deadlines.add(pending.expires_at, partial(self._expire, pending))
        self._bus.emit(
            "approval.requested",
            server=question.server,
            tool=question.tool,
            call=question.call,
            approval=question.id,
            principal=question.principal,
            rule=question.rule,
            expires_in=self.timeout,
        )
        self._tell("requested", pending)
        for registered in tuple(self._approvers):
            if not pending.over:
                self._ask_approver(registered, pending)
        return pending

    def withdraw(self, pending: Pending) -> None:
        """Takes a question back: its caller has gone. An answer that comes yet holds for the same call later."""
        if not self._close(pending, "its caller has gone", late=True):
            return
        question = pending.question
        self._bus.emit(
            "approval.withdrawn",
            server=question.server,
            tool=question.tool,
            call=question.call,
            approval=question.id,
            principal=question.principal,
        )
        self._tell("withdrawn", pending)

    # ---- answering

    def decide(self, id: str, answer: Answer, remember: Remember | None = None) -> Decided:
        """Answers a question.

        Args:
            id: The question's.
            answer: The decision, with who made it.
            remember: For what else it is to hold.

        Raises:
            ClientError: ``invalid_params``: there is no such question, or it was decided before.
        """
        pending = self.pending.get(id)
        if pending is not None:
            self._keep(pending._binding, answer, remember)
            self._answer(pending, answer, remember)
            late = False
            if remember is not None:
                self._answer_alike()
        else:
            over = self._over.get(id)
            if over is None or over.binding is None:
                why = "it may be of an earlier run of the daemon" if over is None else over.why
                raise ClientError("invalid_params", f"No call waits for the approval {id[:64]!r}: {why}.")
            late = True
            if remember is None:
                self._remembered.keep(over.binding, answer, "args", LATE, once=True)
            self._keep(over.binding, answer, remember)
            self._note_over(id, _Over(f"{answer.approver} has decided it already", None))
        return Decided(
            id=id,
            decision=answer.decision,
            approver=answer.approver,
            reason=answer.reason,
            halt=answer.halt,
            remembered=remember,
            late=late,
        )

    def _keep(self, binding: Binding, answer: Answer, remember: Remember | None) -> None:
        if remember is not None:
            self._remembered.keep(binding, answer, remember.scope, remember.seconds)

    def _answer_alike(self) -> None:
        """Answers the open questions that a decision just remembered is about too."""
        for pending in list(self.pending.values()):
            if not pending.over and (answer := self._remembered.recall(pending._binding)) is not None:
                self._answer(pending, answer)

    def _answer(self, pending: Pending, answer: Answer | None, remember: Remember | None = None) -> None:
        why = "nobody decided in time" if answer is None else f"{answer.approver} has decided it already"
        if not self._close(pending, why, late=answer is None):
            return
        question = pending.question
        self._bus.emit(
            "approval.decided",
            level="info" if answer is not None else "warning",
            server=question.server,
            tool=question.tool,
            call=question.call,
            approval=question.id,
            principal=question.principal,
            decision="deny" if answer is None else answer.decision,
            approver=None if answer is None else answer.approver,
            reason=why if answer is None else answer.reason,
            remembered=None if remember is None else remember.scope,
        )
        self._tell("decided", pending, answer)
        pending._on_answer(answer)

    def _expire(self, pending: Pending) -> None:
        self._answer(pending, None)

    def _close(self, pending: Pending, why: str, *, late: bool) -> bool:
        if pending.over:
            return False
        pending.over = True
        del self.pending[pending.question.id]
        self._open_of[pending._asker] -= 1
        if not self._open_of[pending._asker]:
            del self._open_of[pending._asker]
        if pending._deadline is not None:
            self._deadlines.cancel(pending._deadline)
        for stop in pending._stop_asking:
            stop()
        self._note_over(pending.question.id, _Over(why, pending._binding if late else None))
        return True

    def _note_over(self, id: str, over: _Over) -> None:
        self._over[id] = over
        self._over.move_to_end(id)
        if len(self._over) > _OVER:
            self._over.popitem(last=False)

    def _tell(
        self, type: Literal["requested", "decided", "withdrawn"], pending: Pending, answer: Answer | None = None
    ) -> None:
        if not self._watchers:
            return
        change = Change(type=type, question=pending.question, expires_in=pending.expires_in, answer=answer)
        for watcher in tuple(self._watchers):
            try:
                watcher(change)
            except Exception as error:  # noqa: BLE001 - no defect of a watcher is the call's
                self._tell_defect(pending, "A watcher of approvals failed.", error)

    def _tell_defect(self, pending: Pending, message: str, error: Exception) -> None:
        self._bus.emit(
            "internal.error",
            level="error",
            call=pending.question.call,
            message=message,
            error=f"{type(error).__name__}: {error}",
            traceback="".join(traceback.format_exception(error)),
        )

    # ---- code in this process that answers

    def _ask_approver(self, registered: tuple[str, Approver], pending: Pending) -> None:
        name, approver = registered

        async def asked() -> Any:
            return await settled(approver(pending.question))

        def done(answer: Any, error: Exception | None) -> None:
            if error is None and not isinstance(answer, Answer | None):
                error = TypeError(f"an approver gives an Answer or None, not {type(answer).__name__}")
            if error is not None:
                self._tell_defect(pending, f"The approver {name} failed; the question stays open.", error)
            elif answer is not None:
                self._answer(pending, msgspec.structs.replace(answer, approver=answer.approver or name))

        stop = self._background.start(asked(), done)
        if stop is not None:
            pending._stop_asking.append(stop)
