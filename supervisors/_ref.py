"""The handles that are passed around: a process, and a monitor of one."""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from supervisors._actor_process import ActorProcess
    from supervisors._process import Process

__all__ = ["MonitorRef", "Ref"]


class Ref:
    """A process: an actor, a supervisor or a task, alive or dead.

    A handle means one life: what a supervisor restarts has a new one. Handles compare by identity, can be keys,
    and can travel in messages. Where a life does not matter, address the process by its registered name.
    """

    __slots__ = ("__weakref__", "_process")

    def __init__(self, process: Process) -> None:
        self._process = process

    @property
    def id(self) -> int:
        """A number that no other process of this interpreter has."""
        return self._process.number

    @property
    def name(self) -> str | None:
        """The name it is or was registered under, if any."""
        return self._process.name

    def __repr__(self) -> str:
        return f"Ref({self.id}, {self._process.label!r})"


class MonitorRef:
    """One monitor, as ``monitor`` returned it and a ``Down`` message names it.

    Attributes:
        ref: The process that is watched.
    """

    __slots__ = ("_owner", "ref")

    def __init__(self, owner: ActorProcess, ref: Ref) -> None:
        self._owner = owner
        self.ref = ref

    def __repr__(self) -> str:
        return f"MonitorRef({self.ref!r})"
