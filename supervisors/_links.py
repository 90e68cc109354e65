"""Knowing of each other's ends: monitors, links, exit signals."""

from __future__ import annotations

from functools import partial

from supervisors._actor_process import ActorProcess
from supervisors._current import CURRENT, process_here
from supervisors._errors import NotInActor
from supervisors._messages import Down
from supervisors._reasons import ExitReason, Killed, NoProc
from supervisors._ref import MonitorRef, Ref

__all__ = ["demonitor", "exit", "link", "monitor", "unlink"]


def monitor(ref: Ref) -> MonitorRef:
    """Lets the calling actor know of a process's end, by exactly one ``Down`` message; at once where it is dead.

    Returns:
        What the ``Down`` will carry, and ``demonitor`` takes.

    Raises:
        NotInActor: The caller has no mailbox.
    """
    owner = process_here("monitor()")
    if not isinstance(owner, ActorProcess):
        raise NotInActor("monitor() needs a mailbox for the Down message, and a task has none; use an actor.")
    watched = ref._process
    made = MonitorRef(owner, ref)
    if not watched.alive:
        owner.inform(Down(made, ref, NoProc()))
    else:
        if owner.monitors is None:
            owner.monitors = set()
        owner.monitors.add(made)
        watched.watch(made, partial(_tell, owner, made))
    return made


def _tell(owner: ActorProcess, made: MonitorRef, reason: ExitReason) -> None:
    _forget(owner, made)
    owner.inform(Down(made, made.ref, reason))


def _forget(owner: ActorProcess, made: MonitorRef) -> None:
    if owner.monitors is not None:
        owner.monitors.discard(made)


def demonitor(m: MonitorRef, *, flush: bool = False) -> None:
    """Takes a monitor back; ``flush`` also removes a ``Down`` of it that waits in the mailbox already."""
    m.ref._process.unwatch(m)
    owner = m._owner
    _forget(owner, m)
    if flush:
        owner.mailbox.remove_info(lambda message: isinstance(message, Down) and message.monitor is m)


def link(ref: Ref) -> None:
    """Links the calling process with another: where one ends abnormally, the other gets its reason as an exit signal.

    A dead one is an exit signal ``NoProc`` at once. A ``Normal`` end harms nobody.

    Raises:
        NotInActor: No process runs this code.
    """
    process_here("link()").link(ref._process)


def unlink(ref: Ref) -> None:
    """Takes a link back, both ways.

    Raises:
        NotInActor: No process runs this code.
    """
    process_here("unlink()").unlink(ref._process)


def exit(ref: Ref, reason: ExitReason) -> None:
    """Sends an exit signal.

    ``Killed`` ends any process, at once. An actor that traps exits gets any other as an ``Exit`` message; it ends any
    other actor or task without ``terminate``, unless it is ``Normal``. Supervisors ignore all but ``Killed``. To the
    dead it is silent.
    """
    target = ref._process
    if isinstance(reason, Killed):
        target.kill()
    else:
        target.signal(reason, CURRENT.get())
