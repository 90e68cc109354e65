"""Many JSON-RPC requests at once over one pair of pipes, matched to their answers.

This is the hot path's half of a stdio client: `begin` writes a request and returns, the answer comes as a
function call from the task that reads the server's output. No task, channel or model stands between.
It knows JSON-RPC, progress and cancellation; what the SDK needs on top is in `clients.session`.

A server is not to be trusted: whatever it writes, only the call that it concerns can fail. Raw results are
passed on only where they are valid UTF-8 without a carriage return (a reader that splits lines at one would
take the rest for another message); other results are decoded and written anew.
"""

from __future__ import annotations

import math
import os
import re
from collections.abc import Callable
from functools import partial
from typing import Any, Final, Protocol, final

import msgspec
import trio

from conduit_daemon.clients.deadlines import Deadline, Deadlines
from conduit_daemon.errors import ClientError
from conduit_daemon.lines import READ_SIZE, LineSplitter, LineWriter, Oversized, Queued, WriterClosed

__all__ = ["NOTHING", "LineDispatcher", "OnAnswer", "OnProgress", "Peer", "Pending"]

NOTHING: Final = msgspec.Raw(b"")  # msgspec takes `Raw | None` for None alone, so absence is an empty Raw
_MAX_BACKLOG: Final = 8 << 20
_ID_IN_TEXT: Final = re.compile(rb'"id"\s*:\s*(\d{1,18})\s*[,}]')

OnAnswer = Callable[[msgspec.Raw | None, ClientError | None], None]
"""Called exactly once for each request begun, with its raw result or with the reason why there is none."""

OnProgress = Callable[[msgspec.Raw], None]
"""Called with the raw params of each progress notification of a request."""


class _Request(msgspec.Struct, omit_defaults=True):
    id: int | str
    method: str
    params: Any = None
    jsonrpc: str = msgspec.field(default="")


class _Incoming(msgspec.Struct):
    id: int | str | None = None
    method: str | None = None
    params: msgspec.Raw = NOTHING
    result: msgspec.Raw = NOTHING
    error: msgspec.Raw = NOTHING


class _Progress(msgspec.Struct):
    progressToken: int | str


class _WireError(msgspec.Struct, omit_defaults=True):
    code: int
    message: str = ""
    data: Any = None


_encode_into = msgspec.json.Encoder().encode_into
_decode = msgspec.json.Decoder(_Incoming).decode
_decode_progress = msgspec.json.Decoder(_Progress).decode
_decode_error = msgspec.json.Decoder(_WireError).decode


class Peer(Protocol):
    """Whom the dispatcher tells what a server sends unasked. None of these may wait or raise."""

    def on_request(self, request_id: int | str, method: str, params: msgspec.Raw) -> None:
        """The server asks something; `LineDispatcher.answer` or `.refuse` answers it."""

    def on_notification(self, method: str, params: msgspec.Raw) -> None:
        """The server tells something other than progress."""

    def on_garbage(self, line: bytes, why: str) -> None:
        """A line that is no message; `line` is cut to its first bytes."""


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
        self.queued: Queued | None = None

    @property
    def sent(self) -> bool:
        """Whether the server may have seen any of it."""
        return self.queued is None or self.queued.started


@final
class LineDispatcher:
    """JSON-RPC over two non-blocking descriptors, a message a line.

    Args:
        server: The server's id, for messages.
        read_fd: Where the server's messages come from.
        write_fd: Where ours go. Neither descriptor is closed here.
        peer: Told what the server sends unasked.
        max_line: Longest message in bytes; the answer of a longer one fails its call as ``too_large``.
        patience: Seconds that the server may leave its input unread before `run` raises ``WriterStalled``.
    """

    def __init__(
        self, server: str, read_fd: int, write_fd: int, peer: Peer, *, max_line: int, patience: float = math.inf
    ) -> None:
        self.server = server
        self.pending: dict[int | str, Pending] = {}
        self._read_fd = read_fd
        self._peer = peer
        self._splitter = LineSplitter(max_line)
        self._max_line = max_line
        self._writer = LineWriter(write_fd, patience=patience)
        self._deadlines = Deadlines()
        self._next_id = 0

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

        Raises:
            ClientError: ``unavailable``: nothing was sent (the pipe is closed, or the server leaves its input
                unread and too much is queued already).
        """
        if request_id in self.pending:
            raise ValueError(f"request id {request_id!r} is in use")
        if self._writer.buffered > _MAX_BACKLOG:
            raise ClientError(
                "unavailable",
                f"Server {self.server} does not read its input; nothing was sent.",
                self.server,
                retry_after=1.0,
            )
        line = bytearray()
        _encode_into(_Request(request_id, method, params, "2.0"), line)
        line += b"\n"
        now = trio.current_time()
        pending = Pending(request_id, on_answer, idle, now + total)
        pending.on_progress = on_progress
        try:
            pending.queued = self._writer.write(line)
        except WriterClosed:
            raise ClientError(
                "unavailable", f"Server {self.server} closed its input; nothing was sent.", self.server, retry_after=1.0
            ) from None
        at = min(now + idle, pending.end)
        if at != math.inf:
            pending.deadline = self._deadlines.add(at, partial(self._expire, pending))
        self.pending[request_id] = pending
        return pending

    def notify(self, method: str, params: Any = None, *, urgent: bool = False) -> None:
        """Sends a notification; dropped where the server is gone or leaves its input unread."""
        if self._writer.buffered > 2 * _MAX_BACKLOG:
            return
        message: dict[str, Any] = {"jsonrpc": "2.0", "method": method}
        if params is not None:
            message["params"] = params
        self._send(message, urgent=urgent)

    def cancel(self, pending: Pending, error: ClientError, *, tell: bool = True) -> None:
        """Ends a request with `error`; the server is told, ahead of queued messages, unless it never saw it.

        The error's outcome becomes ``not_sent`` where no byte of the request was written.
        """
        if self.pending.get(pending.request_id) is not pending:
            return
        queued = pending.queued
        if queued is not None and self._writer.withdraw(queued):
            error.outcome = "not_sent"
        elif tell:
            self.notify("notifications/cancelled", {"requestId": pending.request_id, "reason": error.kind}, urgent=True)
        self._settle(pending, None, error)

    # ---- answering the server

    def answer(self, request_id: int | str, result: Any) -> None:
        """Answers a request of the server's."""
        self._send({"jsonrpc": "2.0", "id": request_id, "result": result})

    def refuse(self, request_id: int | str, code: int, message: str, data: Any = None) -> None:
        """Answers a request of the server's with an error."""
        error: dict[str, Any] = {"code": code, "message": message}
        if data is not None:
            error["data"] = data
        self._send({"jsonrpc": "2.0", "id": request_id, "error": error})

    # ---- life

    async def run(self) -> None:
        """Reads, writes and keeps deadlines until the server closes its output.

        Raises:
            WriterStalled: The server left its input unread for `patience` seconds.
            OSError: Its output cannot be read.
        """
        async with trio.open_nursery() as nursery:
            nursery.start_soon(self._deadlines.run)
            nursery.start_soon(self._write)
            await self._read()
            nursery.cancel_scope.cancel()

    def fail_all(self, make_error: Callable[[Pending], ClientError]) -> None:
        """Ends every waiting request, and refuses to send more: the connection is over."""
        self._writer.close()
        for pending in list(self.pending.values()):
            self._settle(pending, None, make_error(pending))

    def drain(self) -> None:
        """Takes in what a dead server had written before it died."""
        while True:
            try:
                chunk = os.read(self._read_fd, READ_SIZE)
            except (BlockingIOError, OSError):
                return
            if not chunk:
                return
            self._take(chunk)

    async def _read(self) -> None:
        while True:
            await trio.lowlevel.wait_readable(self._read_fd)
            try:
                chunk = os.read(self._read_fd, READ_SIZE)
            except BlockingIOError:
                continue
            if not chunk:
                return
            self._take(chunk)

    async def _write(self) -> None:
        try:
            await self._writer.run()
        except WriterClosed:
            return  # its input is closed; the watcher of its process and its output say what comes of it

    def _take(self, chunk: bytes) -> None:
        for line in self._splitter.feed(chunk):
            if isinstance(line, Oversized):
                self._take_oversized(line)
            elif line:
                self._take_line(line)

    def _take_line(self, line: bytes) -> None:
        try:
            message = _decode(line)
        except (msgspec.MsgspecError, UnicodeDecodeError, RecursionError) as error:
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
                self._peer.on_garbage(line[:200], "no method and no id")
            return  # an answer that came after its call ended
        if message.error is not NOTHING and bytes(message.error) != b"null":
            self._settle(pending, None, self._server_error(message.error))
            return
        result = message.result
        if result is NOTHING:
            self._settle(pending, None, self._broken("answered with neither a result nor an error"))
            return
        if not line.isascii() or b"\r" in line:
            try:
                result = _cleaned(result)
            except (msgspec.MsgspecError, UnicodeDecodeError, RecursionError) as error:
                self._settle(pending, None, self._broken(f"answered with what is no valid JSON ({error})"))
                return
        self._settle(pending, result, None)

    def _take_unasked(self, message: _Incoming) -> None:
        method = message.method
        assert method is not None  # noqa: S101 - the caller looked
        if message.id is not None:
            self._peer.on_request(message.id, method, message.params)
            return
        if method == "notifications/progress":
            try:
                token = _decode_progress(message.params).progressToken
            except (msgspec.MsgspecError, UnicodeDecodeError, RecursionError):
                return
            pending = self.pending.get(token)
            if pending is None:
                return
            if pending.deadline is not None:
                self._deadlines.extend(pending.deadline, min(trio.current_time() + pending.idle, pending.end))
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
                _decode(line)
            except (msgspec.MsgspecError, UnicodeDecodeError, RecursionError):
                pending = self._named_in(line[:4096]) or self._named_in(line[-4096:])
                if pending is not None:
                    self._settle(pending, None, self._broken(f"answered with what is no valid JSON ({why})"))
                    return
            else:
                self._take_line(line)  # it was only a byte order mark
                return
        self._peer.on_garbage(line[:200], why)

    def _take_oversized(self, line: Oversized) -> None:
        pending = self._named_in(line.head) or self._named_in(line.tail)
        if pending is None:
            self._peer.on_garbage(line.head[:200], f"a line of {line.size} bytes, over the limit of {self._max_line}")
            return
        error = ClientError(
            "too_large",
            f"Server {self.server} answered with {line.size} bytes, over the limit of {self._max_line}; "
            "ask for less, or raise limits.max_result.",
            self.server,
            outcome="outcome_unknown",
        )
        self._settle(pending, None, error)

    def _named_in(self, text: bytes) -> Pending | None:
        found = _ID_IN_TEXT.search(text)
        return self.pending.get(int(found[1])) if found else None

    def _settle(self, pending: Pending, result: msgspec.Raw | None, error: ClientError | None) -> None:
        del self.pending[pending.request_id]
        if pending.deadline is not None:
            self._deadlines.cancel(pending.deadline)
        pending.on_answer(result, error)

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
            wire = _decode_error(raw)
        except (msgspec.MsgspecError, UnicodeDecodeError, RecursionError):
            return self._broken("answered with a malformed error")
        return ClientError(
            "server_error",
            f"Server {self.server} answered with an error: {wire.message or 'no message'} ({wire.code})",
            self.server,
            outcome="failed",
            data={"error": msgspec.to_builtins(wire)},
        )

    def _broken(self, what: str) -> ClientError:
        return ClientError(
            "protocol",
            f"Server {self.server} broke the protocol: it {what}. The call may have taken effect.",
            self.server,
            outcome="outcome_unknown",
        )

    def _send(self, message: dict[str, Any], *, urgent: bool = False) -> None:
        line = bytearray()
        _encode_into(message, line)
        line += b"\n"
        try:
            self._writer.write(line, urgent=urgent)
        except WriterClosed:
            return  # nobody is left to be told


def _cleaned(raw: msgspec.Raw) -> msgspec.Raw:
    data = bytes(raw)
    if b"\r" not in data:
        data.decode()
        return raw
    return msgspec.Raw(msgspec.json.encode(msgspec.json.decode(data)))
