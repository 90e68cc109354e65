"""From a handle or a name to the process that is meant, or to the error that says why there is none."""

from __future__ import annotations

from typing import TYPE_CHECKING

from supervisors import _names
from supervisors._actor_process import ActorProcess
from supervisors._current import ASIDE, CURRENT
from supervisors._errors import CallingSelf, NoProcess, ServerExit
from supervisors._reasons import described
from supervisors._supervision import SupervisorProcess

if TYPE_CHECKING:
    from supervisors._process import Process
    from supervisors._ref import Ref

__all__ = ["actor_of", "find", "mailbox_of", "present", "supervisor_of", "whereis"]


def whereis(name: str) -> Ref | None:
    """Returns the process that is registered under the name, or None."""
    process = _names.holder(name)
    return None if process is None else process.ref


def find(server: Ref | str) -> Process | None:
    """Returns the process meant, None where a name is nobody's. It may be dead.

    Raises:
        TypeError: It is neither a handle nor a name.
    """
    if isinstance(server, str):
        return _names.holder(server)
    try:
        return server._process
    except AttributeError:
        raise TypeError(
            f"A process is addressed by its Ref or its name, not by {server!r}; "
            "whereis() gives None for a name that is nobody's."
        ) from None


def present(server: Ref | str) -> Process:
    """Returns the process meant, alive.

    Raises:
        NoProcess: It is dead, or nobody has that name.
    """
    process = find(server)
    if process is None:
        raise NoProcess(f"No process is registered as {server!r}; it does not run, or not under that name.")
    if not process.alive:
        raise NoProcess(f"{server!r} is dead. Address it by its name, if it has one, to reach its successor.")
    return process


def actor_of(server: Ref | str) -> ActorProcess:
    """Returns the actor meant, alive.

    Raises:
        NoProcess: There is none, or it is no actor.
    """
    process = present(server)
    if not isinstance(process, ActorProcess):
        raise NoProcess(f"{process.ref!r} is a {process.kind}; it has no mailbox, only actors have.")
    return process


def mailbox_of(server: Ref | str) -> Process | None:
    """Returns who would get a one-way message; None where it would be lost, which is silent."""
    process = find(server)
    return None if process is None or not process.alive else process


def supervisor_of(sup: Ref | str, *, to_look: bool = False) -> SupervisorProcess:
    """Returns the supervisor meant, for administration; ``to_look`` also while it is ending.

    Raises:
        NoProcess: There is none.
        ServerExit: It is ending.
        CallingSelf: The caller is a child in its ``init``, for which that supervisor waits.
        TypeError: It is no supervisor.
    """
    process = present(sup)
    if not isinstance(process, SupervisorProcess):
        raise TypeError(f"{process.ref!r} is no supervisor.")
    waiting = CURRENT.get()
    while waiting is not None and not waiting.ready and not ASIDE.get():
        owner = waiting.owner
        if owner is process:
            raise CallingSelf(
                f"{waiting.label!r} is in its init, for which its supervisor {process.label!r} waits; "
                "return Continue(...) from init and ask then."
            )
        waiting = owner if isinstance(owner, SupervisorProcess) else None
    if process.stop_reason is not None and not to_look:
        raise ServerExit(process.stop_reason, f"Supervisor {process.label!r} {described(process.stop_reason)}.")
    return process
