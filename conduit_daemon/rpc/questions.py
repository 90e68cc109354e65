"""What the daemon asks the peer of a connection, and the peer's answers."""

from __future__ import annotations

import itertools
from collections.abc import Callable
from typing import final

import trio

from conduit_daemon.rpc import protocol
from conduit_daemon.rpc.protocol import Answer, RequestId

__all__ = ["Questions"]


@final
class _Question:
    __slots__ = ("answer", "answered")

    def __init__(self) -> None:
        self.answer: Answer | None = None
        self.answered = trio.Event()


@final
class Questions:
    """The requests of ours that wait for one peer's answer.

    Args:
        send: Sends a line.
    """

    def __init__(self, send: Callable[[bytes], None]) -> None:
        self._send = send
        self._open: dict[RequestId, _Question] = {}
        self._numbers = itertools.count(1)

    async def ask(self, method: str, params: object) -> Answer:
        """Asks and waits for the answer; where the wait is cancelled, the peer is told."""
        question = _Question()
        request_id = f"conduit-{next(self._numbers)}"
        self._open[request_id] = question
        self._send(protocol.request(request_id, method, params))
        try:
            await question.answered.wait()
        except trio.Cancelled:
            self._send(protocol.notification("notifications/cancelled", {"requestId": request_id}))
            raise
        finally:
            del self._open[request_id]
        assert question.answer is not None  # noqa: S101 - set before the event
        return question.answer

    def take(self, answer: Answer) -> None:
        """Takes an answer; one to nothing that was asked is nothing."""
        question = None if answer.id is None else self._open.get(answer.id)
        if question is not None:
            question.answer = answer
            question.answered.set()
