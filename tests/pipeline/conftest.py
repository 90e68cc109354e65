"""A pipeline whose only stand-in is the server at its end, so that time can be a mock's."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import msgspec
import pytest
import trio

from conduit_daemon.clients.port import OnResult, Port, Standing
from conduit_daemon.config import Config, PolicyConfig, PolicyRule
from conduit_daemon.errors import ClientError
from conduit_daemon.hub.catalogue import Catalogue
from conduit_daemon.hub.naming import build
from conduit_daemon.model import Call, Outcome, Principal, Tool
from conduit_daemon.pipeline import Context, Gate, run
from conduit_daemon.pipeline.governance import Governance
from conduit_daemon.pipeline.hooks import Hooks
from conduit_daemon.pipeline.policy import compile_policy
from conduit_daemon.published import Published
from conduit_daemon.telemetry.events import Event, EventBus

DONE = msgspec.Raw(b'{"content":[{"type":"text","text":"done"}]}')
ASK = PolicyConfig(default="approve")


class Server:
    """A server at the end of a port: notes what reaches it, and answers as it is told."""

    def __init__(self, gate: Callable[[], Gate]) -> None:
        self.received: list[tuple[str, dict[str, Any]]] = []
        self.cancelled: list[str] = []
        self.delay = 0.0
        self.result = DONE
        self.progress: tuple[float, ...] = ()
        self._gate = gate

    def begin_call(
        self, tool: str, arguments: dict[str, Any], on_result: OnResult, *, total: float, on_progress: Any, **_: Any
    ) -> Answering:
        self.received.append((tool, arguments))
        answering = Answering(self, on_result)
        deadlines, now = self._gate().deadlines, trio.current_time()
        if on_progress is not None:
            for progress in self.progress:
                on_progress(msgspec.Raw(msgspec.json.encode({"progressToken": 7, "progress": progress})))
        deadlines.add(now + min(self.delay, total), answering.answer)
        return answering


class Answering:
    """A call at the server."""

    def __init__(self, server: Server, on_result: OnResult) -> None:
        self.server = server
        self.on_result: OnResult | None = on_result

    def answer(self) -> None:
        if self.on_result is not None:
            on_result, self.on_result = self.on_result, None
            on_result(self.server.result, False, None)

    def cancel(self, error: ClientError) -> None:
        if self.on_result is not None:
            self.server.cancelled.append(error.kind)
            on_result, self.on_result = self.on_result, None
            on_result(None, False, error)


class Pipeline:
    """A gate with one server, and what a test wants to do with it."""

    def __init__(self, folder: Path | None, config: Config, tools: list[Tool], hooks: Hooks | None) -> None:
        self.bus = EventBus()
        self.events: list[Event] = []
        self.bus.attach(self.events.append)
        self.server = Server(lambda: self.gate)
        port = Port("s", Standing(state="ready", since=0))
        port.target = self.server
        self.governance = Governance(folder, self.bus, hooks=hooks)
        self.catalogue = Published(Catalogue())
        self.policy = Published(compile_policy(config.policy))
        self.gate = Gate(
            catalogue=self.catalogue,
            policy=self.policy,
            ports={"s": port},
            limits=config.limits,
            bus=self.bus,
            governance=self.governance,
        )
        self.gate.configure(config)
        for server, wanted in config.servers.items():
            self.gate.configure_server(server, wanted)
        self.offer(*tools)
        self.context = Context(self.gate)
        self.approvals = self.governance.approvals

    def offer(self, *tools: Tool) -> None:
        toolset, _ = build([("s", list(tools))])
        self.catalogue.publish(Catalogue(offered=toolset, known=toolset))

    def rules(self, *rules: PolicyRule, default: Any = "approve") -> None:
        self.policy.publish(compile_policy(PolicyConfig(default=default, rules=rules)))

    def call(self, name: str = "s__send", principal: str = "ann", **more: Any) -> Call:
        arguments = more.pop("arguments", {})
        principal = Principal(principal)  # type: ignore[assignment]
        return Call(id=self.gate.new_call_id(), name=name, arguments=arguments, principal=principal, **more)

    async def run(self, name: str = "s__send", *, on_progress: Any = None, **more: Any) -> Outcome:
        return await run(self.call(name, **more), self.context, on_progress=on_progress)

    def types(self) -> list[str]:
        return [event.type for event in self.events]


@pytest.fixture
def pipeline_class() -> type[Pipeline]:
    """For tests that run the event loop themselves."""
    return Pipeline


@pytest.fixture
async def pipeline(nursery: trio.Nursery) -> Callable[..., Pipeline]:
    """Makes pipelines, whose timers and background work run until the test ends."""

    def make(
        config: Config | None = None,
        tools: list[Tool] | None = None,
        *,
        folder: Path | None = None,
        hooks: Hooks | None = None,
    ) -> Pipeline:
        made = Pipeline(folder, config or Config(policy=ASK), tools or [Tool(name="send"), Tool(name="list")], hooks)
        made.governance.load()
        nursery.start_soon(made.gate.deadlines.run)
        nursery.start_soon(made.governance.run)
        return made

    return make
