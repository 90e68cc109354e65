"""Secrets are found in every form that text takes, and nothing else is touched."""

from __future__ import annotations

import base64
import json
from urllib.parse import quote, quote_plus

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st

from conduit_daemon.telemetry.masking import MASK, Masker, redact_arguments

SECRET = 'sp3c"ial/ké y+\\ü'


@pytest.mark.parametrize(
    "form",
    [
        SECRET,
        json.dumps(SECRET)[1:-1],
        json.dumps(SECRET, ensure_ascii=False)[1:-1],
        json.dumps(json.dumps(SECRET))[3:-3],
        repr(SECRET)[1:-1],
        quote(SECRET),
        quote(SECRET, safe=""),
        quote_plus(SECRET),
        quote(SECRET, safe="").replace("%C3%A9", "%c3%a9").replace("%22", "%22").lower(),
    ],
)
def test_each_form_of_a_secret_is_masked(form: str) -> None:
    masker = Masker([SECRET])
    assert masker.mask(f"a {form} b") == f"a {MASK} b"
    assert masker.occurs_in(f"a {form} b".encode())


@given(before=st.binary(max_size=7), after=st.binary(max_size=7), urlsafe=st.booleans())
def test_a_secret_is_found_inside_base64_at_any_alignment(before: bytes, after: bytes, urlsafe: bool) -> None:
    encode = base64.urlsafe_b64encode if urlsafe else base64.b64encode
    secret = "Zx>9?~~qwT\xff"
    masked = Masker([secret]).mask(encode(before + secret.encode() + after).decode())
    assert MASK in masked
    assert len(masked) <= len(MASK) + 4 * (len(before) // 3 + 1) + 4 * (len(after) // 3 + 2)


@given(st.text(min_size=8, max_size=20), st.text(max_size=20), st.text(max_size=20))
def test_no_secret_survives_masking(secret: str, before: str, after: str) -> None:
    masked = Masker([secret]).mask(before + secret + after)
    assert secret not in masked.replace(MASK, "\0")


def test_an_authorization_header_hides_its_token_and_the_password_in_it() -> None:
    basic = base64.b64encode(b"ann:correct-horse").decode()
    masker = Masker([f"Basic {basic}", "Bearer abcdefgh12345"])
    assert masker.mask(f"got {basic} / correct-horse / abcdefgh12345") == f"got {MASK} / {MASK} / {MASK}"


def test_a_key_of_many_lines_is_masked_line_by_line() -> None:
    masker = Masker(["-----BEGIN KEY-----\nMIIEvQIBADANBg\nkqhkiG9w0BAQEF\n-----END KEY-----\n"])
    assert masker.mask("line: kqhkiG9w0BAQEF") == f"line: {MASK}"


def test_short_values_are_left_alone_and_eight_characters_are_masked() -> None:
    masker = Masker(["1234567", "12345678"])
    assert masker.mask("1234567") == "1234567"
    assert masker.mask("12345678") == MASK


def test_overlapping_secrets_leave_no_rest() -> None:
    masker = Masker(["aaaabbbb", "bbbbcccc", "aaaabbbbccccdddd"])
    assert masker.mask("xaaaabbbbccccy") == f"x{MASK}y"
    assert masker.mask("aaaabbbbccccdddd") == MASK
    assert Masker(["abababab"]).mask("ababababab") == MASK


def test_values_are_masked_at_any_depth_and_shared_where_nothing_is_found() -> None:
    masker = Masker(["hunter2-hunter2"])
    clean = {"n": 1}
    value = {"a": [clean, ("x hunter2-hunter2", 2.5, None)], "hunter2-hunter2": True, "raw": msgspec.Raw(b'"x"')}
    masked = masker.mask_value(value)
    assert masked == {"a": [clean, [f"x {MASK}", 2.5, None]], MASK: True, "raw": msgspec.Raw(b'"x"')}
    assert masked["a"][0] is clean
    assert masker.mask_value(clean) is clean
    assert masker.mask_value(msgspec.Raw(b'{"k": "hunter2-hunter2"}')) == f'{{"k": "{MASK}"}}'


def test_a_secret_that_is_a_number_is_masked_where_it_is_the_whole_number() -> None:
    assert Masker(["12345678"]).mask_value([12345678, 123456789, 0.12345678, True, 10**5000]) == [
        MASK,
        123456789,
        0.12345678,
        True,
        10**5000,
    ]


def test_a_rotated_secret_stays_masked_until_the_one_after() -> None:
    masker = Masker()
    masker.update("oauth:search", ["first-token"])
    masker.update("oauth:search", ["second-token"])
    masker.update("config", ["from-the-file"])
    assert masker.mask("first-token second-token from-the-file") == f"{MASK} {MASK} {MASK}"
    masker.update("oauth:search", ["third-token"])
    assert masker.mask("first-token second-token third-token") == f"first-token {MASK} {MASK}"


def test_a_secret_that_is_told_again_drives_out_none() -> None:
    masker = Masker()
    for told in ("token-first", "token-second", "token-second", "token-second"):
        masker.update("auth:far", [told])
    assert masker.mask("token-first token-second") == "[masked] [masked]"


def test_arguments_lose_strings_under_keys_that_speak_of_secrets() -> None:
    arguments = {
        "password": "a",
        "nested": [{"accessToken": "b", "X-Api-Key": "c", "Authorization": "d"}],
        "key": "ISSUE-1",
        "keyboard": "qwerty",
        "max_tokens": 5,
        "author": "ann",
        "note": "it is hunter2-hunter2",
    }
    assert redact_arguments(arguments, Masker(["hunter2-hunter2"])) == {
        "password": MASK,
        "nested": [{"accessToken": MASK, "X-Api-Key": MASK, "Authorization": MASK}],
        "key": "ISSUE-1",
        "keyboard": "qwerty",
        "max_tokens": 5,
        "author": "ann",
        "note": f"it is {MASK}",
    }
    assert arguments["password"] == "a"
