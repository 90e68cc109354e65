"""Text without anything hidden: each listed code point, what must survive, caps, and the laws of cleaning."""

from __future__ import annotations

import time

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from conduit_daemon.text import TRUNCATED, cap_bytes, clean, clean_description, clean_json, clean_message, is_clean

LISTED = """0000-0008 000B-001F 007F-009F 00AD 034F 061C 115F-1160 17B4-17B5 180B-180F 200B 200E-200F 202A-202E
2060-206F 3164 FEFF FFA0 FFF0-FFFB 1BCA0-1BCA3 1D173-1D17A FE00-FE0E E0000-E0FFF FDD0-FDEF"""


def _listed() -> frozenset[str]:
    found = set()
    for part in LISTED.split():
        first, _, last = part.partition("-")
        found.update(map(chr, range(int(first, 16), int(last or first, 16) + 1)))
    found.update(chr(plane << 16 | low) for plane in range(17) for low in (0xFFFE, 0xFFFF))
    return frozenset(found)


HIDDEN = _listed()
FAMILY = "\U0001f468\u200d\U0001f469\u200d\U0001f467\u200d\U0001f466"

TEXTS = st.text(
    st.one_of(
        st.sampled_from(sorted(HIDDEN)),
        st.characters(),
        st.sampled_from("\u200c\u200d\ufe0f\u2028\u2029\r\n\x1b[]\\;m0139#*\U0001f468\U0001f3fd\u2764کرक\u094d\u0301"),
        st.characters(categories=["Cs"]),
    ),
    max_size=40,
)


def test_each_listed_code_point_is_taken_out() -> None:
    for char in HIDDEN - {"\r", "\x1b"} - set(map(chr, range(0x80, 0xA0))):
        assert clean(f"a{char}b") == clean_description(f"a{char}b") == "ab", hex(ord(char))
        assert not is_clean(f"a{char}b")


@pytest.mark.parametrize("number", range(0x80, 0xA0))
def test_no_c1_control_is_left(number: int) -> None:
    assert not HIDDEN & set(clean(f"a{chr(number)}b c"))


@pytest.mark.parametrize(
    ("text", "cleaned"),
    [
        ("a\r\nb\rc\u2028d\u2029e\n\tf", "a\nb\nc\nd\ne\n\tf"),
        ("\x1b[31mred\x1b[0m", "red"),
        ("\x1b]8;;https://evil.example\x1b\\link\x1b]8;;\x07", "link"),
        ("\x1b]0;never ended", "0;never ended"),
        ("\x1bP1$r0m\x1b\\x\x9b2Jy\x1b(Bz\x1b7", "xyz"),
        ("\ud800x\udfff", "\ufffdx\ufffd"),
        ("in\u00advis\u200bi\ufeffble", "invisible"),
        ("\u202egnp.exe", "gnp.exe"),
        # joiners in results
        (FAMILY, FAMILY),
        ("\U0001f469\U0001f3fd\u200d\u2695\ufe0f", "\U0001f469\U0001f3fd\u200d\u2695\ufe0f"),
        ("\U0001f3f3\ufe0f\u200d\U0001f308", "\U0001f3f3\ufe0f\u200d\U0001f308"),
        ("\U0001f1e9\U0001f1ea", "\U0001f1e9\U0001f1ea"),
        ("می\u200cخواهم", "می\u200cخواهم"),
        ("क\u094d\u200dष", "क\u094d\u200dष"),
        ("র\u200d\u09cdয", "র\u200d\u09cdয"),
        ("1\ufe0f\u20e3 #\ufe0f\u20e3 \u2764\ufe0f", "1\ufe0f\u20e3 #\ufe0f\u20e3 \u2764\ufe0f"),
        # and what hides behind them
        ("a\u200db", "ab"),
        ("a\u200cb", "ab"),
        ("می\u200c\u200cخواهم", "میخواهم"),
        ("\U0001f468\u200d\u200d\U0001f469", "\U0001f468\U0001f469"),
        ("\U0001f468\u200c\U0001f469", "\U0001f468\U0001f469"),
        ("\U0001f468\u200d", "\U0001f468"),
        ("\u200d\U0001f468", "\U0001f468"),
        ("a\ufe0f \u2764\ufe0f\ufe0f\ufe0f", "a \u2764\ufe0f"),
        ("\U0001f3f4\U000e0067\U000e0062\U000e0065\U000e006e\U000e0067\U000e007f", "\U0001f3f4"),
    ],
)
def test_cleaning(text: str, cleaned: str) -> None:
    assert clean(text) == cleaned


def test_descriptions_have_no_joiners() -> None:
    assert clean_description(f"{FAMILY} می\u200cخواهم") == FAMILY.replace("\u200d", "") + " میخواهم"


@pytest.mark.parametrize("text", ["a\r\nb", "\u2028", "می\u200cخواهم", FAMILY, "1\ufe0f\u20e3", "plain"])
def test_what_needs_no_alteration_is_clean(text: str) -> None:
    assert is_clean(text)


def test_structured_values_are_cleaned_with_their_keys() -> None:
    value = {"a\u200b": ["x\u202e", {"\x1b[1mb": None}], "n": 1, "t": True}
    assert clean_json(value) == {"a": ["x", {"b": None}], "n": 1, "t": True}


@settings(max_examples=500, deadline=None)
@given(TEXTS)
def test_cleaning_is_idempotent_and_lets_nothing_through(text: str) -> None:
    for cleaner in (clean, clean_description, clean_message):
        cleaned = cleaner(text)
        assert cleaner(cleaned) == cleaned
        assert not HIDDEN & set(cleaned)
        assert not set("\r\u2028\u2029\x1b") & set(cleaned)
        cleaned.encode()
    assert is_clean(clean(text))
    assert not set("\u200c\u200d") & set(clean_description(text))


@settings(max_examples=300, deadline=None)
@given(TEXTS.map(lambda text: text * 40), st.integers(0, 300))
def test_caps_hold_and_split_no_code_point(text: str, limit: int) -> None:
    described = clean_description(text, limit)
    assert len(described) <= limit
    assert clean_description(described, limit) == described
    room = max(limit, len(TRUNCATED.encode()))
    cleaned = clean(text)
    capped = cap_bytes(cleaned, room)
    assert len(capped.encode()) <= room
    assert cleaned.startswith(capped.removesuffix(TRUNCATED))
    assert clean(capped) == capped


@pytest.mark.parametrize("unit", ["x", "é", "天", "\U0001f468"])
def test_a_long_description_takes_4096_bytes_at_most_and_says_so(unit: str) -> None:
    size = len(unit.encode())
    exact = unit * (4096 // size)
    assert clean_description(exact) == exact
    capped = clean_description(unit * 5000)
    assert capped.endswith("… [truncated]")
    assert 4096 - size < len(capped.encode()) <= 4096
    assert set(capped.removesuffix(TRUNCATED)) == {unit}


def test_a_cap_too_small_for_the_mark_still_holds() -> None:
    assert clean_description("abcdefgh" * 9, 5) == "abcde"
    assert clean_description("abc", 0) == ""
    with pytest.raises(ValueError, match="negative"):
        clean_description("abc", -1)


@pytest.mark.parametrize(
    "text",
    [
        "\x9d" * 100_000,
        "\x1b[" * 100_000,
        "\x1b]" * 100_000,
        "\u200d" * 100_000,
        "\u0301\u200d" * 100_000,
        "\U0001f468" + "\U0001f3fb" * 100_000 + "\u200d",
        "क" + "\u094d" * 100_000 + "\u200d",
    ],
)
def test_hostile_text_takes_linear_time(text: str) -> None:
    started = time.process_time()
    clean(text)
    assert time.process_time() - started < 1
