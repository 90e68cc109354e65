"""What people are asked about a call, and what becomes of the question: the Structs of approvals."""

from __future__ import annotations

import secrets
import time
from typing import Annotated, Any, Literal

import msgspec
from msgspec import Meta

from conduit_daemon.pipeline.remembered import Answer, Scope

__all__ = ["Change", "Decided", "Question", "Remember"]


def _new_id() -> str:
    """An id that nobody guesses, short enough to be typed."""
    return f"ap-{secrets.token_hex(5)}"


class Question(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True):
    """A call that needs somebody's consent.

    Attributes:
        id: What it is decided by.
        call: The call's id.
        server: The server's id.
        tool: The server's own name of the tool.
        exposed_name: The name that the model used.
        arguments: What the tool would be called with.
        annotations: The tool's hints, believed or not.
        principal: Who calls.
        taint: The servers whose output is in the caller's context.
        rule: The rule that asks.
        reason: That rule's words.
        asked_at: Unix seconds.
    """

    id: str = msgspec.field(default_factory=_new_id)
    call: str
    server: str
    tool: str
    exposed_name: str
    arguments: dict[str, Any]
    annotations: dict[str, Any]
    principal: str
    taint: tuple[str, ...]
    rule: str
    reason: str | None = None
    asked_at: float = msgspec.field(default_factory=time.time)


class Remember(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """For what else a decision is to hold.

    Attributes:
        scope: ``args``: calls of the tool with the same arguments; ``tool``: any of its calls.
        seconds: For how long; ``for`` in JSON.
    """

    scope: Scope
    seconds: Annotated[float, Meta(gt=0, le=31_536_000)] = msgspec.field(default=3600.0, name="for")


class Decided(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True):
    """What was decided.

    Attributes:
        id: The question's.
        decision: Whether the call may run.
        approver: Who decided.
        reason: Told to the model where it is denied.
        halt: Whether the agent's loop is to end.
        remembered: For what else it holds, where it does.
        late: Whether the caller had gone: it then holds for the same call, for ten minutes.
    """

    id: str
    decision: Literal["approve", "deny"]
    approver: str
    reason: str | None = None
    halt: bool = False
    remembered: Remember | None = None
    late: bool = False


class Change(msgspec.Struct, frozen=True, kw_only=True):
    """Something that happened to a question.

    Attributes:
        type: What.
        question: The question.
        expires_in: Seconds until it is denied for want of an answer.
        answer: What was decided; None where nobody did in time, or nothing is decided.
    """

    type: Literal["requested", "decided", "withdrawn"]
    question: Question
    expires_in: float
    answer: Answer | None = None
