"""The supervisor with children known beforehand, an order, and a strategy."""

from __future__ import annotations

from collections import deque
from functools import partial
from typing import TYPE_CHECKING, Any, TypeVar

from supervisors import events
from supervisors._child import Child, Failed
from supervisors._errors import ActorError, AlreadyPresent, AlreadyStarted, ServerExit, StartError
from supervisors._intensity import Intensity
from supervisors._process import Owner
from supervisors._reasons import ExitReason, Shutdown, described
from supervisors._specs import AutoShutdown, ChildSpec, Strategy, check_options, check_spec
from supervisors._supervision import SupervisorProcess
from supervisors._waiter import Waiter

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable, Sequence

    from supervisors._ref import Ref

__all__ = ["Supervisor"]

T = TypeVar("T")


class Supervisor:
    """Starts its children one after the other, restarts what ends, stops them in reverse order.

    A child itself: return it from a child specification's ``start``, or open the root with ``open_supervisor``.
    It is OTP's: https://www.erlang.org/doc/apps/stdlib/supervisor.html.

    Args:
        children: What to start, in this order.
        strategy: Who is restarted along with a child: nobody, all, or those started after it.
        max_restarts: So many restarts within ``max_seconds`` are borne; one more, and it stops all and ends.
        max_seconds: That window, in seconds.
        auto_shutdown: Whether the end of any, or of the last, significant child ends it.
        name: What it is registered under while it runs.

    Raises:
        InvalidChildSpec: Options or children that cannot work.

    Example:
        >>> Supervisor([ChildSpec(id="store", start=Store), ChildSpec(id="web", start=Web)], strategy="rest_for_one")
    """

    def __init__(
        self,
        children: Sequence[ChildSpec],
        *,
        strategy: Strategy = "one_for_one",
        max_restarts: int = 3,
        max_seconds: float = 5.0,
        auto_shutdown: AutoShutdown = "never",
        name: str | None = None,
    ) -> None:
        self._children = tuple(children)
        check_options(
            self._children,
            strategy=strategy,
            max_restarts=max_restarts,
            max_seconds=max_seconds,
            auto_shutdown=auto_shutdown,
        )
        self._strategy: Strategy = strategy
        self._auto_shutdown: AutoShutdown = auto_shutdown
        self._limits = (max_restarts, max_seconds)
        self._name = name

    def process(self, owner: Owner, label: str) -> SupervisorProcess:
        """Makes one life of it; for supervisors, not for users."""
        return _OrderedProcess(
            owner, label, self._name, Intensity(*self._limits), self._children, self._strategy, self._auto_shutdown
        )


class _OrderedProcess(SupervisorProcess):
    """One life of a ``Supervisor``.

    What has to happen one after the other is queued as work for its own task: ``start_child``, and with strategies
    that concern a group all administration and every restart.
    """

    __slots__ = ("_at_work", "_auto_shutdown", "_idle", "_queue", "_specs", "strategy")

    strategy: Strategy

    def __init__(
        self,
        owner: Owner,
        label: str,
        name: str | None,
        intensity: Intensity,
        specs: tuple[ChildSpec, ...],
        strategy: Strategy,
        auto_shutdown: AutoShutdown,
    ) -> None:
        super().__init__(owner, label, name, intensity)
        self.strategy = strategy
        self._specs = specs
        self._auto_shutdown = auto_shutdown
        self._queue: deque[tuple[Callable[[], Awaitable[Any]], Waiter[Any]]] = deque()
        self._idle: Waiter[None] | None = None
        self._at_work: Waiter[Any] | None = None

    # ---- its task

    async def supervise(self) -> None:
        """Starts the children in order, then does the queued work."""
        for spec in self._specs:
            self.children[spec.id] = Child(spec)
            self.children[spec.id].state = "starting"
        for child in list(self.children.values()):
            if child.state != "starting":
                continue  # it was terminated before its turn came
            settlement = await self.start(child)
            if isinstance(settlement, Failed) and not settlement.retried:
                self._start_error = StartError(child.id, settlement.cause)
                self.request_stop(Shutdown())
                return
        self.became_ready()
        while True:
            while self._queue:
                work, self._at_work = self._queue.popleft()
                if not self._at_work.settled:
                    await self._do(work, self._at_work)
            self._idle = Waiter()
            await self._idle.wait()

    async def _do(self, work: Callable[[], Awaitable[Any]], waiter: Waiter[Any]) -> None:
        try:
            value = await work()
        except ActorError as error:  # it belongs to who asked
            waiter.fail(error)
        else:
            waiter.settle(value)

    def _enqueue(self, work: Callable[[], Awaitable[T]]) -> Waiter[T]:
        waiter: Waiter[T] = Waiter()
        self._queue.append((work, waiter))
        if self._idle is not None:
            self._idle.settle(None)
        return waiter

    async def stop_children(self) -> None:
        """Ends the children in reverse order, one by one."""
        for child in reversed(list(self.children.values())):
            await self.stop(child)

    def ended(self, reason: ExitReason) -> None:
        """Tells whoever still waits for work to be done."""
        waiters = [waiter for _, waiter in self._queue]
        if self._at_work is not None:
            waiters.append(self._at_work)
        for waiter in waiters:
            waiter.fail(ServerExit(reason, f"Supervisor {self.label!r} {described(reason)}."))

    def significant_ended(self) -> None:
        """Ends itself where ``auto_shutdown`` says so."""
        if self._auto_shutdown == "never" or self.stop_reason is not None:
            return
        others = any(
            child.spec.significant and (child.process is not None or child.state == "restarting")
            for child in self.children.values()
        )
        if self._auto_shutdown == "any_significant" or not others:
            self.give_up()

    # ---- groups

    def restart_wanted(self, child: Child) -> None:
        """Restarts it, with those that the strategy says."""
        if self.strategy == "one_for_one":
            super().restart_wanted(child)
            return
        child.state = "restarting"
        self._enqueue(partial(self._restart_after, child))

    async def _restart_after(self, failed: Child) -> None:
        if failed.state != "restarting" or self.children.get(failed.id) is not failed:
            return  # it was terminated, or restarted with another's group, before its turn came
        await self._restart_group(failed, [])

    def _group_of(self, failed: Child, before: list[Child]) -> list[Child]:
        """Who is restarted along with a child; ``before`` is its group as it was, should it be deleted since."""
        members = list(self.children.values())
        if self.strategy == "one_for_all":
            return members
        if failed in members:
            return members[members.index(failed) :]
        return [member for member in before if member in members]

    async def _restart_group(self, failed: Child, before: list[Child]) -> None:
        """Stops the group in reverse order and starts all its retained specifications, finished ones too."""
        group = self._group_of(failed, before)
        left_out = failed if failed.state == "stopped" else None  # terminated since the last attempt
        if left_out is None:
            if not self.count_restart():
                return
            failed.attempt += 1
            events.emit(events.ChildRestarting(self.ref, failed.id, 0.0, failed.attempt))
        attempt = failed.attempt
        for member in reversed(group):
            await self.stop(member)
        group = [member for member in group if self.children.get(member.id) is member and member is not left_out]
        for member in group:
            member.state = "restarting"
        for member in group:
            if member.state != "restarting":
                continue  # it was terminated before its turn came
            member.restarts += 1
            settlement = await self.start(member)
            if isinstance(settlement, Failed):
                member.state = "restarting"
                member.attempt = attempt if member is failed else 0
                self._enqueue(partial(self._restart_group, member, group[group.index(member) :]))
                return

    # ---- administration

    async def start_child(self, spec: ChildSpec) -> Ref | None:
        """Adds a child behind the others and starts it, after any start that is under way.

        Raises:
            InvalidChildSpec: It does not fit here.
            AlreadyStarted: That id runs.
            AlreadyPresent: That id is known, and does not run.
            StartError: Its ``init`` failed; the specification is dropped.
        """
        check_spec(spec, strategy=self.strategy, auto_shutdown=self._auto_shutdown)
        return await self._enqueue(partial(self._start_child, spec)).wait()

    async def _start_child(self, spec: ChildSpec) -> Ref | None:
        refuse_known(self, spec)
        child = self.children[spec.id] = Child(spec)
        waiter: Waiter[Ref | None] = Waiter()
        self.launch(child, partial(self.answer_start, waiter))
        return await waiter.wait()

    async def terminate_child(self, key: str | Ref) -> None:
        """Ends a child; a start that hangs is called off at once."""
        if self._independent:
            await super().terminate_child(key)
            return
        child = self.find(key)
        if child.state == "starting":
            self.begin_stop(child)
        await self._enqueue(partial(super().terminate_child, key)).wait()

    async def restart_child(self, key: str | Ref) -> Ref | None:
        """Starts a child that does not run."""
        if self._independent:
            return await super().restart_child(key)
        self.find(key)
        return await self._enqueue(partial(super().restart_child, key)).wait()

    async def delete_child(self, key: str | Ref) -> None:
        """Drops the specification of a child that does not run."""
        if self._independent:
            await super().delete_child(key)
        else:
            self.find(key)
            await self._enqueue(partial(super().delete_child, key)).wait()

    @property
    def _independent(self) -> bool:
        return self.ready and self.strategy == "one_for_one"


def refuse_known(process: SupervisorProcess, spec: ChildSpec) -> None:
    """Raises where a supervisor has a child of that id.

    Raises:
        AlreadyStarted: It runs.
        AlreadyPresent: It does not.
    """
    known = process.children.get(spec.id)
    if known is None:
        return
    if known.process is not None:
        ref = known.process.ref
        raise AlreadyStarted(ref, f"Child {spec.id!r} runs already, as {ref!r}.")
    raise AlreadyPresent(f"Child {spec.id!r} is known and {known.state}; restart it, or delete it first.")
