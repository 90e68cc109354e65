"""What goes wrong between an agent and the daemon."""

from __future__ import annotations

from pathlib import Path
from typing import Any, Final

__all__ = ["NOT_ALLOWED", "TOO_LONG", "AgentError", "CallFailed", "DaemonUnreachable"]

NOT_ALLOWED: Final = "you may not open it"
TOO_LONG: Final = "its path is longer than"
"""Reasons why a socket is of no use that want other advice than to start a daemon."""


class AgentError(Exception):
    """The base of the errors of this library."""


class DaemonUnreachable(AgentError):
    """No daemon answers at any socket that was tried, and so nothing was sent.

    Attributes:
        tried: Each socket tried and why it was of no use.
    """

    def __init__(self, tried: tuple[tuple[Path, str], ...]) -> None:
        places = "; ".join(f"{path} ({why})" for path, why in tried)
        super().__init__(f"No conduit daemon answers. Tried {places}. {_advice([why for _, why in tried])}")
        self.tried = tried


def _advice(reasons: list[str]) -> str:
    if NOT_ALLOWED in reasons:
        return (
            "Run this as the daemon's user, or have its operator set rpc.socket_group (or rpc.control_group) "
            "to a group of yours."
        )
    if reasons and all(TOO_LONG in why for why in reasons):
        return "Have the daemon listen at a shorter path (rpc.agent_socket), and name that."
    return "Start one with 'conduit run', or name its socket: Conduit(socket=...), --socket or $CONDUIT_SOCKET."


class CallFailed(AgentError):
    """The daemon answered a request with an error, or the request's fate is not known.

    Attributes:
        kind: What happened, as ``denied`` or ``timeout``; the table stands in the README.
        code: The JSON-RPC error code.
        message: One sentence that a person or a model can act on.
        outcome: How far a call came: ``not_sent``, ``failed`` (the server answered with an error) or
            ``outcome_unknown`` (it may have run: never repeat it blindly). None where the daemon did not say.
        data: All that the daemon said about it (``server``, ``tool``, ``retry_after``, ``problems``, ``stderr``, ...).
    """

    def __init__(
        self, kind: str, code: int, message: str, outcome: str | None = None, data: dict[str, Any] | None = None
    ) -> None:
        super().__init__(message)
        self.kind = kind
        self.code = code
        self.message = message
        self.outcome = outcome
        self.data: dict[str, Any] = data or {}

    def __repr__(self) -> str:
        return f"CallFailed({self.kind!r}, {self.code}, {self.message!r}, outcome={self.outcome!r})"

    @property
    def retry_after(self) -> float | None:
        """Seconds after which trying again makes sense, where the daemon knows."""
        value = self.data.get("retry_after")
        return float(value) if isinstance(value, (int, float)) else None

    @classmethod
    def from_wire(cls, error: Any) -> CallFailed:
        """A CallFailed from the ``error`` of a JSON-RPC answer, however little it says."""
        if not isinstance(error, dict):
            return cls("internal", -32603, f"The daemon answered with an error that is no object: {error!r}.")
        data = error.get("data")
        data = data if isinstance(data, dict) else {}
        code = error.get("code")
        kind = data.get("kind")
        outcome = data.get("outcome")
        return cls(
            kind if isinstance(kind, str) else "invalid_params" if code == -32602 else "internal",
            code if isinstance(code, int) else -32603,
            str(error.get("message") or "The daemon gave no reason."),
            outcome if isinstance(outcome, str) else None,
            data,
        )
