"""The command and the agent library against a real daemon with the example server."""

import json
import os
import pty
import queue
import re
import select
import signal
import threading
import time

import anyio
import pytest

from conduit_daemon.agent import AsyncConduit, CallFailed, Conduit, requests
from conduit_daemon.cli.demo_steps import FORMATS, recorded


def test_the_verbs_find_the_daemon_by_its_configuration(daemon):
    status = daemon("status")
    assert status.returncode == 0
    assert "notebook  ready" in status.stdout
    assert "/nowhere/at/all" in status.stdout
    assert [line.split()[0] for line in daemon("tools").stdout.splitlines()[1:]] == [
        f"notebook__{name}" for name in ("search_notes", "read_note", "add_note", "chart_tags", "proofread")
    ]
    assert "root running" in daemon("tree").stdout
    assert "/nowhere/at/all" in daemon("explain", "broken").stdout


def test_calls_and_their_exit_codes(daemon):
    assert daemon("call", "notebook__read_note", "id=n1").stdout.startswith("# Bread\n")
    assert "[image: image/png, about " in daemon("call", "notebook__chart_tags").stdout
    refused = daemon("call", "notebook__read_note", "id=n9")
    assert (refused.returncode, refused.stderr) == (5, "")
    assert "There is no note 'n9'" in refused.stdout
    denied = daemon("call", "notebook__add_note", "title=a", "body=b")
    assert denied.returncode == 4
    assert "denied" in denied.stderr
    unknown = daemon("call", "notebook__nothing", "--json")
    assert unknown.returncode == 1
    assert json.loads(unknown.stdout)["error"]["data"]["kind"] == "unknown_tool"
    wrong = daemon("call", "notebook__read_note", "nid=n1")
    assert wrong.returncode == 1
    assert len(wrong.stderr.splitlines()) == 1


@pytest.fixture
def watching(daemon):
    """`conduit approvals --watch --json`, once it watches: a function that waits for its next line."""
    process = daemon.open("approvals", "--watch", "--json")
    lines = queue.Queue()
    reader = threading.Thread(target=lambda: [lines.put(json.loads(line)) for line in process.stdout])
    reader.start()
    with Conduit(daemon.socket) as conduit:
        # A call is asked about, and not denied at once, as soon as somebody watches.
        deadline = time.monotonic() + 15
        asked = []
        while not asked:
            assert time.monotonic() < deadline
            call = daemon.open("call", "notebook__add_note", "title=Ask first", "body=b")
            while call.poll() is None and not asked:
                asked = conduit.approvals().approvals
        conduit.decide(asked[0].id, "deny")
        call.communicate(timeout=10)
    assert [lines.get(timeout=10)["type"] for _ in range(2)] == ["requested", "decided"]
    yield lambda: lines.get(timeout=10)
    process.send_signal(signal.SIGINT)
    assert process.wait(10) == 130
    reader.join(10)
    process.stdout.close()
    process.stderr.close()


def test_a_call_waits_for_a_persons_word(daemon, watching):
    call = daemon.open("call", "notebook__add_note", "title=Ask me", "body=b")
    asked = watching()["approval"]
    assert asked["arguments"] == {"title": "Ask me", "body": "b"}
    assert asked["rule"] == "notes are asked about"
    assert asked["id"] in daemon("approvals").stdout
    assert json.loads(daemon("approvals", "--json").stdout)["approvals"][0]["id"] == asked["id"]

    assert daemon("approvals", "approve", asked["id"]).stdout == f"{asked['id']}: approved.\n"

    assert call.communicate(timeout=10)[0].startswith("{")
    assert call.returncode == 0
    decided = watching()
    assert (decided["type"], decided["decision"]) == ("decided", "approve")
    assert daemon("approvals").stdout == "No call waits for approval.\n"
    assert daemon("approvals", "approve", asked["id"]).returncode == 1


def test_a_person_denies_with_a_reason_and_is_remembered(daemon, watching):
    words = ("call", "notebook__add_note", "title=Ask again", "body=b")
    call = daemon.open(*words)
    asked = watching()["approval"]

    told = daemon("approvals", "deny", asked["id"], "--reason", "not today", "--remember", "args", "--for", "1h")

    assert told.stdout == f"{asked['id']}: denied; remembered for args.\n"
    assert "not today" in call.communicate(timeout=10)[1]
    assert call.returncode == 4
    again = daemon(*words)
    assert (again.returncode, again.stdout) == (4, "")
    assert daemon("approvals", "deny", asked["id"], "--for", "1h").returncode == 2


def test_a_person_is_asked_on_a_terminal(daemon):
    ours, theirs = pty.openpty()
    watch = daemon.open("approvals", terminal=theirs, stdin=theirs)
    os.close(theirs)

    def seen(text):
        data = b""
        while text not in data:
            assert select.select([ours], [], [], 10)[0], data
            data += os.read(ours, 65536)

    def asked(title, key, said):
        call = daemon.open("call", "notebook__add_note", f"title={title}", "body=" + "b" * 500)
        seen(b"left")
        time.sleep(0.5)  # keys are not taken before a person can have read
        os.write(ours, key)
        seen(said)
        code = call.wait(10)
        call.communicate()
        return code

    seen(b"watching for calls")
    time.sleep(0.2)
    assert asked("Ask at a terminal", b"a", b": allow\r") == 0
    assert asked("Ask once more", b"zd", b": deny\r") == 4
    assert asked("Ask and halt", b"x", b": deny and halt") == 4
    assert asked("Ask for an hour", b"h", b"for an hour\r") == 0
    assert daemon("call", "notebook__add_note", "title=Ask for an hour", "body=" + "b" * 500).returncode == 0
    many = [f"more{n}=x" for n in range(20)]
    call = daemon.open("call", "notebook__add_note", *many, "title=Ask about many", "body=b")
    seen(b"6 arguments more of 22, f shows them")
    seen(b"left")
    time.sleep(0.5)
    os.write(ours, b"a")
    seen(b"look at it whole first")
    os.write(ours, b"f")
    seen(b"Ask about many")
    os.write(ours, b"a")
    seen(b": allow\r")
    assert call.wait(10) == 0
    call.communicate()
    call = daemon.open("call", "notebook__add_note", "title=Ask and leave", "body=b")
    seen(b" left > ")
    watch.send_signal(signal.SIGINT)
    assert watch.wait(10) == 130
    assert os.read(ours, 65536).endswith(b"\r\x1b[K")  # the shell's next prompt has a line of its own
    os.close(ours)
    call.terminate()
    call.communicate(timeout=10)


def test_what_the_rules_say_of_a_call(daemon):
    told = daemon("policy", "explain", "notebook__add_note", "title=Ask", "body=b")

    assert told.returncode == 0
    assert told.stdout.startswith(
        "notebook__add_note: approve, by notes are asked about: a person looks at new notes\n"
    )
    assert re.search(r"^rules\[0\] +no ", told.stdout, re.MULTILINE)
    found = json.loads(daemon("policy", "explain", "notebook__read_note", "--json").stdout)
    assert (found["decision"], found["rule"]) == ("allow", "rules[0]")
    assert daemon("policy", "explain", "nothing").returncode == 1


def test_what_was_called_can_be_looked_up(daemon):
    daemon("call", "notebook__read_note", "id=n1")
    daemon("call", "notebook__add_note", "title=a", "body=b")
    deadline = time.monotonic() + 5
    while True:
        rows = json.loads(daemon("audit", "--since", "1h", "--limit", "2", "--json").stdout)["rows"]
        if [row["decision"] for row in rows] == ["deny", "allow"]:
            break
        assert time.monotonic() < deadline, rows

    said = daemon("audit", "--server", "notebook", "--tool", "add_note", "--limit", "1")
    assert said.stdout.splitlines()[1].split()[3:6] == ["notebook", "add_note", "deny"]
    assert daemon("audit", "--until", "2020-01-31").stdout == "No such calls.\n"
    assert daemon("audit", "--since", "yesterday").returncode == 2


@pytest.mark.parametrize("format", FORMATS, ids=lambda format: format.recorded)
def test_a_response_of_every_provider(daemon, format):
    words = ["execute", format.provider, *(["--api", format.api] if format.api else [])]
    said = daemon(*words, "--json", stdin=json.dumps(recorded(format)))

    answer = json.loads(said.stdout)
    assert said.returncode == 0
    assert [outcome["kind"] for outcome in answer["outcomes"]] == ["ok", "unknown_tool", "invalid_arguments"]
    assert len(answer["results"]) == 3
    rows = daemon(*words, stdin=json.dumps(recorded(format))).stdout.splitlines()[1:]
    assert [row.split()[1] for row in rows] == ["ok", "unknown_tool", "invalid_arguments"]


def test_events_are_followed(daemon):
    follow = daemon.open("events", "call.*", "--server", "notebook", "--backlog", "1", "--count", "2", "--json")
    # The backlog may come before or after: what counts is that a call that is made is told.
    while follow.poll() is None:
        daemon("call", "notebook__read_note", "id=n1")
    lines = [json.loads(line) for line in follow.communicate()[0].splitlines()]
    assert [line["type"] for line in lines] == ["call.finished"] * 2
    assert lines[1]["seq"] > lines[0]["seq"]
    shown = daemon("events", "call.finished", "--backlog", "1", "--count", "1").stdout
    assert re.match(r"\d{4}-\d\d-\d\d \d\d:\d\d:\d\d call\.finished notebook/", shown)


def test_a_second_daemon_is_refused_in_a_sentence(daemon):
    second = daemon("run")

    assert second.returncode == 1
    assert "Traceback" not in second.stderr
    assert daemon("status").returncode == 0


def test_the_library_calls_lists_and_reports_progress(daemon):
    with Conduit(daemon.socket) as conduit:
        listing = conduit.tools("anthropic")
        assert len(listing.tools) == 5
        assert [missing.server for missing in listing.missing] == ["broken"]
        done = conduit.execute("anthropic", recorded(FORMATS[0]), toolset=listing.toolset)
        assert done.taint == ["notebook"]
        assert [outcome.server for outcome in done.outcomes] == ["notebook", None, "notebook"]
        seen = []
        arguments = {"seconds_per_note": 0.02}
        result = conduit.send(requests.call("notebook__proofread", arguments), on_progress=seen.append)
        assert "notes read; nothing to correct" in result.text
        assert [step.message for step in seen][:3] == ["Bread", "Bicycle", "Winter jam"]
        assert conduit.call(server="notebook", tool="search_notes", arguments={"words": "jam"}).structured_content == {
            "matches": [{"id": "n3", "title": "Winter jam", "line": "Winter jam"}],
            "total": 1,
        }
        assert {child.id for child in conduit.tree().children} >= {"clients", "hub", "rpc"}
        assert conduit.servers_explain("notebook").state == "ready"
        assert conduit.initialize().server_info["name"]
        assert len(conduit.list_tools().tools) == 5
        assert conduit.call_tool("notebook__read_note", {"id": "n9"}).is_error
        conduit.ping()


def test_a_control_method_is_refused_at_the_agent_socket(daemon):
    with Conduit(daemon.socket) as conduit, pytest.raises(CallFailed) as caught:
        conduit.request("conduit/tree")
    assert (caught.value.kind, caught.value.code) == ("forbidden", -31009)


def test_many_calls_of_threads_and_of_tasks(daemon):
    with Conduit(daemon.socket) as conduit:
        found = []

        def work():
            for _ in range(25):
                result = conduit.call("notebook__search_notes", {"words": "jam"})
                found.append(result.structured_content["total"])

        threads = [threading.Thread(target=work) for _ in range(8)]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
        assert found == [1] * 200

    async def tasks():
        async with AsyncConduit(daemon.socket) as conduit:
            found.clear()

            async def one():
                result = await conduit.call("notebook__search_notes", {"words": "jam"})
                found.append(result.structured_content["total"])

            async with anyio.create_task_group() as group:
                for _ in range(200):
                    group.start_soon(one)

    anyio.run(tasks)
    assert found == [1] * 200


def test_the_library_survives_a_restart_of_the_daemon(mortal, tmp_path):
    with Conduit(mortal.socket) as conduit:
        first = conduit.status().pid
        failures = []

        def slow():
            with pytest.raises(CallFailed) as caught:
                conduit.call("notebook__proofread", {"seconds_per_note": 10})
            failures.append((caught.value.kind, caught.value.outcome))

        thread = threading.Thread(target=slow)
        thread.start()
        while not conduit.status().calls.in_flight:
            time.sleep(0.02)
        os.kill(first, signal.SIGKILL)
        mortal.process.wait()
        thread.join(5)
        assert failures == [("unavailable", "outcome_unknown")]
        with (tmp_path / "log").open("wb") as log:
            mortal.process = mortal.open("run", terminal=log)
        assert conduit.status().pid != first


def test_shutdown_by_request(mortal):
    with Conduit(mortal.socket) as conduit:
        conduit.shutdown()
    assert mortal.process.wait(15) == 0
    assert not mortal.socket.exists()
    assert mortal("status").returncode == 3
