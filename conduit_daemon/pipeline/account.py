"""The last stage: a look at the result, the caller's taint, the counts, the audit's row and the event."""

from __future__ import annotations

import traceback
from typing import Any, Final

import msgspec

from conduit_daemon.errors import ClientError
from conduit_daemon.hub.toolset import Entry
from conduit_daemon.model import Call, Decided, Outcome
from conduit_daemon.pipeline.context import Context
from conduit_daemon.pipeline.gate import Gate
from conduit_daemon.pipeline.output import check_size, output_problem
from conduit_daemon.telemetry.events import EventBus

__all__ = ["account", "defect", "inspected", "outcome_of"]

_NOTHING: Final = msgspec.Raw(b"")


def defect(error: Exception, call: Call, bus: EventBus, *, sent: bool) -> ClientError:
    """Tells of a stage that failed, and returns the error with which it fails its call."""
    bus.emit(
        "internal.error",
        level="error",
        call=call.id,
        message="A stage of the pipeline failed on a call.",
        error=f"{type(error).__name__}: {error}",
        traceback="".join(traceback.format_exception(error)),
    )
    if sent:
        text = "The daemon failed on this call after it was sent, so that it may have taken effect; its log says why."
        return ClientError("internal", text, outcome="outcome_unknown")
    return ClientError("internal", "The daemon failed on this call; its log says why.")


def outcome_of(
    call: Call,
    entry: Entry | None,
    result: msgspec.Raw | None,
    error: ClientError | None,
    *,
    is_error: bool,
    decision: Decided,
    rule: str | None,
    duration: float,
) -> Outcome:
    """The outcome of a call that has a result, or an error."""
    server = tool = None
    if entry is not None:
        server, tool = entry.server_id, entry.tool.name
    if error is None:
        return Outcome(
            call=call,
            kind="tool_error" if is_error else "ok",
            server=server,
            tool=tool,
            result=_NOTHING if result is None else result,
            decision=decision,
            rule=rule,
            duration=duration,
        )
    error.server, error.tool = error.server or server, error.tool or tool
    return Outcome(
        call=call,
        kind=error.kind,
        server=server,
        tool=tool,
        sent=error.outcome,
        error=error,
        decision=decision,
        rule=rule,
        duration=duration,
        halt=error.data.get("halt") is True,
    )


def inspected(outcome: Outcome, entry: Entry, gate: Gate) -> Outcome:
    """The outcome after a look at its result's size and structure."""
    if outcome.error is not None:
        return outcome
    try:
        check_size(entry, outcome.result, gate.max_result)
    except ClientError as error:
        return msgspec.structs.replace(outcome, kind=error.kind, error=error, sent=error.outcome, result=_NOTHING)
    if entry.tool.output_schema is not None:
        _look_at_structure(outcome, entry, gate)
    return outcome


def _look_at_structure(outcome: Outcome, entry: Entry, gate: Gate) -> None:
    try:
        problem = output_problem(entry, outcome.result, gate.validators)
    except Exception as error:  # noqa: BLE001 - a warning is not worth a call that has taken effect
        defect(error, outcome.call, gate.bus, sent=True)
        return
    if problem is not None:
        gate.bus.emit(
            "call.output_invalid",
            level="warning",
            server=entry.server_id,
            tool=entry.tool.name,
            call=outcome.call.id,
            reason=problem,
        )


def account(outcome: Outcome, context: Context, approver: str | None) -> None:
    """Keeps account of a call that has ended: everywhere but with its caller.

    Args:
        outcome: What came of it.
        context: The caller's, to whose taint the server is added whose words are delivered.
        approver: Who approved or denied it, where somebody was asked.
    """
    gate, call, error, server = context.gate, outcome.call, outcome.error, outcome.server
    heard = outcome.heard_from
    if heard is not None:
        context.hear(heard)
    gate.total += 1
    if outcome.kind != "ok":
        gate.errors += 1
    if gate.recorder is not None:
        gate.recorder.record(outcome, approver=approver)
    more: dict[str, Any] = {}
    if error is not None:
        error.data["call"] = call.id
        error.mask(gate.masker.mask)  # a rule's reason, a hook's or a person's words may hold one
        more["reason"] = error.message
    if approver is not None:
        more["approver"] = approver
    gate.bus.emit(
        "call.finished",
        level="info" if error is None else "warning",
        server=server,
        tool=outcome.asked,
        call=call.id,
        principal=call.principal.name,
        kind=outcome.kind,
        outcome=outcome.sent,
        decision=outcome.decision,
        rule=outcome.rule,
        duration_ms=round(outcome.duration * 1000, 3),
        **more,
    )
