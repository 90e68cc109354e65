"""Streamable HTTP against a server that misbehaves: only the call fails that is concerned, and it says how."""

from __future__ import annotations

import json
import random
import signal
from collections import Counter
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import trio

from conduit_daemon.clients import http, http_dispatcher
from conduit_daemon.config import LimitsConfig
from conduit_daemon.errors import ClientError

ERAS = [(), ("json",), ("pretty", "crlf"), ("json", "pretty"), ("modern",), ("modern", "json")]


@pytest.fixture
def fake(serve: Callable[..., Any]) -> Callable[..., Any]:
    return lambda *behaviours: serve("http_server.py", *behaviours)


@pytest.mark.parametrize("behaviours", ERAS, ids="-".join)
async def test_it_is_ready_lists_and_answers_in_both_eras_and_forms(fake: Any, connected: Any, behaviours: Any) -> None:
    async with connected(fake(*behaviours).url()) as server:
        modern = "modern" in behaviours
        assert server.negotiated.version == ("2026-07-28" if modern else "2025-11-25")
        assert "echo" in [tool.name for tool in server.listings[0].tools]
        assert await server.call("echo", {"text": "hé\n"}) == ({"content": [{"type": "text", "text": "hé\n"}]}, False)
        assert len(await server.text("big", {"size": 6_000_000})) == 6_000_000


async def test_an_older_server_that_refuses_the_newer_eras_question_barely_is_greeted_as_older(
    fake: Any, connected: Any
) -> None:
    async with connected(fake("bare").url()) as server:
        assert server.negotiated.version == "2025-11-25"


async def test_a_page_is_no_stream_and_is_not_asked_for_again(fake: Any, connected: Any) -> None:
    async with connected(fake("page").url()) as server:
        await trio.sleep(1.5)
        received = [method for method, _ in json.loads(await server.text("received"))]
        assert received.count("GET") == 1


async def test_a_host_that_says_nothing_any_more_is_missed_in_the_end(
    fake: Any, connected: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(http, "_HEARTBEAT", 0.2)
    monkeypatch.setattr(http_dispatcher, "_LIFE", 0.5)
    running = fake("no_stream")
    async with connected(running.url()) as server:
        await trio.sleep(1)
        assert not server.lost.is_set()
        running.process.send_signal(signal.SIGSTOP)
        with trio.fail_after(5):
            await server.over.wait()
        assert "whether it is still there" in server.ended.reason


async def test_headers_go_along_and_those_of_the_newer_era_say_what_is_called(fake: Any, connected: Any) -> None:
    async with connected(fake("modern").url(), headers={"X-Own": "mine"}) as server:
        headers = json.loads(await server.text("marked", {"region": "eu-1"}))
        assert headers["x-own"] == "mine"
        assert headers["mcp-protocol-version"] == "2026-07-28"
        assert (headers["mcp-method"], headers["mcp-name"], headers["mcp-param-region"]) == (
            "tools/call",
            "marked",
            "eu-1",
        )
        assert [dropped.members[0][1] for dropped in server.listings[0].dropped] == ["wrong"]
    async with connected(fake().url()) as server:
        headers = json.loads(await server.text("headers"))
        assert headers["mcp-protocol-version"] == "2025-11-25"
        assert "mcp-session-id" in headers
        assert "mcp-method" not in headers


async def test_progress_comes_and_renews_the_silence(fake: Any, connected: Any) -> None:
    seen: list[Any] = []
    async with connected(fake().url(), call_timeout=0.3) as server:
        assert await server.text("tick", {"times": 10}, on_progress=lambda raw: seen.append(json.loads(bytes(raw))))
        assert [progress["progress"] for progress in seen] == list(range(1, 11))
        with pytest.raises(ClientError) as raised:
            await server.call("sleep", {"seconds": 5})
        assert (raised.value.kind, raised.value.outcome) == ("timeout", "outcome_unknown")


@pytest.mark.parametrize(
    ("arguments", "kind", "outcome", "status"),
    [
        ({"kind": "status", "status": 500}, "unavailable", "failed", 500),
        ({"kind": "status", "status": 502}, "unavailable", "outcome_unknown", 502),
        ({"kind": "status", "status": 418}, "unavailable", "failed", 418),
        ({"kind": "status", "status": 403}, "unavailable", "failed", 403),
        ({"kind": "status", "status": 400, "body": {"jsonrpc": "2.0", "id": None, "error": {"code": -32602}}},
         "server_error", "failed", 400),
        ({"kind": "reset"}, "unavailable", "outcome_unknown", None),
        ({"kind": "half"}, "unavailable", "outcome_unknown", None),
        ({"kind": "accepted"}, "protocol", "outcome_unknown", None),
        ({"kind": "html"}, "protocol", "outcome_unknown", None),
        ({"kind": "garbage"}, "protocol", "outcome_unknown", None),
        ({"kind": "other"}, "protocol", "outcome_unknown", None),
    ],
    ids=lambda value: str(value.get("status", value["kind"])) if isinstance(value, dict) else "",
)  # fmt: skip
async def test_one_failed_post_fails_one_call(
    fake: Any, connected: Any, arguments: Any, kind: str, outcome: str, status: int | None
) -> None:
    async with connected(fake().url()) as server:
        _, slept, done = server.begin("sleep", {"seconds": 0.5})
        with pytest.raises(ClientError) as raised:
            await server.call("fail", arguments)
        assert (raised.value.kind, raised.value.outcome) == (kind, outcome)
        assert raised.value.data.get("http_status") == status
        assert await server.text("echo", {"text": "on"}) == "on"
        with trio.fail_after(5):
            await done.wait()
        assert slept[0][0]["content"][0]["text"] == "slept"
        assert not server.lost.is_set()


@pytest.mark.parametrize("status", [429, 503])
async def test_retry_after_is_told_and_kept(fake: Any, connected: Any, status: int) -> None:
    async with connected(fake().url()) as server:
        with pytest.raises(ClientError) as raised:
            await server.call("fail", {"kind": "status", "status": status, "retry_after": "1"})
        assert (raised.value.retry_after, raised.value.data["http_status"]) == (1, status)
        with pytest.raises(ClientError) as raised:
            await server.call("echo", {"text": "too early"})
        assert (raised.value.kind, raised.value.outcome) == ("unavailable", "not_sent")
        assert raised.value.retry_after is not None
        await trio.sleep(raised.value.retry_after)
        assert await server.text("echo", {"text": "in time"}) == "in time"


async def test_a_forgotten_session_is_begun_anew_and_the_call_is_sent_once_more(fake: Any, connected: Any) -> None:
    async with connected(fake().url()) as server:
        _, slept, done = server.begin("sleep", {"seconds": 0.5})
        await server.text("forget")
        texts: list[str] = []

        async def echo(text: str) -> None:
            texts.append(await server.text("echo", {"text": text}))

        async with trio.open_nursery() as nursery:
            for i in range(5):
                nursery.start_soon(echo, str(i))
        assert sorted(texts) == ["0", "1", "2", "3", "4"]
        await done.wait()
        assert slept[0][0]["content"][0]["text"] == "slept"
        received = [method for method, _ in json.loads(await server.text("received"))]
        assert received.count("initialize") == 2
        assert not server.lost.is_set()


async def test_a_call_that_hears_late_that_its_session_is_gone_holds_up_nobody(fake: Any, connected: Any) -> None:
    async with connected(fake("slow_404=1").url()) as server:
        await server.text("forget")
        _, late, done = server.begin("echo", {"text": "late"})
        await trio.sleep(0.2)
        assert await server.text("echo", {"text": "in the next session"}) == "in the next session"
        assert late == []
        with trio.fail_after(5):
            await done.wait()
        assert late[0][0]["content"][0]["text"] == "late"
        assert await server.text("echo", {"text": "on"}) == "on"


async def test_a_server_that_always_forgets_is_no_loop(fake: Any, connected: Any) -> None:
    async with connected(fake().url()) as server:
        with pytest.raises(ClientError) as raised:
            await server.call("fail", {"kind": "status", "status": 404})
        assert (raised.value.kind, raised.value.outcome) == ("unavailable", "not_sent")
        assert raised.value.data["http_status"] == 404


@pytest.mark.parametrize("behaviours", [(), ("modern",)], ids=["older", "newer"])
async def test_a_cancelled_call_is_stopped_at_the_server(fake: Any, connected: Any, behaviours: Any) -> None:
    async with connected(fake(*behaviours).url()) as server:
        running, got, done = server.begin("sleep", {"seconds": 30})
        await trio.sleep(0.2)
        began, request_id = trio.current_time(), running.pending.request_id
        running.cancel(ClientError("cancelled", "never mind", outcome="outcome_unknown"))
        await done.wait()
        assert trio.current_time() - began < 0.1
        assert (got[0].kind, got[0].outcome) == ("cancelled", "outcome_unknown")
        await trio.sleep(0.2)
        received = json.loads(await server.text("received"))
        told = [request for method, request in received if method == "notifications/cancelled"]
        assert told == ([] if behaviours else [request_id])


async def test_too_large_a_result_fails_its_call_and_no_other(fake: Any, connected: Any) -> None:
    for behaviours in ((), ("json",)):
        async with connected(fake(*behaviours).url(), limits=LimitsConfig(max_result=100_000)) as server:
            with pytest.raises(ClientError) as raised:
                await server.call("big", {"size": 11_000_000})
            assert raised.value.kind == "too_large"
            assert len(await server.text("big", {"size": 90_000})) == 90_000


async def test_an_answer_that_is_cut_off_is_resumed_after_the_last_event(fake: Any, connected: Any) -> None:
    async with connected(fake().url()) as server:
        assert await server.text("fail", {"kind": "cut"}) == "resumed"


@pytest.mark.parametrize("behaviour", ["late_stream=0.3", "no_stream"])
async def test_no_call_goes_out_before_an_older_server_can_ask_about_it(
    fake: Any, connected: Any, behaviour: str
) -> None:
    async with connected(fake(behaviour).url()) as server:
        received = [method for method, _ in json.loads(await server.text("received"))]
        assert received.index("GET") < received.index("tools/call")


async def test_a_stream_that_is_answered_by_its_first_event_alone_is_not_waited_for(fake: Any, connected: Any) -> None:
    began = trio.current_time()
    async with connected(fake("late_stream=30").url()) as server:
        assert 0.5 <= trio.current_time() - began < 5
        assert await server.text("echo", {"text": "on"}) == "on"


async def test_changed_tools_are_listed_again(fake: Any, connected: Any) -> None:
    async with connected(fake().url()) as server:
        await server.text("reveal")
        with trio.fail_after(5):
            await server.relisted.wait()
        assert "late" in [tool.name for tool in server.listings[-1].tools]


async def test_a_server_that_is_killed_is_noticed_while_idle(fake: Any, connected: Any) -> None:
    running = fake()
    async with connected(running.url()) as server:
        await trio.sleep(0.3)
        _, got, _ = server.begin("sleep", {"seconds": 30})
        await trio.sleep(0.1)
        running.process.kill()
        with trio.fail_after(2):
            await server.over.wait()
        assert server.ended.kind == "lost"
        assert "cannot be reached any more" in server.ended.reason
        assert got[0].outcome == "outcome_unknown"


async def test_a_call_that_finds_nobody_was_not_sent(fake: Any, connected: Any) -> None:
    running = fake("modern")
    async with connected(running.url()) as server:
        running.kill()
        with pytest.raises(ClientError) as raised:
            await server.call("echo", {"text": "hello?"})
        assert (raised.value.kind, raised.value.outcome) == ("unavailable", "not_sent")
        with trio.fail_after(2):
            await server.over.wait()
        running.start()


@pytest.mark.parametrize(
    ("behaviours", "kind", "retry_after"),
    [
        (("token=x",), "misconfigured", None),
        (("status=403",), "misconfigured", None),
        (("status=503", "retry_after=7"), "start", 7),
        (("status=429", "retry_after=Wed, 21 Oct 2015 07:28:00 GMT"), "start", 0),
        (("status=500",), "start", None),
    ],
)
async def test_a_server_that_does_not_let_us_in_says_whether_to_try_again(
    fake: Any, connected: Any, behaviours: Any, kind: str, retry_after: float | None
) -> None:
    async with connected(fake(*behaviours).url(), wait=False) as server:
        assert server.ended.kind == kind
        assert server.ended.retry_after == retry_after


async def test_the_configured_token_lets_us_in(fake: Any, connected: Any) -> None:
    async with connected(fake("token=x").url(), headers={"Authorization": "Bearer x"}) as server:
        assert await server.text("echo", {"text": "in"}) == "in"


async def test_redirects_are_followed_within_the_origin_alone(fake: Any, connected: Any) -> None:
    running = fake()
    async with connected(running.url("/old")) as server:
        assert await server.text("echo", {"text": "here"}) == "here"
    async with connected(running.url("/away"), wait=False) as server:
        assert "redirect to http://elsewhere.invalid/mcp" in server.ended.reason


@pytest.mark.parametrize("era", [(), ("modern",)], ids=["older", "newer"])
async def test_questions_are_answered_by_the_configuration(fake: Any, connected: Any, era: Any, tmp_path: Path) -> None:
    async with connected(fake(*era).url(), roots=(tmp_path,)) as server:
        answer = json.loads(await server.text("ask", {"method": "roots/list"}))
        roots = {"roots": [{"uri": tmp_path.as_uri(), "name": tmp_path.name}]}
        if era:
            assert answer == [{"one": roots}, "s-1"]
            with pytest.raises(ClientError) as raised:
                await server.call("ask", {"method": "elicitation/create"})
            assert (raised.value.kind, raised.value.outcome) == ("protocol", "outcome_unknown")
        else:
            assert (answer["id"], answer["result"]) == ("asked", roots)
            refused = json.loads(await server.text("ask", {"method": "sampling/createMessage"}))
            assert "offers no sampling" in refused["error"]["message"]


async def test_a_session_is_ended_with_its_connection(fake: Any, connected: Any) -> None:
    running = fake()
    async with connected(running.url()):
        pass
    async with connected(running.url()) as server:
        assert "DELETE" in [method for method, _ in json.loads(await server.text("received"))]


@pytest.mark.parametrize(
    ("behaviour", "kind"), [("token=x", "misconfigured"), ("status=503", "start"), ("no_stream", "start")]
)
async def test_the_legacy_transport_says_why_it_has_no_stream(
    fake: Any, connected: Any, behaviour: str, kind: str
) -> None:
    async with connected(fake(behaviour).url("/sse"), wait=False, transport="sse") as server:
        assert server.ended.kind == kind
        assert "answered with HTTP status" in server.ended.reason


async def test_the_legacy_transport_posts_nowhere_else(connected: Any) -> None:
    async def lure(stream: trio.SocketStream) -> None:
        await stream.receive_some(4096)
        head = b"HTTP/1.1 200 OK\r\ncontent-type: text/event-stream\r\n\r\n"
        await stream.send_all(head + b"event: endpoint\ndata: http://elsewhere.invalid/\n\n")
        await trio.sleep(10)

    async with trio.open_nursery() as nursery:
        listeners = await nursery.start(trio.serve_tcp, lure, 0)
        url = f"http://127.0.0.1:{listeners[0].socket.getsockname()[1]}/sse"
        async with connected(url, wait=False, transport="sse") as server:
            assert server.ended.kind == "misconfigured"
            assert "elsewhere.invalid" in server.ended.reason
        nursery.cancel_scope.cancel()


@pytest.mark.parametrize("behaviours", [(), ("json",), ("modern",)], ids=["events", "json", "newer"])
async def test_a_storm_of_faults_leaves_no_call_without_an_answer(fake: Any, connected: Any, behaviours: Any) -> None:
    dice = random.Random(7)
    ends: Counter[str] = Counter()
    faults: list[tuple[str, dict[str, Any]]] = [
        ("fail", {"kind": "status", "status": 500}),
        ("fail", {"kind": "status", "status": 503}),
        ("fail", {"kind": "reset"}),
        ("fail", {"kind": "half"}),
        ("fail", {"kind": "garbage"}),
        ("forget", {}),
    ]
    async with connected(fake(*behaviours).url()) as server:

        async def one(number: int) -> None:
            tool, arguments = dice.choice(faults) if dice.random() < 0.3 else ("echo", {"text": str(number)})
            await trio.sleep(dice.random())
            _, got, done = server.begin(tool, arguments, total=20.0)
            with trio.fail_after(40):
                await done.wait()
            if isinstance(got[0], ClientError):
                assert tool != "echo" or got[0].outcome == "not_sent", got[0]
                ends[got[0].kind] += 1
            else:
                assert tool != "echo" or got[0][0]["content"][0]["text"] == str(number)
                ends["done"] += 1

        async with trio.open_nursery() as nursery:
            for number in range(200):
                nursery.start_soon(one, number)
        assert ends["done"] > 20  # the slower the machine, the more sessions are forgotten under a call twice
        assert not server.lost.is_set()
        assert await server.text("echo", {"text": "still here"}) == "still here"
        assert not server.connection.running
