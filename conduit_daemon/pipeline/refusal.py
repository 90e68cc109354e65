"""How a call is refused: the words for the model and the person behind it, and the hooks' way to say no."""

from __future__ import annotations

import msgspec

from conduit_daemon.errors import ClientError
from conduit_daemon.hub.toolset import Entry
from conduit_daemon.pipeline.question import Question
from conduit_daemon.pipeline.remembered import Answer

__all__ = [
    "Refusal",
    "denied_by_rule",
    "denied_by_somebody",
    "nobody_answered",
    "nobody_to_ask",
    "not_answered",
    "waited_too_long",
]


class Refusal(msgspec.Struct, frozen=True):
    """A ``before_call`` hook's no.

    Attributes:
        message: One sentence for the model.
    """

    message: str


def denied_by_rule(entry: Entry, rule: str, reason: str | None) -> ClientError:
    """The error of a call that the policy denies."""
    text = (
        f"Tool {entry.exposed} is denied by the policy ({rule}){_because(reason)}. "
        f"Do not try it again; ask the user instead."
    )
    return _denied(entry, rule, text)


def nobody_to_ask(entry: Entry, rule: str, reason: str | None) -> ClientError:
    """The error of a call that needs consent where nobody can give it."""
    text = (
        f"Tool {entry.exposed} needs a person's approval ({rule}){_because(reason)}, and nobody can be asked. "
        f"To be asked, keep 'conduit approvals' open in a terminal and have it called again; "
        f"to let it run unasked, add a rule with effect = 'allow' for it to [[policy.rules]]."
    )
    return _denied(entry, rule, text)


def nobody_answered(question: Question, waited: float) -> ClientError:
    """The error of a call about which nobody decided in time."""
    return ClientError(
        "approval_timeout",
        f"Tool {question.exposed_name} needs a person's approval ({question.rule}), and nobody decided within "
        f"{waited:.3g} s; it was not run. Ask the user to decide: a late decision holds for the same call for ten "
        f"minutes.",
        question.server,
        question.tool,
        data={"rule": question.rule, "approval": question.id},
    )


def denied_by_somebody(entry: Entry, rule: str, answer: Answer, approval: str | None) -> ClientError:
    """The error of a call that a person, or a program in a person's place, denied."""
    then = "Stop now." if answer.halt else "Do not try it again; ask the user instead."
    text = f"Tool {entry.exposed} was denied by {answer.approver}{_because(answer.reason)}. {then}"
    error = _denied(entry, rule, text)
    if approval is not None:
        error.data["approval"] = approval
    if answer.halt:
        error.data["halt"] = True
    return error


def not_answered(waited: float, *, sent: bool, hook: bool) -> ClientError:
    """The error of a call whose time was over before it was answered."""
    return ClientError(
        "timeout",
        f"The call was not answered within {waited:.3g} s{' (a hook is still at it)' if hook else ''}; "
        f"it was cancelled{' and may have taken effect' if sent else ''}.",
        outcome="outcome_unknown",
    )


def waited_too_long(waited: float) -> ClientError:
    """The error of a call that found no room within its time."""
    return ClientError(
        "rate_limited",
        f"The call waited for {waited:.3g} s: as many run as limits allow. Try again later.",
        retry_after=1.0,
    )


def _denied(entry: Entry, rule: str, text: str) -> ClientError:
    return ClientError("denied", text, entry.server_id, entry.tool.name, data={"rule": rule})


def _because(reason: str | None) -> str:
    return f": {reason.rstrip('.')}" if reason else ""
