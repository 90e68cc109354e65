"""`conduit approvals`: the calls that wait for a person's word, and the person's word."""

from __future__ import annotations

import sys
import time
from typing import Annotated, Literal

import msgspec
from cyclopts import Parameter

from conduit_daemon.agent import Approval, ApprovalChange, CallFailed, Conduit, Decision, requests
from conduit_daemon.agent.requests import Request
from conduit_daemon.cli import output
from conduit_daemon.cli.connection import HERE, Where, ask
from conduit_daemon.cli.durations import seconds
from conduit_daemon.cli.exits import DONE, UsageError

__all__ = ["approve", "deny", "pending"]

Remember = Literal["args", "tool"]


def pending(*, watch: bool = False, json: bool = False, where: Where = HERE) -> int:
    """Lists the calls that wait for approval, or watches for them and asks.

    Calls are asked about only while somebody watches; else they are denied at once.

    Args:
        watch: Stay, show each call as it comes, and ask about it where there is a terminal.
        json: Print the daemon's answer; with --watch one JSON object a line.
    """
    with where.open() as conduit:
        if watch:
            return _watch(conduit, json=json)
        answer, found = ask(conduit, requests.approvals())
    if json:
        output.print_json(answer)
    elif not found.approvals:
        output.print_text("No call waits for approval.")
    else:
        rows = [
            (each.id, each.exposed_name, _json(each.arguments), each.principal, each.rule or "", _left(each))
            for each in found.approvals
        ]
        output.table(("id", "tool", "arguments", "principal", "rule", "expires in"), rows)
    return DONE


def approve(
    id: str,
    *,
    remember: Remember | None = None,
    for_: Annotated[str | None, Parameter(name="--for")] = None,
    json: bool = False,
    where: Where = HERE,
) -> int:
    """Lets a waiting call run.

    Args:
        id: The approval's id.
        remember: Decide the same way again: for the same arguments ("args"), or for the tool.
        for_: For how long, as 90, 30m, 12h or 7d (1h).
        json: Print the daemon's answer.
    """
    return _decided(requests.decide(id, "approve", remember=_remembered(remember, for_)), json, where)


def deny(
    id: str,
    *,
    reason: str | None = None,
    halt: bool = False,
    remember: Remember | None = None,
    for_: Annotated[str | None, Parameter(name="--for")] = None,
    json: bool = False,
    where: Where = HERE,
) -> int:
    """Denies a waiting call.

    Args:
        id: The approval's id.
        reason: Told to the model.
        halt: The agent is to stop, too.
        remember: Decide the same way again: for the same arguments ("args"), or for the tool.
        for_: For how long, as 90, 30m, 12h or 7d (1h).
        json: Print the daemon's answer.
    """
    request = requests.decide(id, "deny", reason=reason, halt=halt or None, remember=_remembered(remember, for_))
    return _decided(request, json, where)


def _decided(request: Request[Decision], json: bool, where: Where) -> int:
    with where.open() as conduit:
        answer, decision = ask(conduit, request)
    if json:
        output.print_json(answer)
    else:
        output.print_text(_said(decision))
    return DONE


def _watch(conduit: Conduit, *, json: bool) -> int:
    with conduit.watch_approvals() as changes:
        asked: set[str] = set()
        if not json:
            output.print_error("watching for calls that need approval; Ctrl-C ends it")
        for each in conduit.approvals().approvals:
            _show(conduit, ApprovalChange(type="requested", approval=each), asked, json)
        for change in changes:
            _show(conduit, change, asked, json)
    return DONE


def _show(conduit: Conduit, change: ApprovalChange, asked: set[str], json: bool) -> None:
    if change.type == "requested" and change.approval.id in asked:
        return  # came while the pending ones were listed
    asked.add(change.approval.id)
    if json:
        sys.stdout.write(_json(change) + "\n")
        sys.stdout.flush()
        return
    call = change.approval
    if change.type != "requested":
        how = f"{change.decision} by {change.approver}" if change.approver else change.decision or ""
        output.print_text(f"{call.id} {change.type}: {call.exposed_name} {how}".rstrip())
        return
    output.print_text(f"\n{call.id}  {call.principal} calls {call.exposed_name} {_json(call.arguments)}")
    output.print_text(f"  rule {call.rule}{f': {call.reason}' if call.reason else ''}; expires in {_left(call)}")
    if call.taint:
        output.print_text(f"  the model has read what came from: {', '.join(call.taint)}")
    if sys.stdin.isatty():
        _ask_person(conduit, call)


def _ask_person(conduit: Conduit, call: Approval) -> None:
    asked_at = time.monotonic()
    try:
        word = input("  approve? [y]es, [n]o, [h]alt the agent, anything else: decide later  ").strip().lower()
    except EOFError:
        word = ""
    decision = {"y": "approve", "yes": "approve", "n": "deny", "no": "deny", "h": "deny", "halt": "deny"}.get(word)
    if decision is None:
        output.print_text(f"  left open: conduit approvals approve {call.id}")
        return
    try:
        output.print_text(f"  {_said(conduit.decide(call.id, decision, halt=word in {'h', 'halt'} or None))}")
    except CallFailed as error:  # it was withdrawn or expired meanwhile; the next one is not affected
        output.print_text(f"  {error} (after {output.duration(time.monotonic() - asked_at)})")


def _said(decision: Decision) -> str:
    late = "; its caller has gone, and it holds when the same call comes again" if decision.late else ""
    kept = f"; remembered for {decision.remembered.get('scope')}" if decision.remembered else ""
    return f"{decision.id}: {'approved' if decision.decision == 'approve' else 'denied'}{kept}{late}."


def _remembered(scope: Remember | None, text: str | None) -> dict[str, object] | None:
    if scope is None:
        if text is not None:
            raise UsageError("--for needs --remember args or --remember tool.")
        return None
    return {"scope": scope} if text is None else {"scope": scope, "for": seconds(text)}


def _left(approval: Approval) -> str:
    return output.duration(approval.expires_in)


def _json(value: object) -> str:
    return msgspec.json.encode(value).decode()
