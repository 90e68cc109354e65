"""What supervisors answer to others: who their children are, and orders about them."""

from __future__ import annotations

from functools import partial

from supervisors._child import Child, ChildCounts, ChildInfo, Failed, Ignored, Settlement, Started
from supervisors._errors import NotFound, Restarting, Running, ServerExit, StartError
from supervisors._lifecycle import Lifecycle
from supervisors._reasons import Shutdown
from supervisors._ref import Ref
from supervisors._specs import ChildSpec
from supervisors._waiter import Waiter

__all__ = ["SupervisorProcess"]


class SupervisorProcess(Lifecycle):
    """One life of a supervisor."""

    __slots__ = ()

    def which(self) -> list[ChildInfo]:
        """Its children, as they are now."""
        return [child.info() for child in self.children.values()]

    def count(self) -> ChildCounts:
        """How many children there are."""
        children = list(self.children.values())
        supervisors = sum(child.spec.type == "supervisor" for child in children)
        active = sum(child.process is not None for child in children)
        return ChildCounts(len(children), active, supervisors, len(children) - supervisors)

    def find(self, key: str | Ref) -> Child:
        """Finds a child by its id or its current or last handle.

        Raises:
            NotFound: There is none.
            TypeError: It is neither.
        """
        if isinstance(key, str):
            child = self.children.get(key)
        elif isinstance(key, Ref):
            child = self.children.get(key._process.label)
            child = child if child is not None and child.ref is key else None
        else:
            raise TypeError(f"A child is named by its id or its Ref, not by {key!r}.")
        if child is None:
            raise NotFound(f"Supervisor {self.label!r} has no child {key!r}.")
        return child

    async def start_child(self, spec: ChildSpec) -> Ref | None:
        """Adds a child and starts it."""
        raise NotImplementedError

    async def terminate_child(self, key: str | Ref) -> None:
        """Ends a child, or the wait for its restart."""
        await self.stop(self.find(key))

    async def restart_child(self, key: str | Ref) -> Ref | None:
        """Starts a child that does not run, also one that waits for its backoff."""
        child = self.find(key)
        if not (child.state == "restarting" and child.spec.backoff is not None):
            self.refuse_live(child)
        waiter: Waiter[Ref | None] = Waiter()
        self.launch(child, partial(self.answer_start, waiter, keep=True))
        return await waiter.wait()

    async def delete_child(self, key: str | Ref) -> None:
        """Drops the specification of a child that does not run."""
        child = self.find(key)
        self.refuse_live(child)
        self.forget(child)

    def refuse_live(self, child: Child) -> None:
        """Raises unless the child is stopped.

        Raises:
            Running: It runs.
            Restarting: It is being started again.
        """
        if child.state == "running":
            raise Running(f"Child {child.id!r} runs; terminate it first.")
        if child.state != "stopped":
            raise Restarting(f"Child {child.id!r} is {child.state}; terminate it first, or wait.")

    def answer_start(
        self, waiter: Waiter[Ref | None], child: Child, settlement: Settlement, *, keep: bool = False
    ) -> None:
        """Tells who asked for a start how it went; ``keep`` says that a failed one keeps its specification."""
        if isinstance(settlement, Started):
            waiter.settle(settlement.ref)
        elif isinstance(settlement, Ignored):
            waiter.settle(None)
        elif isinstance(settlement, Failed):
            if settlement.retried and not keep:
                waiter.settle(None)
                return
            if not settlement.retried and not (keep and self.keeps(child)):
                self.forget(child)
            waiter.fail(StartError(child.id, settlement.cause))
        else:
            if not keep:
                self.forget(child)
            waiter.fail(
                StartError(child.id, ServerExit(Shutdown(), "The start was called off: the child was terminated."))
            )
