"""Slots are given in order, never more than there are, and none is lost."""

from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from conduit_daemon.pipeline.limits import Slots, Waiting


@given(st.integers(1, 4), st.lists(st.sampled_from(["take", "give", "leave", "more", "fewer"]), max_size=60))
def test_slots_whatever_happens(limit: int, steps: list[str]) -> None:
    slots = Slots(limit)
    holding: list[int] = []
    queue: list[tuple[int, Waiting]] = []
    served: list[int] = []

    def on_slot(number: int) -> None:
        served.append(number)
        assert queue[0][0] == number, "not the first in the queue"
        queue.pop(0)
        holding.append(number)

    for number, step in enumerate(steps):
        if step == "take":
            if slots.take_now():
                holding.append(number)
            else:
                queue.append((number, slots.queue(lambda number=number: on_slot(number))))
        elif step == "give" and holding:
            holding.pop(0)
            slots.give_back()
        elif step == "leave" and queue:
            slots.leave(queue.pop(len(queue) // 2)[1])
        elif step == "more":
            limit += 1
            slots.resize(limit)
        elif step == "fewer" and limit > 1:
            limit -= 1
            slots.resize(limit)
        assert slots.taken == len(holding)
        assert not queue or slots.taken >= limit, "somebody waits beside a free slot"
