"""The daemon: what it owns, the tree that it supervises, and its way from start to end.

    root                         one_for_one
    ├─ audit                     one writer thread, SQLite
    ├─ approvals                 pending questions, remembered decisions, and what else of calls must wait or be kept
    ├─ clients                   DynamicSupervisor, each child with a Backoff
    │  ├─ client:files           one actor per MCP server
    │  └─ client:search
    ├─ hub                       the toolset
    ├─ rpc                       two acceptors, a DynamicSupervisor of temporary connections
    └─ service                   signals, timers, the guardian's keeper

What must outlive a restart belongs to the application, not to the tree: the listening sockets, the published
snapshots, the servers' ports, the event bus, the guardian. So a crash of the hub or of an acceptor costs no
connection and no call.
"""

from __future__ import annotations

import math
import os
import sys
from collections.abc import MutableMapping
from contextlib import AsyncExitStack
from functools import partial
from importlib.metadata import version as installed_version
from pathlib import Path
from typing import Final

import trio

import supervisors
from conduit_daemon.clients.connection import Settings
from conduit_daemon.clients.factory import ClientFactory
from conduit_daemon.clients.process import GRACE, SHORT_GRACE
from conduit_daemon.clients.roster import Roster
from conduit_daemon.collector import settle
from conduit_daemon.config import Loaded, ServerConfig, state_directory
from conduit_daemon.hub.actor import Hub
from conduit_daemon.hub.catalogue import Catalogue
from conduit_daemon.hub.toolset import ToolSet
from conduit_daemon.messages import ClientChanged
from conduit_daemon.pipeline.audit import Audit
from conduit_daemon.pipeline.gate import Gate
from conduit_daemon.pipeline.governance import Governance
from conduit_daemon.pipeline.hooks import load_hooks
from conduit_daemon.pipeline.policy import compile_policy
from conduit_daemon.published import Published
from conduit_daemon.rpc.connection import Connection
from conduit_daemon.rpc.events import EventFeed
from conduit_daemon.rpc.governance import GovernanceMethods
from conduit_daemon.rpc.listener import Listener, open_listeners
from conduit_daemon.rpc.methods import Methods
from conduit_daemon.rpc.methods.servers import ServerEdits
from conduit_daemon.rpc.metrics import metrics_method
from conduit_daemon.rpc.reload import reload_method
from conduit_daemon.rpc.server import RpcServer
from conduit_daemon.service import watchdog
from conduit_daemon.service.activation import take_sockets
from conduit_daemon.service.guardian import Guardian
from conduit_daemon.service.lock import locked
from conduit_daemon.service.memory import give_back, trimmer
from conduit_daemon.service.meter import Meter
from conduit_daemon.service.notify import Notifier
from conduit_daemon.service.reload import Reloader
from conduit_daemon.service.reports import LastCrash, report_to
from conduit_daemon.service.signals import Signals, answer_signals, caught
from conduit_daemon.service.takeover import Takeover
from conduit_daemon.service.tree import describe
from conduit_daemon.service.upkeep import Socket, State, Upkeep
from conduit_daemon.service.watch import Watch
from conduit_daemon.telemetry.events import EventBus
from conduit_daemon.telemetry.logging import Log, open_logging
from conduit_daemon.telemetry.masking import Masker
from conduit_daemon.telemetry.tracing import open_tracing
from supervisors import ChildSpec, DynamicSupervisor, Supervisor

__all__ = ["Daemon", "run", "serve"]

_ROSTER_SHUTDOWN: Final = 1.0
_SWITCH: Final = 0.001  # seconds that a busy thread may keep the event loop waiting
_ENDING: Final = 10.0  # seconds that a stop may take beyond those of the running calls


def run(loaded: Loaded, environ: MutableMapping[str, str] = os.environ) -> int:
    """Runs the daemon in the foreground until it is asked to stop.

    Args:
        loaded: The configuration.
        environ: Where default places are looked up, and what servers inherit the safe part of. What systemd put
            there for the daemon alone is taken out.

    Returns:
        The process' exit code: 0 asked to stop, 1 it could not start or go on; the last log line says why.
    """
    sys.setswitchinterval(_SWITCH)
    settle()
    return trio.run(serve, loaded, environ, restrict_keyboard_interrupt_to_checkpoints=True)


async def serve(loaded: Loaded, environ: MutableMapping[str, str]) -> int:
    """`run`, inside trio."""
    config = loaded.config
    bus, masker = EventBus(), Masker(loaded.secrets)
    crash = LastCrash(bus)
    with open_logging(bus, masker, format=config.log.format, level=config.log.level, environ=environ) as log:
        try:
            await Daemon(loaded, bus, masker, log, environ).run()
        except Exception as error:  # noqa: BLE001 - also a defect: whoever has to find it reads the last line
            bus.emit("daemon.failed", level="error", **crash.why(error))
            return 1
        bus.emit("daemon.stopped")
        return 0


class Daemon:
    """What the application owns, and the tree over it.

    Args:
        loaded: The configuration.
        bus: Where events go.
        masker: Masks secrets in what servers write.
        log: Whose level can be changed.
        environ: Where default places are looked up; what is systemd's is taken out.

    Raises:
        DaemonError: A hook cannot be loaded, or the sockets that systemd passed cannot be used.
    """

    def __init__(
        self,
        loaded: Loaded,
        bus: EventBus,
        masker: Masker,
        log: Log,
        environ: MutableMapping[str, str],
    ) -> None:
        config = loaded.config
        self._notifier = Notifier.take(environ)
        self._passed = take_sockets(environ)
        self._environ = environ
        self._bus = bus
        self._masker = masker
        self._log = log
        self._feed = EventFeed(bus, masker)
        self._version = installed_version("conduit-daemon")
        self._stopping = trio.Event()
        self._hurrying = trio.Event()
        self._stopped_by = math.inf
        self._state = state_directory(config, environ)
        self._config = Published(config)
        self._limits = Published(config.limits)
        self._catalogue = Published(Catalogue())
        self._announced = Published(ToolSet())
        self._policy = Published(compile_policy(config.policy, config.trusted))
        self._audit = Audit(self._state, config.audit, bus, masker)
        self._governance = Governance(self._state, bus, hooks=load_hooks(config.hooks, loaded.folder))
        self._governance.pins.on_change = _tell_hub
        self._guardian = Guardian(bus)
        self._connections: set[Connection] = set()
        self._gate = Gate(
            catalogue=self._catalogue,
            policy=self._policy,
            ports={},
            limits=config.limits,
            bus=bus,
            recorder=self._audit,
            governance=self._governance,
            masker=masker,
        )
        self._upkeep = Upkeep(bus)
        self._gate.problems += [self._audit.problem, log.problem, self._governance.problem, self._upkeep.problem]
        self._gate.configure(config)
        self._clients = ClientFactory(
            self._config,
            self._gate.ports,
            settings=self._settings,
            warden=self._guardian,
            bus=bus,
            state=self._state,
            on_change=_tell_hub,
        )
        self._roster = Roster(
            self._config,
            self._gate.ports,
            new_client=self._clients.client,
            new_port=self._clients.port,
            on_port=self._gate.configure_server,
            idle=self._gate.idle,
            on_change=_tell_hub,
        )
        self._takeover = Takeover(
            loaded,
            environ,
            config=self._config,
            limits=self._limits,
            policy=self._policy,
            gate=self._gate,
            audit=self._audit,
            log=log,
            masker=masker,
            bus=bus,
            on_change=self._configuration_changed,
        )
        self._reloader = Reloader(
            loaded,
            environ,
            apply=self._takeover.apply,
            passed={name: Path(sock.getsockname()) for name, sock in self._passed.items()},
            clean=masker.mask,
            bus=bus,
            notifier=self._notifier,
        )
        self._meter = Meter(
            self._gate, self._reloader, self._audit, log, version=self._version, connections=self._connections
        )

    async def run(self) -> None:
        """Serves until asked to stop, then stops in order.

        Raises:
            DaemonError: It cannot start.
            SupervisorExit: The tree gave up.
        """
        async with AsyncExitStack() as stack:
            signals = stack.enter_context(caught())
            lock = stack.enter_context(locked(self._state, self._guardian.token))
            self._reloader.warn()
            self._governance.load()
            listeners = open_listeners(self._config.current, self._environ, self._passed)
            for listener in listeners:
                stack.callback(listener.close)
            self._gate.tracer = await stack.enter_async_context(
                open_tracing(self._bus, self._masker, version=self._version, environ=self._environ)
            )
            await stack.enter_async_context(self._meter.endpoint(self._config.current.metrics.listen))
            stack.push_async_callback(self._guardian.close)
            await self._guardian.start()
            if lock.former is not None:
                self._guardian.end_former(lock.former)
            stack.enter_context(report_to(self._bus))
            state = State(lock, self._governance, self._clients)
            self._upkeep.belongings = [state, self._audit, *map(Socket, listeners)]
            children = self._children(listeners, signals)
            await stack.enter_async_context(supervisors.open_supervisor(children, name="root"))
            self._bus.emit(
                "daemon.started",
                version=self._version,
                pid=os.getpid(),
                agent_socket=str(listeners[0].path),
                control_socket=str(listeners[1].path),
                servers=len(self._gate.ports),
            )
            self._notifier.ready(self._meter.health())
            await self._stopping.wait()
            self._notifier.stopping(self._config.current.limits.shutdown_timeout + _ENDING, "Stopping.")
            for listener in listeners:
                listener.close()
            await self._gate.drain(self._config.current.limits.shutdown_timeout, self._hurrying)

    def stop(self, why: str) -> None:
        """Asks the daemon to stop: running calls may finish; asked a second time, they may not."""
        if self._stopping.is_set():
            self._hurrying.set()
            self._stopped_by = trio.current_time()
            return
        self._bus.emit("daemon.stopping", reason=why, running=len(self._gate.flights))
        self._stopped_by = trio.current_time() + self._config.current.limits.shutdown_timeout
        self._gate.stop()
        self._reloader.close()
        self._stopping.set()

    def _configuration_changed(self) -> None:
        self._upkeep.hurry()
        _tell_hub("")

    def _children(self, listeners: list[Listener], signals: Signals) -> list[ChildSpec]:
        rpc = RpcServer(listeners, self._gate, self._config, self._announced, self._connections)
        rpc.methods = Methods(
            self._gate,
            self._config,
            self._feed,
            version=self._version,
            stop=lambda: self.stop("conduit/shutdown"),
            set_level=self._log.set_level,
            standing=self._reloader.standing,
            edits=ServerEdits(read=self._takeover.read_server, apply=self._takeover.change_servers),
            connections=self._connections,
            tree=lambda: describe("root"),
            more={
                **GovernanceMethods(self._gate, self._config, self._audit, self._connections).handlers,
                "conduit/reload": reload_method(self._reloader.reload),
                "conduit/metrics": metrics_method(self._meter.render),
            },
        )
        return [
            ChildSpec(id="audit", start=lambda: self._audit.run),
            ChildSpec(id="approvals", start=lambda: self._governance.run),
            ChildSpec(id="clients", start=lambda: DynamicSupervisor(name="clients"), type="supervisor"),
            ChildSpec(id="hub", start=self._hub),
            ChildSpec(id="rpc", start=rpc.supervisor, type="supervisor"),
            ChildSpec(id="service", start=partial(self._service, signals, rpc), type="supervisor"),
        ]

    def _hub(self) -> Hub:
        return Hub(
            self._config,
            self._gate.ports,
            self._catalogue,
            self._announced,
            self._gate,
            self._bus,
            self._governance.pins.withheld,
        )

    def _service(self, signals: Signals, rpc: RpcServer) -> Supervisor:
        async def answer() -> None:
            await answer_signals(signals, self.stop, self._reloader.ask)

        return Supervisor(
            [
                ChildSpec(id="guardian", start=lambda: self._guardian.run),
                ChildSpec(id="roster", start=lambda: self._roster.run, shutdown=_ROSTER_SHUTDOWN),
                ChildSpec(id="instances", start=lambda: self._clients.instances.run, shutdown=_ROSTER_SHUTDOWN),
                ChildSpec(id="reload", start=lambda: self._reloader.run),
                ChildSpec(id="upkeep", start=lambda: self._upkeep.run),
                ChildSpec(id="watch", start=lambda: Watch(self._config, self._reloader).run),
                ChildSpec(id="clocks", start=lambda: self._clients.sleep.run),
                ChildSpec(id="timers", start=lambda: self._gate.deadlines.run),
                ChildSpec(id="signals", start=lambda: answer),
                ChildSpec(id="memory", start=lambda: partial(give_back, lambda: self._gate.total, trimmer())),
                *self._meter.children(),
                *watchdog.children(self._notifier, admit=rpc.admit, health=self._meter.health, bus=self._bus),
            ],
            name="service",
        )

    def _settings(self, server: str, wanted: ServerConfig) -> Settings:
        return Settings(
            server=server,
            config=wanted,
            limits=self._limits,
            version=self._version,
            environ=self._environ,
            clean=self._masker.mask,
            conceal=partial(self._masker.update, f"auth:{server}"),
            state=self._state,
            grace=self._grace,
        )

    def _grace(self) -> float:
        """What is left of the time to stop, for the two steps in which servers are asked to end."""
        return min(max((self._stopped_by - trio.current_time()) / 2, SHORT_GRACE), GRACE)


def _tell_hub(server: str) -> None:
    supervisors.send("hub", ClientChanged(server))
