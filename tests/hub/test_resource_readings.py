"""The URI of a resource that a template makes is its caller's own text: no way of writing it passes a glob."""

from __future__ import annotations

import posixpath
from typing import Any
from urllib.parse import unquote

import pytest
from hypothesis import given
from hypothesis import strategies as st

from conduit_daemon.clients.offerings import Offerings
from conduit_daemon.config import ToolFilter
from conduit_daemon.hub.filtering import filter_of
from conduit_daemon.hub.offers import Offers, build_offers
from conduit_daemon.hub.readings import matches_possibly, matches_surely

CLOSED = matches_possibly(["resource:file:///etc/*", "resource:day://secret", "resource:file:///srv/Caf\u00e9 b*"])
OPEN = matches_surely(["resource:file:///srv/*", "resource:day://ok/*", "resource:file:///my%20docs/*"])

SPELLINGS = [
    "file:///etc/passwd",
    "file:///%65tc/passwd",
    "file:///%2565tc/passwd",
    "file:///srv/../etc/passwd",
    "file:///srv/%2e%2E/etc/passwd",
    "file:///srv%2f..%2Fetc/passwd",
    "file:///srv/..\\etc\\passwd",
    "file:///srv/./..//etc/./passwd",
    "file:////etc/passwd",
    "file:/etc/passwd",
    "file://localhost/etc/passwd",
    "file:///srv/x?/../../etc/passwd",
    "file:///srv/x%3F/../../etc/passwd",
    "FILE:///ETC/passwd",
    "file:///\uff45\uff54\uff43/passwd",
    "day://secret?x=1",
    "day://secret#top",
    "day://secret/",
    "day:///secret",
    "day://x/../secret",
    "day://%73ecret",
    "file:///srv/cafe\u0301%20b/x",
]


@pytest.mark.parametrize("uri", SPELLINGS)
def test_what_is_closed_is_closed_however_it_is_spelt(uri: str) -> None:
    assert CLOSED(f"resource:{uri}")


@pytest.mark.parametrize(
    "uri", ["file:///srv/etc", "file:///etcetera", "day://secretary", "day://ok", "file:///srv/..etc", "x:/etc/passwd"]
)
def test_what_is_not_closed_is_not(uri: str) -> None:
    assert not CLOSED(f"resource:{uri}")


@pytest.mark.parametrize("uri", ["file:///srv/a", "file:///srv/a%20b/c?d=e", "file:///my%20docs/a", "day://ok/"])
def test_what_is_open_is_open(uri: str) -> None:
    assert OPEN(f"resource:{uri}")


@pytest.mark.parametrize(
    "uri",
    [
        "file:///srv/../etc/passwd",
        "file:///srv/%2e%2e/etc/passwd",
        "file:///srv/%252e%252e/etc/passwd",
        "file:///srv/x%2F..%2F..%2Fetc/passwd",
        "file:///srv/..\\..\\etc",
        "file:///srv/x?/../../etc/passwd",
        "file:///srv/x%3F/../../../etc/passwd",
        "day://ok/../secret",
        "file:////srv/../etc",
        "FILE:///srv/a",
    ],
)
def test_nothing_opens_what_it_does_not_mean(uri: str) -> None:
    assert not OPEN(f"resource:{uri}")


def test_a_resource_that_is_named_whole_is_itself() -> None:
    assert matches_surely(["resource:notes://a//b/.."])("resource:notes://a//b/..")


def test_other_names_mean_what_they_say() -> None:
    for matches in (matches_surely(["read_*", "a%20b"]), matches_possibly(["read_*", "a%20b"])):
        assert matches("read_file")
        assert matches("a%20b")
        assert not matches("READ_file")
        assert not matches("a b")
        assert not matches("x/../read_file")


@given(st.text("/.%2eEfF~a\\?#:\u0130\u00df\ud800", max_size=40))
def test_any_text_is_read_and_what_is_surely_meant_is_possibly_meant(uri: str) -> None:
    globs = ["resource:file:///a/*", "resource:*/e"]
    name = f"resource:file:///{uri}"
    assert matches_possibly(globs)(name) or not matches_surely(globs)(name)


def opened(path: str, decoded: int) -> str:
    """The file that a server opens which decodes a path so many times and resolves it as POSIX does."""
    for _ in range(decoded):
        path = unquote(path)
    return posixpath.normpath("/" + path.lstrip("/"))


SEGMENT = st.sampled_from(["etc", "srv", "passwd", "..", ".", "", "x", "a b"])
SPELT = st.sampled_from(["", "%", "%25"])  # as it is, percent-encoded, encoded twice


@st.composite
def spelt_paths(draw: st.DrawFn) -> str:
    path = "/".join(draw(st.lists(SEGMENT, min_size=1, max_size=8)))
    return "".join(f"{how}{ord(letter):02x}" if (how := draw(SPELT)) else letter for letter in path)


@given(spelt_paths(), st.sampled_from(["file:///", "file://localhost/", "file:/", "file:////"]), st.integers(0, 3))
def test_whatever_a_server_opens_that_is_closed_was_closed(path: str, begin: str, decoded: int) -> None:
    target = opened(path, decoded)
    closes = matches_possibly(["resource:file:///etc/*", "resource:file:///etc"])
    opens = matches_surely(["resource:file:///srv/*"])
    name = f"resource:{begin}{path}"
    if target == "/etc" or target.startswith("/etc/"):
        assert closes(name)
    if not target.startswith("/srv"):
        assert not opens(name)


def test_the_longest_uri_is_read_in_no_time() -> None:
    name = "resource:" + ("%25" * 2000) + "../" * 500
    assert not matches_possibly(["resource:file:*"])(name)


def offered(rules: ToolFilter) -> Offers:
    offerings = Offerings(
        resources=({"uri": "file:///srv/secret"}, {"uri": "file:///srv/open"}),
        templates=({"uriTemplate": "file:///{+path}"},),
        prompts=({"name": "greet"},),
    )
    passes = filter_of(rules)
    return build_offers([("s", offerings)], lambda server, name: passes(name))


def found(offers: Offers, name: str) -> Any:
    offer = offers.resolve(name)
    return None if offer is None else offer.entry.tool.name


def test_a_filter_holds_for_what_a_template_makes() -> None:
    offers = offered(ToolFilter(deny=("resource:file:///srv/secret", "resource:file:///etc/*", "prompt:greet")))
    assert found(offers, "resource:file:///srv/open") == "resource:file:///srv/open"
    assert found(offers, "resource:file:///srv/new") == "resource:file:///srv/new"
    for name in (
        "resource:file:///srv/secret",
        "resource:file:///srv/./secret",
        "resource:file:///etc/passwd",
        "resource:file:///%65tc/passwd",
        "prompt:s__greet",
    ):
        assert found(offers, name) is None
        assert offers.is_filtered(name)
    assert not offers.is_filtered("resource:day://x")
    assert not offers.is_filtered("prompt:s__other")


def test_what_a_filter_lets_through_is_what_all_readings_of_a_uri_are() -> None:
    offers = offered(ToolFilter(allow=("resource:file:///{+path}", "resource:file:///srv/*")))
    assert found(offers, "resource:file:///srv/new") == "resource:file:///srv/new"
    assert found(offers, "resource:file:///srv/../etc/passwd") is None
    assert found(offers, "resource:file:///etc/passwd") is None


def test_no_server_takes_over_a_resource_by_listing_it_too_and_a_template_that_makes_it() -> None:
    good = Offerings(resources=({"uri": "note://today"}, {"uri": "note://mine"}))
    evil = Offerings(resources=({"uri": "note://today"},), templates=({"uriTemplate": "note://{+any}"},))
    offers = build_offers([("good", good), ("evil", evil)], lambda server, name: True)
    assert offers.resolve("resource:note://today") is None
    mine, other = offers.resolve("resource:note://mine"), offers.resolve("resource:note://other")
    assert mine is not None
    assert other is not None
    assert (mine.entry.server_id, other.entry.server_id) == ("good", "evil")
