"""The dispatcher over real pipes: answers find their call whatever else the server writes."""

from __future__ import annotations

import json
import os
from collections.abc import AsyncIterator
from typing import Any

import msgspec
import pytest
import trio
from trio.testing import MockClock

from conduit_daemon.clients.stdio import LineDispatcher
from conduit_daemon.errors import ClientError


class Server:
    """The other end of the pipes, and the dispatcher's peer."""

    def __init__(self, max_line: int = 30_000) -> None:
        self.read, out = os.pipe()
        incoming, self.write = os.pipe()
        self.fds = [self.read, out, incoming, self.write]
        os.set_blocking(incoming, False)
        self.dispatcher = LineDispatcher("fake", incoming, out, self, max_message=max_line, patience=60)
        self.requests: list[tuple[Any, str]] = []
        self.notifications: list[str] = []
        self.garbage: list[bytes] = []

    def on_request(self, request_id: int | str, method: str, params: msgspec.Raw) -> None:
        self.requests.append((request_id, method))

    def on_notification(self, method: str, params: msgspec.Raw) -> None:
        self.notifications.append(method)

    def on_garbage(self, line: bytes, why: str) -> None:
        self.garbage.append(line)

    def say(self, line: bytes) -> None:
        os.write(self.write, line)

    def heard(self) -> list[dict[str, Any]]:
        return [json.loads(line) for line in os.read(self.read, 1 << 20).splitlines()]

    def ask(self, **options: Any) -> tuple[list[Any], Any]:
        got: list[Any] = []
        dispatcher = self.dispatcher
        pending = dispatcher.begin(
            dispatcher.mint_id(),
            "tools/call",
            {"name": "x"},
            lambda result, error: got.append(error if result is None else bytes(result)),
            **options,
        )
        return got, pending


@pytest.fixture
async def server() -> AsyncIterator[Server]:
    server = Server()
    async with trio.open_nursery() as nursery:
        nursery.start_soon(server.dispatcher.run)
        yield server
        nursery.cancel_scope.cancel()
    for fd in server.fds:
        os.close(fd)


async def settle() -> None:
    with trio.CancelScope(shield=True):
        await trio.sleep(0.02)


async def test_answers_find_their_call_in_any_order(server: Server) -> None:
    first, second = server.ask()[0], server.ask()[0]
    await settle()
    assert [message["id"] for message in server.heard()] == [1, 2]
    server.say(b'{"jsonrpc":"2.0","id":2,"result":{"n":2}}\n{"jsonrpc":"2.0","id":"1","result":{"n":1}}\n')
    await settle()
    assert (first, second) == ([b'{"n":1}'], [b'{"n":2}'])


@pytest.mark.parametrize(
    ("line", "kind", "outcome"),
    [
        (b'{"id":1,"error":{"code":-5,"message":"no","data":{"a":1}}}', "server_error", "failed"),
        (b'{"id":1,"error":"no"}', "protocol", "outcome_unknown"),
        (b'{"id":1}', "protocol", "outcome_unknown"),
        (b'{"id":1,"result":{"a":"\xff"}}', "protocol", "outcome_unknown"),
        (b'{"id":1,"result":{"a":"\\ud800"}}', "protocol", "outcome_unknown"),
        (b'{"id":1,"result":' + b"[" * 12_000 + b"]" * 12_000 + b"}", "protocol", "outcome_unknown"),
        (b'{"id":1,"result":{"a":' + b" " * 30_000 + b"1}}", "too_large", "outcome_unknown"),
        (b'{"result":{"a":' + b" " * 30_000 + b'1},"id":1}', "too_large", "outcome_unknown"),
        (b'{"result":{"rows":[{"id":2},' + b" " * 30_000 + b'{"id":2}]},"jsonrpc":"2.0","id":1}', "too_large",
         "outcome_unknown"),
        (b'{"jsonrpc":"2.0","id":"1","result":{"id":2,"a":' + b" " * 30_000 + b'{"id":2}}}', "too_large",
         "outcome_unknown"),
    ],
)  # fmt: skip
async def test_a_broken_answer_fails_its_call_alone(server: Server, line: bytes, kind: str, outcome: str) -> None:
    broken, whole = server.ask()[0], server.ask()[0]
    server.say(line + b'\n{"id":2,"result":{}}\n')
    await settle()
    assert [(error.kind, error.outcome) for error in broken] == [(kind, outcome)]
    assert whole == [b"{}"]


async def test_a_server_error_is_kept_whole(server: Server) -> None:
    got, _ = server.ask()
    server.say(b'{"id":1,"error":{"code":-5,"message":"no","data":{"a":1}}}\n')
    await settle()
    assert got[0].data["error"] == {"code": -5, "message": "no", "data": {"a": 1}}


async def test_a_carriage_return_cannot_forge_another_answer(server: Server) -> None:
    got, _ = server.ask()
    server.say(b'{"id":1,"result":{"a":\r{"jsonrpc":"2.0","id":9,"result":{}}\r}}\n')
    await settle()
    assert got == [b'{"a":{"jsonrpc":"2.0","id":9,"result":{}}}']


async def test_garbage_is_reported_and_calls_go_on(server: Server) -> None:
    got, _ = server.ask()
    server.say(b'\n\xef\xbb\xbf\n  \nbanner\n[1,2]\n{"id":null,"result":{}}\n\xff\xfe\n{"id":77,"result":{}}\n')
    server.say(b'\xef\xbb\xbf{"id":1,"result":{"ok":true}}\n')
    await settle()
    assert got == [b'{"ok":true}']
    assert server.garbage == [b"banner", b"[1,2]", b'{"id":null,"result":{}}', b"\xff\xfe"]


async def test_an_answer_whose_error_is_null_is_a_result(server: Server) -> None:
    got, _ = server.ask()
    server.say(b'{"id":1,"result":{},"error":null}\n')
    await settle()
    assert got == [b"{}"]


async def test_silence_ends_a_call_and_the_server_is_told(server: Server) -> None:
    got, _ = server.ask(idle=0.05)
    server.heard()
    await trio.sleep(0.2)
    assert (got[0].kind, got[0].outcome) == ("timeout", "outcome_unknown")
    told = server.heard()
    assert told == [
        {"jsonrpc": "2.0", "method": "notifications/cancelled", "params": {"requestId": 1, "reason": "timeout"}}
    ]
    server.say(b'{"id":1,"result":{}}\n')  # too late: nobody hears it
    await settle()
    assert len(got) == 1


async def test_progress_renews_the_silence_but_not_the_whole(autojump_clock: MockClock) -> None:
    server = Server()
    seen: list[bytes] = []
    start = trio.current_time()
    async with trio.open_nursery() as nursery:
        nursery.start_soon(server.dispatcher.run)
        got, _ = server.ask(idle=1, total=3.5, on_progress=lambda raw: seen.append(bytes(raw)))
        for _ in range(5):
            await trio.sleep(0.65)
            await server.dispatcher._take_chunk(
                b'{"method":"notifications/progress","params":{"progressToken":1,"progress":1}}\n'
            )
            assert got == [] or trio.current_time() - start >= 3.5
        await trio.sleep(5)
        assert got[0].kind == "timeout"
        assert "max_call_time" in got[0].message
        assert len(seen) == 5
        nursery.cancel_scope.cancel()
    for fd in server.fds:
        os.close(fd)


async def test_cancelling_goes_ahead_of_what_is_queued_and_withdraws_what_was_not_sent(server: Server) -> None:
    dispatcher = server.dispatcher
    sent, _ = server.ask()
    await settle()
    filler = dispatcher.begin(dispatcher.mint_id(), "x", {"fill": "x" * 200_000}, lambda result, error: None)
    queued, pending = server.ask()
    assert filler.sent
    assert not pending.sent
    dispatcher.cancel(pending, ClientError("cancelled", "gone", outcome="outcome_unknown"))
    dispatcher.cancel(dispatcher.pending[1], ClientError("cancelled", "gone", outcome="outcome_unknown"))
    assert queued[0].outcome == "not_sent"
    assert sent[0].outcome == "outcome_unknown"
    heard = b""
    while b"notifications/cancelled" not in heard:
        heard += os.read(server.read, 1 << 20)
        await settle()
    methods = [json.loads(line)["method"] for line in heard.splitlines()]
    assert methods == ["tools/call", "x", "notifications/cancelled"]


async def test_what_the_server_sends_unasked_reaches_the_peer(server: Server) -> None:
    server.say(b'{"id":"a","method":"roots/list"}\n{"method":"notifications/message","params":{}}\n')
    await settle()
    assert server.requests == [("a", "roots/list")]
    assert server.notifications == ["notifications/message"]
    server.dispatcher.answer("a", {"roots": []})
    server.dispatcher.refuse("b", -32601, "no")
    await settle()
    assert server.heard() == [
        {"jsonrpc": "2.0", "id": "a", "result": {"roots": []}},
        {"jsonrpc": "2.0", "id": "b", "error": {"code": -32601, "message": "no"}},
    ]


async def test_the_end_fails_every_call_once_and_no_other_can_begin(server: Server) -> None:
    got, _ = server.ask()
    server.dispatcher.fail_all(lambda pending: ClientError("unavailable", "over", outcome="outcome_unknown"))
    server.dispatcher.fail_all(lambda pending: ClientError("unavailable", "again"))
    assert [error.message for error in got] == ["over"]
    with pytest.raises(ClientError) as raised:
        server.ask()
    assert (raised.value.kind, raised.value.outcome) == ("unavailable", "not_sent")


async def test_a_server_that_asks_without_end_and_reads_nothing_is_answered_up_to_a_bound(server: Server) -> None:
    for i in range(100):
        server.dispatcher.answer(i, {"text": "x" * 1_000_000})
    assert server.dispatcher._writer.buffered < 20 << 20
