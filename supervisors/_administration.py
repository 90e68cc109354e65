"""Asking supervisors about their children, and adding, ending and restarting them."""

from __future__ import annotations

from typing import TYPE_CHECKING

from trio.lowlevel import checkpoint

from supervisors._target import supervisor_of

if TYPE_CHECKING:
    from supervisors._child import ChildCounts, ChildInfo
    from supervisors._ref import Ref
    from supervisors._specs import ChildSpec

__all__ = ["count_children", "delete_child", "restart_child", "start_child", "terminate_child", "which_children"]


async def start_child(sup: Ref | str, spec: ChildSpec) -> Ref | None:
    """Adds a child to a ``Supervisor`` or a ``DynamicSupervisor`` and waits for its ``init``.

    Returns:
        Its process; None where ``init`` returned ``Ignore``, or where it failed and the child's ``backoff`` goes on.

    Raises:
        AlreadyStarted: That id runs.
        AlreadyPresent: That id is known, and does not run.
        MaxChildren: The dynamic supervisor is full.
        InvalidChildSpec: It does not fit that supervisor.
        StartError: It failed; the specification is dropped.
        NoProcess: There is no such supervisor.
        ServerExit: The supervisor is ending.
        CallingSelf: A child in its ``init`` asks its own supervisor.
    """
    return await supervisor_of(sup).start_child(spec)


async def restart_child(sup: Ref | str, id: str | Ref) -> Ref | None:
    """Starts a child that does not run; one that waits for its backoff is tried now. It never counts as a restart.

    Returns:
        Its process; None where ``init`` returned ``Ignore``.

    Raises:
        NotFound: There is no such child.
        Running: It runs.
        Restarting: It is just being started.
        StartError: It failed; a backoff goes on.
        NoProcess: There is no such supervisor.
        ServerExit: The supervisor is ending.
        CallingSelf: A child in its ``init`` asks its own supervisor.
    """
    return await supervisor_of(sup).restart_child(id)


async def terminate_child(sup: Ref | str, id_or_ref: str | Ref) -> None:
    """Ends a child, or its wait for a restart. A ``Supervisor`` keeps its specification, unless it is temporary.

    Raises:
        NotFound: There is no such child.
        NoProcess: There is no such supervisor.
        ServerExit: The supervisor is ending.
        CallingSelf: A child in its ``init`` asks its own supervisor.
    """
    await supervisor_of(sup).terminate_child(id_or_ref)


async def delete_child(sup: Ref | str, id: str | Ref) -> None:
    """Drops the specification of a child that does not run.

    Raises:
        NotFound: There is no such child.
        Running: It runs.
        Restarting: It waits for a restart, or is just being started.
        NoProcess: There is no such supervisor.
        ServerExit: The supervisor is ending.
        CallingSelf: A child in its ``init`` asks its own supervisor.
    """
    await checkpoint()
    await supervisor_of(sup).delete_child(id)


async def which_children(sup: Ref | str) -> list[ChildInfo]:
    """Lists the children of a supervisor in the order of their specifications; at all times, whatever they do.

    Raises:
        NoProcess: There is no such supervisor.
        CallingSelf: A child in its ``init`` asks its own supervisor.
    """
    await checkpoint()
    return supervisor_of(sup, to_look=True).which()


async def count_children(sup: Ref | str) -> ChildCounts:
    """Counts the children of a supervisor; at all times, whatever they do.

    Raises:
        NoProcess: There is no such supervisor.
        CallingSelf: A child in its ``init`` asks its own supervisor.
    """
    await checkpoint()
    return supervisor_of(sup, to_look=True).count()
