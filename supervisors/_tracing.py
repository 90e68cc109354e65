"""What is seen of a traced actor."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, Literal, TypeAlias

import msgspec

from supervisors._ref import Ref

__all__ = ["TraceEvent", "TraceKind", "Tracer"]


TraceKind: TypeAlias = Literal["in", "out", "reply", "terminate"]


class TraceEvent(msgspec.Struct, frozen=True):
    """One thing that a traced actor did.

    Attributes:
        kind: It took a message, sent one, answered one, or ended (the message is then the reason).
        ref: The actor.
        message: The message, the reply or the reason.
        time: When, on trio's clock.
    """

    kind: TraceKind
    ref: Ref
    message: Any
    time: float


Tracer: TypeAlias = Callable[[TraceEvent], object]
