"""The command and the agent library against a real daemon with the example server."""

import json
import os
import pty
import queue
import re
import select
import signal
import subprocess
import sys
import threading
import time
from contextlib import contextmanager

import anyio
import pytest

from conduit_daemon.agent import AsyncConduit, CallFailed, Conduit, requests
from conduit_daemon.cli.demo_steps import FORMATS, recorded

CONFIG = """
[rpc]
agent_socket = "run/agent.sock"
[state]
directory = "state"
[servers.notebook]
command = {python}
args = ["-m", "conduit_daemon.cli.example_server"]
[servers.broken]
command = "/nowhere/at/all"
[policy]
default = "deny"
[[policy.rules]]
effect = "allow"
servers = ["notebook"]
tools = ["search_*", "read_*", "chart_*", "proofread"]
[[policy.rules]]
name = "notes are asked about"
effect = "approve"
tools = ["add_note"]
when = 'args.title.startsWith("Ask")'
reason = "a person looks at new notes"
"""


@contextmanager
def running(command, folder):
    """The command in a folder, with a real daemon there; its `process` is the daemon."""
    (folder / "run").mkdir()
    config = folder / "conduit.toml"
    config.write_text(CONFIG.format(python=json.dumps(sys.executable)))
    command.environ["CONDUIT_CONFIG"] = str(config)
    command.socket = folder / "run/agent.sock"
    with (folder / "log").open("wb") as log:
        command.process = command.open("run", terminal=log)
    try:
        with Conduit(command.socket) as client:
            client.connect(10)
            client.tools(timeout=10)
        yield command
    finally:
        if command.process.poll() is None:
            command.process.send_signal(signal.SIGTERM)
        try:
            code = command.process.wait(15)
        except subprocess.TimeoutExpired:
            command.process.kill()
            raise
    assert code == 0, (folder / "log").read_text()


@pytest.fixture(scope="module")
def daemon(make_command, tmp_path_factory):
    folder = tmp_path_factory.mktemp("daemon")
    with running(make_command(folder), folder) as command:
        yield command


@pytest.fixture
def mortal(conduit, tmp_path):
    """A daemon of one's own, to be stopped and killed."""
    with running(conduit, tmp_path) as command:
        yield command


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
    watch.send_signal(signal.SIGINT)
    assert watch.wait(10) == 130
    os.close(ours)


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


def test_servers_accept_and_taint(daemon):
    refused = daemon("servers", "accept", "notebook", "read_note")
    assert (refused.returncode, refused.stdout) == (1, "")
    assert "not pinned" in refused.stderr
    with Conduit(daemon.socket) as conduit:
        conduit.call("notebook__read_note", {"id": "n1"}, session="thread 7")
        assert conduit.taint_reset(session="thread 7").reset == 1
        conduit.call("notebook__read_note", {"id": "n1"}, session="thread 8")
    assert daemon("taint", "reset", "--session", "thread 8").stdout == "The taint of 1 conversation is forgotten.\n"
    assert json.loads(daemon("taint", "reset", "--session", "thread 8", "--json").stdout) == {"reset": 0}


def test_the_metrics_are_printed(daemon):
    daemon("call", "notebook__read_note", "id=n1")
    lines = daemon("metrics").stdout.splitlines()
    assert any(line.startswith("# TYPE conduit_") for line in lines)
    assert json.loads(daemon("metrics", "--json").stdout)["text"].splitlines()[0] == lines[0]


def test_the_log_level_is_changed(daemon):
    assert daemon("log-level", "debug").stdout == "The log level is debug; it was info.\n"
    assert json.loads(daemon("log-level", "info", "--json").stdout) == {"level": "debug"}
    assert daemon("log-level", "warning", "--server", "notebook").stdout.startswith("The log level of notebook is warn")
    assert daemon("log-level", "loud").returncode == 2
    nobody = daemon("log-level", "info", "--server", "nobody")
    assert (nobody.returncode, nobody.stdout) == (1, "")
    assert "notebook" in nobody.stderr


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


def test_a_server_is_stopped_started_and_restarted(mortal):
    assert mortal("servers", "stop", "notebook").returncode == 0
    with Conduit(mortal.socket) as client:
        deadline = time.monotonic() + 10
        while client.status().servers["notebook"].state != "stopped":
            assert time.monotonic() < deadline
            time.sleep(0.02)
    assert mortal("call", "notebook__read_note", "id=n1").returncode == 1
    assert mortal("servers", "start", "notebook").returncode == 0
    with Conduit(mortal.socket) as client:
        deadline = time.monotonic() + 10
        while client.status().servers["notebook"].state != "ready":
            assert time.monotonic() < deadline
            time.sleep(0.05)
        before = client.status().servers["notebook"].pid
        client.servers_restart("notebook")
        while (now := client.status().servers["notebook"]).state != "ready" or now.pid == before:
            assert time.monotonic() < deadline
            time.sleep(0.05)
    nobody = mortal("servers", "restart", "nobody")
    assert nobody.returncode == 1
    assert "notebook" in nobody.stderr


SLOW = "import time; time.sleep(1.5); from conduit_daemon.cli.example_server import main; main()"


def on_a_terminal(command, *words):
    """What a terminal gets to see of a command, and its exit code."""
    ours, theirs = pty.openpty()
    process = command.open(*words, terminal=theirs, stdin=theirs)
    os.close(theirs)
    seen = b""
    while select.select([ours], [], [], 20)[0]:
        try:
            seen += os.read(ours, 65536)
        except OSError:  # Linux ends a pseudo-terminal so
            break
    os.close(ours)
    return seen, process.wait(10)


def test_a_person_sees_which_servers_are_waited_for(mortal):
    table = json.dumps({"command": sys.executable, "args": ["-c", SLOW]})
    assert mortal("servers", "add", "slow", table).returncode == 0

    seen, code = on_a_terminal(mortal, "tools")

    assert code == 0
    assert b"Waiting for servers (1 of 2: without slow so far)" in seen
    assert b"slow__read_note" in seen
    assert mortal("servers", "remove", "slow").returncode == 0
    mortal("servers", "add", "slow", table)
    piped = mortal("tools")
    assert "slow__read_note" in piped.stdout
    assert "Waiting" not in piped.stdout + piped.stderr
    assert "\x1b" not in piped.stdout + piped.stderr


def test_a_person_waits_until_a_server_is_ready(mortal):
    table = json.dumps({"command": sys.executable, "args": ["-c", SLOW]})
    seen, code = on_a_terminal(mortal, "servers", "add", "slow", table, "--wait", "20")
    assert code == 0
    assert b"Waiting for slow (" in seen
    assert b"it is connecting" in seen
    assert b"slow is ready." in seen

    before = json.loads(mortal("status", "--json").stdout)["servers"]["slow"]["pid"]
    again = mortal("servers", "restart", "slow", "--wait", "20", "--json")
    assert (again.returncode, again.stderr) == (0, "")
    found = json.loads(again.stdout)
    assert found["state"] == "ready"
    assert found["pid"] != before
    soon = mortal("servers", "restart", "slow", "--wait", "0.2")
    assert (soon.returncode, soon.stderr) == (1, "")
    assert soon.stdout.startswith("slow is connecting.")
    assert mortal("servers", "start", "slow", "--wait", "20").stdout == "slow is ready.\n"
    assert mortal("servers", "restart", "broken", "--wait", "2").returncode == 1


def test_the_configuration_is_read_again(mortal, tmp_path):
    config = tmp_path / "conduit.toml"
    text = config.read_text()
    config.write_text(text.replace("[servers.broken]", "[servers.other]"))
    assert mortal("reload").stdout == "Reloaded: added other; removed broken.\n"
    assert mortal("reload").stdout == "Reloaded: no server is affected.\n"

    config.write_text(text.replace("[servers.broken]", "[servers.broken]\ncomand = 1"))
    refused = mortal("reload", "--json")
    assert refused.returncode == 1
    assert "servers.broken.comand" in refused.stderr
    assert "servers.broken.comand" in json.loads(refused.stdout)["error"]["data"]["problems"][0]["key"]
    assert "other" in json.loads(mortal("status", "--json").stdout)["servers"]


def test_a_server_is_added_and_removed(daemon):
    added = daemon("servers", "add", "second", f"command={sys.executable}", 'args:=["-m", "nothing.like.it"]')
    assert (added.returncode, added.stderr) == (0, "")
    assert "second" in daemon("status").stdout
    assert daemon("servers", "add", "second", "command=x").returncode == 1
    assert "comand" in daemon("servers", "add", "third", "comand=x").stderr
    assert daemon("servers", "remove", "second").returncode == 0
    assert "second" not in json.loads(daemon("status", "--json").stdout)["servers"]


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
