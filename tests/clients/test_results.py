"""What is seen of a raw result: no more than whether it is one and whether it reports a failure."""

from __future__ import annotations

import json
from typing import Any

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st

from conduit_daemon.clients.results import inspect_result
from conduit_daemon.errors import ClientError

json_values = st.recursive(
    st.none() | st.booleans() | st.integers(-(2**53), 2**53) | st.text(),
    lambda inner: st.lists(inner, max_size=4) | st.dictionaries(st.text(), inner, max_size=4),
    max_leaves=10,
)


def inspect(text: str) -> tuple[Any, bool]:
    raw, is_error = inspect_result(msgspec.Raw(text.encode()), "s")
    return json.loads(bytes(raw)), is_error


@pytest.mark.parametrize("padding", [0, 200_000])
def test_failures_and_kinds_are_seen_in_small_and_large_results(padding: int) -> None:
    text = "x" * padding
    assert inspect(json.dumps({"content": [text], "isError": True})) == ({"content": [text], "isError": True}, True)
    assert inspect(json.dumps({"content": [text], "isError": "yes"}))[1] is False
    assert inspect(json.dumps({"a": text, "resultType": "complete"})) == ({"a": text}, False)
    for kind in ("input_required", "task", 5):
        with pytest.raises(ClientError) as raised:
            inspect(json.dumps({"a": text, "resultType": kind}))
        assert (raised.value.kind, raised.value.outcome) == ("protocol", "outcome_unknown")


@pytest.mark.parametrize("text", ["[]", "5", "null", '"text"', "[" + "1," * 50_000 + "1]"])
def test_what_is_no_object_is_no_result(text: str) -> None:
    with pytest.raises(ClientError) as raised:
        inspect(text)
    assert raised.value.kind == "protocol"


@given(st.dictionaries(st.text().filter(lambda key: key not in ("resultType", "isError")), json_values))
def test_a_result_without_a_type_is_passed_on_byte_for_byte(value: dict[str, Any]) -> None:
    data = json.dumps(value, indent=1).encode()
    raw, is_error = inspect_result(msgspec.Raw(data), "s")
    assert bytes(raw) == data
    assert not is_error
