"""What every call passes through: the published snapshots, the servers' ports, and those who keep account."""

from __future__ import annotations

import itertools
import secrets
from collections.abc import Callable
from typing import Final, Literal, Protocol, final

import trio

from conduit_daemon.clients.port import Port
from conduit_daemon.config.model import Config, LimitsConfig, ServerConfig
from conduit_daemon.errors import ClientError
from conduit_daemon.hub.aside import Aside
from conduit_daemon.hub.catalogue import Catalogue
from conduit_daemon.hub.toolset import Entry, ToolSet
from conduit_daemon.model import Call, Outcome
from conduit_daemon.pipeline.context import Context
from conduit_daemon.pipeline.governance import Governance
from conduit_daemon.pipeline.limits import Slots
from conduit_daemon.pipeline.policy import Policy
from conduit_daemon.pipeline.validate import Validators
from conduit_daemon.published import Published
from conduit_daemon.telemetry.events import EventBus
from conduit_daemon.telemetry.masking import Masker
from conduit_daemon.telemetry.tracing import Tracer

__all__ = ["Context", "Gate", "InFlight", "Phase", "Recorder"]

Phase = Literal["approval", "rate", "slot", "hook", "start", "server"]
"""Where a call is: it waits for a person, for its rate, for a slot, for a hook, for its server's start; or is there."""

_REMEMBERED: Final = 1000
_TOOLS_REMEMBERED: Final = 200_000


class Recorder(Protocol):
    """Keeps account of finished calls: the audit."""

    def record(self, outcome: Outcome, *, approver: str | None = None) -> None:
        """Notes a finished call, and who approved or denied it where somebody was asked; neither waits nor raises."""


class InFlight(Protocol):
    """A call on its way; see `pipeline.flight.Flight`.

    Attributes:
        call: What was asked for.
        entry: What it means; None before that is known.
        began: When it was asked for, on trio's clock.
    """

    call: Call
    entry: Entry | None
    began: float

    @property
    def phase(self) -> Phase:
        """Where it is."""

    def abort(self, error: ClientError) -> None:
        """Ends it with `error`."""


@final
class Gate:
    """The parts that all calls share. Owned by the application; it outlives every restart in the tree.

    Attributes:
        catalogue: What is offered and known, as the hub publishes it.
        policy: The rules in force; None where a single client is used directly and has none.
        ports: The servers' ports by id.
        governance: Approvals, pins, rates, hooks and named conversations.
        bus: Where events go.
        recorder: The audit; None where it is off.
        masker: Takes secrets out of what is said of a call that failed; results are data and are passed as they are.
        problems: Asked what is wrong with the daemon beside its servers: each gives one sentence, or None.
        tracer: Makes a span of each call; None where nobody wants any.
        validators: The tools' schemas, compiled.
        aside: Where what is computed over many tools stops nobody.
        deadlines: The timer heap of calls that wait or have a time limit of their own.
        track_taint: Whether a caller's own taint is added to what its calls bring along.
        max_call_time: Seconds that a call may take at its server, whatever its progress.
        longest_wait: Seconds for which a call without a time limit of its own waits for a slot or its rate.
        max_result: Bytes of the largest result that is delivered.
        stopping: Whether new calls are refused because the daemon stops.
        flights: The calls that are on their way, the oldest first.
        total: How many calls have ended.
        errors: Of those, how many failed or reported a failure.
        on_updated: Called with (server, URI) of a resource that was subscribed to and has changed.
    """

    def __init__(
        self,
        *,
        catalogue: Published[Catalogue],
        policy: Published[Policy] | None,
        ports: dict[str, Port],
        limits: LimitsConfig,
        bus: EventBus,
        recorder: Recorder | None = None,
        governance: Governance | None = None,
        masker: Masker | None = None,
    ) -> None:
        self.catalogue = catalogue
        self.policy = policy
        self.ports = ports
        self.bus = bus
        self.recorder = recorder
        self.masker = Masker() if masker is None else masker
        self.tracer: Tracer | None = None
        self.problems: list[Callable[[], str | None]] = []
        self.governance = governance or Governance(None, bus)
        self.deadlines = self.governance.deadlines
        self.validators = Validators(on_unusable=self._unchecked)
        self.aside = Aside()
        self.slots = Slots(limits.max_in_flight)
        self.server_slots: dict[str, Slots] = {}
        self.max_call_time = limits.max_call_time
        self.longest_wait = limits.call_timeout
        self.max_result = limits.max_result
        self.track_taint = True
        self.stopping = False
        self.flights: dict[InFlight, None] = {}
        self._quiet: trio.Event | None = None
        self.total = 0
        self.errors = 0
        self._remembered: dict[str, ToolSet] = {}
        self._tools_remembered = 0
        self.on_updated: Callable[[str, str], None] | None = None
        self._run = secrets.token_hex(3)
        self._count = itertools.count(1)

    def new_call_id(self) -> str:
        """An id for a call, unique also across restarts of the daemon."""
        return f"{self._run}-{next(self._count):x}"

    def _unchecked(self, entry: Entry, reason: str) -> None:
        server, tool = entry.server_id, entry.tool.name
        self.bus.emit("client.tool_unchecked", level="warning", server=server, tool=tool, reason=reason)

    def found_problems(self) -> list[str]:
        """What is wrong with the daemon beside its servers, one sentence each."""
        return [problem for find in self.problems if (problem := find()) is not None]

    def _updated(self, server: str, uri: str) -> None:
        if self.on_updated is not None:
            self.on_updated(server, uri)

    def landed(self, flight: InFlight) -> None:
        """A call has ended."""
        self.flights.pop(flight, None)
        if self._quiet is not None and not self.flights:
            self._quiet.set()

    def stop(self) -> None:
        """Refuses new calls, and those that wait for a person: they would wait longer than the daemon does."""
        self.stopping = True
        for flight in list(self.flights):
            if flight.phase == "approval":
                text = "The daemon is stopping, and nobody had decided about the call; it was not run."
                flight.abort(ClientError("shutting_down", text, retry_after=1.0))

    async def drain(self, seconds: float, hurry: trio.Event) -> None:
        """Lets the calls that are on their way finish, and ends those that have not.

        Args:
            seconds: How long they may take.
            hurry: Set where they may take no longer.
        """
        with trio.move_on_after(seconds):
            async with trio.open_nursery() as nursery:

                async def hurried() -> None:
                    await hurry.wait()
                    nursery.cancel_scope.cancel()

                nursery.start_soon(hurried)
                await self.quiet()
                nursery.cancel_scope.cancel()
        for flight in list(self.flights):
            text = "The daemon stopped before the call was answered; it may have taken effect."
            flight.abort(ClientError("shutting_down", text, outcome="outcome_unknown", retry_after=1.0))

    async def quiet(self) -> None:
        """Waits until no call is on its way."""
        while self.flights:
            self._quiet = trio.Event()
            await self._quiet.wait()

    async def idle(self, server: str) -> None:
        """Waits until no call runs on a server."""
        slots = self.server_slots.get(server)
        if slots is not None:
            await slots.idle()

    def configure(self, config: Config) -> None:
        """Takes over a configuration's limits and the governing parts' settings: they hold for the next call."""
        limits = config.limits
        self.slots.resize(limits.max_in_flight)
        self.max_call_time = limits.max_call_time
        self.longest_wait = limits.call_timeout
        self.max_result = limits.max_result
        self.track_taint = config.policy.track_taint
        self.governance.configure(config)

    def configure_server(self, server: str, config: ServerConfig) -> None:
        """Sets how many calls run on a server at a time, and who is told of its resources' changes."""
        port = self.ports.get(server)
        if port is not None:
            port.on_updated = self._updated
        slots = self.server_slots.get(server)
        if slots is None:
            self.server_slots[server] = Slots(config.max_in_flight)
        else:
            slots.resize(config.max_in_flight)

    def remember(self, toolset: ToolSet) -> None:
        """Keeps a toolset that was listed, so that calls can be resolved against it later.

        The last 1,000 are kept, or fewer where they hold more than 200,000 tools: who lists chooses the prefix.
        """
        known = self._remembered.pop(toolset.id, None)
        self._remembered[toolset.id] = toolset
        self._tools_remembered += 0 if known is not None else len(toolset)
        while len(self._remembered) > _REMEMBERED or (
            self._tools_remembered > _TOOLS_REMEMBERED and len(self._remembered) > 1
        ):
            oldest = self._remembered.pop(next(iter(self._remembered)))
            self._tools_remembered -= len(oldest)

    def recall(self, toolset_id: str) -> ToolSet | None:
        """The toolset of this id, if it is today's or remembered."""
        offered = self.catalogue.current.offered
        return offered if offered.id == toolset_id else self._remembered.get(toolset_id)
