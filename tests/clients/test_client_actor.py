"""The client actor over real servers that misbehave: its states, its retries, and what calls see meanwhile."""

from __future__ import annotations

import json
import os
import random
import signal
import sys
import time
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import pytest
import trio

import supervisors
from conduit_daemon.clients.actor import Client, new_port, new_timeline
from conduit_daemon.clients.approach import Approach
from conduit_daemon.clients.clocks import SleepWatch
from conduit_daemon.clients.connection import Ended, Settings
from conduit_daemon.clients.kept import Kept, KeptListing
from conduit_daemon.clients.listing import Listing
from conduit_daemon.clients.port import ClientState, Port
from conduit_daemon.config import BackoffConfig, LimitsConfig, ServerConfig
from conduit_daemon.errors import ClientError
from conduit_daemon.messages import Explain, RestartServer, StartServer, StopServer
from conduit_daemon.published import Published
from conduit_daemon.telemetry.events import Event, EventBus
from supervisors import Backoff, ChildSpec

FAKE = Path(__file__).parents[1] / "fakes" / "stdio_server.py"
QUICK = BackoffConfig(initial=0.1, maximum=0.2)


class Warden:
    """Keeps book of sessions, as the guardian does."""

    token = "unused"

    def __init__(self) -> None:
        self.sessions: set[int] = set()

    def watch(self, session: int) -> None:
        self.sessions.add(session)

    def forget(self, session: int, entry: str) -> None:
        self.sessions.discard(session)


class Harness:
    """A supervised client, its port, and all that it told."""

    def __init__(self, directory: Path | None, behaviours: tuple[str, ...], sleep: SleepWatch | None, **config: Any):
        self.bus = EventBus()
        self.events: list[Event] = []
        self.bus.attach(self.events.append)
        self.warden = Warden()
        self.changed = trio.Event()
        self.clients: list[Client] = []
        self.config = ServerConfig(
            **{"command": sys.executable, "args": (str(FAKE), *behaviours), "backoff": QUICK, **config}
        )
        self.kept = KeptListing(directory, "fake", self.config, self.bus)
        self.port = new_port("fake", self.kept.load(), lazy=self.config.start == "lazy")
        self.timeline = new_timeline()
        self.states: list[ClientState] = []
        self._sleep = sleep

    def client(self) -> Client:
        settings = Settings(
            server="fake",
            config=self.config,
            limits=Published(LimitsConfig()),
            version="0",
            environ=os.environ,
            clean=str,
        )
        client = Client(
            settings,
            self.port,
            self.warden,
            self.bus,
            self.timeline,
            self._note,
            kept=self.kept,
            sleep=self._sleep,
        )
        self.clients.append(client)
        return client

    def _note(self, server: str) -> None:
        if not self.states or self.states[-1] != self.port.standing.state:
            self.states.append(self.port.standing.state)
        self.changed.set()
        self.changed = trio.Event()

    async def until(self, condition: Callable[[Port], bool], seconds: float = 10) -> None:
        with trio.fail_after(seconds):
            while not condition(self.port):
                with trio.move_on_after(0.05):
                    await self.changed.wait()

    async def state(self, state: ClientState, seconds: float = 10) -> None:
        await self.until(lambda port: port.standing.state == state, seconds)

    def begin(self, tool: str, arguments: dict[str, Any], **more: Any) -> tuple[Any, list[Any], trio.Event]:
        got: list[Any] = []
        done = trio.Event()

        def on_result(raw: Any, is_error: bool, error: ClientError | None) -> None:
            got.append(error if raw is None else json.loads(bytes(raw))["content"][0]["text"])
            done.set()

        return self.port.begin(tool, arguments, on_result, meta={}, **more), got, done

    async def call(self, tool: str, **arguments: Any) -> str:
        _, got, done = self.begin(tool, arguments)
        with trio.fail_after(15):
            await done.wait()
        assert len(got) == 1
        if isinstance(got[0], ClientError):
            raise got[0]
        text: str = got[0]
        return text

    async def ask(self, order: Any) -> Any:
        return await supervisors.call("client:fake", order, timeout=5)


@asynccontextmanager
async def supervised(
    *behaviours: str, directory: Path | None = None, sleep: SleepWatch | None = None, **config: Any
) -> AsyncIterator[Harness]:
    harness = Harness(directory, behaviours, sleep, **config)
    spec = ChildSpec(id="fake", start=harness.client, backoff=Backoff(initial=0.05), shutdown=10)
    async with supervisors.open_supervisor([spec], name="root"):
        yield harness
    assert not harness.warden.sessions
    assert not any(map(alive, started(harness)))


def started(harness: Harness) -> list[int]:
    return [pid for pid in (harness.port.standing.pid,) if pid]


def alive(pid: int) -> bool:
    try:
        return Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0] != "Z"
    except (FileNotFoundError, ProcessLookupError):
        return False


# ---- coming up and coming back


async def test_it_starts_without_waiting_for_its_server() -> None:
    before = trio.current_time()
    async with supervised("hang", connect_timeout=60) as client:
        assert trio.current_time() - before < 0.5
        assert client.port.standing.first
        with pytest.raises(ClientError) as raised:
            await client.call("echo", text="x")
        assert (raised.value.kind, raised.value.outcome, raised.value.retry_after) == ("unavailable", "not_sent", 1.0)
        await client.ask(StopServer())
        await client.state("stopped")


async def test_a_killed_server_comes_back_and_its_old_connection_touches_nothing() -> None:
    async with supervised() as client:
        await client.state("ready")
        first, old = client.port.standing.pid, client.port.target
        assert first is not None
        os.kill(first, signal.SIGKILL)
        await client.until(lambda port: port.target is None, 1)
        await client.state("ready")
        assert client.port.target not in (None, old)
        assert client.port.standing.pid != first
        assert client.port.restarts == 1
        assert client.states == ["connecting", "ready", "waiting", "connecting", "ready"]
        assert await client.call("echo", text="again") == "again"


async def test_a_late_word_of_an_old_connection_changes_nothing() -> None:
    async with supervised() as client:
        await client.state("ready")
        old = client.port.target._observer  # type: ignore[union-attr]
        await client.ask(RestartServer())
        await client.until(lambda port: port.restarts == 1 and port.standing.state == "ready")
        port = client.port
        before = (port.standing, port.target, port.listing)
        old.on_lost(Ended(kind="lost", reason="late"))
        old.on_listing(Listing())
        old.on_started(1)
        assert before == (port.standing, port.target, port.listing)


async def test_failures_in_a_row_open_the_circuit_and_calls_are_told_when_to_come_again() -> None:
    async with supervised("exit=7", protocol="2025-11-25") as client:
        await client.state("open", 20)
        retries = [event.fields["retry_in"] for event in client.events if event.type == "client.retry"]
        assert len(retries) == 5
        assert all(pause <= 0.2 for pause in retries[:4])
        assert 27 <= retries[4] <= 30
        with pytest.raises(ClientError) as raised:
            await client.call("echo", text="x")
        assert raised.value.kind == "unavailable"
        assert raised.value.retry_after is not None
        assert 25 < raised.value.retry_after <= 30
        assert client.port.standing.circuit == "open"
        explained = await client.ask(Explain())
        assert explained.reason == "server fake exited with code 7 during start: no licence found"
        assert 25 < explained.next_retry <= 30
        assert explained.stderr[-1] == "no licence found"
        await client.ask(RestartServer())
        await client.until(lambda port: port.standing.state in ("connecting", "waiting"))


async def test_a_probe_closes_the_circuit_again() -> None:
    async with supervised("exit=7", protocol="2025-11-25") as client:
        await client.state("open", 20)
        client.config = ServerConfig(command=sys.executable, args=(str(FAKE),))
        client.clients[-1]._approach = Approach(_settings(client))
        client.clients[-1]._connect("the pause is over")
        assert client.port.standing.circuit == "half_open"
        await client.state("ready")
        assert client.port.standing.circuit == "closed"


def _settings(client: Harness) -> Settings:
    return Settings(
        server="fake",
        config=client.config,
        limits=Published(LimitsConfig()),
        version="0",
        environ=os.environ,
        clean=str,
    )


async def test_a_command_that_is_not_there_needs_attention_and_is_not_tried_again() -> None:
    async with supervised(command="no-such-command-anywhere") as client:
        await client.state("needs_attention")
        await trio.sleep(0.5)
        assert client.states == ["connecting", "needs_attention"]
        assert client.port.standing.retry_at is None
        await client.ask(RestartServer())
        await client.until(lambda port: client.states[-2:] == ["connecting", "needs_attention"])


async def test_an_exit_on_the_probe_is_followed_by_the_older_handshake_at_once_and_remembered() -> None:
    async with supervised("exit_on_probe") as client:
        await client.state("ready")
        assert client.port.restarts == 1
        assert not [event for event in client.events if event.type == "client.retry"]
        assert client.port.standing.pid is not None
        os.kill(client.port.standing.pid, signal.SIGKILL)
        await client.until(lambda port: port.restarts == 2 and port.standing.state == "ready")


async def test_stop_and_start_are_obeyed_at_any_time() -> None:
    async with supervised() as client:
        await client.ask(StopServer())
        await client.state("stopped")
        await client.ask(StartServer())
        await client.state("ready")
        pid = client.port.standing.pid
        await client.ask(StopServer())
        await client.state("stopped")
        assert pid is not None
        with trio.fail_after(5):
            while alive(pid):
                await trio.sleep(0.01)
        assert client.port.target is None
        with pytest.raises(ClientError, match="was stopped"):
            await client.call("echo", text="x")
        await client.ask(StartServer())
        await client.ask(RestartServer())
        await client.state("ready")


async def test_a_defect_of_the_actor_ends_its_server_and_its_supervisor_starts_both_again() -> None:
    async with supervised() as client:
        await client.state("ready")
        first = client.port.standing.pid
        _, got, done = client.begin("sleep", {"seconds": 30})
        with pytest.raises(supervisors.ServerExit):
            await supervisors.call("client:fake", "what it does not know", timeout=10)
        with trio.fail_after(5):
            await done.wait()
        assert (got[0].kind, got[0].outcome) == ("unavailable", "outcome_unknown")
        await client.until(lambda port: len(client.clients) == 2 and port.standing.state == "ready")
        assert first is not None
        assert not alive(first)
        assert client.warden.sessions == {client.port.standing.pid}
        assert await client.call("echo", text="x") == "x"
        assert [entry.event for entry in client.timeline].count("client.ready") == 2


async def test_many_that_come_back_after_a_sleep_are_spread_and_it_is_no_failure_of_theirs() -> None:
    clocks = [1000.0, 1000.0]
    sleep = SleepWatch(lambda: clocks[0], lambda: clocks[1])
    random.seed(1)
    async with supervised(sleep=sleep) as client:
        await client.state("ready")
        clocks[0] += 3600
        assert client.port.standing.pid is not None
        os.kill(client.port.standing.pid, signal.SIGKILL)
        await client.state("waiting")
        await client.until(lambda port: port.standing.retry_at is not None)
        retry = next(event for event in client.events if event.type == "client.retry")
        assert "the machine has slept" in retry.fields["reason"]
        assert 0 <= retry.fields["retry_in"] <= 5
        assert client.clients[0]._recovery.failures == 0


def test_a_sleep_is_seen_once_and_forgotten_after_a_while() -> None:
    clocks = [50.0, 20.0]
    sleep = SleepWatch(lambda: clocks[0], lambda: clocks[1])
    assert not sleep.just_woke()
    clocks[:] = [60.0, 30.0]
    assert not sleep.just_woke()
    clocks[:] = [100.0, 31.0]
    assert sleep.just_woke()
    clocks[:] = [110.0, 41.0]
    assert sleep.just_woke()
    clocks[:] = [140.0, 71.0]
    assert not sleep.just_woke()


# ---- the one retry of what was not sent


async def test_a_call_that_was_lost_unsent_is_sent_once_more_when_the_server_is_back(tmp_path: Path) -> None:
    async with supervised(f"deaf_once={tmp_path}/mark", connect_timeout=0.5) as client:
        await client.state("ready")
        first = client.port.standing.pid
        _, fills, filled = client.begin("echo", {"text": "x" * 3_000_000})
        _, got, done = client.begin("pid", {})
        with trio.fail_after(15):
            await filled.wait()
            await done.wait()
        assert fills[0].outcome == "outcome_unknown"  # a part of it was sent: never again
        assert got == [str(client.port.standing.pid)]
        assert got != [str(first)]


async def test_what_was_lost_unsent_waits_for_one_attempt_alone(tmp_path: Path) -> None:
    marks = (f"deaf_once={tmp_path}/mark", f"exit_later={tmp_path}/mark")
    async with supervised(*marks, protocol="2025-11-25", connect_timeout=0.5) as client:
        await client.state("ready")
        client.begin("echo", {"text": "x" * 3_000_000})
        _, got, done = client.begin("pid", {})
        with trio.fail_after(15):
            await done.wait()
        assert (got[0].kind, got[0].outcome) == ("unavailable", "not_sent")
        assert got[0].retry_after is not None
        assert len(client.port.held) == 0


async def test_a_call_that_is_held_can_be_cancelled_and_has_an_end_of_its_own() -> None:
    async with supervised("hang", start="lazy", connect_timeout=60, call_timeout=0.3) as client:
        client.port.standing = new_port("fake", Kept("", client.port.listing or Listing()), lazy=True).standing
        running, cancelled, _ = client.begin("echo", {"text": "x"})
        _, expired, done = client.begin("echo", {"text": "y"})
        running.cancel(ClientError("cancelled", "enough", outcome="outcome_unknown"))
        assert (cancelled[0].kind, cancelled[0].outcome) == ("cancelled", "not_sent")
        with trio.fail_after(2):
            await done.wait()
        assert (expired[0].kind, expired[0].outcome) == ("timeout", "not_sent")
        await client.ask(StopServer())


async def test_a_call_that_is_held_while_the_actor_is_dead_is_taken_up_by_the_next() -> None:
    async with supervised(start="lazy") as client:
        await client.state("idle")
        ref = supervisors.whereis("client:fake")
        assert ref is not None
        supervisors.exit(ref, supervisors.Killed())
        with trio.fail_after(5):
            while supervisors.whereis("client:fake") is not None:
                await trio.lowlevel.checkpoint()
        assert await client.call("echo", text="later") == "later"
        assert len(client.clients) == 2


async def test_a_port_that_is_closed_lets_no_held_call_wait() -> None:
    async with supervised("hang", start="lazy", connect_timeout=60) as client:
        client.port.standing = new_port("fake", Kept("", Listing()), lazy=True).standing
        _, got, _ = client.begin("echo", {"text": "x"})
        client.port.close("server fake was taken out of the configuration")
        assert (got[0].kind, got[0].outcome) == ("unavailable", "not_sent")
        assert "taken out" in got[0].message
        await client.ask(StopServer())


# ---- lazy servers and what is kept of them


async def test_a_lazy_server_is_started_once_to_learn_its_tools_and_then_by_calls_alone(tmp_path: Path) -> None:
    async with supervised(start="lazy", idle_timeout=0.4, directory=tmp_path) as client:
        await client.state("idle")
        assert client.states == ["connecting", "ready", "idle"]
        assert client.port.listing is not None
        assert client.port.standing.offered
        assert await client.call("echo", text="one") == "one"
        first = client.port.standing.pid
        assert first is not None
        await client.state("idle", 5)
        with trio.fail_after(5):
            while alive(first):
                await trio.sleep(0.01)
        assert await client.call("echo", text="two") == "two"
        assert client.port.standing.pid != first
    async with supervised(start="lazy", directory=tmp_path) as client:
        assert client.port.standing.state == "idle"
        assert [tool.name for tool in client.port.listing.tools][:2] == ["echo", "add"]  # type: ignore[union-attr]
        await trio.sleep(0.3)
        assert client.port.standing.pid is None
        answers = []
        async with trio.open_nursery() as nursery:

            async def one(i: int) -> None:
                answers.append(await client.call("echo", text=str(i)))

            for i in range(5):
                nursery.start_soon(one, i)
        assert sorted(answers) == ["0", "1", "2", "3", "4"]
        assert client.port.restarts == 0
        await trio.sleep(0.6)
        assert client.port.standing.state == "ready"  # no idle_timeout, no rest


async def test_an_idle_timeout_spares_a_server_that_works() -> None:
    async with supervised(start="lazy", idle_timeout=0.3) as client:
        await client.state("idle")
        began = time.monotonic()
        assert await client.call("sleep", seconds=1.0) == "slept"
        assert time.monotonic() - began >= 1.0
        assert client.port.standing.state == "ready"
        await client.state("idle", 3)


async def test_a_call_that_comes_while_the_server_is_put_to_rest_starts_it_again() -> None:
    async with supervised("deaf_to_term", start="lazy", idle_timeout=0.2) as client:
        await client.state("idle")  # its first life takes some seconds to end
        assert await client.call("echo", text="early") == "early"


async def test_a_lazy_server_that_cannot_start_fails_its_calls_and_says_why(tmp_path: Path) -> None:
    async with supervised(start="lazy", directory=tmp_path) as client:
        await client.state("idle")
    config = {"protocol": "2025-11-25", "start": "lazy", "env": {"FAKE_BEHAVIOURS": "exit=7"}}
    async with supervised(directory=tmp_path, **config) as client:
        assert client.port.standing.state == "idle"
        with pytest.raises(ClientError) as raised:
            await client.call("echo", text="x")
        assert (raised.value.kind, raised.value.outcome) == ("unavailable", "not_sent")
        assert "exited with code 7 during start: no licence found" in raised.value.message
        assert raised.value.retry_after is not None
        assert not client.port.standing.offered


async def test_names_of_an_eager_server_are_known_before_it_is_up_and_after_it_changed_no_more(tmp_path: Path) -> None:
    async with supervised(directory=tmp_path) as client:
        await client.state("ready")
        listing = client.port.listing
    assert (tmp_path / "listings" / "fake.json").stat().st_mode & 0o777 == 0o600
    async with supervised(directory=tmp_path) as client:
        assert client.port.listing == listing
        assert not client.port.standing.offered
    other = Harness(tmp_path, ("modern",), None)
    assert other.port.listing is None
