"""The way of one call: resolve, validate, decide, wait for a slot, send, account.

`start` does all of it at once where no stage must wait, in the task of whoever calls it, and returns while the
server works. The answer comes back as a function call from the task that reads the server. Only a call that
must wait (for a slot) is parked, and even that takes no task.
"""

from __future__ import annotations

import traceback
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
from conduit_daemon.pipeline.gate import Context
from conduit_daemon.pipeline.limits import Slots, Waiting
from conduit_daemon.pipeline.policy import Facts
from conduit_daemon.pipeline.resolve import resolve
from conduit_daemon.pipeline.validate import check_arguments

__all__ = ["Flight", "OnOutcome", "OnProgress", "run", "start"]

OnOutcome = Callable[[Outcome], None]
"""Called exactly once for each call started."""


async def run(call: Call, context: Context, *, on_progress: OnProgress | None = None) -> Outcome:
    """Runs one call through every stage and returns what came of it.

    A cancelled caller cancels the call, at the server too.

    Args:
        call: What is called, by whom.
        context: The pipeline as the caller sees it.
        on_progress: Called with the raw params of each progress notification.

    Returns:
        Its outcome; a failure is an outcome too, nothing is raised for it.
    """
    done = trio.Event()
    outcomes: list[Outcome] = []

    def finished(outcome: Outcome) -> None:
        outcomes.append(outcome)
        done.set()

    flight = start(call, context, finished, on_progress=on_progress)
    try:
        await done.wait()
    except trio.Cancelled:
        flight.cancel()
        raise
    return outcomes[0]


def start(call: Call, context: Context, on_outcome: OnOutcome, *, on_progress: OnProgress | None = None) -> Flight:
    """Starts one call and returns; `on_outcome` is called when it has ended, possibly before this returns.

    Args:
        call: What is called, by whom.
        context: The pipeline as the caller sees it.
        on_outcome: Called exactly once. Must not raise.
        on_progress: Called with the raw params of each progress notification.
    """
    flight = Flight(call, context, on_outcome, on_progress)
    flight.take_off()
    return flight


@final
class Flight:
    """A call on its way."""

    __slots__ = (
        "_began",
        "_context",
        "_deadline",
        "_decision",
        "_entry",
        "_held",
        "_on_outcome",
        "_on_progress",
        "_rule",
        "_running",
        "_waiting",
        "call",
        "done",
    )

    def __init__(self, call: Call, context: Context, on_outcome: OnOutcome, on_progress: OnProgress | None) -> None:
        self.call = call
        self.done = False
        self._context = context
        self._on_outcome = on_outcome
        self._on_progress = on_progress
        self._began = trio.current_time()
        self._entry: Entry | None = None
        self._decision: Decided = "none"
        self._rule: str | None = None
        self._held: list[Slots] = []
        self._waiting: tuple[Slots, Waiting] | None = None
        self._deadline: Deadline | None = None
        self._running: Running | None = None

    def take_off(self) -> None:
        """Takes the call as far as it goes without waiting."""
        self._context.gate.flights.add(self)
        try:
            self._decide()
            self._board()
        except ClientError as error:
            self._land(None, False, error)
        except Exception as error:  # noqa: BLE001 - a defect of a stage fails this call, and nothing else
            self._fail(error)

    def cancel(self, why: str = "its caller has gone") -> None:
        """Ends the call as ``cancelled``; its server is told. Harmless after its end."""
        if not self.done:
            self.abort(ClientError("cancelled", f"The call was cancelled: {why}.", outcome="outcome_unknown"))

    def abort(self, error: ClientError) -> None:
        """Ends the call with `error`, whose outcome becomes ``not_sent`` where the server never saw it."""
        if self._running is not None:
            self._running.cancel(error)
            return
        error.outcome = "not_sent"
        if self._waiting is not None:
            place, waiting = self._waiting
            place.leave(waiting)
            self._waiting = None
        self._land(None, False, error)

    # ---- the stages before the call

    def _decide(self) -> None:
        call, context = self.call, self._context
        gate = context.gate
        if gate.stopping:
            raise ClientError("shutting_down", "The daemon is stopping; try again when it is back.", retry_after=1.0)
        try:
            entry = self._entry = resolve(call, gate)
        except ClientError as error:
            if error.data.pop("filtered", False):
                self._decision = "filtered"
            raise
        if call.timeout is not None:
            self._deadline = gate.deadlines.add(self._began + call.timeout, self._expire)
        self._decision = "invalid"
        check_arguments(entry, call.arguments, gate.validators)
        self._decision = "none"
        if gate.policy is None:
            return
        taint = call.taint | context.taint if context.track_taint else call.taint
        decision = gate.policy.current.decide(
            Facts(
                server=entry.server_id,
                tool=entry.tool.name,
                annotations=entry.tool.annotations,
                principal=call.principal.name,
                taint=taint,
                arguments=call.arguments,
                assigns=call.assigns,
            )
        )
        self._decision, self._rule = decision.effect, decision.rule
        for failed in decision.errors:
            gate.bus.emit(
                "policy.condition_failed",
                level="warning",
                server=entry.server_id,
                tool=entry.tool.name,
                call=call.id,
                reason=failed,
            )
        if decision.effect != "allow":
            gate.bus.emit(
                "policy.denied",
                level="warning",
                server=entry.server_id,
                tool=entry.tool.name,
                call=call.id,
                principal=call.principal.name,
                rule=decision.rule,
                effect=decision.effect,
            )
            raise _refusal(entry, decision.effect, decision.rule, decision.reason)

    def _board(self) -> None:
        assert self._entry is not None  # noqa: S101 - _decide resolved it or raised
        gate = self._context.gate
        slots = gate.server_slots.get(self._entry.server_id)
        for place in (slots, gate.slots):
            if place is None or place in self._held:
                continue
            waiting = place.take(partial(self._given, place))
            if waiting is not None:
                self._waiting = (place, waiting)
                if self._deadline is None:
                    limit = self.call.timeout or gate.max_call_time
                    self._deadline = gate.deadlines.add(self._began + limit, self._expire)
                return
            self._held.append(place)
        self._send()

    def _given(self, place: Slots) -> None:
        self._waiting = None
        self._held.append(place)
        try:
            self._board()
        except ClientError as error:
            self._land(None, False, error)
        except Exception as error:  # noqa: BLE001 - as in take_off
            self._fail(error)

    def _send(self) -> None:
        entry, gate, call = self._entry, self._context.gate, self.call
        assert entry is not None  # noqa: S101 - as above
        total = gate.max_call_time
        if call.timeout is not None:
            total = min(total, call.timeout - (trio.current_time() - self._began))
        self._running = gate.ports[entry.server_id].begin(
            entry.tool.name, call.arguments, self._land, meta=call.meta, total=total, on_progress=self._on_progress
        )

    # ---- its end

    def _expire(self) -> None:
        waited = f"{trio.current_time() - self._began:.3g} s"
        if self._waiting is not None:
            error = ClientError(
                "rate_limited",
                f"No slot was free for {waited}: as many calls run as limits allow. Try again later.",
                retry_after=1.0,
            )
        else:
            error = ClientError(
                "timeout",
                f"The call was not answered within {waited}; it was cancelled and may have taken effect.",
                outcome="outcome_unknown",
            )
        self.abort(error)

    def _fail(self, error: Exception) -> None:
        self._context.gate.bus.emit(
            "internal.error",
            level="error",
            call=self.call.id,
            message="A stage of the pipeline failed on a call.",
            error=f"{type(error).__name__}: {error}",
            traceback="".join(traceback.format_exception(error)),
        )
        self._land(None, False, ClientError("internal", "The daemon failed on this call; its log says why."))

    def _land(self, result: msgspec.Raw | None, is_error: bool, error: ClientError | None) -> None:
        if self.done:
            return
        self.done = True
        context, entry = self._context, self._entry
        gate = context.gate
        if self._deadline is not None:
            gate.deadlines.cancel(self._deadline)
        duration = trio.current_time() - self._began
        server = tool = None
        if entry is not None:
            server, tool = entry.server_id, entry.tool.name
            if self._held or error is None:
                gate.ports[server].note(duration, error is None and not is_error)
        if error is not None:
            error.server, error.tool = error.server or server, error.tool or tool
            outcome = Outcome(
                call=self.call,
                kind=error.kind,
                server=server,
                tool=tool,
                sent=error.outcome,
                error=error,
                decision=self._decision,
                rule=self._rule,
                duration=duration,
                halt=error.data.get("halt") is True,
            )
        else:
            assert result is not None  # noqa: S101 - a result or an error
            assert server is not None  # noqa: S101 - as above
            if server not in context.taint:
                context.taint |= {server}
            outcome = Outcome(
                call=self.call,
                kind="tool_error" if is_error else "ok",
                server=server,
                tool=tool,
                result=result,
                decision=self._decision,
                rule=self._rule,
                duration=duration,
            )
        gate.landed(self)
        gate.total += 1
        if outcome.kind != "ok":
            gate.errors += 1
        if gate.recorder is not None:
            gate.recorder.record(outcome)
        gate.bus.emit(
            "call.finished",
            level="info" if error is None else "warning",
            server=server,
            tool=tool or self.call.name,
            call=self.call.id,
            principal=self.call.principal.name,
            kind=outcome.kind,
            outcome=outcome.sent,
            decision=outcome.decision,
            rule=outcome.rule,
            duration_ms=round(duration * 1000, 3),
            **({} if error is None else {"reason": error.message}),
        )
        self._on_outcome(outcome)
        for place in self._held:  # last: whoever gets the slot starts before this returns
            place.give_back()


def _refusal(entry: Entry, effect: str, rule: str, reason: str | None) -> ClientError:
    name, because = entry.exposed, f": {reason}" if reason else ""
    if effect == "deny":
        text = f"Tool {name} is denied by the policy ({rule}){because}. Do not try it again; ask the user instead."
    else:
        text = (
            f"Tool {name} needs a person's approval ({rule}){because}, and nobody can be asked. "
            f"To let it run, the operator adds a rule with effect = 'allow' for it to [[policy.rules]]."
        )
    return ClientError("denied", text, entry.server_id, entry.tool.name, data={"rule": rule})
