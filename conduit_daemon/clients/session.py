"""The seam to the SDK: its ClientSession on top of our dispatcher, and the negotiation of the protocol's era.

Everything that touches the SDK's provisional `Dispatcher` surface (mcp 2.3) stands here. The SDK is imported when the
first server is connected; `clients.sdk` says how.
"""

from __future__ import annotations

import math
from collections.abc import Awaitable, Callable, Mapping
from typing import TYPE_CHECKING, Any, Final, Literal, cast, final

import msgspec
import trio

from conduit_daemon.clients.dispatcher import Dispatcher
from conduit_daemon.clients.envelopes import UNDECODABLE
from conduit_daemon.clients.host import ASKABLE, Asking, Declined, Host, Question
from conduit_daemon.errors import ClientError

if TYPE_CHECKING:
    from mcp.client.session import ClientSession

__all__ = ["Era", "Negotiated", "SdkDispatcher", "negotiate", "open_session"]

Era = Literal["auto", "legacy", "modern"]

_PUMP: Final = 256
_MAX_ASKED: Final = 16
_BUSY: Final = -32000
_INTERNAL: Final = -32603
_NOT_OFFERED: Final = -32600
_HOPELESS: Final = (401, 403, 429, 503)


class Negotiated(msgspec.Struct, frozen=True):
    """What was agreed with a server.

    Attributes:
        version: The protocol's version.
        modern: Whether it is of the era of 2026-07-28, in which every request carries its context.
        meta: The ``_meta`` that every request carries then.
        capabilities: What the server declares: ``tools``, ``resources``, ``prompts``, ``completions``, ...
        name: What the server calls itself.
    """

    version: str
    modern: bool
    meta: dict[str, Any]
    capabilities: frozenset[str]
    name: str | None


@final
class SdkDispatcher:
    """A `Dispatcher` as the SDK wants it, and what a server asks or tells, in order, to the SDK.

    One pump hands on what the server tells, through a bounded queue; what it asks runs beside, at most 16
    at a time. What comes over that is refused or dropped, so a flood costs the server and nobody else.

    Args:
        server: The server's id.
        host: Answers what the server asks.
        caller: Tells which call a question belongs to, where that is certain.
        on_told: Called at once with each notification, before it is queued.
        on_garbage: Called with what is no message.

    Attributes:
        wire: The dispatcher beneath; set before a session is opened.
        probe_answered: Whether the server answered ``server/discover`` in any way.
    """

    wire: Dispatcher

    def __init__(
        self,
        server: str,
        host: Host,
        *,
        caller: Callable[[], Asking | None],
        on_told: Callable[[str, msgspec.Raw], None],
        on_garbage: Callable[[bytes, str], None],
    ) -> None:
        self.probe_answered = False
        self.dropped = 0
        self._server = server
        self._host = host
        self._caller = caller
        self._on_told = on_told
        self._on_garbage = on_garbage
        self._told, self._telling = trio.open_memory_channel[tuple[str, msgspec.Raw]](_PUMP)
        self._nursery: trio.Nursery | None = None
        self._on_request: Any = None
        self._on_notify: Any = None
        self._intercept: Callable[[str, Mapping[str, Any] | None], bool] | None = None
        self._asked = 0

    # ---- for the SDK

    async def send_raw_request(
        self, method: str, params: Mapping[str, Any] | None, opts: Mapping[str, Any] | None = None
    ) -> dict[str, Any]:
        """Asks the server and waits for the result, decoded.

        Raises:
            MCPError: The server answered with an error.
            ClientError: Nothing better will come of asking otherwise: it cannot be reached, or wants a login.
        """
        from mcp.shared.exceptions import MCPError  # noqa: PLC0415 - imported by now; see the module's docstring

        options = opts or {}
        try:
            raw = await self.request(
                method,
                params,
                timeout=options.get("timeout", math.inf),
                request_id=options.get("request_id"),
                tell=options.get("cancel_on_abandon", True),
                headers=options.get("headers"),
            )
        except ClientError as error:
            wire = error.data.get("error")
            status = error.data.get("http_status")
            if status in _HOPELESS or (status is None and error.kind == "unavailable"):
                raise
            if wire is not None:
                raise MCPError(wire["code"], wire.get("message", ""), wire.get("data")) from error
            raise MCPError(-32001 if error.kind == "timeout" else _BUSY, error.message) from error
        try:
            result = msgspec.json.decode(raw)
        except UNDECODABLE as error:
            raise MCPError(_INTERNAL, f"the server's answer to {method} is no JSON: {error}") from error
        if not isinstance(result, dict):
            raise MCPError(_INTERNAL, f"the server's answer to {method} is no object")
        if method == "server/discover":
            result.setdefault("resultType", "complete")  # absent means complete; the SDK insists on it
        return result

    async def notify(
        self, method: str, params: Mapping[str, Any] | None, opts: Mapping[str, Any] | None = None
    ) -> None:
        """Tells the server something."""
        self.wire.notify(method, params, headers=(opts or {}).get("headers"))

    async def run(
        self,
        on_request: Any,
        on_notify: Any,
        on_notify_intercept: Callable[[str, Mapping[str, Any] | None], bool] | None = None,
        *,
        task_status: Any = trio.TASK_STATUS_IGNORED,
    ) -> None:
        """Hands on what the server sends, until cancelled."""
        self._on_request, self._on_notify, self._intercept = on_request, on_notify, on_notify_intercept
        try:
            async with trio.open_nursery() as nursery:
                self._nursery = nursery
                task_status.started()
                await self._pump()
        finally:
            self._nursery = None

    # ---- for the connection

    async def request(
        self,
        method: str,
        params: Mapping[str, Any] | None,
        *,
        timeout: float = math.inf,
        request_id: int | str | None = None,
        tell: bool = True,
        headers: Mapping[str, str] | None = None,
    ) -> msgspec.Raw:
        """Asks the server and waits for the raw result.

        Raises:
            ClientError: The server answered with an error, the time is up or the connection ended.
        """
        answered = trio.Event()
        answers: list[tuple[msgspec.Raw | None, ClientError | None]] = []

        def on_answer(result: msgspec.Raw | None, error: ClientError | None) -> None:
            answers.append((result, error))
            answered.set()

        wanted = self.wire.mint_id() if request_id is None else request_id
        pending = self.wire.begin(wanted, method, params, on_answer, total=timeout, headers=headers)
        try:
            await answered.wait()
        except trio.Cancelled:
            gone = ClientError("cancelled", "The request was abandoned.", outcome="outcome_unknown")
            self.wire.cancel(pending, gone, tell=tell)
            raise
        result, error = answers[0]
        if method == "server/discover" and (error is None or error.kind in ("server_error", "timeout")):
            self.probe_answered = True
        if error is not None:
            raise error
        assert result is not None  # noqa: S101 - one of the two
        return result

    # ---- what the server sends unasked (see dispatcher.Peer)

    def on_request(self, request_id: int | str, method: str, params: msgspec.Raw) -> None:
        """Answers a ping at once; hands anything else to the SDK, in a task of its own."""
        if method == "ping":
            self.wire.answer(request_id, {})
        elif method in ASKABLE and ASKABLE[method] not in self._host.capabilities:
            reason = f"This client offers no {ASKABLE[method]}: it did not advertise it, and nobody can be asked."
            self.wire.refuse(request_id, _NOT_OFFERED, reason)
        elif self._nursery is None or self._asked >= _MAX_ASKED:
            self.wire.refuse(request_id, _BUSY, "This client answers no more requests at the moment.")
        else:
            self._asked += 1
            self._nursery.start_soon(self._answer, request_id, method, params)

    def on_notification(self, method: str, params: msgspec.Raw) -> None:
        """Tells of it, and puts it into the pump's queue."""
        self._on_told(method, params)
        if self._intercept is not None and self._intercept(method, _decoded(params)):
            return
        try:
            self._told.send_nowait((method, params))
        except trio.WouldBlock:
            self.dropped += 1

    def on_garbage(self, message: bytes, why: str) -> None:
        """Passes on what is no message."""
        self._on_garbage(message, why)

    async def _pump(self) -> None:
        async for method, params in self._telling:
            await self._on_notify(_ServerMessage(self, None), method, _decoded(params))

    async def _answer(self, request_id: int | str, method: str, params: msgspec.Raw) -> None:
        from mcp.shared.exceptions import MCPError  # noqa: PLC0415 - as above

        try:
            if method in ASKABLE:
                call = self._caller()
                question = Question(server=self._server, method=method, params=_decoded(params) or {}, call=call)
                result = await (self._host if call is None else call).answer(question)
            else:
                result = await self._on_request(_ServerMessage(self, request_id), method, _decoded(params))
            self.wire.answer(request_id, result)
        except Declined as declined:
            self.wire.refuse(request_id, declined.code, str(declined))
        except MCPError as error:
            self.wire.refuse(request_id, error.code, error.message, error.data)
        except Exception as error:  # noqa: BLE001 - what a server asks must not end its connection
            self.wire.refuse(request_id, _INTERNAL, f"The request could not be answered ({type(error).__name__}).")
        finally:
            self._asked -= 1


@final
class _ServerMessage:
    """The SDK's DispatchContext of one request or notification of a server's."""

    def __init__(self, dispatcher: SdkDispatcher, request_id: int | str | None) -> None:
        import anyio  # noqa: PLC0415 - comes with the SDK
        from mcp.shared.transport_context import TransportContext  # noqa: PLC0415 - as above

        self.transport = TransportContext(kind="stdio", can_send_request=True)
        self.can_send_request = True
        self.request_id = request_id
        self.message_metadata = None
        self.cancel_requested = anyio.Event()
        self.send_raw_request = dispatcher.send_raw_request
        self.notify = dispatcher.notify

    async def progress(self, progress: float, total: float | None = None, message: str | None = None) -> None:
        """No server asks us for progress."""


def _decoded(params: msgspec.Raw) -> dict[str, Any] | None:
    try:
        value = msgspec.json.decode(params) if len(params) else None
    except UNDECODABLE:
        return None
    return value if isinstance(value, dict) else None


def open_session(dispatcher: SdkDispatcher, *, version: str, host: Host) -> ClientSession:
    """The SDK's session over our dispatcher; to be entered and left in one task.

    Args:
        dispatcher: Its way to the server.
        version: The daemon's own version.
        host: Its capabilities are advertised; the dispatcher asks it, not the session.
    """
    import mcp_types as types  # noqa: PLC0415 - as above
    from mcp.client.session import ClientSession  # noqa: PLC0415 - as above

    async def asked(*_: Any) -> Any:
        return types.ErrorData(code=_INTERNAL, message="The question went astray.")

    offered, callback = host.capabilities, cast(Any, asked)
    sampling = offered.get("sampling")
    return ClientSession(
        dispatcher=dispatcher,
        client_info=types.Implementation(name="conduit", version=version),
        list_roots_callback=callback if "roots" in offered else None,
        sampling_callback=callback if sampling is not None else None,
        sampling_capabilities=None if sampling is None else types.SamplingCapability.model_validate(sampling),
        elicitation_callback=callback if "elicitation" in offered else None,
    )


async def negotiate(session: ClientSession, era: Era) -> Negotiated:
    """Agrees with the server on an era and a version.

    ``auto`` asks ``server/discover`` and falls back to the handshake unless the server is plainly a modern
    one. ``legacy`` and ``modern`` insist.

    Raises:
        MCPError: The server refuses.
        RuntimeError: It speaks no version that we do.
        ClientError: It cannot be reached, or wants a login.
    """
    from mcp.client._probe import negotiate_auto  # noqa: PLC0415 - as above
    from mcp_types import (  # noqa: PLC0415 - as above
        CLIENT_CAPABILITIES_META_KEY,
        CLIENT_INFO_META_KEY,
        PROTOCOL_VERSION_META_KEY,
    )

    negotiation: dict[Era, Callable[[], Awaitable[Any]]] = {
        "auto": lambda: negotiate_auto(session),
        "legacy": session.initialize,
        "modern": session.discover,
    }
    await negotiation[era]()
    version = session.protocol_version
    declared = session.server_capabilities
    assert version is not None  # noqa: S101 - the SDK raised otherwise
    modern = session.discover_result is not None
    meta: dict[str, Any] = {}
    if modern:
        meta = {
            PROTOCOL_VERSION_META_KEY: version,
            CLIENT_INFO_META_KEY: session._client_info.model_dump(by_alias=True, mode="json", exclude_none=True),
            CLIENT_CAPABILITIES_META_KEY: session._build_capabilities(version).model_dump(
                by_alias=True, mode="json", exclude_none=True
            ),
        }
    return Negotiated(
        version=version,
        modern=modern,
        meta=meta,
        capabilities=frozenset() if declared is None else frozenset(declared.model_dump(exclude_none=True)),
        name=session.server_info.name if session.server_info is not None else None,
    )
