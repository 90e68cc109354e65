"""Results made fit for a model's context: cleaned, with a bound on text and on media (pure)."""

from __future__ import annotations

from typing import Any, Final

import msgspec
from msgspec import UNSET

from conduit_daemon.model import ToolResult
from conduit_daemon.pipeline.nesting import MAX_DEPTH, too_deep
from conduit_daemon.text.hygiene import clean_json
from conduit_daemon.text.media import Media, media_of
from conduit_daemon.text.rendering import Structured, check_structured, pieces

__all__ = ["MAX_MEDIA", "MAX_MEDIA_BYTES", "MAX_TEXT", "shape"]

MAX_TEXT: Final = 50 * 1024
MAX_MEDIA: Final = 20
MAX_MEDIA_BYTES: Final = 5 * 1024 * 1024

_HEAD_SHARE = 0.6
_CONTINUATION = range(0x80, 0xC0)
_DANGLING = "\u200c\u200d\ufe0f"
_TOO_DEEP = f"[structured content omitted: nested deeper than {MAX_DEPTH} levels]"


def shape(
    result: ToolResult,
    *,
    max_text: int = MAX_TEXT,
    max_media: int = MAX_MEDIA,
    max_media_bytes: int = MAX_MEDIA_BYTES,
    structured: Structured = "auto",
) -> ToolResult:
    """The result as a model may read it.

    Every string but base64 is cleaned. Media over the limits, or whose base64 is invalid, become text
    placeholders. A result that still is longer than `max_text` keeps the first 60 % and the last 40 % of
    that, with ``[… N bytes omitted …]`` between; then its texts are merged, and its structured content
    stands among them as (cut) JSON, as `structured` wants it.

    Args:
        result: As the server gave it.
        max_text: Bytes of UTF-8 that all text together may take, structured content included. The mark
            of omission comes on top.
        max_media: How many images, audio clips and blobs may stay.
        max_media_bytes: How large each of them may be, decoded.
        structured: How the result will be rendered; it decides what counts as its text.

    Raises:
        ValueError: A limit is negative, or `structured` is unknown.

    Example:
        >>> shape(ToolResult(content=[{"type": "text", "text": "abcdefghij"}]), max_text=5).content
        [{'type': 'text', 'text': 'abc[… 5 bytes omitted …]ij'}]
    """
    check_structured(structured)
    if min(max_text, max_media, max_media_bytes) < 0:
        raise ValueError("The limits of shape cannot be negative.")
    content, media_blocks = _shaped_blocks(result.content, max_media, max_media_bytes)
    value = result.structured_content
    if value is not UNSET and too_deep(value):
        content.append({"type": "text", "text": _TOO_DEEP})
        value = UNSET
    shaped = msgspec.structs.replace(
        result, content=content, structured_content=value if value is UNSET else clean_json(value)
    )
    # A failure is rendered with its content, even where structured content is preferred.
    mode: Structured = "auto" if structured == "prefer" and result.is_error else structured
    runs = _runs(pieces(shaped, mode), media_blocks)
    total = sum(len(run) for run in runs if isinstance(run, bytes))
    if total <= max_text:
        return shaped
    return msgspec.structs.replace(shaped, content=_cut(runs, total, max_text), structured_content=UNSET)


def _shaped_blocks(
    blocks: list[dict[str, Any]], max_media: int, max_media_bytes: int
) -> tuple[list[dict[str, Any]], list[dict[str, Any]]]:
    """All blocks cleaned, and those of them that stay media."""
    shaped = []
    kept: list[dict[str, Any]] = []
    for block in blocks:
        if too_deep(block):
            shaped.append({"type": "text", "text": f"[content omitted: nested deeper than {MAX_DEPTH} levels]"})
            continue
        media = media_of(block)
        if media is None:
            shaped.append(clean_json(block))
        elif media.size is None or media.size > max_media_bytes or len(kept) >= max_media:
            shaped.append({"type": "text", "text": media.placeholder})
        else:
            kept.append(_cleaned_media(block))
            shaped.append(kept[-1])
    return shaped, kept


def _cleaned_media(block: dict[str, Any]) -> dict[str, Any]:
    """The block with all cleaned but its base64, which is known to be valid."""
    return {
        key: value if key in {"data", "blob"} else _cleaned_media(value) if key == "resource" else clean_json(value)
        for key, value in block.items()
    }


def _runs(parts: list[str | Media], media_blocks: list[dict[str, Any]]) -> list[bytes | dict[str, Any]]:
    """Texts that follow each other joined and encoded, and between them the blocks of media."""
    media = iter(media_blocks)
    runs: list[bytes | dict[str, Any]] = []
    for part in parts:
        if isinstance(part, Media):
            runs.append(next(media))
        elif runs and isinstance(runs[-1], bytes):
            runs[-1] += b"\n" + part.encode()
        else:
            runs.append(part.encode())
    return runs


def _cut(runs: list[bytes | dict[str, Any]], total: int, limit: int) -> list[dict[str, Any]]:
    head = int(limit * _HEAD_SHARE)
    tail_from = total - (limit - head)
    kept: list[tuple[str, str, bool] | dict[str, Any]] = []
    position = omitted = 0
    for run in runs:
        if isinstance(run, dict):
            kept.append(run)
            continue
        start, position = position, position + len(run)
        if position <= head or start >= tail_from:
            kept.append((run.decode(), "", False))
            continue
        before = _upto(run, max(0, head - start))
        after = _since(run, max(0, tail_from - start))
        omitted += len(run) - len(before.encode()) - len(after.encode())
        kept.append((before, after, True))

    mark = f"[… {omitted} bytes omitted …]"
    blocks: list[dict[str, Any]] = []
    for part in kept:
        if isinstance(part, dict):
            blocks.append(part)
            continue
        before, after, is_cut = part
        text = before + (mark if is_cut else "") + after
        if is_cut:
            mark = ""
        if text:
            blocks.append({"type": "text", "text": text})
    return blocks


def _upto(run: bytes, end: int) -> str:
    return run[:end].decode("utf-8", "ignore").rstrip(_DANGLING)


def _since(run: bytes, start: int) -> str:
    while start < len(run) and run[start] in _CONTINUATION:
        start += 1
    return run[start:].decode().lstrip(_DANGLING)
