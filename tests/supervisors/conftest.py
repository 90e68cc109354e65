"""One child that does whatever a test tells it, and a journal of what its lives went through."""

from __future__ import annotations

import inspect
from collections import defaultdict
from collections.abc import Callable, Iterator
from typing import Any

import pytest
import trio
import trio.testing

import supervisors
from supervisors import Actor, Call, ChildSpec, Exit, From, call, events


class Do(Call[Any], frozen=True):
    """Lets the child run ``work(child)``, sync or async, in its handler, and returns what that returned."""

    work: Callable[[Any], Any]


class Note(supervisors.Cast, frozen=True):
    """A message that the child writes down."""

    text: str


class Script:
    """What the lives of one id do; None is the harmless default. Each is called with the child.

    Attributes:
        init: In ``init``; what it returns, ``init`` returns.
        terminate: In ``terminate``, with the reason too.
        info: For each info message, with the message too; its return counts.
    """

    def __init__(self) -> None:
        self.init: Callable[[Any], Any] | None = None
        self.terminate: Callable[[Any, Any], Any] | None = None
        self.info: Callable[[Any, Any], Any] | None = None
        self.resume: Callable[[Any, Any], Any] | None = None
        self.trap_exit = False


async def _run(work: Callable[..., Any] | None, *args: Any) -> Any:
    result = None if work is None else work(*args)
    return await result if inspect.isawaitable(result) else result


class Puppet(Actor):
    """The child."""

    def __init__(self, stage: Stage, id: str, name: str | None) -> None:
        self.stage = stage
        self.id = id
        self.name = name
        self.script = stage.script[id]
        self.trap_exit = self.script.trap_exit  # type: ignore[misc]
        self.seen: list[Any] = []

    async def init(self) -> Any:
        self.stage.journal.append(("init", self.id))
        result = await _run(self.script.init, self)
        self.stage.journal.append(("up", self.id))
        self.stage.alive.add(self.id)
        return result

    async def handle_call(self, request: Do, sender: From) -> Any:
        self.sender = sender
        return await _run(request.work, self)

    async def handle_cast(self, message: Any) -> Any:
        if isinstance(message, Do):
            return await _run(message.work, self)
        self.seen.append(message)
        return None

    async def handle_info(self, message: Any) -> Any:
        self.seen.append(message)
        if isinstance(message, Exit):
            self.stage.journal.append(("exit", self.id))
        return await _run(self.script.info, self, message)

    async def handle_continue(self, arg: Any) -> Any:
        self.seen.append(("continue", arg))
        return await _run(self.script.resume, self, arg)

    async def terminate(self, reason: Any) -> None:
        self.stage.journal.append(("terminate", self.id))
        self.stage.reasons[self.id].append(reason)
        await _run(self.script.terminate, self, reason)


class Stage:
    """Makes children and remembers what they did."""

    Do = Do
    Note = Note
    Puppet = Puppet

    def __init__(self) -> None:
        self.script: dict[str, Script] = defaultdict(Script)
        self.journal: list[tuple[str, str]] = []
        self.reasons: dict[str, list[Any]] = defaultdict(list)
        self.alive: set[str] = set()
        self.events: list[Any] = []

    def spec(self, id: str, *, name: str | None = None, trap: bool = False, **options: Any) -> ChildSpec:
        """A specification; the child is registered under its id, unless ``name`` says otherwise."""
        if trap:
            self.script[id].trap_exit = True
        return ChildSpec(id=id, start=lambda: Puppet(self, id, id if name is None else name or None), **options)

    def seen(self, kind: type | tuple[type, ...]) -> list[Any]:
        """The reports of some kinds."""
        return [event for event in self.events if isinstance(event, kind)]

    def inits(self) -> list[str]:
        """The ids that began their ``init``, in order."""
        return [id for what, id in self.journal if what == "init"]

    def ended(self) -> list[str]:
        """The ids whose ``terminate`` ran, in order."""
        return [id for what, id in self.journal if what == "terminate"]

    async def do(self, server: Any, work: Callable[[Any], Any], **options: Any) -> Any:
        """Runs something in a child."""
        return await call(server, Do(work), **options)

    async def crash(self, server: Any, error: BaseException | None = None) -> None:
        """Lets a child raise, and everything settle."""
        supervisors.cast_nowait(server, Do(lambda _: _raise(error or RuntimeError(f"crash of {server}"))))
        await settle()

    async def end(self, server: Any, reason: Any = None) -> None:
        """Lets a child stop itself, normally unless told otherwise, and everything settle."""
        stop = supervisors.Stop(reason or supervisors.Normal())
        supervisors.cast_nowait(server, Do(lambda _: stop))
        await settle()

    def fail_init(self, id: str, times: int | None = None, error: Exception | None = None) -> None:
        """Lets the next inits of an id raise, ``times`` of them or all."""
        left = [times]

        def init(_: Any) -> None:
            if left[0] is None or left[0] > 0:
                left[0] = None if left[0] is None else left[0] - 1
                raise error or ValueError(f"init of {id}")

        self.script[id].init = init

    def hang_init(self, id: str) -> None:
        """Lets the inits of an id wait for ever."""
        self.script[id].init = lambda _: trio.sleep_forever()


def _raise(error: BaseException) -> None:
    raise error


async def settle() -> None:
    """Waits until nothing happens without time passing."""
    await trio.testing.wait_all_tasks_blocked()
    await trio.testing.wait_all_tasks_blocked()


@pytest.fixture
def stage() -> Iterator[Stage]:
    """Children to play with; reports are collected in ``stage.events``."""
    made = Stage()
    token = events.attach(made.events.append)
    yield made
    events.detach(token)
