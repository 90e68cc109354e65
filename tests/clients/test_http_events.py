"""Server-sent events, however the chunks fall."""

from __future__ import annotations

import time

import pytest
from hypothesis import given
from hypothesis import strategies as st

from conduit_daemon.clients.http_events import Event, EventParser


def parse(*chunks: bytes, limit: int = 1000) -> list[Event]:
    parser = EventParser(limit)
    return [event for chunk in chunks for event in parser.feed(chunk)]


def test_the_examples_of_the_standard() -> None:
    stream = b": test stream\n\ndata: first event\nid: 1\n\ndata:second event\nid\n\ndata:  third event\n\n"
    assert [(event.data, event.id) for event in parse(stream)] == [
        (b"first event", "1"),
        (b"second event", ""),
        (b" third event", ""),
    ]
    assert [event.data for event in parse(b"data\n\ndata\ndata\n\ndata:")] == [b"", b"\n"]
    assert parse(b"\xef\xbb\xbfevent: endpoint\ndata: /x\n\n") == [Event(b"/x", "endpoint", "")]


@given(
    st.lists(st.sampled_from([b"a", b"{}", b"data", b"\xc3\xa9"]), min_size=1, max_size=5),
    st.sampled_from([b"\n", b"\r\n", b"\r"]),
    st.data(),
)
def test_cuts_change_nothing(values: list[bytes], end: bytes, data: st.DataObject) -> None:
    stream = b"".join(b"id: %d%sdata: %s%sdata: x%s%s" % (i, end, v, end, end, end) for i, v in enumerate(values))
    cuts = sorted(data.draw(st.lists(st.integers(0, len(stream)), max_size=8)))
    chunks = [stream[i:j] for i, j in zip([0, *cuts], [*cuts, len(stream)], strict=True)]
    expected = [Event(value + b"\nx", "message", str(i)) for i, value in enumerate(values)]
    assert parse(*chunks) == expected


@pytest.mark.parametrize("cut", [7, 1_000_000])
def test_what_is_over_the_limit_is_left_out_and_the_rest_goes_on(cut: int) -> None:
    stream = b"data: " + b"x" * 5000 + b"\n\ndata: " + b"y" * 600 + b"\ndata: " + b"y" * 600 + b"\n\ndata: fine\n\n"
    events = parse(*(stream[i : i + cut] for i in range(0, len(stream), cut)))
    assert [event.data for event in events] == [b"", b"", b"fine"]
    long, lines, fine = (event.oversized for event in events)
    assert (long.head, long.tail) == (b"x" * len(long.head), b"x" * 4096)
    assert (lines.head, lines.tail) == (b"y" * 1200, b"y" * 1200)
    assert fine is None


def test_what_cannot_be_sent_back_is_no_id() -> None:
    parser = EventParser(100)
    parser.feed(b"id: fine\n\nid: \xc3\xa9\n\nid: a\x01\n\nid: " + b"i" * 2000 + b"\n\n")
    assert parser.last_id == "fine"


def test_a_large_event_in_small_chunks_costs_linear_time() -> None:
    def spent(size: int) -> float:
        chunks = [b"data: ", *[b"x" * 1000] * (size // 1000), b"\n\n"]
        began = time.thread_time()
        assert len(parse(*chunks, limit=size)[0].data) == size
        return time.thread_time() - began

    small = min(spent(2_000_000) for _ in range(3))
    assert min(spent(16_000_000) for _ in range(3)) < 8 * small * 4


def test_the_server_says_when_to_come_again() -> None:
    parser = EventParser(10)
    parser.feed(b"retry: 1500\nid: 7\nretry: soon\n\n")
    assert (parser.retry, parser.last_id) == (1.5, "7")
    parser.feed(b"retry: 0\n\n")
    assert parser.retry == 0.1  # never at once: a stream that ends at once would be a busy loop
