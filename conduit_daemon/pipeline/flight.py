"""The way of one call: resolve, validate, decide, ask, hooks, limits, send, hooks, account.

All of it happens at once where no stage must wait, in the task of whoever calls; the answer comes back as a function
call from the task that reads the server. A call that must wait is parked, and called back by what it waits for.
"""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from typing import final

import msgspec
import trio

from conduit_daemon.clients.deadlines import Deadline
from conduit_daemon.clients.dispatcher import OnProgress
from conduit_daemon.clients.port import Running
from conduit_daemon.errors import ClientError
from conduit_daemon.hub.toolset import Entry
from conduit_daemon.model import Call, Decided, Outcome
from conduit_daemon.pipeline import progress, refusal
from conduit_daemon.pipeline.account import account, defect, inspected, outcome_of
from conduit_daemon.pipeline.approvals import Answer
from conduit_daemon.pipeline.consent import Consent
from conduit_daemon.pipeline.context import Context
from conduit_daemon.pipeline.decide import decide
from conduit_daemon.pipeline.gate import Phase
from conduit_daemon.pipeline.limits import Slots
from conduit_daemon.pipeline.policy import Decision, Policy
from conduit_daemon.pipeline.rate import Token
from conduit_daemon.pipeline.remembered import Binding
from conduit_daemon.pipeline.resolve import resolve
from conduit_daemon.pipeline.validate import check_arguments, check_depth

__all__ = ["Flight", "OnOutcome"]

OnOutcome = Callable[[Outcome], None]
"""Called exactly once for each call started."""


@final
class Flight:
    """A call on its way."""

    __slots__ = (
        "_consent",
        "_context",
        "_deadline",
        "_decision",
        "_held",
        "_hooked",
        "_on_outcome",
        "_on_progress",
        "_parked",
        "_rule",
        "_running",
        "_sent",
        "began",
        "call",
        "done",
        "entry",
    )

    def __init__(self, call: Call, context: Context, on_outcome: OnOutcome, on_progress: OnProgress | None) -> None:
        self.call = call
        self.done = False
        self._context = context
        self._on_outcome: OnOutcome | None = on_outcome
        self._on_progress = on_progress
        self.began = trio.current_time()
        self.entry: Entry | None = None
        self._decision: Decided = "none"
        self._rule: str | None = None
        self._consent: Consent | None = None
        self._hooked = False
        self._held: list[Slots] = []
        self._parked: tuple[Phase, Callable[[], None]] | None = None  # what it waits for, and how it leaves
        self._deadline: Deadline | None = None
        self._running: Running | None = None
        self._sent = False

    def take_off(self) -> None:
        """Takes the call as far as it goes without waiting."""
        gate = self._context.gate
        gate.flights[self] = None
        if self.call.timeout is not None:
            self._deadline = gate.deadlines.add(self.began + self.call.timeout, self._expire)
        self._go(self._examine)

    @property
    def phase(self) -> Phase:
        """Where it is: what it waits for."""
        return self._parked[0] if self._parked else "start" if self._running and self._running.held else "server"

    def cancel(self, why: str = "its caller has gone") -> None:
        """Ends the call as ``cancelled``; its server is told. Harmless after its end."""
        if not self.done:
            self.abort(ClientError("cancelled", f"The call was cancelled: {why}.", outcome="outcome_unknown"))

    def abort(self, error: ClientError) -> None:
        """Ends the call with `error`, whose outcome becomes ``not_sent`` where the server never saw it."""
        if self._running is not None:
            self._running.cancel(error)
            return
        if not self._sent:
            error.outcome = "not_sent"
        if self._parked is not None:
            (_, leave), self._parked = self._parked, None
            leave()
        self._end(None, False, error)

    def _go(self, step: Callable[[], None]) -> None:
        try:
            step()
        except ClientError as error:
            # Without its traceback, whose frames hold the error itself and this call: a cycle, and a large one.
            self._end(None, False, error.with_traceback(None))
        except Exception as error:  # noqa: BLE001 - a defect of a stage fails this call, and nothing else
            self._fail(error)

    @property
    def _found(self) -> Entry:
        assert self.entry is not None  # noqa: S101 - _examine resolved it, or raised
        return self.entry

    # ---- what is called, with what, and whether it may be

    def _examine(self) -> None:
        call, gate = self.call, self._context.gate
        if gate.stopping:
            raise ClientError("shutting_down", "The daemon is stopping; try again when it is back.", retry_after=1.0)
        try:
            entry = self.entry = resolve(call, gate)
        except ClientError as error:
            if error.data.pop("filtered", False):
                self._decision = "filtered"
            raise
        pins = gate.governance.pins
        if entry.server_id in pins.servers:
            self._decision, self._rule = "deny", "pin"
            pins.check(entry)
            self._rule = None
        self._decision = "invalid"
        if call.meta or call.assigns:
            check_depth(call)
        check_arguments(entry, call.arguments, gate.validators)
        self._decision = "none"
        if gate.policy is None:
            self._prepare()
        else:
            self._decide(entry, gate.policy.current)

    def _decide(self, entry: Entry, policy: Policy) -> None:
        decision = decide(policy, self.call, entry, self._taint(), self._context.gate.bus)
        self._rule = decision.rule
        if decision.effect == "allow":
            self._decision = "allow"
            self._prepare()
        elif decision.effect == "deny":
            self._deny(refusal.denied_by_rule(entry, decision.rule, decision.reason))
        else:
            self._need_consent(entry, decision, policy.digest)

    def _taint(self) -> frozenset[str]:
        return self._context.taint_with(self.call.taint)

    def _deny(self, error: ClientError) -> None:
        self._decision = "deny"
        self._context.gate.bus.emit(
            "policy.denied",
            level="warning",
            server=error.server,
            tool=error.tool,
            call=self.call.id,
            principal=self.call.principal.name,
            rule=self._rule,
        )
        raise error

    # ---- asking people

    def _need_consent(self, entry: Entry, decision: Decision, policy: str) -> None:
        consent = self._consent = self._consent or Consent(self._context.gate.governance)
        if self._hooked and consent.covers(entry):  # what the operator's own hooks make of an approved call is approved
            self._decision = "approve"
            self._prepare()
            return
        binding = consent.bind(self.call, entry, decision, policy)
        answer = consent.recall(binding)
        if answer is not None:
            self._take_answer(consent, answer, binding)
            self._prepare()
            return
        if not consent.somebody:
            self._deny(refusal.nobody_to_ask(entry, decision.rule, decision.reason))
        consent.ask(self.call, entry, decision, binding, self._taint(), partial(self._answered, consent, binding))
        if consent.waits:
            self._parked = "approval", consent.withdraw
            if self._on_progress is not None:
                consent.tell_waiting(self._on_progress)

    def _answered(self, consent: Consent, binding: Binding, answer: Answer | None) -> None:
        if self._parked is not None:
            self._parked = None
            if self._on_progress is not None:
                self._on_progress = progress.resumed(self._on_progress, trio.current_time() - consent.begun)

        def go_on() -> None:
            if answer is None:
                self._decision = "deny"
                raise consent.unanswered()
            self._take_answer(consent, answer, binding)
            # All of it again: while it waited, the tool or the policy may have become others.
            self._examine()

        self._go(go_on)

    def _take_answer(self, consent: Consent, answer: Answer, binding: Binding) -> None:
        consent.accept(answer, binding)
        if answer.decision == "deny":
            approval = consent.pending.question.id if consent.pending is not None else None
            self._deny(refusal.denied_by_somebody(self._found, binding.rule, answer, approval))
        self._decision = "approve"

    # ---- hooks and limits before the call

    def _prepare(self) -> None:
        governance = self._context.gate.governance
        if not governance.hooks.before or self._hooked:
            self._limit()
            return
        cancel = governance.background.start(governance.hooks.run_before(self.call), self._hooks_agreed)
        if cancel is not None:
            self._park("hook", cancel)

    def _hooks_agreed(self, call: Call | None, error: Exception | None) -> None:
        def go_on() -> None:
            if call is None:
                if isinstance(error, ClientError):
                    self._decision, self._rule = "deny", error.data.get("rule")
                raise error or RuntimeError("hooks gave neither a call nor an error")
            self._hooked = True
            if call is self.call:
                self._limit()
            else:
                self.call = call
                self._examine()

        self._resume(go_on)

    def _limit(self) -> None:
        entry, gate = self._found, self._context.gate
        rates = gate.governance.rates
        if rates.limit_of(entry.server_id) is None:
            self._board()
            return
        now = trio.current_time()
        end = now + gate.longest_wait if self._deadline is None else self._deadline.at
        token = rates.reserve(self.call.principal.name, entry, now, end - now)
        if not token.wait:
            self._board()
            return
        due = gate.deadlines.add(now + token.wait, partial(self._resume, self._board))
        self._park("rate", partial(self._leave_queue, due, token))

    def _leave_queue(self, due: Deadline, token: Token) -> None:
        gate = self._context.gate
        gate.deadlines.cancel(due)
        gate.governance.rates.give_back(token)

    def _board(self) -> None:
        gate = self._context.gate
        for place in (gate.server_slots.get(self._found.server_id), gate.slots):
            if place is None or place in self._held:
                continue
            if not place.take_now():
                self._park(
                    "slot", partial(place.leave, place.queue(partial(self._given, place), self._context.connection))
                )
                return
            self._held.append(place)
        self._send()

    def _given(self, place: Slots) -> None:
        self._held.append(place)
        self._resume(self._board)

    def _park(self, what: Phase, leave: Callable[[], None]) -> None:
        self._parked = what, leave
        if self._deadline is None:
            gate = self._context.gate
            self._deadline = gate.deadlines.add(trio.current_time() + gate.longest_wait, self._expire)

    def _resume(self, step: Callable[[], None]) -> None:
        self._unpark()
        self._go(step)

    def _unpark(self) -> None:
        self._parked = None
        if self.call.timeout is None and self._deadline is not None:
            self._context.gate.deadlines.cancel(self._deadline)
            self._deadline = None

    # ---- the call

    def _send(self) -> None:
        entry, gate, call = self._found, self._context.gate, self.call
        if entry.server_id in gate.governance.pins.servers:
            gate.governance.pins.use(entry)
        port = self._context.port(entry.server_id)
        if port is None:
            raise ClientError("unavailable", f"Server {entry.server_id} was removed while the call waited.")
        total = gate.max_call_time
        if call.timeout is not None:
            total = min(total, call.timeout - (trio.current_time() - self.began))
        self._running = port.begin(
            entry.tool.name,
            call.arguments,
            self._arrive,
            meta=call.meta,
            total=total,
            on_progress=self._on_progress,
            method=call.method,
            caller=self._context.callers.get(call.id),
        )
        self._sent = True

    def _arrive(self, result: msgspec.Raw | None, is_error: bool, error: ClientError | None) -> None:
        self._running = None
        governance = self._context.gate.governance
        if not governance.hooks.after or (error is not None and error.kind in {"cancelled", "shutting_down"}):
            self._end(result, is_error, error)
            return
        outcome = self._outcome(result, is_error, error)
        cancel = governance.background.start(governance.hooks.run_after(self.call, outcome), self._hooks_done)
        if cancel is not None:
            self._park("hook", cancel)

    def _hooks_done(self, outcome: Outcome | None, error: Exception | None) -> None:
        self._unpark()
        if outcome is None:
            self._fail(error or RuntimeError("hooks gave neither an outcome nor an error"))
        else:
            self._land(outcome)

    # ---- its end

    def _expire(self) -> None:
        waited = trio.current_time() - self.began
        what = None if self._parked is None else self._parked[0]
        if what is None or what == "hook":
            self.abort(refusal.not_answered(waited, sent=self._sent, hook=what == "hook"))
        elif what == "approval" and self._consent is not None:
            self._decision = "deny"
            self.abort(self._consent.unanswered())
        else:
            self.abort(refusal.waited_too_long(waited))

    def _fail(self, error: Exception) -> None:
        self._end(None, False, defect(error, self.call, self._context.gate.bus, sent=self._sent))

    def _end(self, result: msgspec.Raw | None, is_error: bool, error: ClientError | None) -> None:
        self._land(self._outcome(result, is_error, error))

    def _outcome(self, result: msgspec.Raw | None, is_error: bool, error: ClientError | None) -> Outcome:
        return outcome_of(
            self.call,
            self.entry,
            result,
            error,
            is_error=is_error,
            decision=self._decision,
            rule=self._rule,
            duration=trio.current_time() - self.began,
        )

    def _land(self, outcome: Outcome) -> None:
        on_outcome, self._on_outcome = self._on_outcome, None  # which knows this call: no cycle must be left to collect
        if on_outcome is None:
            return
        self.done = True
        gate, entry = self._context.gate, self.entry
        if self._deadline is not None:
            gate.deadlines.cancel(self._deadline)
        if entry is not None:
            outcome = inspected(outcome, entry, gate)
            port = gate.ports.get(entry.server_id)
            if port is not None and (self._held or outcome.error is None):
                port.note(outcome.duration, outcome.kind == "ok")
        gate.landed(self)
        account(outcome, self._context, None if self._consent is None else self._consent.approver)
        try:
            on_outcome(outcome)
        except Exception as error:  # noqa: BLE001 - it must not, and the server whose answer this is has no part in it
            defect(error, self.call, gate.bus, sent=self._sent)
        for place in self._held:  # last: whoever gets the slot starts before this returns
            place.give_back()
