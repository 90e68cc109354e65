"""`conduit approvals`: the calls that wait for a person's word, and the person's word."""

from __future__ import annotations

import sys
from typing import Annotated, Literal

import msgspec
from cyclopts import Parameter

from conduit_daemon.agent import Approval, ApprovalChange, Conduit, Decision, requests
from conduit_daemon.agent.requests import Request
from conduit_daemon.cli import output
from conduit_daemon.cli.approval_prompt import prompt
from conduit_daemon.cli.approval_text import brief, called, described
from conduit_daemon.cli.connection import HERE, Where, ask
from conduit_daemon.cli.durations import seconds
from conduit_daemon.cli.exits import DONE, UsageError

__all__ = ["approve", "deny", "pending"]

Remember = Literal["args", "tool"]


def pending(*, watch: bool = False, list: bool = False, json: bool = False, where: Where = HERE) -> int:
    """Shows the calls that wait for approval; on a terminal it stays and asks about each, answered with a key.

    Calls are asked about only while somebody watches; else they are denied at once.

    Args:
        watch: Stay, and show each call as it comes; what a terminal does anyway.
        list: List them and end, on a terminal too.
        json: Print the daemon's answer; with --watch one JSON object a line.
    """
    terminal = sys.stdin.isatty() and sys.stdout.isatty()
    with where.open() as conduit:
        if watch or (terminal and not list and not json):
            return _watch(conduit, json=json, ask=terminal and not json)
        answer, found = ask(conduit, requests.approvals())
    if json:
        output.print_json(answer)
    elif not found.approvals:
        output.print_text("No call waits for approval.")
    else:
        rows = [
            (each.id, called(each), brief(each.arguments), each.principal, each.rule or "", _left(each))
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


def _watch(conduit: Conduit, *, json: bool, ask: bool) -> int:
    with conduit.watch_approvals() as changes:
        if not json:
            output.print_error("watching for calls that need approval; Ctrl-C ends it")
        if ask:
            prompt(conduit, changes)
            return DONE
        for change in changes:
            if json:
                sys.stdout.write(_json(change) + "\n")
            else:
                _show(change)
            sys.stdout.flush()
    return DONE


def _show(change: ApprovalChange) -> None:
    call = change.approval
    if change.type == "requested":
        output.print_text(f"\n{call.id}  expires in {_left(call)}\n{described(call)}")
        return
    how = f"{change.decision} by {change.approver}" if change.approver else change.decision or ""
    output.print_text(f"{call.id} {change.type}: {called(call)} {how}".rstrip())


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
    return output.plain_json(msgspec.json.encode(value))
