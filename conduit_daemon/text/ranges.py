"""The classes of code points that the hygiene of text knows, as bodies of regular expression classes.

Pictographs are Unicode's Extended_Pictographic (emoji-data.txt, with the code points it reserves for
pictographs to come); the joining scripts are those whose spelling needs joiners (Arabic and the
scripts of India and Sri Lanka).
"""

from __future__ import annotations

import unicodedata
from collections.abc import Iterable
from functools import lru_cache
from typing import Final

__all__ = [
    "EMOJI_BASES",
    "INVISIBLE",
    "INVISIBLE_ASTRAL",
    "JOINERS",
    "LINE_ENDS",
    "PICTOGRAPHS",
    "SKIN_TONES",
    "SURROGATES",
    "VARIATION_16",
    "is_joining_letter",
    "is_mark",
]

_Range = tuple[int, int]


def _body(ranges: Iterable[_Range]) -> str:
    """The inside of a character class; escapes by number need no quoting of ``]`` or ``-``."""
    return "".join(f"\\U{first:08x}-\\U{last:08x}" for first, last in ranges)


INVISIBLE: Final = _body(
    (
        (0x0000, 0x0008),
        (0x000B, 0x001F),
        (0x007F, 0x009F),
        (0x00AD, 0x00AD),
        (0x034F, 0x034F),
        (0x061C, 0x061C),
        (0x115F, 0x1160),
        (0x17B4, 0x17B5),
        (0x180B, 0x180F),
        (0x200B, 0x200B),
        (0x200E, 0x200F),
        (0x202A, 0x202E),
        (0x2060, 0x206F),
        (0x3164, 0x3164),
        (0xFE00, 0xFE0E),
        (0xFEFF, 0xFEFF),
        (0xFFA0, 0xFFA0),
        (0xFFF0, 0xFFFB),
        (0xFDD0, 0xFDEF),
        (0xFFFE, 0xFFFF),
    )
)
"""Always taken out. The joiners and U+FE0F depend on what stands around them."""

INVISIBLE_ASTRAL: Final = _body(
    (
        (0x1BCA0, 0x1BCA3),
        (0x1D173, 0x1D17A),
        (0xE0000, 0xE0FFF),
        *((plane << 16 | 0xFFFE, plane << 16 | 0xFFFF) for plane in range(1, 17)),
    )
)
"""Always taken out; apart, because classes with code points over U+FFFF match ten times slower."""

JOINERS: Final = "\\u200c\\u200d"
LINE_ENDS: Final = "\\r\\u2028\\u2029"
SURROGATES: Final = "\\ud800-\\udfff"
VARIATION_16: Final = "\ufe0f"
SKIN_TONES: Final = _body(((0x1F3FB, 0x1F3FF),))

PICTOGRAPHS: Final = _body(
    (
        *((single, single) for single in (0x00A9, 0x00AE, 0x203C, 0x2049, 0x2122, 0x2139, 0x2328, 0x2388, 0x23CF)),
        *((single, single) for single in (0x24C2, 0x25B6, 0x25C0, 0x2714, 0x2716, 0x271D, 0x2721, 0x2728, 0x2744)),
        *((single, single) for single in (0x2747, 0x274C, 0x274E, 0x2757, 0x27A1, 0x27B0, 0x27BF, 0x2B50, 0x2B55)),
        *((single, single) for single in (0x3030, 0x303D, 0x3297, 0x3299, 0x1F12F, 0x1F18E, 0x1F21A, 0x1F22F)),
        (0x2194, 0x2199),
        (0x21A9, 0x21AA),
        (0x231A, 0x231B),
        (0x23E9, 0x23F3),
        (0x23F8, 0x23FA),
        (0x25AA, 0x25AB),
        (0x25FB, 0x25FE),
        (0x2600, 0x2605),
        (0x2607, 0x2612),
        (0x2614, 0x2685),
        (0x2690, 0x2705),
        (0x2708, 0x2712),
        (0x2733, 0x2734),
        (0x2753, 0x2755),
        (0x2763, 0x2767),
        (0x2795, 0x2797),
        (0x2934, 0x2935),
        (0x2B05, 0x2B07),
        (0x2B1B, 0x2B1C),
        (0x1F000, 0x1F0FF),
        (0x1F10D, 0x1F10F),
        (0x1F16C, 0x1F171),
        (0x1F17E, 0x1F17F),
        (0x1F191, 0x1F19A),
        (0x1F1AD, 0x1F1E5),
        (0x1F201, 0x1F20F),
        (0x1F232, 0x1F23A),
        (0x1F23C, 0x1F23F),
        (0x1F249, 0x1F3FA),
        (0x1F400, 0x1F53D),
        (0x1F546, 0x1F64F),
        (0x1F680, 0x1F6FF),
        (0x1F774, 0x1F77F),
        (0x1F7D5, 0x1F7FF),
        (0x1F80C, 0x1F80F),
        (0x1F848, 0x1F84F),
        (0x1F85A, 0x1F85F),
        (0x1F888, 0x1F88F),
        (0x1F8AE, 0x1F8FF),
        (0x1F90C, 0x1F93A),
        (0x1F93C, 0x1F945),
        (0x1F947, 0x1FAFF),
        (0x1FC00, 0x1FFFD),
    )
)

EMOJI_BASES: Final = PICTOGRAPHS + SKIN_TONES + "#*0-9"
"""What U+FE0F may stand after: a pictograph, or the base of a keycap."""

_JOINING_SCRIPTS: tuple[_Range, ...] = (
    (0x0600, 0x06FF),  # Arabic
    (0x0750, 0x077F),
    (0x0870, 0x08FF),
    (0x0900, 0x0DFF),  # Devanagari to Sinhala
    (0xA8E0, 0xA8FF),
    (0xFB50, 0xFDFF),
    (0xFE70, 0xFEFC),
    (0x10EC0, 0x10EFF),
    (0x11000, 0x1107F),  # Brahmi, Grantha and their kin
    (0x11300, 0x1137F),
    (0x11B00, 0x11B5F),
)


@lru_cache(maxsize=4096)
def is_joining_letter(char: str) -> bool:
    """Whether `char` is a letter of a script whose spelling needs joiners."""
    code = ord(char)
    return any(first <= code <= last for first, last in _JOINING_SCRIPTS) and unicodedata.category(char)[0] == "L"


@lru_cache(maxsize=4096)
def is_mark(char: str) -> bool:
    """Whether `char` is a combining mark, as a virama or a vowel sign."""
    return unicodedata.category(char)[0] == "M"
