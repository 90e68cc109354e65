"""Results as text: each kind of block, and each way to treat structured content."""

from __future__ import annotations

import base64
from typing import Any

import pytest
from msgspec import UNSET

from conduit_daemon.model import ToolResult
from conduit_daemon.text import check_structured, decode, joined, pieces, sniff
from conduit_daemon.text.rendering import Structured

PNG = base64.b64encode(b"\x89PNG\r\n\x1a\n" + bytes(4)).decode()


def text(value: str) -> dict[str, Any]:
    return {"type": "text", "text": value}


def rendered(*blocks: dict[str, Any], structured: Any = UNSET, mode: Structured = "auto") -> str:
    return joined(pieces(ToolResult(content=list(blocks), structured_content=structured), mode))


@pytest.mark.parametrize(
    ("block", "shown"),
    [
        (text("  as it is\n"), "  as it is\n"),
        ({"type": "image", "mimeType": "image/png", "data": PNG}, "[image: image/png, 12 bytes]"),
        ({"type": "image", "mimeType": "image/png", "data": "!!"}, "[image: image/png, invalid data]"),
        ({"type": "image", "mimeType": "image/png"}, "[image: image/png, invalid data]"),
        ({"type": "image", "mimeType": "image/png", "data": "aGk"}, "[image: image/png, invalid data]"),
        ({"type": "image", "data": "aGk="}, "[image: 2 bytes]"),
        ({"type": "audio", "mimeType": "audio/wav", "data": "aGk=\n"}, "[audio: audio/wav, 2 bytes]"),
        ({"type": "resource", "resource": {"uri": "file:///a", "text": "T"}}, "[resource: file:///a]\nT"),
        (
            {"type": "resource", "resource": {"uri": "file:///a", "mimeType": "a/b", "blob": "aGk="}},
            "[resource: file:///a, a/b, 2 bytes]",
        ),
        ({"type": "resource", "resource": {"uri": "file:///a", "blob": "aGk="}}, "[resource: file:///a, 2 bytes]"),
        (
            {"type": "resource", "resource": {"uri": "file:///a", "mimeType": "a/b", "blob": 5}},
            "[resource: file:///a, a/b, invalid data]",
        ),
        (
            {"type": "resource_link", "name": "N", "uri": "file:///a", "mimeType": "a/b", "size": 7},
            "[resource link: N, file:///a, a/b, 7 bytes]",
        ),
        ({"type": "resource_link", "name": "N", "uri": "file:///a"}, "[resource link: N, file:///a]"),
        ({"type": "resource_link", "name": "N", "uri": "u", "size": True}, "[resource link: N, u]"),
        ({"type": "hologram"}, "[unsupported content: hologram]"),
        ({"type": "text", "text": 5}, "[unsupported content: text]"),
        ({}, "[unsupported content: unknown]"),
        ({"type": "image", "mimeType": "a\u200b\nb", "data": "aGk="}, "[image: a b, 2 bytes]"),
    ],
)
def test_a_block(block: dict[str, Any], shown: str) -> None:
    assert rendered(block) == shown


def test_blocks_are_joined_by_line_ends_and_never_blank() -> None:
    assert rendered(text("a"), text("b")) == "a\nb"
    for blank in ((), (text(""),), (text(" "), text("\n"))):
        assert rendered(*blank) == "(empty result)"


@pytest.mark.parametrize(
    ("blocks", "value", "ignore", "append", "auto", "prefer"),
    [
        (["t"], UNSET, "t", "t", "t", "t"),
        (["t"], {"a": 1}, "t", 't\n{"a":1}', 't\n{"a":1}', '{"a":1}'),
        (['{"a": 1}'], {"a": 1}, '{"a": 1}', '{"a": 1}\n{"a":1}', '{"a": 1}', '{"a":1}'),
        (['{"a": true}'], {"a": 1}, '{"a": true}', '{"a": true}\n{"a":1}', '{"a": true}\n{"a":1}', '{"a":1}'),
        (["[1.0]"], [1], "[1.0]", "[1.0]\n[1]", "[1.0]", "[1]"),
        (["x"], {"result": "x"}, "x", 'x\n{"result":"x"}', "x", '{"result":"x"}'),
        (["5"], {"result": 5}, "5", '5\n{"result":5}', "5", '{"result":5}'),
        (["5"], {"result": True}, "5", '5\n{"result":true}', '5\n{"result":true}', '{"result":true}'),
        (["null"], None, "null", "null\nnull", "null", "null"),
        (["t"], None, "t", "t\nnull", "t\nnull", "null"),
        (["t"], [1, 2], "t", "t\n[1,2]", "t\n[1,2]", "[1,2]"),
        ([], {"a": 1}, "(empty result)", '{"a":1}', '{"a":1}', '{"a":1}'),
        (["a", "b"], {"c": 1}, "a\nb", 'a\nb\n{"c":1}', 'a\nb\n{"c":1}', '{"c":1}'),
        ([""], {}, "(empty result)", "\n{}", "\n{}", "{}"),
    ],
)
def test_structured_content(blocks: list[str], value: Any, ignore: str, append: str, auto: str, prefer: str) -> None:
    for mode, shown in (("ignore", ignore), ("append", append), ("auto", auto), ("prefer", prefer)):
        assert rendered(*map(text, blocks), structured=value, mode=mode) == shown  # type: ignore[arg-type]


def test_under_prefer_media_stay_in_their_place() -> None:
    image = {"type": "image", "mimeType": "image/png", "data": PNG}
    shown = "[image: image/png, 12 bytes]"
    assert rendered(image, text("t"), image, text("u"), structured={}, mode="prefer") == f"{shown}\n{{}}\n{shown}"


def test_values_that_other_encoders_refuse_are_rendered() -> None:
    assert rendered(structured=2**70) == str(2**70)
    assert rendered(structured={"a": "\ud800"}) == '{"a":"\\ud800"}'
    deep: Any = 1
    for _ in range(150):
        deep = [deep]
    assert rendered(text("x"), structured=deep).startswith("x\n[[[")


def test_an_unknown_mode_is_refused() -> None:
    with pytest.raises(ValueError, match="ignore, append, auto, prefer"):
        check_structured("maybe")


@pytest.mark.parametrize(
    ("raw", "kind"),
    [
        (b"\x89PNG\r\n\x1a\n...", "image/png"),
        (b"\xff\xd8\xff\xe0", "image/jpeg"),
        (b"GIF89a...", "image/gif"),
        (b"RIFF\x00\x00\x00\x00WEBPVP8 ", "image/webp"),
        (b"RIFF\x00\x00\x00\x00WAVE", None),
        (b"%PDF-1.7", "application/pdf"),
        (b"<svg>", None),
        (b"", None),
    ],
)
def test_the_bytes_say_what_they_are(raw: bytes, kind: str | None) -> None:
    assert sniff(raw) == kind


def test_base64() -> None:
    assert decode("aG\nk=") == ("aGk=", b"hi")
    assert decode("") == ("", b"")
    for bad in ("aGk", "a*k=", "aGk=xx", "aGk=aGk=", "é", None, 5):
        assert decode(bad) is None
