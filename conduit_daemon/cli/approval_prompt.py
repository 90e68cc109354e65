"""The live prompt of `conduit approvals`: one waiting call at a time, answered with one key."""

from __future__ import annotations

import os
import queue
import select
import sys
import termios
import threading
import time
import tty
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Final, NamedTuple, final

from conduit_daemon.agent import AgentError, Approval, ApprovalChange, CallFailed, Conduit, Stream
from conduit_daemon.cli import output
from conduit_daemon.cli.approval_text import called, described, is_whole

__all__ = ["KEYS", "Choice", "prompt"]

_HOUR: Final = 3600
_GUARD: Final = 0.4  # seconds; a key meant for something else must not decide about a call that has just come


class Choice(NamedTuple):
    """What a key does.

    Attributes:
        label: What it says.
        decision: What is decided.
        scope: For what else it holds, for an hour; None for this call alone.
        halt: Whether the agent is to stop.
    """

    label: str
    decision: str
    scope: str | None = None
    halt: bool = False


KEYS: Final[dict[str, Choice]] = {
    "a": Choice("allow", "approve"),
    "h": Choice("allow these arguments for an hour", "approve", "args"),
    "t": Choice("allow this tool for an hour", "approve", "tool"),
    "d": Choice("deny", "deny"),
    "x": Choice("deny and halt the agent", "deny", halt=True),
}
_MENU: Final = "  ".join([*(f"[{key}] {choice.label}" for key, choice in KEYS.items()), "[f] show all  [l] later"])


def prompt(conduit: Conduit, changes: Stream[ApprovalChange]) -> None:
    """Shows each call that waits and asks about it, until the stream ends or a person does (q, Ctrl-C).

    Args:
        conduit: Where decisions go.
        changes: What happens to calls that wait, those that wait already among it.

    Raises:
        AgentError: The stream was lost.
    """
    came: queue.SimpleQueue[ApprovalChange | AgentError | None] = queue.SimpleQueue()
    wake, waker = os.pipe()

    def follow() -> None:
        end: AgentError | None = None
        try:
            for change in changes:
                came.put(change)
                os.write(waker, b"c")
        except AgentError as error:
            end = error
        came.put(end)
        os.write(waker, b"e")

    reader = threading.Thread(target=follow, daemon=True)
    try:
        with _single_keys():
            reader.start()
            asking = _Prompt(conduit, came, wake)
            try:
                asking.run()
            finally:
                asking.end()
    finally:
        changes.close()
        reader.join(2)
        os.close(wake)
        os.close(waker)


@contextmanager
def _single_keys() -> Iterator[None]:
    """Has the terminal give each key at once; Ctrl-C still interrupts."""
    fd = sys.stdin.fileno()
    before = termios.tcgetattr(fd)
    tty.setcbreak(fd)
    try:
        yield
    finally:
        termios.tcsetattr(fd, termios.TCSADRAIN, before)


@final
class _Prompt:
    def __init__(
        self, conduit: Conduit, came: queue.SimpleQueue[ApprovalChange | AgentError | None], wake: int
    ) -> None:
        self._conduit = conduit
        self._came = came
        self._wake = wake
        self._waiting: dict[str, tuple[Approval, float]] = {}
        self._shown: str | None = None
        self._shown_at = 0.0
        self._read: set[str] = set()  # those that were shown whole
        self._going = True

    def run(self) -> None:
        keyboard = sys.stdin.fileno()
        while self._going:
            ready, _, _ = select.select([keyboard, self._wake], [], [], 1.0)
            if self._wake in ready:
                os.read(self._wake, 4096)
                self._take_changes()
            if keyboard in ready:
                typed = os.read(keyboard, 64)
                self._going = self._going and bool(typed)
                for key in typed.decode("utf-8", "replace"):
                    self._press(key)
            self._show_next()
            self._line()

    def end(self) -> None:
        """Takes the line of an unanswered call away, so that what comes next begins one of its own."""
        if self._shown is not None:
            sys.stdout.write("\r\x1b[K")
            sys.stdout.flush()

    # ---- what happens

    def _take_changes(self) -> None:
        while not self._came.empty():
            change = self._came.get()
            if change is None:
                self._going = False
            elif isinstance(change, AgentError):
                raise change
            elif change.type == "requested":
                call = change.approval
                self._waiting[call.id] = call, time.monotonic() + (call.expires_in or 0.0)
            else:
                self._end(change)

    def _end(self, change: ApprovalChange) -> None:
        call = change.approval
        known = self._waiting.pop(call.id, None)
        self._read.discard(call.id)
        if known is None:
            return  # decided here, and said already
        how = f"{change.decision} by {change.approver}" if change.approver else change.reason or "its caller has gone"
        self._say(f"  {called(call)}: {change.type}, {output.inline(how)}")
        if self._shown == call.id:
            self._shown = None

    def _press(self, key: str) -> None:
        if key in {"q", "\x04"}:
            self._going = False
            return
        if self._shown is None or time.monotonic() < self._shown_at + _GUARD:
            return
        call, _ = self._waiting[self._shown]
        if key == "f":
            self._read.add(call.id)
            self._say(described(call, whole=True))
            self._say(_MENU)
        elif key == "l":
            self._waiting[call.id] = self._waiting.pop(call.id)
            self._shown = None
        elif key in KEYS and KEYS[key].decision == "approve" and not is_whole(call) and call.id not in self._read:
            self._say("  Not all of it has been shown; look at it whole first (f).")
        elif key in KEYS:
            self._decide(call, KEYS[key])

    def _decide(self, call: Approval, choice: Choice) -> None:
        remember = None if choice.scope is None else {"scope": choice.scope, "for": _HOUR}
        try:
            self._conduit.decide(call.id, choice.decision, halt=choice.halt or None, remember=remember)
        except CallFailed as error:  # it was withdrawn or expired meanwhile; the next one is not affected
            self._say(f"  {error}")
        else:
            self._say(f"  {called(call)}: {choice.label}")
        self._waiting.pop(call.id, None)
        self._read.discard(call.id)
        self._shown = None

    # ---- what is seen

    def _show_next(self) -> None:
        if self._shown is not None or not self._waiting:
            return
        self._shown, (call, _) = next(iter(self._waiting.items()))
        self._say("\n" + described(call))
        self._say(_MENU)
        termios.tcflush(sys.stdin.fileno(), termios.TCIFLUSH)  # what was typed before it was seen is not about it
        self._shown_at = time.monotonic()

    def _line(self) -> None:
        if self._shown is None:
            return
        _, until = self._waiting[self._shown]
        more = len(self._waiting) - 1
        others = f", {output.amount(more, 'other call')} waiting" if more else ""
        left = output.duration(max(0.0, round(until - time.monotonic())))
        sys.stdout.write(f"\r\x1b[K{left} left{others} > ")
        sys.stdout.flush()

    def _say(self, text: str) -> None:
        sys.stdout.write("\r\x1b[K")
        output.print_text(text)
        sys.stdout.flush()
