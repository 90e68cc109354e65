"""Who answers what a server asks its client: for roots, for a model's completion, for a person's input."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Any, Final, Protocol, cast, final

import msgspec

__all__ = [
    "ASKABLE",
    "CAPABILITIES_KEY",
    "LOG_LEVEL_KEY",
    "Asking",
    "Caller",
    "ConfiguredHost",
    "Declined",
    "Host",
    "Question",
]

ASKABLE: Final[Mapping[str, str]] = {
    "roots/list": "roots",
    "sampling/createMessage": "sampling",
    "elicitation/create": "elicitation",
}
"""The requests that a server may make, and the capability that each needs."""

LOG_LEVEL_KEY: Final = "io.modelcontextprotocol/logLevel"
CAPABILITIES_KEY: Final = "io.modelcontextprotocol/clientCapabilities"

_NOT_OFFERED: Final = -32600


class Asking(Protocol):
    """A call whose server asks something.

    Attributes:
        caller: Who calls, as `Port.begin` was told; a `Caller` or None.
    """

    caller: object

    async def answer(self, question: Question) -> dict[str, Any]:
        """The host's answer to a question about this call, as long as the call runs.

        Raises:
            Declined: It is not answered.
        """


class Question(msgspec.Struct, frozen=True, kw_only=True):
    """What a server asks.

    Attributes:
        server: The server's id.
        method: One of `ASKABLE`.
        params: As the server gave them.
        call: The call that asks, where that is certain: a server of 2026-07-28 says so, of an older one it is
            the only call in flight, or any where all are of one caller. Else None.
        key: What a server of 2026-07-28 calls this one of its questions.
    """

    server: str
    method: str
    params: dict[str, Any]
    call: Asking | None
    key: str | None = None


class Declined(Exception):
    """The question is not answered; the message tells the server why.

    Attributes:
        code: The JSON-RPC error code.
    """

    def __init__(self, message: str, code: int = _NOT_OFFERED) -> None:
        super().__init__(message)
        self.code = code


class Caller(Protocol):
    """Somebody at the other end of a call, who can be asked."""

    @property
    def capabilities(self) -> Mapping[str, Any]:
        """What it says it can do, by capability (``roots``, ``sampling``, ``elicitation``)."""

    @property
    def log_level(self) -> str | None:
        """From which level on it wants to know what a server logs; None where it has not said."""

    async def answer(self, question: Question) -> dict[str, Any]:
        """The result of one question.

        Raises:
            Declined: It is not answered.
        """

    def tell(self, server: str, method: str, params: msgspec.Raw) -> None:
        """Passes on what a server tells about its call, without waiting."""


class Host(Protocol):
    """Answers a server's questions.

    Attributes:
        capabilities: What is advertised to the server at the handshake, by capability.
        of_one_caller: Whether all calls of the connection are one caller's.
    """

    capabilities: Mapping[str, dict[str, Any]]
    of_one_caller: bool

    def offered_to(self, caller: object) -> Mapping[str, Any]:
        """What is advertised with a call of this caller's, where a server is told with each call."""

    async def answer(self, question: Question) -> dict[str, Any]:
        """The result of one question.

        Raises:
            Declined: It is not answered.
        """


@final
class ConfiguredHost:
    """Answers from the configuration what it can (roots), and has the call's own caller answer the rest.

    A server of the older era is told at the handshake what can be asked, when nobody knows yet who will call: so
    it is told of all, and declined where the caller cannot. A newer one is told with each call.

    Args:
        roots: The configured roots; where there are some, nobody is asked for others.
        of_one_caller: Whether all calls of the connection are one caller's.
    """

    def __init__(self, roots: tuple[Path, ...], *, of_one_caller: bool = False) -> None:
        self.of_one_caller = of_one_caller
        self.capabilities: Mapping[str, dict[str, Any]] = {"sampling": {}, "elicitation": {"form": {}}}
        if roots or of_one_caller:
            self.capabilities = {**self.capabilities, "roots": {}}
        self._roots = [{"uri": root.as_uri(), "name": root.name} for root in roots]

    def offered_to(self, caller: object) -> Mapping[str, Any]:
        """What the caller can do, and roots where they are configured; see `Host.offered_to`."""
        offered = {} if caller is None else _askable(caller)
        return {**offered, "roots": {}} if self._roots else offered

    async def answer(self, question: Question) -> dict[str, Any]:
        """The configured roots, or the caller's answer; see `Host.answer`."""
        capability = ASKABLE[question.method]
        if capability == "roots" and self._roots:
            return {"roots": self._roots}
        if question.call is None:
            raise Declined(
                f"It is not certain on whose behalf this {capability} is asked for: not exactly one call is running."
            )
        caller = cast("Caller | None", question.call.caller)
        if caller is None or capability not in caller.capabilities:
            raise Declined(f"The caller offers no {capability}, and nobody else can be asked.")
        return await caller.answer(question)


def _askable(caller: object) -> dict[str, Any]:
    able = cast("Caller", caller).capabilities
    return {capability: able[capability] for capability in ASKABLE.values() if capability in able}
