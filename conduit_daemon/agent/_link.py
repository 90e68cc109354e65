"""One connection to the daemon, without any waiting: what is to be sent, what came, and for whom.

The blocking and the asynchronous client drive the same Link: whoever waits for an answer also reads for
the others, so that neither needs a thread or a task of its own. It knows of each request whether the
daemon can have seen it: its line ends with a newline, and a line that lacks it was never a request.
"""

from __future__ import annotations

import contextlib
import errno
import os
import socket
from collections import deque
from pathlib import Path
from typing import Any, Final

import msgspec

from conduit_daemon.agent._errors import NOT_ALLOWED, TOO_LONG, CallFailed, DaemonUnreachable
from conduit_daemon.agent.sockets import Sockets

__all__ = ["BUSY", "PROGRESS", "Link", "NotSent", "Slot", "connect"]

BUSY = "its queue of connections is full"
PROGRESS = "notifications/progress"
_CHUNK = 262_144
_LONGEST_PATH: Final = 107  # sun_path of unix(7), less its NUL
_NO_ANSWER = msgspec.Raw(b"null")


class NotSent(Exception):
    """The connection broke before the daemon could have seen the request."""


class _Line(msgspec.Struct):
    id: int | str | None = None
    method: str | None = None
    params: msgspec.Raw = _NO_ANSWER
    result: msgspec.Raw = _NO_ANSWER
    error: Any = None


_decoder = msgspec.json.Decoder(_Line)
_encoder = msgspec.json.Encoder()


class Slot:
    """A request in flight: what has come of it so far.

    Attributes:
        id: Its JSON-RPC id.
        method: Its method, for sentences.
        wants: The method of the notifications that belong to it.
        begun: Whether a part of its line is out.
        sent: Whether all of it is, so that the daemon can have seen it.
        notes: The parameters of its notifications that were not looked at yet.
        answer: The raw result, once there.
        failure: What it ended with instead.
    """

    __slots__ = ("answer", "begun", "failure", "id", "method", "notes", "sent", "wants")

    def __init__(self, number: int, method: str, wants: str | None) -> None:
        self.id = number
        self.method = method
        self.wants = wants
        self.begun = False
        self.sent = False
        self.notes: deque[msgspec.Raw] = deque()
        self.answer: msgspec.Raw | None = None
        self.failure: CallFailed | NotSent | None = None

    @property
    def done(self) -> bool:
        """Whether nothing more comes."""
        return self.answer is not None or self.failure is not None

    def result(self) -> msgspec.Raw:
        """The raw result of a finished request.

        Raises:
            CallFailed: It ended with an error.
            NotSent: It may be sent again.
        """
        if self.failure is not None:
            raise self.failure
        assert self.answer is not None  # noqa: S101 - asked for only when done
        return self.answer


class Link:
    """A connected, non-blocking socket and the requests on it. Not thread-safe: its driver is."""

    def __init__(self, sock: socket.socket) -> None:
        self.sock = sock
        self.broken = False
        self._holders = 0
        self._number = 0
        self._slots: dict[int, Slot] = {}
        self._out: deque[tuple[Slot | None, memoryview]] = deque()
        self._in = bytearray()
        self._scanned = 0

    @property
    def unsent(self) -> bool:
        """Whether the kernel has not yet taken all that was to be sent."""
        return bool(self._out)

    def hold(self) -> None:
        """Keeps the file descriptor from being closed, and so reused, while somebody waits on it."""
        self._holders += 1

    def release(self) -> None:
        """Ends a `hold`."""
        self._holders -= 1
        if self.broken and not self._holders:
            self.sock.close()

    def open(self, method: str, params: dict[str, Any], *, progress: bool = False, wants: str | None = None) -> Slot:
        """Queues a request.

        Args:
            method: Its method.
            params: Its parameters.
            progress: Whether it asks for notifications of its progress.
            wants: The method of the notifications that it is made for.

        Raises:
            TypeError: A parameter is no JSON.
        """
        number = self._number + 1
        if progress:
            params = {**params, "_meta": {**params.get("_meta", {}), "progressToken": number}}
        line = _encoder.encode({"jsonrpc": "2.0", "id": number, "method": method, "params": params}) + b"\n"
        self._number = number
        slot = self._slots[number] = Slot(number, method, PROGRESS if progress else wants)
        self._out.append((slot, memoryview(line)))
        return slot

    def abandon(self, slot: Slot) -> None:
        """Forgets a request; the daemon is told to cancel it, where it can have seen it."""
        if self._slots.pop(slot.id, None) is None or self.broken:
            return
        if not slot.begun:
            self._out = deque(entry for entry in self._out if entry[0] is not slot)
            return
        note = {"jsonrpc": "2.0", "method": "notifications/cancelled", "params": {"requestId": slot.id}}
        self._out.append((None, memoryview(_encoder.encode(note) + b"\n")))

    def flush(self) -> None:
        """Writes what the kernel takes at once. A broken connection ends all requests on it."""
        while self._out and not self.broken:
            slot, rest = self._out[0]
            try:
                count = self.sock.send(rest)
            except BlockingIOError:
                return
            except OSError:
                # What the daemon sent before it went away is still there to be read.
                while self.receive():
                    continue
                self.end()
                return
            if slot is not None:
                slot.begun = True
            if count < len(rest):
                self._out[0] = (slot, rest[count:])
                continue
            self._out.popleft()
            if slot is not None:
                slot.sent = True

    def receive(self) -> bool:
        """Takes in what is there; False where nothing is, or nothing will ever be."""
        if self.broken:
            return False
        try:
            data = self.sock.recv(_CHUNK)
        except BlockingIOError:
            return False
        except OSError:
            data = b""
        if not data:
            self.end()
            return False
        self._in += data
        start = 0
        while (end := self._in.find(b"\n", max(start, self._scanned))) >= 0:
            line = bytes(memoryview(self._in)[start:end])
            start = end + 1
            self._take(line)
        del self._in[:start]
        self._scanned = len(self._in)
        return True

    def end(self) -> None:
        """Ends the connection, and every request on it as far as it came; who waits on the socket wakes."""
        self.broken = True
        with contextlib.suppress(OSError):
            self.sock.shutdown(socket.SHUT_RDWR)
        if not self._holders:
            self.sock.close()
        self._out.clear()
        for slot in self._slots.values():
            if slot.done:
                continue
            if not slot.sent:
                slot.failure = NotSent()
            else:
                message = f"The connection ended before {slot.method} was answered; what became of it is not known."
                slot.failure = CallFailed("unavailable", -31004, message, "outcome_unknown", {"kind": "unavailable"})
        self._slots.clear()

    def _take(self, line: bytes) -> None:
        if not line.strip():
            return
        try:
            message = _decoder.decode(line)
        except (msgspec.DecodeError, RecursionError):
            text = f"The daemon sent a line that is no JSON-RPC message: {line[:80]!r}."
            self._refuse({"code": -31008, "message": text, "data": {"kind": "protocol"}})
            return
        if message.method is not None:
            if message.id is None:
                self._note(message.method, message.params)
            else:
                self._decline(message.id, message.method)
        elif isinstance(message.id, int) and (slot := self._slots.pop(message.id, None)) is not None:
            if message.error is not None:
                slot.failure = CallFailed.from_wire(message.error)
            else:
                slot.answer = message.result
        elif message.id is None and message.error is not None:
            # It belongs to no request: the daemon refuses the connection, or a line of it.
            self._refuse(message.error)

    def _note(self, method: str, params: msgspec.Raw) -> None:
        if method == PROGRESS:
            try:
                token = msgspec.json.decode(params, type=_Token).progressToken
            except msgspec.DecodeError:
                return
            if (slot := self._slots.get(token)) is not None and slot.wants == PROGRESS:
                slot.notes.append(params)
            return
        # A stream has a connection to itself, so that what comes is its one request's.
        for slot in self._slots.values():
            if slot.wants == method:
                slot.notes.append(params)

    def _decline(self, number: int | str, method: str) -> None:
        answer: dict[str, Any] = {"jsonrpc": "2.0", "id": number}
        if method == "ping":
            answer["result"] = {}
        else:
            answer["error"] = {"code": -32601, "message": f"This client does not answer {method}."}
        self._out.append((None, memoryview(_encoder.encode(answer) + b"\n")))

    def _refuse(self, error: Any) -> None:
        for slot in self._slots.values():
            slot.failure = CallFailed.from_wire(error)
            if slot.failure.outcome is None and slot.sent:
                slot.failure.outcome = "outcome_unknown"
        self._slots.clear()
        self.end()


class _Token(msgspec.Struct):
    progressToken: int


def connect(places: tuple[Sockets, ...], *, control: bool) -> Link:
    """A Link to the first daemon that answers.

    Raises:
        DaemonUnreachable: None does.
    """
    tried = []
    for place in places:
        path = place.control if control else place.agent
        sock = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM)
        sock.setblocking(False)
        try:
            sock.connect(os.fspath(path))
        except OSError as error:
            sock.close()
            tried.append((path, _why(error, path)))
            continue
        return Link(sock)
    raise DaemonUnreachable(tuple(tried))


def _why(error: OSError, path: Path) -> str:
    if len(os.fsencode(path)) > _LONGEST_PATH:
        return f"{TOO_LONG} the {_LONGEST_PATH} bytes that a socket's can have"
    match error.errno:
        case errno.ENOENT | errno.ENOTDIR:
            return "no such socket"
        case errno.ECONNREFUSED if not path.is_socket():  # so Linux says it of any other file
            return "not a socket"
        case errno.ECONNREFUSED:
            return "left behind by a daemon that is gone"
        case errno.EACCES | errno.EPERM:
            return NOT_ALLOWED
        case errno.ENOTSOCK | errno.EPROTOTYPE:
            return "not a socket"
        case errno.EAGAIN:
            return BUSY
        case _:
            return (error.strerror or str(error)).lower()
