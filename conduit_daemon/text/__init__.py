"""What a model reads of a server: text without anything hidden, results as text, media as what they are."""

from __future__ import annotations

from conduit_daemon.text.hygiene import (
    MAX_DESCRIPTION_BYTES,
    TRUNCATED,
    cap_bytes,
    clean,
    clean_description,
    clean_json,
    clean_line,
    clean_message,
    is_clean,
)
from conduit_daemon.text.media import Media, decode, media_of, sniff
from conduit_daemon.text.rendering import (
    EMPTY,
    Structured,
    check_structured,
    compact_json,
    joined,
    pieces,
    render_block,
)

__all__ = [
    "EMPTY",
    "MAX_DESCRIPTION_BYTES",
    "TRUNCATED",
    "Media",
    "Structured",
    "cap_bytes",
    "check_structured",
    "clean",
    "clean_description",
    "clean_json",
    "clean_line",
    "clean_message",
    "compact_json",
    "decode",
    "is_clean",
    "joined",
    "media_of",
    "pieces",
    "render_block",
    "sniff",
]
