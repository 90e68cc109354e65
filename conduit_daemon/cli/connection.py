"""Which daemon a command talks to."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any, TypeVar

import msgspec
from cyclopts import Parameter

from conduit_daemon.agent import CallFailed, Conduit, Progress
from conduit_daemon.agent.requests import Request

__all__ = ["HERE", "Where", "ask"]

T = TypeVar("T")


@Parameter(name="*")
@dataclass(frozen=True)
class Where:
    """The options that choose the daemon.

    Attributes:
        socket: The daemon's agent socket. Else $CONDUIT_SOCKET, the configuration's, the usual places.
        config: A configuration to look into for the socket.
    """

    socket: Path | None = None
    config: Path | None = None

    def open(self) -> Conduit:
        """A client of that daemon; nothing is connected yet."""
        return Conduit(self.socket, config=self.config)


HERE = Where()
"""The daemon that the environment says."""


def ask(
    conduit: Conduit, request: Request[T], on_progress: Callable[[Progress], None] | None = None
) -> tuple[dict[str, Any], T]:
    """Sends a request and returns its answer twice: as it came, for programs, and read, for tables.

    Raises:
        AgentError: As `Conduit.send` does.
    """
    raw: Request[dict[str, Any]] = Request(request.method, request.params, dict, request.control)
    answer = conduit.send(raw, on_progress=on_progress)
    try:
        return answer, msgspec.convert(answer, request.answer)
    except msgspec.ValidationError as error:
        message = f"The daemon's answer to {request.method} cannot be read: {error}."
        raise CallFailed("protocol", -31008, message, "failed", {"kind": "protocol"}) from error
