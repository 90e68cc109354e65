"""A server's question, put to the host that made the call, in the way of the host's era.

A host of the older era is sent a request and answers it. A newer one gets a result that says which input is
required; it makes its request again with the input, and with the state by which the call that waits is found.
"""

from __future__ import annotations

import secrets
from typing import Any, Protocol, final

import msgspec
import trio

from conduit_daemon.clients.host import CAPABILITIES_KEY, LOG_LEVEL_KEY, Declined, Question
from conduit_daemon.rpc.connection import Connection
from conduit_daemon.rpc.mcp.logs import LEVELS, forward_log

__all__ = ["Exchange", "HandshakeHost", "StatelessHost"]


@final
class HandshakeHost:
    """A host of the older era, as a server's caller.

    Args:
        connection: Its connection.
    """

    __slots__ = ("_connection", "capabilities")

    def __init__(self, connection: Connection) -> None:
        self._connection = connection
        self.capabilities = connection.host.capabilities

    @property
    def log_level(self) -> str | None:
        """What it last asked for."""
        return self._connection.host.log_level

    def tell(self, server: str, method: str, params: msgspec.Raw) -> None:
        """Passes on what a server logs, from the level on that the host asked for."""
        forward_log(self._connection, server, method, params, self.log_level or LEVELS[0])

    async def answer(self, question: Question) -> dict[str, Any]:
        """The host's answer.

        Raises:
            Declined: It answered with an error, or with what is no object.
        """
        _note_heard(self._connection, question)
        answer = await self._connection.ask(question.method, question.params)
        if answer.error is not None:
            raise Declined(f"The host refused: {answer.error.get('message', 'no reason given')}", _code(answer.error))
        if not isinstance(answer.result, dict):
            raise Declined("The host's answer is no object.")
        return answer.result


class Exchange(Protocol):
    """The request through which a host of the newer era can be asked at the moment.

    Attributes:
        answered: Whether it has its result, and so can ask nothing more.
    """

    answered: bool

    def require(self, result: msgspec.Raw, state: str) -> bool:
        """Answers the request with what input is required; False where no request waits for an answer."""


class _Open(msgspec.Struct):
    question: Question
    answered: trio.Event
    asked: bool = False
    answer: dict[str, Any] | None = None


@final
class StatelessHost:
    """A host of the newer era, as a server's caller: of one call.

    Args:
        connection: Its connection.
        meta: Its request's ``_meta``.
        exchange: The request.

    Attributes:
        state: The ``requestState`` by which the call is found again; None before it first asked.
    """

    __slots__ = ("_connection", "_count", "_exchange", "_open", "capabilities", "log_level", "state")

    def __init__(self, connection: Connection, meta: dict[str, Any], exchange: Exchange) -> None:
        self.capabilities: dict[str, Any] = meta[CAPABILITIES_KEY]
        self._connection = connection
        asked = meta.get(LOG_LEVEL_KEY)
        self.log_level: str | None = asked if asked in LEVELS else None
        self.state: str | None = None
        self._exchange = exchange
        self._open: dict[str, _Open] = {}
        self._count = 0

    def tell(self, server: str, method: str, params: msgspec.Raw) -> None:
        """Passes on what a server logs, if the request asked for it."""
        if self.log_level is not None:
            forward_log(self._connection, server, method, params, self.log_level)

    async def answer(self, question: Question) -> dict[str, Any]:
        """The host's answer, which comes with its next request.

        Raises:
            Declined: Its call has been answered, and there is no other way to ask it.
        """
        if self._exchange.answered:
            raise Declined("The host of this protocol version can be asked during a call alone, and that is over.")
        self._count += 1
        key = question.key
        if key is None or key in self._open:
            key = f"input_{self._count}"
        waiting = self._open[key] = _Open(question, trio.Event())
        try:
            await trio.lowlevel.checkpoint()  # whatever else is asked at the same time goes along
            if not waiting.asked:
                self.ask()
            await waiting.answered.wait()
        finally:
            del self._open[key]
        assert waiting.answer is not None  # noqa: S101 - set before the event
        return waiting.answer

    def ask(self) -> None:
        """Tells the host which input is required; what it has not answered is asked again."""
        self.state = secrets.token_urlsafe(16)
        wanted = {
            key: {"method": waiting.question.method, "params": waiting.question.params}
            for key, waiting in self._open.items()
            if waiting.answer is None
        }
        result = {"resultType": "input_required", "inputRequests": wanted, "requestState": self.state}
        if self._exchange.require(msgspec.Raw(msgspec.json.encode(result)), self.state):
            for key in wanted:
                self._open[key].asked = True
                _note_heard(self._connection, self._open[key].question)

    def take(self, responses: dict[str, Any]) -> None:
        """Takes the input that came with a request; where some of it is missing, that is asked for again."""
        for key, waiting in list(self._open.items()):
            response = responses.get(key)
            if waiting.answer is None and isinstance(response, dict):
                waiting.answer = response
                waiting.answered.set()
        if any(waiting.answer is None for waiting in self._open.values()):
            self.ask()


def _note_heard(connection: Connection, question: Question) -> None:
    """A question brings the server's words to the host's model, as a result does, which may never come."""
    if question.method != "roots/list":
        connection.context.hear(question.server)


def _code(error: dict[str, Any]) -> int:
    code = error.get("code")
    return code if isinstance(code, int) and not isinstance(code, bool) else -1
