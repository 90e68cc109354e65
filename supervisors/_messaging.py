"""Sending messages to actors: calls that wait for a reply, casts and infos that do not."""

from __future__ import annotations

import math
from functools import partial
from typing import TYPE_CHECKING, Any, TypeVar
from typing import cast as typed

from trio.lowlevel import checkpoint

from supervisors._actor_process import ActorProcess
from supervisors._current import ASIDE, CURRENT
from supervisors._errors import CallingSelf, CallTimeout, MailboxFull, ServerExit
from supervisors._mailbox import From, Letter
from supervisors._reasons import ExitReason, Normal, described
from supervisors._target import actor_of, mailbox_of, present
from supervisors._timers import TimerRef, Timers
from supervisors._waiter import Waiter

if TYPE_CHECKING:
    from supervisors._messages import Call
    from supervisors._process import Process
    from supervisors._ref import Ref

__all__ = ["call", "cast", "cast_nowait", "reply", "send", "send_after", "stop"]

R = TypeVar("R")


async def call(server: Ref | str, request: Call[R], *, timeout: float = 5.0) -> R:
    """Sends a request to an actor and waits for the reply.

    A call that is cancelled or timed out is taken back while it waits in the queue. Where the actor is at it already,
    it goes on, and its reply is dropped. (GenServer executes a call that nobody waits for.)

    Args:
        server: The actor, or its name.
        request: What is asked; its type says what the reply is.
        timeout: How many seconds to wait, queueing included; ``math.inf`` for ever.

    Raises:
        CallTimeout: No reply came in time.
        ServerExit: The actor ended before it replied.
        NoProcess: There is no such actor.
        CallingSelf: An actor calls itself from a handler.

    Example:
        >>> total = await call("counter", Add(2))
    """
    process = actor_of(server)
    caller = CURRENT.get()
    if caller is None:
        sender = From(process, request, None, True)
    else:
        if caller is process and not ASIDE.get():
            raise CallingSelf(f"{process.ref!r} called itself, and would wait for itself for ever.")
        sender = From(process, request, caller.ref, True)
        if isinstance(caller, ActorProcess):
            caller.sent(request)
    timer = None
    if timeout != math.inf:
        timer = process.owner.timers.after(timeout, partial(_time_out, sender, timeout))
    mailbox = process.mailbox
    if sender.bounded and mailbox.full:
        mailbox.hold(sender)
    else:
        mailbox.put(sender)
    try:
        return typed("R", await sender.wait())
    finally:
        if timer is not None:
            timer.cancel()


def _time_out(sender: From, seconds: float) -> None:
    if not sender.settled:
        sender.fail(CallTimeout(f"{sender.server.ref!r} did not answer {sender.request!r} within {seconds:g} s."))
        sender.server.abandon(sender)


async def cast(server: Ref | str, message: Any) -> None:
    """Sends a one-way message; waits for room in the mailbox. To the dead it is silent."""
    process = _recipient(server, message)
    if process is None:
        await checkpoint()
        return
    letter = _letter(process, message)
    if not (letter.bounded and process.mailbox.full):
        process.mailbox.put(letter)
        await checkpoint()
        return
    letter.sender_waits = Waiter()
    process.mailbox.hold(letter)
    try:
        await letter.sender_waits.wait()
    except BaseException:
        process.mailbox.remove(letter)
        raise


def cast_nowait(server: Ref | str, message: Any) -> None:
    """Sends a one-way message, without waiting. To the dead it is silent.

    Raises:
        MailboxFull: There is no room.
    """
    process = _recipient(server, message)
    if process is None:
        return
    letter = _letter(process, message)
    if letter.bounded and process.mailbox.full:
        raise MailboxFull(f"The mailbox of {process.ref!r} is full; use cast, which waits, or try again later.")
    process.mailbox.put(letter)


def _recipient(server: Ref | str, message: object) -> ActorProcess | None:
    process = mailbox_of(server)
    if isinstance(process, ActorProcess):
        return process
    if process is not None:
        process.inform(message)
    return None


def _letter(process: ActorProcess, message: object) -> Letter:
    caller = CURRENT.get()
    if isinstance(caller, ActorProcess):
        caller.sent(message)
    # What an actor sends to itself is never held back: it could not come to it. Its tasks can wait.
    return Letter(message, caller is not process or ASIDE.get())


def send(server: Ref | str, message: Any) -> None:
    """Sends a message to ``handle_info``, past the bound of the mailbox. To the dead it is silent."""
    caller = CURRENT.get()
    if isinstance(caller, ActorProcess):
        caller.sent(message)
    process = mailbox_of(server)
    if process is not None:
        process.inform(message)


def send_after(server: Ref | str, message: Any, seconds: float) -> TimerRef:
    """Sends a message to ``handle_info`` in so many seconds; a name is looked up then.

    Returns:
        A timer with ``.cancel()``. It dies with the tree of its target (or of the caller, while a name is nobody's).

    Raises:
        ValueError: Seconds that are not at least 0.
    """
    if not seconds >= 0:
        raise ValueError(f"A message can be sent in 0 seconds or later, not in {seconds!r}.")
    target = mailbox_of(server) or CURRENT.get()
    timers = Timers() if target is None else target.owner.timers  # nobody is there to get it: it never fires
    return timers.after(seconds, partial(send, server, message))


def reply(sender: From, value: Any) -> None:
    """Answers a call, from wherever: for a handler that returned ``NoReply``. A second reply is dropped."""
    sender.server.answer(sender, value)


async def stop(server: Ref | str, reason: ExitReason = Normal(), timeout: float = math.inf) -> None:  # noqa: B008
    """Ends a process in good order and waits for that: what was queued before comes first, ``terminate`` runs.

    Raises:
        CallTimeout: It did not end in time. A stop that still waits in the queue is taken back.
        NoProcess: There is no such process.
        CallingSelf: An actor stops itself; it has to return ``Stop``.
        ServerExit: It ended for another reason.
    """
    process = present(server)
    _refuse_self(process)
    waiter: Waiter[ExitReason] = Waiter()
    process.watch(waiter, waiter.settle)
    take_back = process.stop_request(reason)
    timer = None
    if timeout != math.inf:
        late = CallTimeout(f"{process.ref!r} did not stop within {timeout:g} s.")
        timer = process.owner.timers.after(timeout, partial(waiter.fail, late))
    try:
        ended = await waiter.wait()
    except BaseException:
        take_back()
        raise
    finally:
        process.unwatch(waiter)
        if timer is not None:
            timer.cancel()
    if type(ended) is not type(reason):
        raise ServerExit(ended, f"{process.ref!r} {described(ended)}, and not by the stop.")


def _refuse_self(process: Process) -> None:
    if CURRENT.get() is process and not ASIDE.get():
        raise CallingSelf(f"{process.ref!r} cannot wait for its own end; return Stop(reason) instead.")
