"""Arguments shown to approvers: whole where they are small, bounded whatever they are."""

from __future__ import annotations

from typing import Any

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st

from conduit_daemon.rpc.folding import folded

JSON = st.recursive(
    st.none() | st.booleans() | st.integers(-(2**60), 2**60) | st.text(max_size=40),
    lambda inner: st.lists(inner, max_size=8) | st.dictionaries(st.text(max_size=8), inner, max_size=8),
    max_leaves=60,
)


@given(JSON)
def test_small_values_are_whole_and_any_is_bounded(value: Any) -> None:
    assert folded(value) is value
    assert len(msgspec.json.encode(folded(value, 100))) <= 2000


@pytest.mark.parametrize(
    "value",
    [
        {"text": "x" * 3_000_000},
        {"x" * 3_000_000: 1},
        {"list": list(range(500_000))},
        {"tree": [[[["leaf"] * 40] * 40] * 40] * 40},
        {str(n): {str(m): "v" * 10 for m in range(50)} for n in range(5000)},
    ],
    ids=["text", "key", "list", "tree", "tables"],
)
@pytest.mark.parametrize("limit", [1 << 14, 1 << 18])
def test_large_ones_are_cut_and_say_so(value: Any, limit: int) -> None:
    shown = msgspec.json.encode(folded(value, limit))
    assert len(shown) <= 2 * limit
    assert " more)" in shown.decode()


def test_no_large_member_crowds_out_the_small_ones_after_it() -> None:
    junk = {f"a{n}": ["z" * 4000] * 50 for n in range(40)}
    shown = folded({**junk, "to": "eve@example.com", "deep": {"list": ["x" * 90_000, "end"]}})
    assert shown["to"] == "eve@example.com"
    assert shown["deep"]["list"][1] == "end"
    assert shown["a0"][0] == "z" * 4000 or " more) " in shown["a0"][0]


def test_the_end_of_a_long_text_is_kept() -> None:
    assert folded({"command": "ls" + " " * 300_000 + "; rm -rf ~"})["command"].endswith("; rm -rf ~")


def test_no_name_takes_the_place_of_another() -> None:
    names = ["k" * 200_000 + end for end in "abc"]
    assert len(folded(dict.fromkeys([name + "!" * 2000 for name in names], 1))) == 3
