"""What governs calls and outlives them: questions and answers, pins, rates, hooks, named conversations."""

from __future__ import annotations

from pathlib import Path
from typing import final

import trio

from conduit_daemon.clients.deadlines import Deadlines
from conduit_daemon.config.model import Config
from conduit_daemon.pipeline.approvals import Approvals
from conduit_daemon.pipeline.background import Background
from conduit_daemon.pipeline.hooks import Hooks
from conduit_daemon.pipeline.pins import Pins
from conduit_daemon.pipeline.rate import Rates
from conduit_daemon.pipeline.remembered import Remembered
from conduit_daemon.pipeline.sessions import Sessions
from conduit_daemon.telemetry.events import EventBus

__all__ = ["Governance"]


@final
class Governance:
    """The governing parts that all calls share. Owned by the application, which has `run` supervised.

    Args:
        directory: The state directory; None keeps nothing beyond this process.
        bus: Where events go.
        hooks: The operator's own code.

    Attributes:
        approvals: Questions to people.
        pins: Pinned definitions of tools.
        rates: Limits on how often tools are called.
        hooks: The operator's own code.
        sessions: The taint of conversations that callers name.
        background: Runs what of all this must wait.
        deadlines: The timer heap of calls that wait.
    """

    def __init__(self, directory: Path | None, bus: EventBus, *, hooks: Hooks | None = None) -> None:
        self.deadlines = Deadlines()
        self.background = Background()
        self.hooks = hooks or Hooks()
        self.rates = Rates()
        self.pins = Pins(directory, bus)
        self.sessions = Sessions(directory, bus)
        self._remembered = Remembered(directory, bus)
        self.approvals = Approvals(self._remembered, self.deadlines, self.background, bus)

    def load(self) -> None:
        """Reads what an earlier run of the daemon kept."""
        self.pins.load()
        self.sessions.load()
        self._remembered.load()

    def save_again(self) -> None:
        """Has all that is kept written once more, for its files may be gone."""
        for file in (self.pins.file, self.sessions.file, self._remembered.file):
            file.save_again()

    def configure(self, config: Config) -> None:
        """Takes over a configuration: it holds for the next call."""
        self.approvals.timeout = config.policy.approval_timeout
        self.pins.configure(config.servers)
        self.rates.configure(
            config.limits.rate,
            {name: server.rate for name, server in config.servers.items() if server.rate is not None},
        )

    def problem(self) -> str | None:
        """What of all this cannot be kept at present; None where everything is."""
        files = [
            file for file in (self.pins.file, self.sessions.file, self._remembered.file) if file.problem is not None
        ]
        if not files:
            return None
        named = ", ".join(f"{file.name} ({file.problem})" for file in files)
        return f"What must survive a restart cannot be saved: {named}."

    async def run(self) -> None:
        """Writes what must survive a restart and runs what waits, until cancelled."""
        async with trio.open_nursery() as nursery:
            nursery.start_soon(self.background.run)
            nursery.start_soon(self.pins.file.run)
            nursery.start_soon(self.sessions.file.run)
            nursery.start_soon(self._remembered.file.run)
