"""What a child specification's ``start`` may make, and the process that becomes of it."""

from __future__ import annotations

from inspect import iscoroutine, iscoroutinefunction
from typing import TYPE_CHECKING, Any

from supervisors._actor import Actor
from supervisors._actor_process import ActorProcess
from supervisors._dynamic import DynamicSupervisor
from supervisors._function_process import FunctionProcess
from supervisors._supervisor import Supervisor
from supervisors._tasks import TaskSupervisor

if TYPE_CHECKING:
    from supervisors._process import Owner, Process

__all__ = ["process_for"]


def process_for(owner: Owner, label: str, made: Any) -> Process:
    """Makes a process of an actor, a supervisor or an async function; a name is registered from here on.

    Raises:
        AlreadyRegistered: Its name belongs to another process.
        TypeError: It is none of these.
        ValueError: It is an actor that has lived before.
    """
    if isinstance(made, Actor):
        return ActorProcess(owner, label, made)
    if isinstance(made, Supervisor | DynamicSupervisor | TaskSupervisor):
        return made.process(owner, label)
    if iscoroutinefunction(made) or (callable(made) and iscoroutinefunction(type(made).__call__)):
        return FunctionProcess(owner, label, made)
    if iscoroutine(made):
        made.close()
        raise TypeError(
            "start returned a coroutine; it must return the async function itself, to be called once a life."
        )
    raise TypeError(f"start must return an Actor, a supervisor or an async function; it returned {made!r}.")
