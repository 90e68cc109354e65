"""What of a running daemon lies in the file system is looked after: somebody may remove it, a cleaner of /tmp say.

The files of the sockets, the lock of the state directory and the audit are looked at every few seconds and at each
reload. What is gone is made again, with an event; connections and calls notice nothing.
"""

from __future__ import annotations

import threading
from collections.abc import Sequence
from typing import Final, Protocol, final

import trio

from conduit_daemon.errors import DaemonError
from conduit_daemon.telemetry.events import EventBus

__all__ = ["Belonging", "Socket", "State", "Upkeep"]

_LOOK: Final = 3.0


class Belonging(Protocol):
    """Something of the daemon's in the file system."""

    def is_in_place(self) -> bool:
        """Whether it is there and the daemon's own. Called in a thread, for the file system may hang."""

    def restore(self, bus: EventBus) -> None:
        """Makes it again and says so.

        Raises:
            DaemonError: It cannot be; the message says why.
        """

    @property
    def lost_event(self) -> str:
        """The type of the event that says that it cannot be made again."""


class _Listener(Protocol):
    @property
    def path(self) -> object: ...
    def is_in_place(self) -> bool: ...
    def bind_again(self) -> None: ...


class _Lock(Protocol):
    def is_in_place(self) -> bool: ...
    def take_again(self) -> None: ...


class _Keeper(Protocol):
    def save_again(self) -> None: ...


@final
class Socket:
    """The file of a listening socket."""

    lost_event = "rpc.socket_lost"

    def __init__(self, listener: _Listener) -> None:
        self._listener = listener
        self.is_in_place = listener.is_in_place

    def restore(self, bus: EventBus) -> None:
        """Binds it again; see `Belonging`."""
        self._listener.bind_again()
        bus.emit(
            "rpc.socket_restored",
            level="warning",
            path=str(self._listener.path),
            reason="The socket's file was gone and is made again; connections that were open go on.",
        )


@final
class State:
    """The state directory, by its lock.

    Args:
        lock: The lock.
        keepers: Who keeps files in the directory.
    """

    lost_event = "state.lost"

    def __init__(self, lock: _Lock, *keepers: _Keeper) -> None:
        self._lock = lock
        self._keepers = keepers
        self.is_in_place = lock.is_in_place

    def restore(self, bus: EventBus) -> None:
        """Takes the lock again; see `Belonging`."""
        self._lock.take_again()
        for keeper in self._keepers:
            keeper.save_again()
        bus.emit(
            "state.restored",
            level="warning",
            reason="The state directory, or its lock, was removed; it is made again, and what is known is saved in it.",
        )


@final
class Upkeep:
    """Looks after what belongs to the daemon.

    Args:
        bus: Where it is said what was lost and what was made again.

    Attributes:
        belongings: What is looked after, in the order of restoring.
    """

    def __init__(self, bus: EventBus) -> None:
        self.belongings: Sequence[Belonging] = ()
        self._bus = bus
        self._said: dict[int, str] = {}
        self._wake = threading.Event()

    def hurry(self) -> None:
        """Has it look at once."""
        self._wake.set()

    def problem(self) -> str | None:
        """What is lost and cannot be made again at present, for the status; None where nothing is."""
        return " ".join(self._said.values()) or None

    async def run(self) -> None:
        """Looks, until cancelled."""
        limiter = trio.CapacityLimiter(1)
        try:
            while True:
                self._wake = threading.Event()
                missing = await trio.to_thread.run_sync(self._look, self._wake, abandon_on_cancel=True, limiter=limiter)
                for number, belonging in enumerate(self.belongings):
                    if number in missing:
                        self._restore(number, belonging)
                    else:
                        self._said.pop(number, None)
        finally:
            self._wake.set()

    def _look(self, wake: threading.Event) -> set[int]:
        """Waits, in a thread that is cheaper than waking the event loop, until something is missing or may be again."""
        while True:
            hurried = wake.wait(_LOOK)
            missing = {number for number, each in enumerate(self.belongings) if not each.is_in_place()}
            if hurried or missing or self._said:
                return missing

    def _restore(self, number: int, belonging: Belonging) -> None:
        try:
            belonging.restore(self._bus)
        except DaemonError as error:
            if self._said.get(number) != str(error):
                self._said[number] = str(error)
                self._bus.emit(belonging.lost_event, level="error", reason=str(error))
        else:
            self._said.pop(number, None)
