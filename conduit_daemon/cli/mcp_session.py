"""What an MCP host and the daemon have said to each other, as far as a new daemon must be told it again.

Pure: lines in, lines out. The host never notices that the daemon was restarted, but for an error to each request
that was on its way and the news that lists may have changed.
"""

from __future__ import annotations

import secrets
from typing import Any, Final, final

import msgspec

__all__ = ["Session"]

_CODE: Final = -31004
_OWN: Final = "conduit-mcp:"
_SUBSCRIPTION: Final = "io.modelcontextprotocol/subscriptionId"
_LISTS: Final = {"toolsListChanged": "tools", "resourcesListChanged": "resources", "promptsListChanged": "prompts"}
_NOTHING: Final = msgspec.Raw(b"")

Id = int | str


class _Line(msgspec.Struct):
    id: Id | None = None
    method: str | None = None
    params: msgspec.Raw = _NOTHING
    error: dict[str, Any] | None = None


class _Capabilities(msgspec.Struct):
    capabilities: dict[str, Any] = {}


class _Initialized(msgspec.Struct):
    result: _Capabilities


class _Cancelled(msgspec.Struct):
    requestId: Id


class _Subscribed(msgspec.Struct):
    uri: str


class _Acknowledged(msgspec.Struct):
    notifications: dict[str, Any]
    meta: dict[str, Any] = msgspec.field(name="_meta")


_decode = msgspec.json.Decoder(_Line).decode
_UNREADABLE: Final = (msgspec.MsgspecError, UnicodeDecodeError, RecursionError)


@final
class Session:
    """The state of one host's session.

    Args:
        toolset: The named toolset that the host is confined to; None for all tools.
    """

    def __init__(self, toolset: str | None = None) -> None:
        self._toolset = toolset
        # What its model has read must not be forgotten with a connection.
        self._session = f"mcp-{secrets.token_hex(16)}"
        self._waiting: dict[Id, str] = {}
        self._listening: dict[Id, bytes] = {}
        self._renewed: set[Id] = set()
        self._initialize: bytes | None = None
        self._initialize_id: Id | None = None
        self._initialized: bytes | None = None
        self._level: bytes | None = None
        self._subscriptions: dict[str, bytes] = {}
        self._lists: list[str] = []
        self._connections = 0
        self.refusal: str | None = None
        """Why the daemon does not serve this session; None as long as it does."""

    def from_host(self, line: bytes) -> None:
        """Notes what the host says; the line itself is the daemon's to judge."""
        try:
            message = _decode(line)
        except _UNREADABLE:
            return
        method = message.method
        if method == "notifications/initialized":
            self._initialized = line
        elif method == "notifications/cancelled":
            self._note_cancelled(message.params)
        if method is None or message.id is None:
            return
        self._waiting[message.id] = method
        if method == "initialize":
            self._initialize, self._initialize_id = line, message.id
        elif method == "logging/setLevel":
            self._level = line
        elif method == "subscriptions/listen":
            self._listening[message.id] = line
        elif method in {"resources/subscribe", "resources/unsubscribe"}:
            self._note_subscription(method, message.params, line)

    def _note_cancelled(self, params: msgspec.Raw) -> None:
        try:
            request_id = msgspec.json.decode(params, type=_Cancelled).requestId
        except _UNREADABLE:
            return
        self._waiting.pop(request_id, None)
        self._listening.pop(request_id, None)

    def _note_subscription(self, method: str, params: msgspec.Raw, line: bytes) -> None:
        try:
            uri = msgspec.json.decode(params, type=_Subscribed).uri
        except _UNREADABLE:
            return
        if method == "resources/subscribe":
            self._subscriptions[uri] = line
        else:
            self._subscriptions.pop(uri, None)

    def from_daemon(self, line: bytes) -> list[bytes]:
        """What the host is to see of a line of the daemon's."""
        try:
            message = _decode(line)
        except _UNREADABLE:
            return [line]
        if message.method is not None:
            if message.method == "notifications/subscriptions/acknowledged" and self._renewed:
                return self._renewals(line, message.params)
            return [line]
        request_id = message.id
        if request_id is None:
            return [line]
        if isinstance(request_id, str) and request_id.startswith(_OWN):
            if message.error is not None and request_id.startswith(f"{_OWN}use:"):
                self.refusal = str(message.error["message"])
            return []
        if request_id in self._listening and message.error is None:
            return []  # the daemon stops; the next one is asked again
        self._listening.pop(request_id, None)
        self._waiting.pop(request_id, None)
        if request_id == self._initialize_id:
            self._note_capabilities(line)
        return [line]

    def _note_capabilities(self, line: bytes) -> None:
        try:
            offered = msgspec.json.decode(line, type=_Initialized).result.capabilities
        except _UNREADABLE:
            return
        self._lists = [what for what in _LISTS.values() if what in offered]

    def _renewals(self, line: bytes, params: msgspec.Raw) -> list[bytes]:
        """In place of a second acknowledgement: everything that was listened to may have changed."""
        try:
            told = msgspec.json.decode(params, type=_Acknowledged)
        except _UNREADABLE:
            return [line]
        request_id = told.meta.get(_SUBSCRIPTION)
        if request_id not in self._renewed:
            return [line]
        self._renewed.discard(request_id)
        mark = {"_meta": {_SUBSCRIPTION: request_id}}
        return [_changed(what, mark) for key, what in _LISTS.items() if told.notifications.get(key)]

    def opening(self) -> list[bytes]:
        """What a daemon just connected to is to be told before anything else."""
        self._connections += 1
        use = {"set": self._toolset, "session": self._session}
        lines = [self._own("use", {"method": "conduit/use", "params": use})]
        if self._connections == 1:
            return lines
        if self._initialize is not None and self._initialize_id not in self._waiting:
            lines.append(self._again("initialize", self._initialize))
            if self._initialized is not None:
                lines.append(self._initialized)
        for name, line in [("level", self._level), *self._subscriptions.items()]:
            if line is not None:
                lines.append(self._again(name, line))
        self._renewed = set(self._listening)
        return [*lines, *self._listening.values()]

    def lost(self) -> list[bytes]:
        """The answers that the host gets where a daemon that was asked has gone."""
        text = "The daemon was restarted before {} was answered; what became of it is not known."
        failed = [
            _error(request_id, text.format(method), "outcome_unknown")
            for request_id, method in self._waiting.items()
            if method != "subscriptions/listen"
        ]
        self._waiting = {key: method for key, method in self._waiting.items() if method == "subscriptions/listen"}
        return failed

    def found_again(self) -> list[bytes]:
        """What the host is told once there is a daemon again: that what it listed may have changed."""
        if self._initialized is None:
            return []
        return [_changed(what) for what in self._lists]

    def unreachable(self, line: bytes, why: str) -> list[bytes]:
        """The answer to a line of the host's while no daemon can be reached."""
        try:
            message = _decode(line)
        except _UNREADABLE:
            return []
        if message.method is None or message.id is None:
            return []
        return [_error(message.id, why, "not_sent")]

    def _own(self, name: str, message: dict[str, Any]) -> bytes:
        return _line({"jsonrpc": "2.0", "id": f"{_OWN}{name}:{self._connections}", **message})

    def _again(self, name: str, line: bytes) -> bytes:
        """A request of the host's under an id of ours, whose answer it does not see."""
        message: dict[str, Any] = msgspec.json.decode(line)
        return self._own(name, {"method": message["method"], "params": message.get("params", {})})


def _changed(what: str, params: dict[str, Any] | None = None) -> bytes:
    message: dict[str, Any] = {"jsonrpc": "2.0", "method": f"notifications/{what}/list_changed"}
    if params is not None:
        message["params"] = params
    return _line(message)


def _error(request_id: Id, text: str, outcome: str) -> bytes:
    data = {"kind": "unavailable", "outcome": outcome, "retry_after": 1.0}
    return _line({"jsonrpc": "2.0", "id": request_id, "error": {"code": _CODE, "message": text, "data": data}})


def _line(message: dict[str, Any]) -> bytes:
    return msgspec.json.encode(message) + b"\n"
