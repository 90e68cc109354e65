"""When a client tries again, with the dice in hand."""

from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from conduit_daemon.clients.recovery import Recovery
from conduit_daemon.config import BackoffConfig


def longest(low: float, high: float) -> float:
    return high


def test_pauses_double_and_the_fifth_failure_opens_the_circuit() -> None:
    recovery = Recovery(BackoffConfig(), longest)
    pauses = [recovery.failed(0) for _ in range(10)]
    assert [pause.seconds for pause in pauses] == [0.5, 1, 2, 4, 30, 60, 120, 240, 300, 300]
    assert [pause.circuit for pause in pauses] == ["closed"] * 4 + ["open"] * 6
    assert pauses[-1].failures == 10


def test_a_connection_that_held_makes_the_next_failure_the_first() -> None:
    recovery = Recovery(BackoffConfig(reset_after=10), longest)
    for _ in range(6):
        recovery.failed(0)
    assert recovery.failed(9.9).circuit == "open"
    assert recovery.failed(10).seconds == 0.5


def test_whoever_asks_for_an_attempt_now_begins_anew() -> None:
    recovery = Recovery(BackoffConfig(), longest)
    for _ in range(6):
        recovery.failed(0)
    recovery.forget()
    assert recovery.failed(0).seconds == 0.5


@given(
    st.floats(0.01, 10), st.floats(1, 10), st.floats(0.01, 1000), st.lists(st.floats(0, 100), min_size=1, max_size=40)
)
def test_a_pause_is_never_longer_than_its_bound(
    initial: float, factor: float, maximum: float, ready_for: list[float]
) -> None:
    recovery = Recovery(BackoffConfig(initial=initial, factor=factor, maximum=maximum))
    for seconds in ready_for:
        pause = recovery.failed(seconds)
        assert 0 < pause.seconds <= max(300, maximum)
        assert pause.circuit == ("open" if pause.failures >= 5 else "closed")
