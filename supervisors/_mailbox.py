"""The queue of an actor: first in, first out, bounded for strangers' messages and open for all else.

Backpressure is a rule for calls and casts. What a deadlock could come of is never held back: exits, Downs, system
requests, timers, ``send``, and what an actor sends to itself.
"""

from __future__ import annotations

from collections import deque
from typing import TYPE_CHECKING, Any, Generic, TypeVar

from trio.lowlevel import Abort, Task, reschedule

from supervisors._reasons import ExitReason
from supervisors._waiter import Waiter

if TYPE_CHECKING:
    from collections.abc import Callable

    from supervisors._actor_process import ActorProcess
    from supervisors._ref import Ref

__all__ = ["Entry", "From", "Info", "Letter", "Mailbox", "ParentExit", "StopRequest", "SystemRequest"]

T = TypeVar("T")


class From(Waiter[Any]):
    """A call that waits for its reply: what ``handle_call`` is given, and ``reply`` takes.

    Attributes:
        request: What was asked.
        ref: The calling process; None where none called.
        settled: Whether it was answered, or nobody waits for the answer any more.
    """

    __slots__ = ("_server", "bounded", "ref", "request", "started")

    def __init__(self, server: ActorProcess, request: object, ref: Ref | None, bounded: bool) -> None:
        # Waiter's __init__ is repeated here: this is the path of every call.
        self.settled = False
        self._task = None
        self._error = None
        self._value = None
        self._server = server
        self.request = request
        self.ref = ref
        self.bounded = bounded
        self.started = False

    @property
    def server(self) -> ActorProcess:
        """The process that was called."""
        return self._server

    def withdraw(self) -> None:
        """Takes the call out of the queue; a running one goes on, and its reply is dropped."""
        self.settled = True
        self._server.abandon(self)


class Letter:
    """A cast."""

    __slots__ = ("bounded", "message", "sender_waits")

    def __init__(self, message: object, bounded: bool) -> None:
        self.message = message
        self.bounded = bounded
        self.sender_waits: Waiter[None] | None = None


class Info:
    """A message for ``handle_info``."""

    __slots__ = ("message",)
    bounded = False

    def __init__(self, message: object) -> None:
        self.message = message


class SystemRequest(Waiter[T], Generic[T]):
    """Something done to an actor between two messages, also while it is suspended."""

    __slots__ = ("_mailbox", "work")
    bounded = False

    def __init__(self, mailbox: Mailbox, work: Callable[[], T]) -> None:
        super().__init__()
        self._mailbox = mailbox
        self.work = work

    def withdraw(self) -> None:
        """Takes it out of the queue."""
        self.settled = True
        self._mailbox.remove(self)


class StopRequest:
    """``stop``: the actor is to end in good order when it comes to this."""

    __slots__ = ("reason",)
    bounded = False

    def __init__(self, reason: ExitReason) -> None:
        self.reason = reason


class ParentExit:
    """Its supervisor ends an actor that traps exits."""

    __slots__ = ("reason",)
    bounded = False

    def __init__(self, reason: ExitReason) -> None:
        self.reason = reason


Entry = From | Letter | Info | SystemRequest[Any] | StopRequest | ParentExit


class Mailbox:
    """The queue, and the task that waits for it.

    Attributes:
        queue: What waits; None until there was anything (an idle actor pays for no queue).
        suspended: Whether only system requests and exits are served.
    """

    __slots__ = ("_limit", "_load", "_outside", "parked", "queue", "suspended")

    def __init__(self, limit: int) -> None:
        self.queue: deque[Entry] | None = None
        self.suspended = False
        self.parked: Task | None = None
        self._limit = limit
        self._load = 0
        self._outside: deque[From | Letter] | None = None

    def __len__(self) -> int:
        return len(self.queue) if self.queue else 0

    @property
    def full(self) -> bool:
        """Whether a stranger's message has to wait."""
        return self._load >= self._limit

    def put(self, entry: Entry) -> None:
        """Queues an entry; the caller has seen to the bound."""
        if entry.bounded:
            self._load += 1
        queue = self.queue
        if queue is None:
            queue = self.queue = deque()
        queue.append(entry)
        task = self.parked
        if task is not None:
            self.parked = None
            reschedule(task)

    def hold(self, entry: From | Letter) -> None:
        """Keeps an entry outside until there is room; those that came before go in before."""
        if self._outside is None:
            self._outside = deque()
        self._outside.append(entry)

    def take(self) -> Entry:
        """Removes and returns the first entry. There must be one."""
        entry: Entry = self.queue.popleft()  # type: ignore[union-attr]
        if entry.bounded:
            self._freed()
        return entry

    def take_system(self) -> Entry | None:
        """Removes and returns the first entry that is served while suspended; None where there is none."""
        for entry in self.queue or ():
            if isinstance(entry, SystemRequest | StopRequest | ParentExit):
                self.remove(entry)
                return entry
        return None

    def remove(self, entry: Entry) -> None:
        """Takes an entry out, wherever it waits; does nothing where it does not."""
        if self._outside and entry in self._outside:
            self._outside.remove(entry)  # type: ignore[arg-type]
        elif self.queue and entry in self.queue:
            self.queue.remove(entry)
            if entry.bounded:
                self._freed()

    def remove_info(self, unwanted: Callable[[object], bool]) -> None:
        """Drops the queued info messages that are not wanted any more."""
        for entry in list(self.queue or ()):
            if isinstance(entry, Info) and unwanted(entry.message):
                self.remove(entry)

    def unpark(self, _raise_cancel: object) -> Abort:
        """The abort function of the task that waits for an entry."""
        self.parked = None
        return Abort.SUCCEEDED

    def close(self) -> list[Entry]:
        """Empties it for good and returns what waited, inside and outside."""
        left = [*(self.queue or ()), *(self._outside or ())]
        self.queue = self._outside = None
        return left

    def _freed(self) -> None:
        self._load -= 1
        if self._outside:
            entry = self._outside.popleft()
            self.put(entry)
            if type(entry) is Letter and entry.sender_waits is not None:
                entry.sender_waits.settle(None)
