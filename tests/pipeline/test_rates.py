"""Token buckets: never more calls than they allow, waiting in turn, and nothing lost by who gives up."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest
import trio
from hypothesis import given
from hypothesis import strategies as st

from conduit_daemon.config import Config, LimitsConfig, PolicyConfig, RateConfig, ServerConfig
from conduit_daemon.errors import ClientError
from conduit_daemon.hub.toolset import Entry
from conduit_daemon.model import Outcome, Tool
from conduit_daemon.pipeline import start
from conduit_daemon.pipeline.rate import Rates

Make = Callable[..., Any]
ENTRY = Entry("s__send", "s", Tool(name="send"), "")
ALLOW = PolicyConfig(default="allow")


def limited(calls: int, per: float, **limits: Any) -> Config:
    return Config(policy=ALLOW, limits=LimitsConfig(rate=RateConfig(calls=calls, per=per), **limits))


@given(
    st.integers(1, 5),
    st.floats(0.5, 100),
    st.lists(st.tuples(st.floats(0, 50), st.floats(0, 30)), min_size=1, max_size=60),
)
def test_no_window_holds_more_than_a_full_bucket_and_what_flows_in(
    calls: int, per: float, steps: list[tuple[float, float]]
) -> None:
    rates, now = Rates(), 0.0
    used: list[float] = []
    refused: list[float] = []
    rates.default = RateConfig(calls=calls, per=per)
    for pause, patience in steps:
        now += pause
        try:
            token = rates.reserve("ann", ENTRY, now, patience)
        except ClientError as error:
            refused.append((error.retry_after or 0) - patience)
        else:
            assert token.wait <= patience
            used.append(now + token.wait)
    assert used == sorted(used)
    assert all(missing > -0.001 for missing in refused)
    for first in range(len(used)):
        for last in range(first, len(used)):
            allowed = calls + (used[last] - used[first]) / per * calls
            assert last - first + 1 <= allowed + 1e-6


def test_a_bucket_is_full_at_first_and_each_pair_has_its_own() -> None:
    rates = Rates()
    rates.by_server["s"] = RateConfig(calls=2, per=10)
    for who in ("ann", "bob"):
        assert [rates.reserve(who, ENTRY, 100.0, 0).wait for _ in range(2)] == [0, 0]
        with pytest.raises(ClientError) as caught:
            rates.reserve(who, ENTRY, 100.0, 0)
        assert caught.value.retry_after == 5
    assert rates.reserve("ann", ENTRY, 105.0, 0).wait == 0
    assert rates.limit_of("other") is None


def test_buckets_that_are_full_again_are_forgotten() -> None:
    rates = Rates()
    rates.default = RateConfig(calls=1, per=1)
    for number in range(20_000):
        rates.reserve(f"agent {number}", ENTRY, float(number), 0)
    assert len(rates._full_at) <= 4097


def test_no_number_of_made_up_names_takes_more_than_so_much_memory(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("conduit_daemon.pipeline.rate._MOST", 5_000)
    rates = Rates()
    rates.default = RateConfig(calls=1, per=86_400)
    refused = 0
    for number in range(10_000):
        try:
            rates.reserve(f"ann/{number}", ENTRY, 0.0, 0)
        except ClientError:
            refused += 1
    assert len(rates._full_at) == 5_001
    assert refused == 4_999  # they share one bucket, the user's
    assert not rates.reserve("bob", ENTRY, 0.0, 0).wait
    with pytest.raises(ClientError):
        rates.reserve("ann/0", ENTRY, 0.0, 0)


async def test_a_call_waits_for_its_token_within_its_time(
    pipeline: Make, autojump_clock: trio.testing.MockClock
) -> None:
    made = pipeline(limited(1, 10))
    assert (await made.run()).kind == "ok"
    began = trio.current_time()
    refused = await made.run(timeout=5)
    assert (refused.kind, refused.sent) == ("rate_limited", "not_sent")
    assert refused.error.retry_after == pytest.approx(10)
    assert trio.current_time() == began
    assert (await made.run(timeout=15)).kind == "ok"
    assert trio.current_time() - began == pytest.approx(10)
    assert (await made.run(principal="bob")).kind == "ok"


async def test_who_gives_up_gives_its_token_back(pipeline: Make, autojump_clock: trio.testing.MockClock) -> None:
    made = pipeline(limited(1, 10))
    await made.run()
    outcomes: list[Outcome] = []
    flight = start(made.call(timeout=30), made.context, outcomes.append)
    await trio.sleep(1)
    flight.cancel()
    assert outcomes[0].kind == "cancelled"
    began = trio.current_time()
    assert (await made.run(timeout=30)).kind == "ok"
    assert trio.current_time() - began == pytest.approx(9)
    assert made.server.received == [("send", {})] * 2


async def test_without_a_time_of_its_own_a_call_waits_as_long_as_silence_may_last(
    pipeline: Make, autojump_clock: trio.testing.MockClock
) -> None:
    made = pipeline(limited(1, 100, call_timeout=20))
    await made.run()
    assert (await made.run()).kind == "rate_limited"
    made = pipeline(Config(policy=ALLOW, limits=LimitsConfig(max_in_flight=1, call_timeout=20)))
    made.server.delay = 500
    outcomes: list[Outcome] = []
    start(made.call(), made.context, outcomes.append)
    began = trio.current_time()
    refused = await made.run()
    assert (refused.kind, refused.sent) == ("rate_limited", "not_sent")
    assert trio.current_time() - began == pytest.approx(20)
    await trio.sleep(500)
    assert outcomes[0].kind == "ok"
    made.server.delay = 30
    waits: list[Outcome] = []
    for _ in range(2):
        start(made.call(timeout=100), made.context, waits.append)
    await trio.sleep(70)
    assert [outcome.kind for outcome in waits] == ["ok", "ok"]
    made.server.delay = 15
    start(made.call(), made.context, waits.append)
    await trio.sleep(0)
    made.server.delay = 200
    assert (await made.run()).kind == "ok"  # the limit on waiting does not end the call itself
    assert made.gate.slots.taken == 0


async def test_a_servers_own_rate_is_in_place_of_the_general_one(pipeline: Make) -> None:
    servers = {"s": ServerConfig(command="x", rate=RateConfig(calls=3, per=1000))}
    config = Config(policy=ALLOW, servers=servers, limits=LimitsConfig(rate=RateConfig(calls=1, per=1000)))
    made = pipeline(config)
    kinds = [(await made.run(timeout=1)).kind for _ in range(4)]
    assert kinds == ["ok", "ok", "ok", "rate_limited"]


def test_a_bucket_whose_limit_has_changed_is_full_again_and_no_other() -> None:
    rates, other = Rates(), Entry("t__send", "t", Tool(name="send"), "")
    rates.configure(RateConfig(calls=1, per=3600), {"t": RateConfig(calls=1, per=3600)})
    for entry in (ENTRY, other):
        assert rates.reserve("ann", entry, 0.0, 0.0).wait == 0
    rates.configure(RateConfig(calls=10, per=1), {"t": RateConfig(calls=1, per=3600)})
    assert rates.reserve("ann", ENTRY, 0.0, 0.0).wait == 0
    with pytest.raises(ClientError) as refused:
        rates.reserve("ann", other, 0.0, 0.0)
    assert refused.value.kind == "rate_limited"
