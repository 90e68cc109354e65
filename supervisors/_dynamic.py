"""The supervisor whose children come and go, in no order."""

from __future__ import annotations

from functools import partial
from typing import TYPE_CHECKING

from supervisors._child import Child
from supervisors._errors import MaxChildren
from supervisors._intensity import Intensity
from supervisors._process import Owner
from supervisors._specs import ChildSpec, check_limit, check_options, check_spec
from supervisors._supervision import SupervisorProcess
from supervisors._supervisor import refuse_known
from supervisors._waiter import Waiter

if TYPE_CHECKING:
    from supervisors._ref import Ref

__all__ = ["DynamicSupervisor"]


class DynamicSupervisor:
    """Starts children on demand, side by side; stops them all at once.

    A child that ended for good is forgotten. It is Elixir's: https://hexdocs.pm/elixir/DynamicSupervisor.html; here
    ids are unique, and a slow ``init`` holds nobody else up.

    Args:
        max_children: So many at a time, those that wait for a restart included; None for any number.
        max_restarts: So many restarts within ``max_seconds`` are borne; one more, and it stops all and ends.
        max_seconds: That window, in seconds.
        name: What it is registered under while it runs.

    Raises:
        InvalidChildSpec: An option that cannot work.
    """

    def __init__(
        self,
        *,
        max_children: int | None = None,
        max_restarts: int = 3,
        max_seconds: float = 5.0,
        name: str | None = None,
    ) -> None:
        check_limit(max_children)
        check_options(
            (), strategy="one_for_one", max_restarts=max_restarts, max_seconds=max_seconds, auto_shutdown="never"
        )
        self._max_children = max_children
        self._limits = (max_restarts, max_seconds)
        self._name = name

    def process(self, owner: Owner, label: str) -> SupervisorProcess:
        """Makes one life of it; for supervisors, not for users."""
        return _DynamicProcess(owner, label, self._name, Intensity(*self._limits), self._max_children)


class _DynamicProcess(SupervisorProcess):
    """One life of a ``DynamicSupervisor``."""

    __slots__ = ("_max_children",)

    def __init__(
        self, owner: Owner, label: str, name: str | None, intensity: Intensity, max_children: int | None
    ) -> None:
        super().__init__(owner, label, name, intensity)
        self._max_children = max_children

    def keeps(self, child: Child) -> bool:
        """What ended for good is forgotten."""
        return False

    async def start_child(self, spec: ChildSpec) -> Ref | None:
        """Adds a child and starts it.

        Raises:
            InvalidChildSpec: It does not fit here.
            AlreadyStarted: That id runs.
            AlreadyPresent: That id waits for its restart.
            MaxChildren: There are as many as there may be.
            StartError: Its ``init`` failed; it is forgotten.
        """
        check_spec(spec, strategy="one_for_one", auto_shutdown="never")
        refuse_known(self, spec)
        if self._max_children is not None and len(self.children) >= self._max_children:
            raise MaxChildren(
                f"Supervisor {self.label!r} has its {self._max_children} children; end one of them first."
            )
        child = self.children[spec.id] = Child(spec)
        waiter: Waiter[Ref | None] = Waiter()
        self.launch(child, partial(self.answer_start, waiter))
        return await waiter.wait()
