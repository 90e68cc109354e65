"""The content of a result as what a model reads: texts, and media that may stay what they are.

Nothing is cleaned or capped here (the names inside placeholders apart); `conduit_daemon.pipeline.shape` does that.
"""

from __future__ import annotations

import json
from collections.abc import Iterable, Mapping
from typing import Any, Final, Literal, get_args

import msgspec
from msgspec import UNSET

from conduit_daemon.model import ToolResult
from conduit_daemon.text.hygiene import clean_line
from conduit_daemon.text.media import Media, media_of

__all__ = ["EMPTY", "Structured", "check_structured", "compact_json", "joined", "pieces", "render_block"]

EMPTY: Final = "(empty result)"

Structured = Literal["ignore", "append", "auto", "prefer"]
"""What becomes of a result's structured content.

``ignore``: content only; ``append``: its JSON after the content; ``auto``: so unless a text says the same
already; ``prefer``: its JSON in the place of the texts, while media stay.
"""


def check_structured(structured: str) -> None:
    """Refuse an unknown mode.

    Raises:
        ValueError: `structured` is none of the four.
    """
    if structured not in get_args(Structured):
        raise ValueError(f"structured is {structured!r}, but must be one of {', '.join(get_args(Structured))}.")


def pieces(result: ToolResult, structured: Structured) -> list[str | Media]:
    """The result in its order: texts (which may be blank), and media with their placeholders."""
    rendered = [render_block(block) for block in result.content]
    if result.structured_content is UNSET or structured == "ignore":
        return rendered
    value = result.structured_content
    if structured == "prefer":
        return _preferred(result.content, rendered, compact_json(value))
    if structured == "auto" and _said_already(result.content, value):
        return rendered
    return [*rendered, compact_json(value)]


def joined(parts: Iterable[str | Media]) -> str:
    """The pieces as one text, with placeholders for media; never blank."""
    text = "\n".join(part if isinstance(part, str) else part.placeholder for part in parts)
    return text if text.strip() else EMPTY


def render_block(block: Mapping[str, Any]) -> str | Media:
    """One content block as text, or as the media that it is."""
    if not isinstance(block, Mapping):
        return f"[unsupported content: {type(block).__name__}]"
    kind = block.get("type")
    if kind == "text" and isinstance(block.get("text"), str):
        text: str = block["text"]
        return text
    if media := media_of(block):
        return media
    resource = block.get("resource")
    if kind == "resource" and isinstance(resource, dict) and isinstance(resource.get("text"), str):
        return f"[resource: {_line(resource.get('uri'))}]\n{resource['text']}"
    if kind == "resource_link":
        size = block.get("size")
        known = isinstance(size, int | float) and not isinstance(size, bool) and size >= 0
        amount = f"{size:.0f} bytes" if known else ""
        parts = (_line(block.get("name")), _line(block.get("uri")), _line(block.get("mimeType")), amount)
        return f"[resource link: {', '.join(part for part in parts if part)}]"
    return f"[unsupported content: {_line(kind) or 'unknown'}]"


def compact_json(value: Any) -> str:
    """`value` as compact JSON, whatever its strings and numbers."""
    try:
        return msgspec.json.encode(value).decode()
    except (UnicodeEncodeError, OverflowError):
        # Lone surrogates and integers over 64 bits, which JSON allows and msgspec does not.
        return json.dumps(value, separators=(",", ":"))


def _line(value: Any) -> str:
    return clean_line(value) if isinstance(value, str) else ""


def _preferred(content: list[dict[str, Any]], rendered: list[str | Media], structured_json: str) -> list[str | Media]:
    """The JSON where the first text stood (else in front), without the other texts."""
    is_text = [isinstance(block, Mapping) and block.get("type") == "text" for block in content]
    at = is_text.index(True) if True in is_text else 0
    before = rendered[:at]
    after = [part for part, text in zip(rendered[at:], is_text[at:], strict=True) if not text]
    return [*before, structured_json, *after]


def _said_already(content: list[dict[str, Any]], value: Any) -> bool:
    wrapped = isinstance(value, dict) and value.keys() == {"result"}
    for block in content:
        text = block.get("text") if isinstance(block, Mapping) and block.get("type") == "text" else None
        if not isinstance(text, str):
            continue
        if wrapped and text == value["result"]:
            return True
        try:
            said = json.loads(text)
            if _same(said, value) or (wrapped and _same(said, value["result"])):
                return True
        except (ValueError, RecursionError):
            continue
    return False


def _same(one: Any, other: Any) -> bool:
    """Whether two JSON values are equal; unlike in Python, true is not 1."""
    if isinstance(one, bool) or isinstance(other, bool):
        return one is other
    if isinstance(one, dict) and isinstance(other, dict):
        return one.keys() == other.keys() and all(_same(value, other[key]) for key, value in one.items())
    if isinstance(one, list) and isinstance(other, list):
        return len(one) == len(other) and all(map(_same, one, other))
    return bool(one == other)
