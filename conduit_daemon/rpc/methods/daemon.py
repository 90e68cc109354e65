"""The daemon itself: ``conduit/tree``, ``conduit/running``, ``conduit/log_level``, ``conduit/shutdown``."""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from typing import Any, Final, final

import msgspec

from conduit_daemon.pipeline.gate import Gate
from conduit_daemon.pipeline.underway import underway
from conduit_daemon.rpc import protocol
from conduit_daemon.rpc.connection import Connection, Handler
from conduit_daemon.rpc.params import LogLevelParams, NoParams, RunningParams, ShutdownParams
from conduit_daemon.rpc.protocol import Request
from conduit_daemon.rpc.status import port_of
from conduit_daemon.telemetry.events import Level

__all__ = ["DaemonMethods", "SetLevel"]

_DONE: Final = msgspec.Raw(b"{}")

SetLevel = Callable[[Level, str | None], Level]
"""Changes the lowest level that is logged, of one server's events where one is named; returns the old one."""


@final
class DaemonMethods:
    """What administrators do with the daemon as a whole; all of it on the control socket.

    Args:
        gate: The pipeline's shared parts.
        tree: The root of the supervision tree.
        set_level: Changes what is logged.
        stop: Asks the daemon to stop; asked again, it no longer waits for running calls.
    """

    def __init__(
        self,
        gate: Gate,
        tree: Callable[[], Awaitable[dict[str, Any]]],
        set_level: SetLevel,
        stop: Callable[[], None],
    ) -> None:
        self._gate = gate
        self._tree = tree
        self._set_level = set_level
        self._stop = stop

    @property
    def control_handlers(self) -> dict[str, Handler]:
        """The methods by name."""
        return {
            "conduit/tree": self._show_tree,
            "conduit/running": self._show_running,
            "conduit/log_level": self._change_level,
            "conduit/shutdown": self._shutdown,
        }

    async def _show_tree(self, connection: Connection, request: Request) -> object:
        protocol.decode_params(request.params, NoParams)
        return await self._tree()

    async def _show_running(self, connection: Connection, request: Request) -> object:
        params = protocol.decode_params(request.params, RunningParams)
        calls, total = underway(self._gate, server=params.server, limit=params.limit)
        return {"running": calls, "total": total}

    async def _change_level(self, connection: Connection, request: Request) -> object:
        params = protocol.decode_params(request.params, LogLevelParams)
        if params.server is not None:
            port_of(self._gate, params.server)
        return {"level": self._set_level(params.level, params.server)}

    async def _shutdown(self, connection: Connection, request: Request) -> object:
        params = protocol.decode_params(request.params, ShutdownParams)
        self._stop()
        if not params.drain:
            self._stop()
        return _DONE
