"""Random trees, random operations and crashes: what must hold whatever happens."""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from contextlib import suppress
from itertools import pairwise
from typing import Any

import trio
from hypothesis import given, settings
from hypothesis import strategies as st
from trio.testing import MockClock

import supervisors
from supervisors import (
    Actor,
    ActorError,
    Backoff,
    Call,
    ChildSpec,
    Crashed,
    DynamicSupervisor,
    Ignore,
    Killed,
    NoReply,
    Normal,
    Shutdown,
    Stop,
    Supervisor,
    SupervisorExit,
    call,
    cast_nowait,
    exit,
    open_supervisor,
    whereis,
)

NAMES = ["n0", "n1", "n2"]
DYNAMIC = "d"
SHUTDOWN = 2.0


class Order(Call[Any], frozen=True):
    """What a leaf is to do."""

    what: str


class Ledger:
    """What the leaves of one run went through, by the clock."""

    def __init__(self, data: st.DataObject) -> None:
        self.data = data
        self.downs: list[str] = []
        self.spent: list[float] = []

    def draw(self, options: list[Any]) -> Any:
        """Lets hypothesis choose."""
        return self.data.draw(st.sampled_from(options))


class Leaf(Actor):
    """A child whose inits, answers and cleanups are drawn."""

    trap_exit = True

    def __init__(self, ledger: Ledger, name: str) -> None:
        self.ledger = ledger
        self.name = name

    async def init(self) -> Any:
        match self.ledger.draw(["ok"] * 12 + ["fail", "slow", "ignore", "stop", "task"]):
            case "fail":
                raise OSError("init")
            case "slow":
                await trio.sleep(0.5)
            case "ignore":
                return Ignore()
            case "stop":
                return Stop(Shutdown())
            case "task":
                self.start_task(self._beside)
        return None

    async def _beside(self) -> None:
        await trio.sleep(self.ledger.draw([1, 50]))
        raise OSError("task")

    async def handle_call(self, request: Order, sender: Any) -> Any:
        match request.what:
            case "crash":
                raise OSError("call")
            case "hang":
                await trio.sleep_forever()
            case "never":
                return NoReply()
            case "normal":
                return Stop(Normal(), "bye")
            case "shutdown":
                return Stop(Shutdown("by itself"))
        return request.what

    async def handle_cast(self, message: Order) -> Any:
        await self.handle_call(message, None)

    async def terminate(self, reason: Any) -> None:
        began = trio.current_time()
        try:
            match self.ledger.draw(["quick"] * 4 + ["slow", "endless", "fail"]):
                case "slow":
                    await trio.sleep(1)
                case "endless" if reason == Shutdown():
                    await trio.sleep_forever()
                case "fail":
                    raise OSError("terminate")
        finally:
            self.ledger.spent.append(trio.current_time() - began)
            self.ledger.downs.append(self.name or "")


@st.composite
def nodes(draw: st.DrawFn, depth: int = 0) -> dict[str, Any]:
    """A node of a tree, as data."""
    kinds = ["leaf"] * 3 + (["static", "dynamic"] if depth < 2 else [])
    node: dict[str, Any] = {"kind": draw(st.sampled_from(kinds)) if depth else "static"}
    node["restart"] = draw(st.sampled_from(["permanent", "transient", "temporary"]))
    node["strategy"] = draw(st.sampled_from(["one_for_one", "one_for_all", "rest_for_one"]))
    node["max_restarts"] = draw(st.integers(0, 4))
    node["backoff"] = draw(st.booleans())
    node["children"] = [] if node["kind"] != "static" else draw(st.lists(nodes(depth + 1), max_size=3))
    return node


def spec(node: dict[str, Any], id: str, ledger: Ledger, parent: str) -> ChildSpec:
    name = f"{parent}.{id}"
    start: Callable[[], Any]
    match node["kind"]:
        case "leaf":
            start = lambda: Leaf(ledger, name)  # noqa: E731
        case "dynamic":
            start = lambda: DynamicSupervisor(max_restarts=node["max_restarts"], name=name)  # noqa: E731
        case _:
            children = specs(node, ledger, name)
            start = lambda: Supervisor(  # noqa: E731
                children, strategy=node["strategy"], max_restarts=node["max_restarts"], name=name
            )
    return ChildSpec(
        id=id,
        start=start,
        restart=node["restart"],
        shutdown=SHUTDOWN if node["kind"] == "leaf" else None,
        backoff=Backoff(initial=1, jitter=0) if node["backoff"] and node.get("alone") else None,
    )


def specs(node: dict[str, Any], ledger: Ledger, name: str) -> list[ChildSpec]:
    for child in node["children"]:
        child["alone"] = node["strategy"] == "one_for_one"
    marks = {"dynamic": DYNAMIC, "static": "s", "leaf": "l"}
    return [
        spec(child, f"{marks[child['kind']]}{number}", ledger, name) for number, child in enumerate(node["children"])
    ]


def names_of(picture: Any, kind: str) -> list[str]:
    """The names in a tree of all processes of a kind."""
    own = [picture.name] if picture.kind == kind and picture.name else []
    return own + [name for child in picture.children for name in names_of(child, kind)]


OPERATIONS = ["crash", "hang", "never", "normal", "shutdown", "fine", "kill", "exit", "suspend"]
ORDERS = ["start", "start", "terminate", "restart", "delete", "which", "kill sup", "sleep", "sleep"]


async def ignoring(fn: Callable[..., Awaitable[Any]], *args: Any, **options: Any) -> None:
    """Calls something that may fail in any way the library has a name for."""
    with suppress(ActorError):
        await fn(*args, **options)


async def operate(root: Any, ledger: Ledger, nursery: trio.Nursery, serial: int) -> None:
    picture = await supervisors.sys.tree(root)
    leaves = names_of(picture, "actor")
    sups = names_of(picture, "supervisor")
    what = ledger.draw(OPERATIONS + ORDERS if leaves else ORDERS)
    if what in OPERATIONS:
        name = ledger.draw(leaves)
        ref = whereis(name)
        if ref is None:
            return
        match what:
            case "kill":
                exit(ref, Killed())
            case "exit":
                exit(ref, Crashed(OSError()))
            case "suspend":
                nursery.start_soon(ignoring, supervisors.sys.suspend, ref)
            case _:
                nursery.start_soon(lambda: ignoring(call, ref, Order(what), timeout=ledger.draw([0.5, 60])))
                cast_nowait(ref, Order("fine"))
        return
    sup = ledger.draw(sups)
    ids = [child.id for child in (supervisors.sys.tree(sup)).children] if whereis(sup) else []
    match what:
        case "sleep":
            await trio.sleep(ledger.draw([0.1, 3]))
        case "start":
            node = {"kind": "leaf", "restart": "transient", "backoff": False}
            made = spec(node, f"x{serial}", ledger, sup)
            nursery.start_soon(ignoring, supervisors.start_child, sup, made)
        case "which":
            with trio.fail_after(0.0001):
                await ignoring(supervisors.which_children, sup)
        case "kill sup":
            ref = whereis(sup)
            if ref is not None and ref is not root:
                exit(ref, Killed())
        case _ if ids:
            order = getattr(supervisors, f"{what}_child")
            nursery.start_soon(ignoring, order, sup, ledger.draw(ids))


def check_order(picture: Any, ended: list[str]) -> None:
    """Below every ordered supervisor, the leaves of a later child ended before those of an earlier one."""
    place = {name: number for number, name in enumerate(ended)}
    if not picture.id.startswith(DYNAMIC):
        groups = [[place[name] for name in names_of(child, "actor") if name in place] for child in picture.children]
        groups = [group for group in groups if group]
        for earlier, later in pairwise(groups):
            assert min(earlier) > max(later), (ended, groups)
    for child in picture.children:
        check_order(child, ended)


async def scenario(tree: dict[str, Any], ledger: Ledger, steps: int) -> None:
    tasks = trio.lowlevel.current_statistics().tasks_living
    picture = None
    begun = 0
    stopped_at = 0.0
    async with trio.open_nursery() as callers:
        try:
            async with open_supervisor(
                specs(tree, ledger, "r"),
                strategy=tree["strategy"],
                max_restarts=tree["max_restarts"],
                name="r",
            ) as root:
                for serial in range(steps):
                    await operate(root, ledger, callers, serial)
                await trio.sleep(100)
                await trio.testing.wait_all_tasks_blocked()
                picture = await supervisors.sys.tree(root)
                begun = len(ledger.downs)
                stopped_at = trio.current_time()
        except (SupervisorExit, supervisors.StartError):
            picture = None
        # every caller is answered by now; one that were not would hang here, and the deadline below would tell
    leaves = 0 if picture is None else len(names_of(picture, "actor"))
    if picture is not None:
        assert trio.current_time() - stopped_at <= leaves * SHUTDOWN + 1e-6
        check_order(picture, ledger.downs[begun:])
    assert trio.lowlevel.current_statistics().tasks_living == tasks
    assert supervisors._names._NAMES.get({}) == {}
    assert all(spent <= SHUTDOWN + 1e-6 for spent in ledger.spent)


@settings(max_examples=150, deadline=None)
@given(tree=nodes(), data=st.data(), steps=st.integers(0, 12))
def test_whatever_happens(tree: dict[str, Any], data: st.DataObject, steps: int) -> None:
    """No orphan task, no caller left waiting, no name leaked, reverse order, bounded stops."""

    async def main() -> None:
        with trio.fail_after(100_000):
            await scenario(tree, Ledger(data), steps)

    trio.run(main, clock=MockClock(autojump_threshold=0))


@settings(max_examples=150, deadline=None)
@given(
    crashes=st.lists(st.tuples(st.integers(0, 2), st.sampled_from([0.0, 0.5, 1.0, 2.0, 2.5, 5.0])), max_size=25),
    max_restarts=st.integers(0, 4),
    max_seconds=st.sampled_from([0.5, 2.0, 5.0]),
    strategy=st.sampled_from(["one_for_one", "one_for_all", "rest_for_one"]),
)
def test_the_intensity_rule(
    crashes: list[tuple[int, float]], max_restarts: int, max_seconds: float, strategy: Any
) -> None:
    """The supervisor gives up at exactly the crash at which a plain count of the window says so."""
    times: list[float] = []
    expected = None
    now = 0.0
    for number, (_, wait) in enumerate(crashes):
        now += wait
        times = [time for time in times if time >= now - max_seconds] + [now]
        if len(times) > max_restarts:
            expected = number
            break

    async def main() -> int | None:
        begun = None
        try:
            async with open_supervisor(
                [ChildSpec(id=name, start=lambda name=name: Plain(name)) for name in NAMES],
                strategy=strategy,
                max_restarts=max_restarts,
                max_seconds=max_seconds,
            ):
                for number, (which, wait) in enumerate(crashes):
                    await trio.sleep(wait)
                    begun = number
                    cast_nowait(NAMES[which], Order("crash"))
                    await trio.testing.wait_all_tasks_blocked()
            begun = None
        except SupervisorExit:
            pass
        return begun

    class Plain(Actor):
        def __init__(self, name: str) -> None:
            self.name = name

        async def handle_cast(self, message: Any) -> None:
            raise OSError("crash")

    assert trio.run(main, clock=MockClock(autojump_threshold=0)) == expected
