"""The asynchronous client, on asyncio and on trio, against a real process that answers by script."""

import asyncio
import json

import anyio
import pytest
import trio

from conduit_daemon.agent import AsyncConduit, CallFailed, Conduit, DaemonUnreachable, requests


@pytest.fixture(params=["asyncio", "trio"])
def run(request):
    def go(body):
        async def bounded():
            with anyio.fail_after(30):
                await body()

        if request.param == "trio":
            trio.run(bounded)
        else:
            asyncio.run(bounded())

    return go


async def eventually(condition):
    with anyio.fail_after(5):
        while not condition():
            await anyio.sleep(0.01)


def test_requests_run_at_the_same_time(fake, run):
    async def body():
        answers = {}
        async with AsyncConduit(fake.socket) as conduit:

            async def one(number):
                answers[number] = json.loads((await conduit.call("echo", {"n": number})).text)["n"]

            async with anyio.create_task_group() as tasks:
                tasks.start_soon(conduit.call, "sleep", {"seconds": 0.3})
                for number in range(200):
                    tasks.start_soon(one, number)
        assert answers == {number: number for number in range(200)}

    run(body)


def test_large_messages_in_both_directions_at_once(fake, run):
    async def body():
        text = "y" * 3_000_000
        sizes = []
        async with AsyncConduit(fake.socket) as conduit:

            async def one():
                sizes.append(len((await conduit.call("big", {"size": 2_000_000})).text))
                sizes.append(len(json.loads((await conduit.call("echo", {"text": text})).text)["text"]))

            async with anyio.create_task_group() as tasks:
                for _ in range(4):
                    tasks.start_soon(one)
        assert sorted(sizes) == [2_000_000] * 4 + [3_000_000] * 4

    run(body)


def test_errors_progress_and_control(fake, run):
    async def body():
        async with AsyncConduit(fake.socket) as conduit:
            with pytest.raises(CallFailed, match="no mail"):
                await conduit.call("error")
            seen = []
            await conduit.send(requests.call("progress"), on_progress=seen.append)
            assert [step.progress for step in seen] == [0, 1, 2]
            assert (await conduit.tree()).id == "root"
            assert (await conduit.request("conduit/status"))["version"] == "9.9.9"

    run(body)


def test_cancelling_a_task_cancels_its_request(fake, run):
    async def body():
        async with AsyncConduit(fake.socket) as conduit:
            with anyio.move_on_after(0.2) as scope:
                await conduit.call("sleep", {"seconds": 30})
            assert scope.cancelled_caught
            await eventually(lambda: {"cancelled": True} in fake.received())
            assert (await conduit.call("echo")).text == "{}"

    run(body)


def test_a_cancelled_reader_hands_the_reading_over(fake, run):
    async def body():
        async with AsyncConduit(fake.socket) as conduit:
            await conduit.connect()
            answers = []

            async def waits():
                answers.append((await conduit.call("sleep", {"seconds": 0.4})).text)

            async with anyio.create_task_group() as tasks:
                with anyio.move_on_after(0.1):
                    tasks.start_soon(waits)
                    await conduit.call("sleep", {"seconds": 30})
            assert answers == ["slept"]

    run(body)


def test_too_late(fake, run):
    async def body():
        async with AsyncConduit(fake.socket, timeout=0.1) as conduit:
            with pytest.raises(CallFailed) as caught:
                await conduit.call("sleep", {"seconds": 30})
            assert (caught.value.kind, caught.value.outcome) == ("timeout", "outcome_unknown")

    run(body)


def test_it_connects_again_and_repeats_nothing(fake, run):
    async def body():
        async with AsyncConduit(fake.socket) as conduit:
            with pytest.raises(CallFailed) as caught:
                await conduit.call("quit")
            assert caught.value.outcome == "outcome_unknown"
            fake.process.wait()
            async with anyio.create_task_group() as tasks:
                tasks.start_soon(conduit.status)
                await anyio.sleep(0.2)
                fake.start()
            assert [line["method"] for line in fake.received()] == ["conduit/call", "conduit/status"]

    run(body)


def test_no_daemon(tmp_path, run):
    async def body():
        with pytest.raises(DaemonUnreachable, match="no such socket"):
            await AsyncConduit(tmp_path / "none.sock").status()

    run(body)


def test_streams(fake, run):
    async def body():
        async with AsyncConduit(fake.socket) as conduit:
            async with conduit.events(backlog=3) as events:
                assert [(await anext(events)).seq for _ in range(3)] == [0, 1, 2]
            assert len([event async for event in conduit.events(servers=["ends"], backlog=2)]) == 2
            with pytest.raises(CallFailed, match="no server"):
                await anext(conduit.events(servers=["refused"], backlog=0))

    run(body)


def test_closing_ends_a_stream_that_another_task_reads(fake, run):
    async def body():
        async with AsyncConduit(fake.socket) as conduit:
            events = conduit.events(backlog=0)
            got = []

            async def follow():
                got.extend([event async for event in events])

            async with anyio.create_task_group() as tasks:
                tasks.start_soon(follow)
                await anyio.sleep(0.1)
                events.close()
            assert got == []

    run(body)


def test_both_clients_have_the_same_methods():
    public = {name for name in vars(Conduit) if not name.startswith("_")}
    assert public == {name for name in vars(AsyncConduit) if not name.startswith("_")}
