"""The pipeline as one caller sees it."""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING, final

from conduit_daemon.clients.host import Caller
from conduit_daemon.clients.port import Port

if TYPE_CHECKING:
    from conduit_daemon.pipeline.gate import Gate

__all__ = ["Context", "Taint"]


@final
class Taint:
    """The servers whose results are in a model's context. All views of one conversation share one.

    Attributes:
        servers: Their ids.
    """

    __slots__ = ("__weakref__", "servers")

    def __init__(self, servers: frozenset[str] = frozenset()) -> None:
        self.servers = servers


@final
class Context:
    """The gate that all calls pass, and what is in this caller's own context.

    Args:
        gate: The shared parts.
        on_taint: Called with each server's id that is added to the taint.
        within: The connection's own view, whose servers this one uses; None where it is that itself.
        taint: What its conversation has read; None for a conversation of its own.

    Attributes:
        gate: The shared parts.
        callers: By the id of a call that is on its way: who answers if its server asks something.
    """

    __slots__ = ("_on_taint", "_own", "_taint", "_turn", "_within", "callers", "gate")

    def __init__(
        self,
        gate: Gate,
        *,
        on_taint: Callable[[str], None] | None = None,
        within: Context | None = None,
        taint: Taint | None = None,
    ) -> None:
        self.gate = gate
        self._within = within
        self._taint = Taint() if taint is None else taint
        self._turn: set[str] | None = None
        self.callers: dict[str, Caller] = {}
        self._on_taint = on_taint
        self._own: dict[str, tuple[Port, Port]] = {}

    @property
    def connection(self) -> Context:
        """The view of the connection that this one is on."""
        return self if self._within is None else self._within

    @property
    def taint(self) -> frozenset[str]:
        """Ids of the servers whose results were delivered to this caller; in a view of a turn, before it."""
        return self._taint.servers if not self._turn else self._taint.servers - self._turn

    def turn(self) -> Context:
        """This view for the calls that a model makes at once: what one of them reads it did not know of the others."""
        view = Context(self.gate, on_taint=self._on_taint, within=self.connection, taint=self._taint)
        view._turn = set()
        return view

    def share(self, taint: Taint, on_taint: Callable[[str], None]) -> None:
        """Takes part in a conversation from now on: `taint` is what that has read."""
        self._taint, self._on_taint = taint, on_taint

    def forget_taint(self) -> None:
        """Takes the caller's conversation for a new one."""
        self._taint.servers = frozenset()

    def taint_with(self, given: frozenset[str]) -> frozenset[str]:
        """What a call is decided by: the taint that it brings along, and the caller's own where that is tracked."""
        if not self.gate.track_taint:
            return given
        own = self._taint.servers if not self._turn else self.taint
        return given | own if given else own

    def port(self, server: str) -> Port | None:
        """This caller's door to a server: the one for all, or one of its own; None where there is no such server.

        Raises:
            ClientError: ``unavailable``: too many callers have one of their own.
        """
        if self._within is not None:
            return self._within.port(server)
        common = self.gate.ports.get(server)
        if common is None or common.instantiate is None:
            return common
        found = self._own.get(server)
        if found is not None and found[0] is common and found[1].standing.state != "stopped":
            return found[1]
        self._release(server)
        own = common.instantiate()
        self._own[server] = (common, own)
        return own

    @property
    def own(self) -> tuple[Port, ...]:
        """The doors to this caller's own servers."""
        return tuple(own for _, own in self._own.values())

    def close(self) -> None:
        """Ends the servers that are this caller's own: it has gone."""
        for server in tuple(self._own):
            self._release(server)

    def _release(self, server: str) -> None:
        _, own = self._own.pop(server, (None, None))
        if own is not None and own.release is not None:
            own.release()

    def hear(self, server: str) -> None:
        """Words of `server` are delivered to this caller."""
        if server not in self._taint.servers:
            if self._turn is not None:
                self._turn.add(server)
            self.add_taint(server)

    def add_taint(self, server: str) -> None:
        """A result of `server` is delivered to this caller."""
        self._taint.servers |= {server}
        if self._on_taint is not None:
            self._on_taint(server)
