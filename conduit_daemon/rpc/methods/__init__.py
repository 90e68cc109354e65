"""The table of all methods: who may ask what, and what answers it. A module here is a family of them."""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Mapping
from typing import Any, Final, final

from conduit_daemon.config import Config, ConfigStanding
from conduit_daemon.errors import ClientError
from conduit_daemon.pipeline.gate import Gate
from conduit_daemon.published import Published
from conduit_daemon.rpc.connection import Connection, Handler
from conduit_daemon.rpc.events import EventFeed
from conduit_daemon.rpc.mcp import McpMethods
from conduit_daemon.rpc.methods.calls import CallMethods
from conduit_daemon.rpc.methods.daemon import DaemonMethods, SetLevel
from conduit_daemon.rpc.methods.events import EventMethods
from conduit_daemon.rpc.methods.masked import masked
from conduit_daemon.rpc.methods.servers import ServerEdits, ServerMethods
from conduit_daemon.rpc.methods.tools import ToolMethods
from conduit_daemon.rpc.protocol import Refused, Request

__all__ = ["Methods"]

_MASKED_BEFORE: Final = frozenset(
    {"conduit/audit"}
)  # as its rows are written; ten thousand of them are a lot to search


@final
class Methods:
    """What the sockets offer.

    Args:
        gate: The pipeline's shared parts.
        config: The configuration in force.
        feed: The daemon's events.
        version: The daemon's version.
        stop: Asks the daemon to stop.
        set_level: Changes what is logged.
        standing: How the configuration in force stands to its file.
        edits: Reads and applies changes of the servers.
        connections: All connections that are open.
        tree: The root of the supervision tree.
        more: Further methods of the control socket.
    """

    def __init__(
        self,
        gate: Gate,
        config: Published[Config],
        feed: EventFeed,
        *,
        version: str,
        stop: Callable[[], None],
        set_level: SetLevel,
        standing: Callable[[], ConfigStanding],
        edits: ServerEdits,
        connections: set[Connection],
        tree: Callable[[], Awaitable[dict[str, Any]]],
        more: Mapping[str, Handler] | None = None,
    ) -> None:
        self._mcp = McpMethods(gate, config, version, connections)
        servers = ServerMethods(gate, config, version, standing, edits, lambda: len(connections))
        daemon = DaemonMethods(gate, tree, set_level, stop)
        self._handlers: dict[str, Handler] = {
            **self._mcp.handlers,
            **ToolMethods(gate, config).handlers,
            **CallMethods(gate, config).handlers,
            **EventMethods(feed).handlers,
            **servers.handlers,
        }
        self._control: dict[str, Handler] = {**servers.control_handlers, **daemon.control_handlers, **(more or {})}
        for methods, name in [(self._handlers, "conduit/status"), *((self._control, name) for name in self._control)]:
            if name not in _MASKED_BEFORE:
                methods[name] = masked(methods[name], gate.masker)

    def start(self, connection: Connection, request: Request) -> Handler | None:
        """Starts a request at once, or returns what is to run as a task.

        Raises:
            ClientError: The request is refused.
            Refused: There is no such method, or it is of a protocol version that is not spoken here.
        """
        method = request.method
        if self._mcp.start(connection, request):
            return None
        handler = self._handlers.get(method)
        if handler is not None:
            return handler
        handler = self._control.get(method)
        if handler is None:
            raise Refused(-32601, f"There is no method {method[:100]!r}.")
        if not connection.control:
            raise ClientError("forbidden", f"{method} is for the control socket alone; this is the agents' socket.")
        return handler

    def note(self, connection: Connection, notification: Request) -> None:
        """Takes note of what the peer tells."""
        self._mcp.note(connection, notification)
