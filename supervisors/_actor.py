"""The base of actors: a state, a mailbox, and what to do with each message."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, ClassVar

from supervisors import events
from supervisors._errors import NotInActor

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable

    from supervisors._actor_process import ActorProcess
    from supervisors._aside import TaskHandle
    from supervisors._mailbox import From
    from supervisors._reasons import ExitReason
    from supervisors._returns import Continue, Ignore, NoReply, Stop, Timeout

__all__ = ["Actor"]


class Actor:
    """A process with a state that only its own functions touch, one message at a time.

    Derive from it and define what you need; instances are made by a child specification's ``start``, a fresh one for
    each life. It is GenServer's shape: https://hexdocs.pm/elixir/GenServer.html.

    Attributes:
        trap_exit: Whether exit signals come as ``Exit`` messages, and a supervisor's stop runs ``terminate``.
        mailbox_size: So many calls and casts of others may wait; then callers wait for room.
        log_size: So many of its last events ``sys.log`` remembers; 0 where messages are large or secret.
        name: What it is registered under while it runs; a class or an instance attribute.

    Example:
        >>> class Add(Call[int], frozen=True):
        ...     amount: int
        >>> class Counter(Actor):
        ...     name = "counter"
        ...
        ...     async def init(self) -> None:
        ...         self.total = 0
        ...
        ...     async def handle_call(self, request: Add, sender: From) -> int:
        ...         self.total += request.amount
        ...         return self.total
    """

    __slots__ = ("__dict__", "__weakref__", "_process")

    trap_exit: ClassVar[bool] = False
    mailbox_size: ClassVar[int] = 1000
    log_size: ClassVar[int] = 32
    name: str | None = None

    _process: ActorProcess

    async def init(self) -> Continue | Timeout | Ignore | Stop | None:
        """Prepares the state; the starter waits for it. Messages wait too.

        Returns:
            None; a ``Continue`` that runs before any message; a ``Timeout``; ``Ignore`` or ``Stop`` not to run.
        """
        return None

    async def handle_call(self, request: Any, sender: From) -> Any:
        """Answers a call.

        Returns:
            The reply itself, or a ``Reply``, ``NoReply`` or ``Stop``.

        Raises:
            NotImplementedError: The actor does not define it, and crashes.
        """
        raise NotImplementedError(f"{type(self).__name__} has no handle_call, and was called with {request!r}.")

    async def handle_cast(self, message: Any) -> NoReply | Stop | None:
        """Takes a cast.

        Raises:
            NotImplementedError: The actor does not define it, and crashes.
        """
        raise NotImplementedError(f"{type(self).__name__} has no handle_cast, and was sent {message!r}.")

    async def handle_info(self, message: Any) -> NoReply | Stop | None:
        """Takes any other message: ``send``, timers, ``Down``, ``Exit``, ``TimedOut``. By default it is reported."""
        events.emit(events.UnexpectedMessage(self._process.ref, self._process.name, message))
        return None

    async def handle_continue(self, arg: Any) -> NoReply | Stop | None:
        """Goes on after ``init`` or a message that returned ``Continue(arg)``, before the next message.

        Raises:
            NotImplementedError: The actor does not define it, and crashes.
        """
        raise NotImplementedError(f"{type(self).__name__} has no handle_continue, and was to continue with {arg!r}.")

    async def terminate(self, reason: ExitReason) -> None:
        """Cleans up: after a ``Stop``, a raise, a bad return, and a supervisor's stop where ``trap_exit`` is set.

        It never runs after a kill, nor where ``init`` did not end well, nor where an exit signal was not trapped.
        Tasks of ``start_task`` have ended before. It cannot be cancelled from outside, until the supervisor's
        ``shutdown`` seconds are over. What it raises replaces the reason.
        """

    def get_state(self) -> Any:
        """What ``sys.get_state`` shows: a shallow copy of ``vars(self)``, unless overridden."""
        return dict(vars(self))

    def set_state(self, state: Any) -> None:
        """Takes what ``sys.replace_state`` made of ``get_state()``; override both or neither.

        Raises:
            TypeError: The state is not a dict of attributes.
        """
        if not isinstance(state, dict):
            raise TypeError(
                f"The state of {type(self).__name__} is a dict of its attributes, not {type(state).__name__}."
            )
        attributes = vars(self)
        replacement = dict(state)
        attributes.clear()
        attributes.update(replacement)

    def start_task(self, fn: Callable[..., Awaitable[object]], *args: object) -> TaskHandle:
        """Runs ``fn(*args)`` beside the mailbox, as a task of this actor's own.

        Where it raises, the actor crashes. Where the actor ends, the task is cancelled, and its end is waited for.
        Such a task may call its own actor.

        Returns:
            A handle with ``.cancel()``.

        Raises:
            NotInActor: The actor does not run (yet).
        """
        process: ActorProcess | None = getattr(self, "_process", None)
        if process is None or not process.alive:
            raise NotInActor(
                f"{type(self).__name__} does not run, so it cannot have tasks; start them in init or later."
            )
        return process.start_aside(fn, args)
