"""Results shaped for a model: cleaned everywhere, media bounded, text cut with an exact account."""

from __future__ import annotations

import base64
import re
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from msgspec import UNSET

from conduit_daemon.model import ToolResult
from conduit_daemon.pipeline.shape import shape
from conduit_daemon.text import clean, joined, pieces

MARK = re.compile(r"\[… (\d+) bytes omitted …\]")
PNG = base64.b64encode(b"\x89PNG\r\n\x1a\n" + bytes(4)).decode()
HIDDEN = "\u200b\x1b[31m\U000e0041"


def text(value: str) -> dict[str, Any]:
    return {"type": "text", "text": value}


def test_every_string_of_a_result_is_cleaned_but_base64() -> None:
    h = HIDDEN
    shaped = shape(
        ToolResult(
            content=[
                text(f"a{h}"),
                {"type": "resource", "resource": {"uri": f"u{h}", "text": f"t{h}", "mimeType": f"m{h}"}},
                {"type": "resource", "resource": {"uri": f"u{h}", "blob": "aGk="}},
                {"type": "resource_link", "uri": f"u{h}", "name": f"n{h}", "description": f"d{h}"},
                {"type": "image", "mimeType": f"image/png{h}", "data": PNG, "annotations": {"audience": [f"x{h}"]}},
                {"type": f"new{h}", f"key{h}": f"v{h}"},
            ],
            structured_content={f"k{h}": [f"v{h}", {"n": None}]},
        )
    )
    assert shaped.content == [
        text("a"),
        {"type": "resource", "resource": {"uri": "u", "text": "t", "mimeType": "m"}},
        {"type": "resource", "resource": {"uri": "u", "blob": "aGk="}},
        {"type": "resource_link", "uri": "u", "name": "n", "description": "d"},
        {"type": "image", "mimeType": "image/png", "data": PNG, "annotations": {"audience": ["x"]}},
        {"type": "new", "key": "v"},
    ]
    assert shaped.structured_content == {"k": ["v", {"n": None}]}


def test_a_text_over_50_kib_keeps_its_head_and_its_tail() -> None:
    whole = "".join(f"{n:09}\n" for n in range(10_000))
    (block,) = shape(ToolResult(content=[text(whole)])).content
    head, omitted, tail = MARK.split(block["text"])
    assert head == whole[: int(51200 * 0.6)]
    assert tail == whole[-(51200 - int(51200 * 0.6)) :]
    assert int(omitted) == len(whole) - 51200


def test_a_text_of_exactly_the_cap_is_left_alone() -> None:
    assert shape(ToolResult(content=[text("x" * 51200)])).content == [text("x" * 51200)]


def test_several_texts_are_cut_as_one_and_media_stay_in_place() -> None:
    image = {"type": "image", "mimeType": "image/png", "data": PNG}
    shaped = shape(ToolResult(content=[text("abc"), text("def"), image, text("ghi" * 9), text("jkl")]), max_text=10)
    assert shaped.content == [text("abc\nde[… 28 bytes omitted …]"), image, text("\njkl")]


def test_what_lies_wholly_within_the_gap_is_gone() -> None:
    image = {"type": "image", "mimeType": "image/png", "data": PNG}
    shaped = shape(ToolResult(content=[text("a" * 6), image, text("b" * 50), image, text("c" * 4)]), max_text=10)
    assert shaped.content == [text("a" * 6), image, text("[… 50 bytes omitted …]"), image, text("c" * 4)]


@pytest.mark.parametrize(
    ("mode", "shown"),
    [
        ("auto", '{"a":"b[… 13 bytes omitted …]bbb"}'),
        ("append", '{"a":"b[… 35 bytes omitted …]bbb"}'),
        ("prefer", '{"a":"b[… 13 bytes omitted …]bbb"}'),
    ],
)
def test_structured_content_is_cut_as_json(mode: Any, shown: str) -> None:
    said = '{"a":"bbbbbbbbbbbbbbb"}'
    shaped = shape(ToolResult(content=[text(said)], structured_content={"a": "b" * 15}), max_text=12, structured=mode)
    assert shaped.structured_content is UNSET
    assert re.sub(r"\d+", "N", joined(pieces(shaped, mode))) == re.sub(r"\d+", "N", shown)


def test_ignored_structured_content_counts_nothing() -> None:
    given_result = ToolResult(content=[text("x")], structured_content={"a": "b" * 100})
    assert shape(given_result, max_text=10, structured="ignore").structured_content == {"a": "b" * 100}


def test_a_failure_is_cut_with_its_content_even_where_structured_is_preferred() -> None:
    failed = ToolResult(content=[text("x" * 100)], structured_content={}, is_error=True)
    shaped = shape(failed, max_text=10, structured="prefer")
    assert shaped.is_error
    assert "omitted" in shaped.content[0]["text"]


def test_media_over_the_limits_and_invalid_ones_become_placeholders() -> None:
    image = {"type": "image", "mimeType": "image/png", "data": PNG}
    large = {"type": "audio", "mimeType": "audio/wav", "data": base64.b64encode(bytes(13)).decode()}
    broken = {"type": "image", "mimeType": "image/png", "data": "?"}
    shaped = shape(ToolResult(content=[large, broken, *[image] * 22]), max_media_bytes=12)
    assert shaped.content[:2] == [text("[audio: audio/wav, 13 bytes]"), text("[image: image/png, invalid data]")]
    assert shaped.content[2:22] == [image] * 20
    assert shaped.content[22:] == [text("[image: image/png, 12 bytes]")] * 2


def test_five_mebibytes_are_allowed_and_a_byte_more_is_not() -> None:
    blocks = [
        {"type": "image", "mimeType": "image/png", "data": base64.b64encode(bytes(size)).decode()}
        for size in (5 * 2**20, 5 * 2**20 + 1)
    ]
    assert [block["type"] for block in shape(ToolResult(content=blocks)).content] == ["image", "text"]


def test_values_nested_too_deeply_are_told_and_left_out() -> None:
    deep: Any = "x"
    for _ in range(5000):
        deep = [deep]
    shaped = shape(ToolResult(content=[{"type": "odd", "v": deep}], structured_content=deep))
    assert [block["type"] for block in shaped.content] == ["text", "text"]
    assert "200" in shaped.content[0]["text"]
    assert shaped.structured_content is UNSET


@pytest.mark.parametrize("limits", [{"max_text": -1}, {"max_media": -1}, {"max_media_bytes": -1}, {"structured": "no"}])
def test_bad_limits_are_refused(limits: dict[str, Any]) -> None:
    with pytest.raises(ValueError):
        shape(ToolResult(), **limits)


def test_the_given_result_is_not_altered() -> None:
    block = text(f"a{HIDDEN}")
    shape(ToolResult(content=[block], structured_content={"k": HIDDEN}))
    assert block == text(f"a{HIDDEN}")


@settings(max_examples=300, deadline=None)
@given(st.lists(st.text(max_size=30), max_size=5), st.integers(0, 60), st.none() | st.just({"k": "wert"}))
def test_the_account_is_exact(texts: list[str], limit: int, value: Any) -> None:
    result = ToolResult(content=[text(one) for one in texts], structured_content=UNSET if value is None else value)
    cleaned = ToolResult(content=[text(clean(one)) for one in texts], structured_content=result.structured_content)
    whole = "\n".join(part for part in pieces(cleaned, "auto") if isinstance(part, str)).encode()
    shaped = "\n".join(part for part in pieces(shape(result, max_text=limit), "auto") if isinstance(part, str))
    if len(whole) <= limit:
        assert shaped.encode() == whole
        return
    head, omitted, tail = MARK.split(shaped)
    assert len(head.encode()) + len(tail.encode()) <= limit
    assert len(head.encode()) + len(tail.encode()) + int(omitted) == len(whole)
    assert whole.startswith(head.encode())
    assert whole.endswith(tail.encode())
