"""Text of servers made fit for a model to read: nothing in it that a person would not see.

The order is fixed: line ends to LF, ANSI escape sequences out, lone surrogates to U+FFFD, invisible
characters out, cap. Cleaning is idempotent.
"""

from __future__ import annotations

import re
from typing import Any, Final

from conduit_daemon.text.ranges import (
    EMOJI_BASES,
    INVISIBLE,
    INVISIBLE_ASTRAL,
    JOINERS,
    LINE_ENDS,
    PICTOGRAPHS,
    SKIN_TONES,
    SURROGATES,
    VARIATION_16,
    is_joining_letter,
    is_mark,
)

__all__ = [
    "MAX_DESCRIPTION_BYTES",
    "TRUNCATED",
    "cap_bytes",
    "clean",
    "clean_description",
    "clean_json",
    "clean_line",
    "clean_message",
    "is_clean",
]

MAX_DESCRIPTION_BYTES: Final = 4096
"""The most that a description or an error's message may take, the mark of truncation included."""

TRUNCATED: Final = "… [truncated]"

_SUSPECT = re.compile(f"[{INVISIBLE}{JOINERS}{LINE_ENDS}{SURROGATES}{VARIATION_16}]")
_LINE_END = re.compile(f"\r\n|[{LINE_ENDS}]")
# ECMA-48: control strings up to their terminator, control sequences, then the short escapes. A string
# without a terminator loses its introducer only, so that one stray byte cannot swallow a result.
_ANSI = re.compile(
    "(?:\x1b[\\]PX^_]|[\x90\x98\x9d-\x9f])[^\x07\x1b\x90\x98\x9b-\x9f\n]*(?:\x07|\x1b\\\\|\x9c)"
    "|(?:\x1b\\[|\x9b)[0-?]*[ -/]*[@-~]"
    "|\x1b[ -/]*[0-~]"
)
_SURROGATE = re.compile(f"[{SURROGATES}]")
_INVISIBLE = re.compile(f"[{INVISIBLE}{INVISIBLE_ASTRAL}]+")
_ASTRAL = re.compile(f"[{INVISIBLE_ASTRAL}]")
_JOINER = re.compile(f"[{JOINERS}]")
_STRAY_VARIATION = re.compile(f"(?<![{EMOJI_BASES}]){VARIATION_16}")
_PICTOGRAPH = re.compile(f"[{PICTOGRAPHS}]")
_PASSED_OVER = re.compile(f"[{SKIN_TONES}{VARIATION_16}]")
_ZWJ = "\u200d"


def clean(text: str) -> str:
    """`text` without what cannot be seen, as for results.

    Joiners stay where spelling needs them: a single ZWJ between pictographs, a single ZWJ or ZWNJ
    between Arabic or Indic letters; U+FE0F stays after an emoji or a keycap's base.

    Example:
        >>> clean("a\\u200bb\\r\\n\\x1b[31mred\\x1b[0m")
        'ab\\nred'
    """
    if not _suspect(text):
        return text
    return _strip(_LINE_END.sub("\n", text), keep_joiners=True)


def clean_description(text: str, max_chars: int | None = None) -> str:
    """`text` as a description: cleaned, without any joiner, and capped.

    Args:
        text: What the server says.
        max_chars: At most so many characters, for providers that take less than 4,096 bytes.

    Returns:
        At most 4,096 bytes of UTF-8 and `max_chars` characters, the mark of truncation included.

    Raises:
        ValueError: `max_chars` is negative.
    """
    if max_chars is not None and max_chars < 0:
        raise ValueError(f"max_description_chars is {max_chars}, but cannot be negative.")
    if _suspect(text):
        text = _strip(_LINE_END.sub("\n", text), keep_joiners=False)
    text = cap_bytes(text, MAX_DESCRIPTION_BYTES)
    if max_chars is None or len(text) <= max_chars:
        return text
    room = max_chars - len(TRUNCATED)
    return text[:room] + TRUNCATED if room >= 0 else text[:max_chars]


def clean_message(text: str) -> str:
    """The message of an error, cleaned as a result is and capped as a description is."""
    return cap_bytes(clean(text), MAX_DESCRIPTION_BYTES)


def clean_line(text: str) -> str:
    """`text` cleaned as a result is, on one line, to stand inside a placeholder."""
    return " ".join(clean(text).split("\n"))


def clean_json(value: Any) -> Any:
    """A JSON value with its strings and its objects' keys cleaned as results are.

    Of two keys that become one the later stays. `value` may nest some hundred levels.
    """
    if isinstance(value, str):
        return clean(value)
    if isinstance(value, dict):
        return {clean(key): clean_json(child) for key, child in value.items()}
    if isinstance(value, list):
        return [clean_json(child) for child in value]
    return value


def is_clean(text: str) -> bool:
    """Whether `text` hides nothing, so that it may stand where it must not be altered.

    Line ends of any kind hide nothing.
    """
    if not _suspect(text):
        return True
    lines = _LINE_END.sub("\n", text)
    return _strip(lines, keep_joiners=True) == lines


def cap_bytes(text: str, limit: int, mark: str = TRUNCATED) -> str:
    """`text` cut to `limit` bytes of UTF-8 with `mark` at its end, never inside a code point."""
    if len(text) * 4 <= limit:
        return text
    encoded = text.encode("utf-8", "replace")
    if len(encoded) <= limit:
        return text
    room = max(0, limit - len(mark.encode()))
    head = encoded[:room].decode("utf-8", "ignore")
    return head.rstrip(_ZWJ + "\u200c") + mark


def _suspect(text: str) -> bool:
    """Whether there is anything to look at in `text`, at a few nanoseconds a character."""
    if _SUSPECT.search(text):
        return True
    has_astral = not text.isascii() and len(text.encode("utf-16-le")) > 2 * len(text)
    return has_astral and _ASTRAL.search(text) is not None


def _strip(text: str, keep_joiners: bool) -> str:
    """`text`, whose line ends are LF, without anything hidden."""
    text = _ANSI.sub("", text)
    text = _SURROGATE.sub("\ufffd", text)
    text = _INVISIBLE.sub("", text)
    if not keep_joiners:
        text = _JOINER.sub("", text)
    text = _STRAY_VARIATION.sub("", text)
    return _JOINER.sub(_kept_joiner, text) if keep_joiners else text


def _kept_joiner(match: re.Match[str]) -> str:
    text, at = match.string, match.start()
    if match[0] == _ZWJ and _between_pictographs(text, at):
        return _ZWJ
    return match[0] if _between_letters(text, at) else ""


def _between_pictographs(text: str, at: int) -> bool:
    if at + 1 >= len(text) or not _PICTOGRAPH.match(text, at + 1):
        return False
    before = at - 1
    while before >= 0 and _PASSED_OVER.match(text, before):
        before -= 1
    return before >= 0 and _PICTOGRAPH.match(text, before) is not None


def _between_letters(text: str, at: int) -> bool:
    before = at - 1
    while before >= 0 and is_mark(text[before]):
        before -= 1
    if before < 0 or not is_joining_letter(text[before]):
        return False
    after = at + 1
    while after < len(text) and is_mark(text[after]):
        after += 1
    return after < len(text) and is_joining_letter(text[after])
