"""Which process runs the current code."""

from __future__ import annotations

from contextvars import ContextVar
from typing import TYPE_CHECKING

from supervisors._errors import NotInActor

if TYPE_CHECKING:
    from supervisors._process import Process
    from supervisors._ref import Ref

__all__ = ["ASIDE", "CURRENT", "process_here", "self_ref"]

CURRENT: ContextVar[Process | None] = ContextVar("supervisors_process", default=None)
ASIDE: ContextVar[bool] = ContextVar("supervisors_aside", default=False)
"""True in the tasks that an actor started beside its own, which may well wait for it."""


def process_here(purpose: str) -> Process:
    """Returns the process that runs this code.

    Raises:
        NotInActor: None does.
    """
    process = CURRENT.get()
    if process is None:
        raise NotInActor(f"{purpose} works inside an actor or a task of a supervisor only; here is neither.")
    return process


def self_ref() -> Ref:
    """Returns the calling process's own handle.

    Raises:
        NotInActor: No process runs this code.
    """
    return process_here("self_ref()").ref
