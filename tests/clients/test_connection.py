"""One connection to real servers that misbehave: how it comes up, what calls see, and how it ends."""

from __future__ import annotations

import json
import math
import os
import signal
import sys
import time
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import pytest
import trio
from in_process import Held, NoWarden

from conduit_daemon.clients.connection import Connection, Ended, Observer, Settings
from conduit_daemon.clients.listing import Listing
from conduit_daemon.clients.session import Era, Negotiated
from conduit_daemon.config import LimitsConfig, ServerConfig
from conduit_daemon.errors import ClientError
from conduit_daemon.published import Published
from conduit_daemon.telemetry.events import Event, EventBus

FAKE = Path(__file__).parents[1] / "fakes" / "stdio_server.py"


class Watch(Observer):
    def __init__(self) -> None:
        self.pid = 0
        self.ready = trio.Event()
        self.lost = trio.Event()
        self.negotiated: Negotiated | None = None
        self.listings: list[Listing] = []
        self.relisted = trio.Event()
        self.lost_at: float | None = None

    def on_started(self, pid: int) -> None:
        self.pid = pid

    def on_ready(self, connection: Connection, negotiated: Negotiated, listing: Listing) -> None:
        self.negotiated = negotiated
        self.listings.append(listing)
        self.ready.set()

    def on_listing(self, listing: Listing) -> None:
        self.listings.append(listing)
        self.relisted.set()

    def on_lost(self, ended: Ended) -> None:
        if self.lost_at is None:
            self.lost_at = trio.current_time()
        self.lost.set()


class Harness(Held):
    """A connection to a fake, its watch, the events and how it ended."""

    def __init__(self, behaviours: tuple[str, ...], era: Era, **config: Any) -> None:
        self.bus = EventBus()
        self.events: list[Event] = []
        self.bus.attach(self.events.append)
        self.watch = Watch()
        limits = config.pop("limits", LimitsConfig())
        server = ServerConfig(**{"command": sys.executable, "args": (str(FAKE), *behaviours), **config})
        settings = Settings(
            server="fake",
            config=server,
            limits=Published(limits),
            version="0",
            environ=os.environ,
            clean=lambda text: text,
        )
        super().__init__(Connection(settings, era, NoWarden(), self.bus, self.watch))


@asynccontextmanager
async def connected(*behaviours: str, era: Era = "auto", wait: bool = True, **config: Any) -> AsyncIterator[Harness]:
    harness = Harness(behaviours, era, **config)
    async with trio.open_nursery() as nursery:
        nursery.start_soon(harness.hold)
        if wait:
            with trio.fail_after(15):
                await harness.watch.ready.wait()
        yield harness
        nursery.cancel_scope.cancel()


async def ended(*behaviours: str, era: Era = "auto", **config: Any) -> Harness:
    harness = Harness(behaviours, era, **config)
    with trio.fail_after(30):
        await harness.hold()
    return harness


def alive(pid: int) -> bool:
    try:
        with open(f"/proc/{pid}/stat") as file:
            return file.read().rpartition(")")[2].split()[0] != "Z"
    except FileNotFoundError:
        return False


async def test_a_server_of_the_older_era_is_ready_and_answers() -> None:
    async with connected() as server:
        assert server.watch.negotiated is not None
        assert (server.watch.negotiated.version, server.watch.negotiated.modern) == ("2025-11-25", False)
        assert "echo" in [tool.name for tool in server.watch.listings[0].tools]
        assert await server.call("echo", {"text": "hi"}) == ({"content": [{"type": "text", "text": "hi"}]}, False)


async def test_a_server_of_the_newer_era_is_called_with_its_context_and_answers_without_result_type() -> None:
    async with connected("modern") as server:
        assert server.watch.negotiated is not None
        assert (server.watch.negotiated.version, server.watch.negotiated.modern) == ("2026-07-28", True)
        meta = {"io.modelcontextprotocol/protocolVersion": "forged", "own": 1}
        result, is_error = await server.call("echo", {"text": "hi"}, meta=meta)
        assert result == {"content": [{"type": "text", "text": "hi"}]}
        assert not is_error


async def test_no_caller_has_its_progress_told_to_another() -> None:
    async with connected() as server:
        heard: list[Any] = []
        sleeping, _, slept = server.begin("sleep", {"seconds": 5}, on_progress=heard.append)
        for token in range(12):  # ids are counted from the first request on
            await server.call("tick", {"times": 1}, meta={"progressToken": token})
        assert not slept.is_set()
        sleeping.cancel(ClientError("cancelled", "Enough."))
        await slept.wait()
        assert heard == []


@pytest.mark.parametrize("how", ["SIGKILL", "SIGSEGV"])
async def test_a_signal_ends_the_call_with_its_name_and_the_last_words(how: str) -> None:
    async with connected() as server:
        _, sleeping, slept = server.begin("sleep", {"seconds": 30})
        started = trio.current_time()
        with pytest.raises(ClientError) as raised:
            await server.call("die", {"how": how})
        await slept.wait()
        assert trio.current_time() - started < 1
        for error in (raised.value, sleeping[0]):
            assert (error.kind, error.outcome) == ("unavailable", "outcome_unknown")
            assert error.data == {"signal": how, "stderr": [f"dying of {how}"]}
        await server.over.wait()
        assert server.ended is not None
        assert server.ended.kind == "lost"
        assert server.ended.reason == f"server fake was ended by {how}: dying of {how}"


async def test_an_exit_while_idle_is_noticed_within_100_ms() -> None:
    took = []
    for _ in range(3):
        async with connected() as server:
            os.kill(server.watch.pid, signal.SIGKILL)
            killed = trio.current_time()
            with trio.fail_after(5):
                await server.watch.lost.wait()
            assert server.watch.lost_at is not None
            took.append(server.watch.lost_at - killed)
    assert min(took) < 0.1, took


async def test_a_grandchild_that_holds_the_output_neither_hides_the_exit_nor_survives() -> None:
    async with connected("grandchild") as server:
        found = [int(pid) for pid in os.listdir("/proc") if pid.isdigit() and _parent(pid) == server.watch.pid]
        assert len(found) == 1
        with pytest.raises(ClientError) as raised:
            await server.call("die", {"how": "7"})
        assert raised.value.data["exit_code"] == 7
        await server.over.wait()
        with trio.fail_after(1):  # a killed process takes a moment to be gone
            while alive(found[0]):
                await trio.sleep(0.01)


def _parent(pid: str) -> int:
    try:
        with open(f"/proc/{pid}/stat") as file:
            return int(file.read().rpartition(")")[2].split()[1])
    except (FileNotFoundError, ProcessLookupError):
        return 0


async def test_an_exit_at_start_is_one_sentence() -> None:
    server = await ended("exit=7")
    assert server.ended is not None
    assert server.ended.reason == "server fake exited with code 7 during start: no licence found"
    assert server.ended.kind == "probe"  # it may have been the question for the newer era
    server = await ended("exit=7", era="legacy")
    assert server.ended is not None
    assert server.ended.kind == "start"


async def test_an_exit_on_the_probe_is_told_from_other_exits() -> None:
    assert (await ended("exit_on_probe")).ended.kind == "probe"  # type: ignore[union-attr]
    async with connected("exit_on_probe", era="legacy") as server:
        assert (await server.call("echo", {"text": "a"}))[1] is False


async def test_a_hang_at_the_handshake_ends_with_connect_timeout() -> None:
    server = await ended("hang", connect_timeout=0.6)
    assert server.ended is not None
    assert server.ended.kind == "start"
    assert server.ended.reason == "server fake did not answer the handshake within 0.6 s"
    assert not alive(server.watch.pid)


@pytest.mark.parametrize(
    ("config", "reason"),
    [
        ({"command": "no-such-command-anywhere"}, "the command 'no-such-command-anywhere' was not found"),
        ({"cwd": Path("/no/such/folder")}, "its directory /no/such/folder does not exist"),
        ({"command": "/etc/passwd", "args": ()}, "'/etc/passwd': Permission denied"),
    ],
)
async def test_what_cannot_be_started_needs_attention(config: dict[str, Any], reason: str) -> None:
    server = await ended(**config)
    assert server.ended is not None
    assert server.ended.kind == "misconfigured"
    assert server.ended.reason.endswith(reason)


async def test_garbage_on_the_output_is_reported_and_calls_go_on() -> None:
    async with connected("banner") as server:
        for i in range(5):
            result, _ = await server.call("echo", {"text": str(i)})
            assert result["content"][0]["text"] == str(i)
        reports = [event for event in server.events if event.type == "client.protocol"]
        assert 3 <= len(reports) < 12
        assert any("\\x1b[31m" in event.fields["line"] for event in reports)


async def test_a_result_over_the_limit_fails_its_call_and_the_session_lives() -> None:
    async with connected(limits=LimitsConfig(max_result=100_000)) as server:
        with pytest.raises(ClientError) as raised:
            await server.call("big", {"size": 20_000_000})
        assert raised.value.kind == "too_large"
        assert (await server.call("big", {"size": 90_000}))[1] is False


@pytest.mark.parametrize(
    ("kind", "error"),
    [
        ("error", "server_error"),
        ("surrogate", "protocol"),
        ("deep", "protocol"),
        ("list", "protocol"),
        ("input", "protocol"),
        ("nothing", "protocol"),
    ],
)
async def test_a_broken_answer_fails_its_call_alone(kind: str, error: str) -> None:
    async with connected() as server:
        with pytest.raises(ClientError) as raised:
            await server.call("fail", {"kind": kind})
        assert raised.value.kind == error
        assert (await server.call("echo", {"text": "still here"}))[1] is False


async def test_a_failure_that_the_tool_reports_is_a_result() -> None:
    async with connected() as server:
        assert (await server.call("fail", {"kind": "plain"}))[1] is True
        assert (await server.call("fail", {"kind": "carriage"}))[0] == {"content": []}


async def test_a_cancelled_call_is_cancelled_at_the_server() -> None:
    async with connected() as server:
        running, got, _ = server.begin("sleep", {"seconds": 30})
        request_id = running.pending.request_id
        running.cancel(ClientError("cancelled", "enough", outcome="outcome_unknown"))
        assert got[0].kind == "cancelled"
        result, _ = await server.call("received", {})
        assert json.loads(result["content"][0]["text"]) == [request_id]


async def test_a_call_that_waited_before_it_was_written_may_have_run() -> None:
    async with connected() as server:
        calls = [server.begin("sleep", {"seconds": 30}) for _ in range(3)]  # the first is written at once
        await server.call("echo", {"text": "what was begun before has been read"})
        os.kill(server.watch.pid, signal.SIGKILL)
        for _, got, done in calls:
            with trio.fail_after(5):
                await done.wait()
            assert (got[0].kind, got[0].outcome) == ("unavailable", "outcome_unknown")


async def test_progress_comes_to_who_asked() -> None:
    async with connected() as server:
        seen: list[Any] = []
        await server.call("tick", {"times": 3}, on_progress=lambda raw: seen.append(json.loads(bytes(raw))["progress"]))
        assert seen == [1, 2, 3]


async def test_a_server_that_stops_reading_does_not_hold_anybody_up() -> None:
    async with connected("deaf", connect_timeout=1.0) as server:
        started = trio.current_time()
        _, got, _ = server.begin("echo", {"text": "x" * 1_000_000})
        behind, unsent, _ = server.begin("echo", {"text": "y"})
        behind.cancel(ClientError("cancelled", "enough", outcome="outcome_unknown"))
        assert unsent[0].outcome == "not_sent"
        with trio.fail_after(10):
            await server.over.wait()
        assert server.ended is not None
        assert server.ended.reason == "server fake left its input unread for 1 s"
        assert got[0].kind == "unavailable"
        assert trio.current_time() - started < 8


async def test_malformed_tools_are_reported_and_the_rest_serve() -> None:
    async with connected("malformed_tool") as server:
        listing = server.watch.listings[0]
        assert len(listing.tools) == 9
        assert [dropped.members for dropped in listing.dropped] == [(("fake", "broken"),), (("fake", ""),)]


@pytest.mark.parametrize("behaviour", ["pages=4", "modern"])
async def test_every_page_is_read(behaviour: str) -> None:
    async with connected(behaviour, "tools=50") as server:
        assert len(server.watch.listings[0].tools) == 59


async def test_a_cursor_that_does_not_advance_keeps_what_came() -> None:
    async with connected("circle") as server:
        listing = server.watch.listings[0]
        assert listing.note is not None
        assert "circle" in listing.note
        assert len(listing.tools) == 18


async def test_five_changes_at_once_are_one_new_listing() -> None:
    async with connected("late_tool") as server:
        await server.call("reveal", {})
        with trio.fail_after(5):
            await server.watch.relisted.wait()
        await trio.sleep(0.4)
        assert len(server.watch.listings) == 2
        assert server.watch.listings[1].tools[-1].name == "late"


async def test_stderr_is_logged_slowed_and_kept() -> None:
    async with connected("noise=1000") as server:
        with trio.fail_after(10):
            while not server.connection.stderr or server.connection.stderr[-1] != "noise 999":
                await trio.sleep(0.01)
        lines = [event.fields["line"] for event in server.events if event.type == "client.stderr"]
        assert 150 < len(lines) < 400
        assert server.connection.stderr[-1] == "noise 999"
        assert len(server.connection.stderr) == 100


@pytest.mark.parametrize("behaviour", [(), ("deaf_to_term",)])
async def test_stopping_leaves_no_process(behaviour: tuple[str, ...]) -> None:
    started: Callable[[], float] = trio.current_time
    async with connected(*behaviour) as server:
        pid = server.watch.pid
        began = started()
    assert not alive(pid)
    assert started() - began < 5.5


@pytest.mark.parametrize("what", ["input", "output"])
async def test_a_server_that_closes_a_pipe_and_lives_on_is_ended(what: str) -> None:
    async with connected("more") as server:
        await server.call("close", {"what": what})
        errors = []
        if what == "input":
            _, errors, _ = server.begin("echo", {"text": "unsent"})
        with trio.fail_after(5):
            await server.over.wait()
        assert server.ended is not None
        assert (server.ended.kind, server.ended.reason) == ("lost", f"server fake closed its {what}")
        assert [(error.kind, error.outcome) for error in errors] == [("unavailable", "not_sent")] * len(errors)
        assert not alive(server.watch.pid)


async def test_content_and_fields_that_nobody_knows_are_passed_on_untouched() -> None:
    async with connected("more") as server:
        result, is_error = await server.call("strange", {})
        assert not is_error
        assert result == {
            "content": [{"type": "hologram", "depth": 3, "big": 2**70}, {"type": "text", "text": "a", "new": None}],
            "futureField": {"a": [1]},
        }


async def test_progress_out_of_order_comes_as_it_was_sent() -> None:
    async with connected("more") as server:
        seen: list[Any] = []
        await server.call("scramble", {}, on_progress=lambda raw: seen.append(json.loads(bytes(raw))["progress"]))
        assert seen == [3, 1, 2, 2]


async def test_twenty_thousand_notifications_hold_nobody_up_and_take_bounded_memory() -> None:
    async with connected("more") as server:
        _, got, done = server.begin("flood", {"count": 20_000})
        with trio.fail_after(15):
            await done.wait()
        assert got[0][1] is False
        assert (await server.call("echo", {"text": "after"}))[1] is False
        assert server.connection._sdk._told.statistics().current_buffer_used <= 256


async def test_more_than_ten_thousand_tools_are_cut_and_said_to_be() -> None:
    async with connected("tools=10050", "pages=5") as server:
        listing = server.watch.listings[0]
        assert len(listing.tools) == 10_000
        assert listing.note == "it lists more than 10000 tools"


async def test_a_change_of_tools_is_heard_in_the_newer_era_too() -> None:
    async with connected("modern", "late_tool") as server:
        await trio.sleep(0.2)
        await server.call("reveal", {})
        with trio.fail_after(5):
            await server.watch.relisted.wait()
        await trio.sleep(0.3)
        assert [listing.tools[-1].name for listing in server.watch.listings] == ["reveal", "late"]


async def test_a_subscription_that_ended_is_made_again() -> None:
    async with connected("modern", "listen_ends", "late_tool") as server:
        await server.call("reveal", {})
        with trio.fail_after(5):  # the list is read again with each new subscription
            while server.watch.listings[-1].tools[-1].name != "late":
                await server.watch.relisted.wait()
                await trio.sleep(0.05)


async def test_a_line_of_twenty_megabytes_costs_time_in_proportion() -> None:
    async with connected(limits=LimitsConfig(max_result=64_000_000)) as server:
        took = []
        for size in (5_000_000, 20_000_000):
            best = math.inf
            for _ in range(3):
                began = time.perf_counter()
                result, _ = await server.call("big", {"size": size})
                best = min(best, time.perf_counter() - began)
            assert len(result["content"][0]["text"]) == size
            took.append(best)
        assert took[1] < took[0] * 10, took  # four times as long; a quadratic reader needs sixteen times


async def test_cancelling_at_a_server_that_reads_nothing_is_immediate() -> None:
    async with connected("deaf", connect_timeout=20) as server:
        server.begin("echo", {"text": "x" * 1_000_000})
        waiting = [server.begin("echo", {"text": "y"}) for _ in range(50)]
        began = time.perf_counter()
        for running, _, _ in waiting:
            running.cancel(ClientError("cancelled", "enough", outcome="outcome_unknown"))
        assert time.perf_counter() - began < 0.05
        assert {got[0].outcome for _, got, _ in waiting} == {"not_sent"}
