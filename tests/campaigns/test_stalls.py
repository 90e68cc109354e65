"""The event loop goes on whatever servers send: lines of 20 MB, floods, listings of ten thousand tools."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable
from typing import Any

import pytest

pytestmark = pytest.mark.campaign

BOUND = 50.0
LIMITS = '[limits]\nmax_result = "64MiB"\n'


class Pulse:
    """Calls a small tool all the time, on a connection of its own, and notes how long each call took."""

    def __init__(self, daemon: Any) -> None:
        self.took: list[float] = []
        self._rpc = daemon.rpc()
        self._over = threading.Event()
        self._thread = threading.Thread(target=self._beat)

    def __enter__(self) -> Pulse:
        self._thread.start()
        return self

    def __exit__(self, *exc: object) -> None:
        self._over.set()
        self._thread.join()

    def _beat(self) -> None:
        while not self._over.is_set():
            began = time.perf_counter()
            self._rpc.call("small__echo", {"text": "beat"})
            self.took.append(time.perf_counter() - began)
            time.sleep(0.005)

    def longest_ms(self) -> float:
        return round(max(self.took) * 1000, 1)


def lines(daemon: Any) -> None:
    rpc = daemon.rpc()
    for size in (20_000_000, 20_000_000, 20_000_000, 80_000_000):
        answer = rpc.ask("conduit/call", {"name": "large__big", "arguments": {"size": size}})
        assert ("result" in answer) == (size < 64 << 20)


def floods(daemon: Any) -> None:
    rpc = daemon.rpc()
    for _ in range(3):
        assert rpc.call("large__flood", {"count": 20_000})["content"][0]["text"] == "flooded"


def listings(daemon: Any) -> None:
    rpc = daemon.rpc()
    for params in ({}, {"provider": "anthropic"}, {"provider": "openai", "api": "responses"}, {"provider": "gemini"}):
        assert len(rpc.result("conduit/tools", params)["tools"]) >= 9_900
    assert len(rpc.result("tools/list")["tools"]) >= 9_900
    rpc.call("many__reveal")
    daemon.wait_until(lambda: len(rpc.result("tools/list")["tools"]) == 9_936, 20)


def prefixes(daemon: Any) -> None:
    """Each is another toolset: more of them than are remembered."""
    rpc = daemon.rpc()
    formats = ({}, {"provider": "anthropic"}, {"provider": "openai", "api": "responses"}, {"provider": "gemini"})
    for number in range(24):
        params = {**formats[number % 4], "prefix": f"p{number}_"}
        assert len(rpc.result("conduit/tools", params)["tools"]) >= 9_900


@pytest.mark.parametrize("load", [lines, floods, listings, prefixes], ids=lambda load: load.__name__)
def test_nothing_stops_the_loop(
    measured: Any, fake_server: Any, stalls: Any, table: Any, load: Callable[[Any], None]
) -> None:
    servers = [fake_server("small"), fake_server("large", "more")]
    many = load in (listings, prefixes)
    if many:
        servers.append(
            fake_server("many", "tools=9900", "pages=4", "late_tool", *(["wide"] if load is prefixes else []))
        )
    daemon = measured(LIMITS, *servers)
    daemon.wait_ready("small", "large", *(["many"] if many else []), seconds=30)
    with Pulse(daemon) as pulse:
        load(daemon)
    assert daemon.stop() == 0
    found = stalls()
    longest = found[0]["ms"] if found else f"under {20}"
    table(f"stalls: {load.__name__}", [("longest stall, ms", longest), ("longest small call, ms", pulse.longest_ms())])
    long = [stall for stall in found if stall["ms"] > BOUND]
    assert not long, "\n".join(map(str, long))
