"""How a client stands: its state, and what else there is to say of it. Pure."""

from __future__ import annotations

from typing import Literal

import msgspec

__all__ = ["CircuitState", "ClientState", "Standing", "resting", "starting"]

ClientState = Literal["stopped", "connecting", "ready", "waiting", "open", "needs_attention", "idle"]
CircuitState = Literal["closed", "open", "half_open"]


class Standing(msgspec.Struct, frozen=True, kw_only=True):
    """How a client stands.

    Attributes:
        state: Where it is between stopped and ready.
        reason: One sentence, where the state is not ready.
        since: Unix seconds of the last change.
        retry_at: Time of the next attempt, on trio's clock; None where none is planned.
        circuit: Whether attempts go on as usual.
        protocol_version: As negotiated; None without a connection.
        pid: The server's process; None without one.
        first: Whether its very first attempt to connect is still running.
        waking: Whether an idle server is being started for a call that waits for it.
        leaving: Whether the server ends because its configuration is another one now, or is gone.
        last_error: The last reason why it was not ready, kept when it is again.
    """

    state: ClientState
    since: float
    reason: str | None = None
    retry_at: float | None = None
    circuit: CircuitState = "closed"
    protocol_version: str | None = None
    pid: int | None = None
    first: bool = False
    waking: bool = False
    leaving: bool = False
    last_error: str | None = None

    @property
    def startable(self) -> bool:
        """Whether a call that finds no connection may wait for one: the server rests, or wakes up."""
        return self.state == "idle" or self.waking

    @property
    def offered(self) -> bool:
        """Whether the server's tools may be listed: it is ready, or a call makes it so."""
        return self.state == "ready" or self.startable


def starting(server: str) -> str:
    """Why a server that is being started is not ready."""
    return f"server {server} is being started"


def resting(server: str) -> str:
    """Why an idle server is not ready."""
    return f"server {server} rests until it is called"
