"""Many JSON-RPC requests at once over one connection, matched to their answers.

This is the hot path's half of a client: `begin` sends a request and returns, the answer comes as a function
call from the task that reads what the server sends. No task, channel or model stands between. It knows
JSON-RPC, progress and cancellation; how messages travel is its subclasses' (`clients.stdio`, `clients.websocket`,
`clients.http`), what the SDK needs on top is in `clients.session`.

A server is not to be trusted: whatever it sends, only the call that it concerns can fail. Raw results are
passed on only where they are valid UTF-8 without line breaks (a reader that splits lines at one would take the
rest for another message). Between the tokens of valid JSON a line break is mere space, so it is left out.
"""

from __future__ import annotations

import math
import re
from abc import ABC, abstractmethod
from collections.abc import Callable, Mapping
from functools import partial
from typing import Any, Final, Protocol, final

import msgspec
import trio

from conduit_daemon.clients.deadlines import Deadline, Deadlines
from conduit_daemon.clients.envelopes import (
    NOTHING,
    UNDECODABLE,
    Incoming,
    decode,
    decode_error,
    decode_progress_token,
    encode,
    encode_request,
)
from conduit_daemon.errors import ClientError

__all__ = ["Dispatcher", "OnAnswer", "OnProgress", "Peer", "Pending", "Sending"]

_EDGE: Final = 4096
_LONGEST_WORDS: Final = 2000
_BREAKS: Final = b"\r\n"
# The message's own id, not one within its result: before anything nested begins, or after all of that has ended.
_ID_FIRST: Final = re.compile(rb'\s*\{[^{}\[\]]*?"id"\s*:\s*"?(\d{1,18})"?\s*[,}]')
_ID_LAST: Final = re.compile(rb'"id"\s*:\s*"?(\d{1,18})"?\s*(?:,[^{}\[\]]*)?\}\s*\Z')

OnAnswer = Callable[[msgspec.Raw | None, ClientError | None], None]
"""Called exactly once for each request begun, with its raw result or with the reason why there is none."""

OnProgress = Callable[[msgspec.Raw], None]
"""Called with the raw params of each progress notification of a request."""


class Sending(Protocol):
    """A message that is not with the server yet.

    Attributes:
        started: Whether the server may have seen any of it.
    """

    started: bool


class Peer(Protocol):
    """Whom the dispatcher tells what a server sends unasked. None of these may wait or raise."""

    def on_request(self, request_id: int | str, method: str, params: msgspec.Raw) -> None:
        """The server asks something; `Dispatcher.answer` or `.refuse` answers it."""

    def on_notification(self, method: str, params: msgspec.Raw) -> None:
        """The server tells something other than progress."""

    def on_garbage(self, message: bytes, why: str) -> None:
        """What is no message, cut to its first bytes."""


@final
class Pending:
    """A request that waits for its answer."""

    __slots__ = ("deadline", "end", "idle", "on_answer", "on_progress", "queued", "request_id")

    def __init__(self, request_id: int | str, on_answer: OnAnswer, idle: float, end: float) -> None:
        self.request_id = request_id
        self.on_answer = on_answer
        self.on_progress: OnProgress | None = None
        self.idle = idle
        self.end = end
        self.deadline: Deadline | None = None
        self.queued: Sending | None = None

    @property
    def sent(self) -> bool:
        """Whether the server may have seen any of it."""
        return self.queued is None or self.queued.started


class Dispatcher(ABC):
    """JSON-RPC with one server; a subclass carries the messages.

    Args:
        server: The server's id, for messages.
        peer: Told what the server sends unasked.
        max_message: Longest message in bytes; the answer that is longer fails its call as ``too_large``.
    """

    def __init__(self, server: str, peer: Peer, *, max_message: int) -> None:
        self.server = server
        self.pending: dict[int | str, Pending] = {}
        self.max_message = max_message
        self.deadlines = Deadlines()
        self._peer = peer
        self._next_id = 0

    def resize(self, max_message: int) -> None:
        """Changes how long a message may be, from the next one on."""
        self.max_message = max_message

    # ---- how messages travel

    @abstractmethod
    def send_request(
        self, pending: Pending, method: str, body: bytearray, headers: Mapping[str, str] | None
    ) -> Sending | None:
        """Sends a request, without waiting.

        Args:
            pending: The request.
            method: Its method.
            body: The message, without a line break.
            headers: For HTTP.

        Returns:
            None where the server has it, else what may still be withdrawn.

        Raises:
            ClientError: ``unavailable``: nothing was sent, and nothing will be.
        """

    @abstractmethod
    def send_message(
        self, method: str | None, body: bytearray, *, urgent: bool = False, headers: Mapping[str, str] | None = None
    ) -> None:
        """Sends a notification (or an answer: `method` is None), or drops it where the server is gone."""

    @abstractmethod
    def abandon(self, pending: Pending, reason: str | None) -> bool:
        """Has the server stop a request; tells whether it was withdrawn before the server saw any of it.

        Args:
            pending: The request.
            reason: What the server is told; None for nothing.
        """

    @abstractmethod
    def close(self) -> None:
        """Sends nothing more."""

    def mint_id(self) -> int:
        """An id that no running request has."""
        self._next_id += 1
        return self._next_id

    # ---- asking

    def begin(
        self,
        request_id: int | str,
        method: str,
        params: Any,
        on_answer: OnAnswer,
        *,
        idle: float = math.inf,
        total: float = math.inf,
        on_progress: OnProgress | None = None,
        headers: Mapping[str, str] | None = None,
    ) -> Pending:
        """Sends a request; its answer, or its failure, comes by `on_answer`.

        Args:
            request_id: From `mint_id`, or a string of the caller's own.
            method: The JSON-RPC method.
            params: Anything msgspec encodes to an object; None sends none.
            on_answer: Called exactly once, never from within `begin`. Must not raise.
            idle: Seconds of silence (no answer, no progress) after which it fails as ``timeout``.
            total: Seconds after which it fails however much progress came.
            on_progress: Called with each progress notification of this request.
            headers: Where the message travels over HTTP, its own headers.

        Raises:
            ClientError: ``unavailable``: nothing was sent (the connection is closed, or the server leaves its
                input unread and too much is queued already).
        """
        if request_id in self.pending:
            raise ValueError(f"request id {request_id!r} is in use")
        body = encode_request(request_id, method, params)
        now = trio.current_time()
        pending = Pending(request_id, on_answer, idle, now + total)
        pending.on_progress = on_progress
        pending.queued = self.send_request(pending, method, body, headers)
        at = min(now + idle, pending.end)
        if at != math.inf:
            pending.deadline = self.deadlines.add(at, partial(self._expire, pending))
        self.pending[request_id] = pending
        return pending

    def notify(
        self, method: str, params: Any = None, *, urgent: bool = False, headers: Mapping[str, str] | None = None
    ) -> None:
        """Sends a notification; dropped where the server is gone or leaves its input unread."""
        self.send_message(method, encode(method=method, params=params), urgent=urgent, headers=headers)

    def cancel(self, pending: Pending, error: ClientError, *, tell: bool = True) -> None:
        """Ends a request with `error`; the server is told, ahead of queued messages, unless it never saw it.

        The error's outcome becomes ``not_sent`` where no byte of the request was written.
        """
        if self.pending.get(pending.request_id) is not pending:
            return
        if self.abandon(pending, error.kind if tell else None):
            error.outcome = "not_sent"
        self.settle(pending, None, error)

    # ---- answering the server

    def renew(self, pending: Pending) -> None:
        """Counts the silence of a request anew, as its progress does."""
        if pending.deadline is not None:
            self.deadlines.extend(pending.deadline, min(trio.current_time() + pending.idle, pending.end))

    def answer(self, request_id: int | str, result: Any) -> None:
        """Answers a request of the server's."""
        self.send_message(None, encode(id=request_id, result=result))

    def refuse(self, request_id: int | str, code: int, message: str, data: Any = None) -> None:
        """Answers a request of the server's with an error."""
        error: dict[str, Any] = {"code": code, "message": message}
        if data is not None:
            error["data"] = data
        self.send_message(None, encode(id=request_id, error=error))

    # ---- its end

    def fail_all(self, make_error: Callable[[Pending], ClientError]) -> None:
        """Ends every waiting request, and refuses to send more: the connection is over."""
        self.close()
        for pending in list(self.pending.values()):
            self.settle(pending, None, make_error(pending))

    def settle(self, pending: Pending, result: msgspec.Raw | None, error: ClientError | None) -> None:
        """Gives a request its answer; harmless where it has one."""
        if self.pending.get(pending.request_id) is not pending:
            return
        del self.pending[pending.request_id]
        if pending.deadline is not None:
            self.deadlines.cancel(pending.deadline)
        pending.on_answer(result, error)

    # ---- what the server sends

    def take(self, line: bytes) -> None:
        """Takes one message of the server's: an answer, a request or a notification."""
        try:
            message = decode(line)
        except UNDECODABLE as error:
            self._take_undecodable(line, str(error))
            return
        if message.method is not None:
            self._take_unasked(message)
            return
        request_id = message.id
        pending = self.pending.get(request_id) if request_id is not None else None
        if pending is None and isinstance(request_id, str) and request_id.isdecimal():
            pending = self.pending.get(int(request_id))  # some servers echo a number as a string
        if pending is None:
            if request_id is None:
                self._peer.on_garbage(line[:_EDGE], "no method and no id")
            return  # an answer that came after its call ended
        if message.error is not NOTHING and bytes(message.error) != b"null":
            self.settle(pending, None, self._server_error(message.error))
            return
        result = message.result
        if result is NOTHING:
            self.settle(pending, None, self.broken("answered with neither a result nor an error"))
            return
        if not line.isascii() or b"\r" in line:
            try:
                result = _cleaned(result)
            except UnicodeDecodeError as error:
                self.settle(pending, None, self.broken(f"answered with what is no valid JSON ({error})"))
                return
        self.settle(pending, result, None)

    def take_body(self, body: bytes) -> None:
        """Takes one message that may be written over several lines."""
        self.take(body.translate(None, _BREAKS) if b"\n" in body else body)

    def _take_unasked(self, message: Incoming) -> None:
        method = message.method
        assert method is not None  # noqa: S101 - the caller looked
        if message.id is not None:
            self._peer.on_request(message.id, method, message.params)
            return
        if method == "notifications/progress":
            token = decode_progress_token(message.params)
            pending = self.pending.get(token) if token is not None else None
            if pending is None:
                return
            self.renew(pending)
            if pending.on_progress is not None:
                pending.on_progress(message.params)
            return
        self._peer.on_notification(method, message.params)

    def _take_undecodable(self, line: bytes, why: str) -> None:
        line = line.removeprefix(b"\xef\xbb\xbf").strip()
        if not line:
            return
        if line[:1] == b"{":
            try:
                decode(line)
            except UNDECODABLE:
                pending = self._named_in(line[:_EDGE], line[-_EDGE:])
                if pending is not None:
                    self.settle(pending, None, self.broken(f"answered with what is no valid JSON ({why})"))
                    return
            else:
                self.take(line)  # it was only a byte order mark
                return
        self._peer.on_garbage(line[:_EDGE], why)

    def take_oversized(self, head: bytes, tail: bytes, size: int) -> None:
        """Notes a message over the limit, of which only the edges were kept."""
        pending = self._named_in(head, tail)
        if pending is None:
            self._peer.on_garbage(head[:_EDGE], f"a line of {size} bytes, over the limit of {self.max_message}")
        else:
            self.settle(pending, None, self.too_large(f"{size} bytes"))

    def too_large(self, what: str) -> ClientError:
        """The error of a call whose answer is over the limit."""
        return ClientError(
            "too_large",
            f"Server {self.server} answered with {what}, over the limit of {self.max_message}; "
            "ask for less, or raise limits.max_result.",
            self.server,
            outcome="outcome_unknown",
        )

    def _named_in(self, head: bytes, tail: bytes) -> Pending | None:
        found = _ID_FIRST.match(head) or _ID_LAST.search(tail)
        return self.pending.get(int(found[1])) if found else None

    def _expire(self, pending: Pending) -> None:
        if trio.current_time() >= pending.end:
            what = "took longer than max_call_time"
        else:
            what = f"gave no sign for {pending.idle:g} s (call_timeout)"
        error = ClientError(
            "timeout",
            f"Server {self.server} {what}; the call was cancelled and may have taken effect.",
            self.server,
            outcome="outcome_unknown",
        )
        self.cancel(pending, error)

    def _server_error(self, raw: msgspec.Raw) -> ClientError:
        try:
            wire = decode_error(raw)
        except UNDECODABLE:
            return self.broken("answered with a malformed error")
        return ClientError(
            "server_error",
            f"Server {self.server} answered with an error: {_short(wire.message) or 'no message'} ({wire.code})",
            self.server,
            outcome="failed",
            data={"error": msgspec.to_builtins(wire)},
        )

    def broken(self, what: str) -> ClientError:
        """The error of a call that the server answered with what is no answer."""
        return ClientError(
            "protocol",
            f"Server {self.server} broke the protocol: it {what}. The call may have taken effect.",
            self.server,
            outcome="outcome_unknown",
        )


def _short(text: str) -> str:
    """A server's words, fit to be logged and kept; all of them are in the error's data."""
    return text if len(text) <= _LONGEST_WORDS else f"{text[:_LONGEST_WORDS]}…"


def _cleaned(raw: msgspec.Raw) -> msgspec.Raw:
    data = bytes(raw)
    data.decode()
    return msgspec.Raw(data.translate(None, _BREAKS)) if b"\r" in data else raw
