"""The blocking client against a real process that answers by script."""

import inspect
import json
import socket
import threading
import time

import msgspec
import pytest

from conduit_daemon.agent import CallFailed, Conduit, DaemonUnreachable, requests


@pytest.fixture
def conduit(fake):
    with Conduit(fake.socket) as client:
        yield client


def eventually(condition, timeout=5.0):
    deadline = time.monotonic() + timeout
    while not condition():
        assert time.monotonic() < deadline, "it never came true"
        time.sleep(0.01)


def test_answers_are_typed_and_new_keys_do_no_harm(conduit):
    status = conduit.status()

    assert status.version == "9.9.9"
    assert status.servers["files"].p50_ms == 1.25
    assert status.servers["search"].reason == "exited with code 1 at once."
    assert status.calls.total == 12
    with pytest.raises(AttributeError):
        status.version = "1"


def test_a_call_and_what_it_returns(conduit):
    result = conduit.call("echo", {"a": [1, "ü\u2028"]})

    assert json.loads(result.text) == {"a": [1, "ü\u2028"]}
    assert not result.is_error
    assert result.structured_content is msgspec.UNSET
    assert conduit.call("structured").structured_content is None
    assert conduit.call("structured").meta == {"a": 1}
    assert conduit.call("tool_error").is_error


def test_what_is_none_is_not_sent(conduit, fake):
    conduit.tools("openai", api="chat", strict=False)

    assert fake.received()[-1]["params"] == {"provider": "openai", "api": "chat", "strict": False}


def test_execution(conduit):
    done = conduit.execute("anthropic", {"content": []}, toolset="ts-1", taint=["web"])

    assert done.status == "ok"
    assert done.results[0]["taint"] == ["web"]
    assert done.outcomes[0].server == "files"


def test_the_daemons_errors_are_raised_with_all_they_say(conduit):
    with pytest.raises(CallFailed) as caught:
        conduit.call("error")

    error = caught.value
    assert (error.kind, error.code, error.outcome) == ("denied", -31001, "not_sent")
    assert str(error) == "The rule 'no mail' denies it."
    assert error.data["tool"] == "send"


def test_control_methods_go_to_the_control_socket(conduit):
    assert conduit.tree().children[0].mailbox == 2
    assert conduit.servers_explain("files").timeline[-1].event == "client.down"


def test_an_answer_that_cannot_be_read_is_a_failure_of_its_own_call_alone(conduit):
    with pytest.raises(CallFailed, match="cannot be read") as caught:
        conduit.call("wrong")

    assert caught.value.kind == "protocol"
    assert conduit.status().version == "9.9.9"


def test_progress_comes_to_the_thread_that_waits(conduit):
    seen = []
    result = conduit.send(requests.call("progress"), on_progress=seen.append)

    assert [step.message for step in seen] == ["step 0", "step 1", "step 2"]
    assert result.text == "done"


def test_a_request_that_takes_too_long_is_cancelled_at_the_daemon(conduit, fake):
    with pytest.raises(CallFailed) as caught:
        conduit.send(requests.call("sleep", {"seconds": 30}), timeout=0.1)

    assert (caught.value.kind, caught.value.outcome) == ("timeout", "outcome_unknown")
    eventually(lambda: {"cancelled": True} in fake.received())
    assert conduit.call("echo").text == "{}"


def test_threads_share_a_connection_and_wait_for_none_but_their_own_answer(fake):
    conduit = Conduit(fake.socket)
    answers = {}
    slow = threading.Thread(target=lambda: answers.update(slow=conduit.call("sleep", {"seconds": 1.0}).text))
    slow.start()

    def work(number):
        answers[number] = [json.loads(conduit.call("echo", {"n": number, "i": i}).text) for i in range(50)]

    started = time.monotonic()
    threads = [threading.Thread(target=work, args=(number,)) for number in range(16)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert "slow" not in answers or time.monotonic() - started > 0.9
    slow.join()

    assert answers.pop("slow") == "slept"
    assert answers == {number: [{"n": number, "i": i} for i in range(50)] for number in range(16)}
    conduit.close()


def test_large_messages_in_both_directions_at_once(fake):
    conduit = Conduit(fake.socket)
    text = "y" * 3_000_000
    results = []

    def work():
        results.append(len(conduit.call("big", {"size": 2_000_000}).text))
        results.append(len(json.loads(conduit.call("echo", {"text": text}).text)["text"]))

    threads = [threading.Thread(target=work) for _ in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join(30)

    assert sorted(results) == [2_000_000] * 4 + [3_000_000] * 4
    conduit.close()


def test_after_a_restart_of_the_daemon_the_next_request_connects_again(conduit, fake):
    conduit.status()
    fake.kill()
    starter = threading.Timer(0.3, fake.start)
    starter.start()

    assert conduit.status().version == "9.9.9"
    starter.join()


def test_a_request_that_was_sent_is_not_sent_again(conduit, fake):
    with pytest.raises(CallFailed) as caught:
        conduit.call("quit")
    fake.process.wait()

    assert (caught.value.kind, caught.value.outcome) == ("unavailable", "outcome_unknown")
    fake.start()
    assert conduit.call("echo").text == "{}"
    assert [line["params"]["name"] for line in fake.received()] == ["quit", "echo"]


def test_calls_of_other_threads_end_too_when_the_connection_does(conduit):
    failures = []

    def work():
        with pytest.raises(CallFailed) as caught:
            conduit.call("sleep", {"seconds": 30})
        failures.append(caught.value.outcome)

    threads = [threading.Thread(target=work) for _ in range(4)]
    for thread in threads:
        thread.start()
    time.sleep(0.2)
    with pytest.raises(CallFailed):
        conduit.call("close")
    for thread in threads:
        thread.join(5)

    assert failures == ["outcome_unknown"] * 4
    assert conduit.call("echo").text == "{}"


@pytest.mark.parametrize(("name", "kind"), [("garbage", "protocol"), ("full", "unavailable")])
def test_a_daemon_that_refuses_the_connection(conduit, name, kind):
    with pytest.raises(CallFailed) as caught:
        conduit.call(name)

    assert caught.value.kind == kind
    assert conduit.call("echo").text == "{}"


def test_what_the_daemon_asks_of_a_client_is_declined(conduit, fake):
    conduit.call("ask")
    conduit.call("echo")

    def declined():
        return [line["error"]["code"] for line in fake.received() if line.get("id") == "from-daemon"]

    eventually(lambda: declined() == [-32601])


def test_closing_ends_a_call_of_another_thread(conduit):
    caught = []

    def work():
        with pytest.raises(CallFailed) as failure:
            conduit.call("sleep", {"seconds": 30})
        caught.append(failure.value.outcome)

    thread = threading.Thread(target=work)
    thread.start()
    time.sleep(0.2)
    conduit.close()
    thread.join(5)

    assert caught == ["outcome_unknown"]


def test_no_daemon_is_said_with_what_was_tried_and_what_to_do(tmp_path, monkeypatch):
    monkeypatch.delenv("CONDUIT_SOCKET", raising=False)
    monkeypatch.setenv("HOME", str(tmp_path))
    monkeypatch.setenv("XDG_RUNTIME_DIR", str(tmp_path / "run"))
    monkeypatch.setenv("XDG_CONFIG_HOME", str(tmp_path / "none"))
    (tmp_path / "run/conduit").mkdir(parents=True)
    with socket.socket(socket.AF_UNIX) as gone:
        gone.bind(str(tmp_path / "run/conduit/agent.sock"))

    with pytest.raises(DaemonUnreachable) as caught:
        Conduit().status()

    text = str(caught.value)
    assert f"{tmp_path}/run/conduit/agent.sock (left behind" in text
    assert f"{tmp_path}/.local/state/conduit/agent.sock (no such socket)" in text
    assert "conduit run" in text


def test_a_path_that_is_too_long_is_said(tmp_path):
    with pytest.raises(DaemonUnreachable, match="longer than the 107 bytes"):
        Conduit(tmp_path / ("x" * 120)).status()


def test_a_file_that_is_no_socket_is_said(tmp_path):
    (tmp_path / "agent.sock").write_text("no socket")
    with pytest.raises(DaemonUnreachable, match="not a socket"):
        Conduit(tmp_path / "agent.sock").status()


def test_connect_waits_for_a_daemon_to_come_up(fake):
    fake.kill()
    starter = threading.Timer(0.3, fake.start)
    starter.start()
    with Conduit(fake.socket) as conduit:
        conduit.connect(5)
        assert conduit.status().health == "degraded"
    starter.join()


def test_events_stream_until_closed(conduit):
    with conduit.events(["client.*"], backlog=5) as events:
        got = [next(events) for _ in range(5)]
        assert [event.seq for event in got] == [0, 1, 2, 3, 4]
        assert got[4].fields["tools"] == 4
        threading.Timer(0.2, events.close).start()
        assert list(events) == []


def test_a_stream_ends_as_the_daemon_ends_it(conduit, fake):
    assert len(list(conduit.events(servers=["ends"], backlog=2))) == 2
    with pytest.raises(CallFailed, match="no server 'refused'"):
        list(conduit.events(servers=["refused"], backlog=0))
    events = conduit.events(backlog=1)
    next(events)
    fake.kill()
    with pytest.raises(CallFailed) as caught:
        next(events)
    assert caught.value.kind == "unavailable"


def test_any_method_by_its_name(conduit):
    assert conduit.request("conduit/status")["from_the_future"] == {"x": 1}
    with pytest.raises(CallFailed, match="There is no method"):
        conduit.request("conduit/none", control=True)


def test_methods_carry_the_parameters_and_the_words_of_their_requests():
    assert list(inspect.signature(Conduit.call).parameters)[:3] == ["self", "name", "arguments"]
    assert list(inspect.signature(Conduit("/x").call).parameters)[:2] == ["name", "arguments"]
    assert Conduit.call.__doc__.startswith("Calls one tool.")


def test_every_request_is_a_method():
    names = set(requests.__all__) - {"Request", "Subscription"}
    assert names <= set(vars(Conduit))
