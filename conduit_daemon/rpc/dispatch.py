"""What a connection hands its requests to, and what it gets back."""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from typing import TYPE_CHECKING, Protocol, final

import trio

from conduit_daemon.rpc.protocol import Request

if TYPE_CHECKING:
    from conduit_daemon.rpc.connection import Connection

__all__ = ["Dispatch", "Handler", "InFlight", "Task"]

Handler = Callable[["Connection", Request], Awaitable[object]]


class InFlight(Protocol):
    """A request that is being worked on."""

    def cancel(self) -> None:
        """Ends it without an answer."""


class Dispatch(Protocol):
    """What the methods are: see `conduit_daemon.rpc.methods`."""

    def start(self, connection: Connection, request: Request) -> Handler | None:
        """Starts a request at once and returns None, or returns what is to run as a task.

        Raises:
            ClientError: The request is refused.
            Refused: There is no such method.
        """

    def note(self, connection: Connection, notification: Request) -> None:
        """Takes note of what the peer tells; what is not understood is nothing."""


@final
class Task:
    """A request that runs as a task."""

    __slots__ = ("scope",)

    def __init__(self) -> None:
        self.scope = trio.CancelScope()

    def cancel(self) -> None:
        """Ends it."""
        self.scope.cancel()
