"""Following what a server lists: read again, debounced, whenever it says that it has changed."""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from typing import Any, Final, final

import msgspec
import trio

from conduit_daemon.clients.listing import Listing
from conduit_daemon.clients.offerings import Offerings
from conduit_daemon.errors import ClientError
from conduit_daemon.telemetry.events import EventBus

__all__ = ["SUBSCRIBING", "Following"]

SUBSCRIBING: Final = frozenset({"resources/subscribe", "resources/unsubscribe"})

_DEBOUNCE: Final = 0.1
_METHOD_NOT_FOUND: Final = -32601
_LONGEST_PAUSE: Final = 60.0


class _Updated(msgspec.Struct):
    uri: str


@final
class Following:
    """Keeps what is known of a server's lists up to date, for as long as its session lasts.

    Args:
        server: The server's id.
        bus: Where it is said that a changed list cannot be read.
        list_tools: Reads the tools.
        list_offerings: Reads what is offered beside tools.
        on_listing: Told of changed tools.
        on_offerings: Told of what is offered beside tools, first and whenever it changed.
        on_updated: Told the URI of a resource that was subscribed to and has changed.
        subscriptions: URIs of the resources that are subscribed to.
        request: Sends a method with params and returns the raw result.
    """

    def __init__(
        self,
        server: str,
        bus: EventBus,
        *,
        list_tools: Callable[[], Awaitable[Listing]],
        list_offerings: Callable[[], Awaitable[Offerings]],
        on_listing: Callable[[Listing], None],
        on_offerings: Callable[[Offerings], None],
        on_updated: Callable[[str], None],
        subscriptions: set[str],
        request: Callable[[str, dict[str, Any]], Awaitable[msgspec.Raw]],
    ) -> None:
        self._server = server
        self._bus = bus
        self._list_tools = list_tools
        self._list_offerings = list_offerings
        self._on_listing = on_listing
        self._on_offerings = on_offerings
        self._on_updated = on_updated
        self._subscriptions = subscriptions
        self._request = request
        self._listening: trio.CancelScope | None = None
        self._tools_changed = trio.Event()
        self._offerings_changed = trio.Event()

    def begin(self) -> None:
        """Forgets what was noted: the tools are read next anyway."""
        self._tools_changed = trio.Event()

    def refresh(self) -> None:
        """Reads the tools again, as if the server had said that they changed."""
        self._tools_changed.set()

    def subscribe(self, name: str, *, wanted: bool) -> None:
        """Notes that a resource, named ``resource:URI``, is subscribed to, or is no more."""
        uri = name.partition(":")[2]
        if wanted:
            self._subscriptions.add(uri)
        else:
            self._subscriptions.discard(uri)
        if self._listening is not None:
            self._listening.cancel()

    def note(self, method: str, params: msgspec.Raw) -> None:
        """Notes a server's notification, if it is one of a change."""
        if method == "notifications/resources/updated":
            try:
                self._on_updated(msgspec.json.decode(params, type=_Updated).uri)
            except (msgspec.MsgspecError, UnicodeDecodeError, RecursionError):
                return  # what a server garbles is not worth more than silence
        if method == "notifications/tools/list_changed":
            self._tools_changed.set()
        elif method in {"notifications/resources/list_changed", "notifications/prompts/list_changed"}:
            self._offerings_changed.set()

    async def run(self, session: Any, capabilities: frozenset[str], *, modern: bool) -> None:
        """Follows until cancelled.

        Args:
            session: The SDK's.
            capabilities: What the server declared.
            modern: Whether it wants to be subscribed to, as servers of 2026-07-28 do.
        """
        async with trio.open_nursery() as nursery:
            if modern:
                nursery.start_soon(self._listen, session, capabilities)
            else:
                nursery.start_soon(self._subscribe_again)
            nursery.start_soon(self._follow_offerings)
            while True:
                await self._tools_changed.wait()
                await trio.sleep(_DEBOUNCE)
                self._tools_changed = trio.Event()
                try:
                    self._on_listing(await self._list_tools())
                except ClientError as error:
                    self._bus.emit(
                        "client.protocol",
                        level="warning",
                        server=self._server,
                        reason=f"Its changed tools could not be listed, the old ones stay: {error.message}",
                    )

    async def _subscribe_again(self) -> None:
        """Subscribes to what the connection before this one had subscribed to."""
        for uri in sorted(self._subscriptions):
            try:
                await self._request("resources/subscribe", {"uri": uri})
            except ClientError as error:
                self._bus.emit(
                    "client.protocol",
                    level="warning",
                    server=self._server,
                    reason=f"A resource is no longer subscribed to: {error.message}",
                )

    async def _follow_offerings(self) -> None:
        while True:
            self._offerings_changed = trio.Event()
            self._on_offerings(await self._list_offerings())
            await self._offerings_changed.wait()
            await trio.sleep(_DEBOUNCE)

    async def _listen(self, session: Any, capabilities: frozenset[str]) -> None:
        """Subscribes to changes, again and again."""
        from mcp.client.subscriptions import listen  # noqa: PLC0415 - the SDK is imported late, see clients.session
        from mcp.shared.exceptions import MCPError  # noqa: PLC0415 - as above

        pause = 0.5
        while True:
            began = trio.current_time()
            try:
                with trio.CancelScope() as self._listening:
                    async with listen(
                        session,
                        tools_list_changed=True,
                        resources_list_changed="resources" in capabilities,
                        prompts_list_changed="prompts" in capabilities,
                        resource_subscriptions=sorted(self._subscriptions),
                    ) as subscription:
                        async for event in subscription:
                            self._note_event(event)
                if self._listening.cancelled_caught:
                    continue  # to other resources from now on
            except (MCPError, ClientError, RuntimeError) as error:
                if "not found" in str(error).lower() or getattr(error, "code", 0) == _METHOD_NOT_FOUND:
                    return  # this server announces nothing
            if trio.current_time() - began > _LONGEST_PAUSE:
                pause = 0.5
            await trio.sleep(pause)
            pause = min(pause * 2, _LONGEST_PAUSE)
            self._tools_changed.set()  # what changed while nobody listened
            self._offerings_changed.set()

    def _note_event(self, event: Any) -> None:
        kind = type(event).__name__
        if kind == "ToolsListChanged":
            self._tools_changed.set()
        elif kind == "ResourceUpdated":
            self._on_updated(event.uri)
        else:
            self._offerings_changed.set()
