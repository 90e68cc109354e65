"""Who answers what a server asks its client: for roots, for a model's completion, for a person's input."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Any, Final, Protocol, final

import msgspec

from conduit_daemon.clients.port import Running

__all__ = ["ASKABLE", "ConfiguredHost", "Declined", "Host", "Question"]

ASKABLE: Final[Mapping[str, str]] = {
    "roots/list": "roots",
    "sampling/createMessage": "sampling",
    "elicitation/create": "elicitation",
}
"""The requests that a server may make, and the capability that each needs."""

_NOT_OFFERED: Final = -32600


class Question(msgspec.Struct, frozen=True, kw_only=True):
    """What a server asks.

    Attributes:
        server: The server's id.
        method: One of `ASKABLE`.
        params: As the server gave them.
        call: The call that asks, as `Port.begin` returned it, where that is certain: a server of 2026-07-28
            says so, of an older one it is the only call in flight. Else None.
    """

    server: str
    method: str
    params: dict[str, Any]
    call: Running | None


class Declined(Exception):
    """The question is not answered; the message tells the server why.

    Attributes:
        code: The JSON-RPC error code.
    """

    def __init__(self, message: str, code: int = _NOT_OFFERED) -> None:
        super().__init__(message)
        self.code = code


class Host(Protocol):
    """Answers a server's questions.

    Attributes:
        capabilities: What is advertised to the server, by capability (``roots``, ``sampling``, ``elicitation``).
    """

    capabilities: Mapping[str, dict[str, Any]]

    async def answer(self, question: Question) -> dict[str, Any]:
        """The result of one question.

        Raises:
            Declined: It is not answered.
        """


@final
class ConfiguredHost:
    """Answers what the configuration can: roots. Nobody stands behind it to be asked for more.

    Args:
        roots: The configured roots; none are advertised where it is empty.
    """

    def __init__(self, roots: tuple[Path, ...]) -> None:
        self.capabilities: Mapping[str, dict[str, Any]] = {"roots": {}} if roots else {}
        self._roots = [{"uri": root.as_uri(), "name": root.name} for root in roots]

    async def answer(self, question: Question) -> dict[str, Any]:
        """The roots; see `Host.answer`."""
        capability = ASKABLE[question.method]
        if capability == "roots" and self._roots:
            return {"roots": self._roots}
        raise Declined(f"This client offers no {capability}: it did not advertise it, and nobody is there to be asked.")
