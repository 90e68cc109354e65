"""The verbs with which a person administers a real daemon, and waits for its servers."""

import json
import sys
import time

from conduit_daemon.agent import Conduit

SLOW = "import time; time.sleep(1.5); from conduit_daemon.cli.example_server import main; main()"


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


def test_a_server_is_stopped_started_and_restarted(mortal):
    stopped = mortal("servers", "stop", "notebook")
    assert (stopped.returncode, stopped.stdout) == (0, "Server notebook was stopped.\n")
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


def test_a_person_sees_which_servers_are_waited_for(mortal, on_a_terminal):
    table = json.dumps({"command": sys.executable, "args": ["-c", SLOW]})
    assert mortal("servers", "add", "slow", table).returncode == 0

    seen, code = on_a_terminal(mortal, "tools")

    assert code == 0
    assert b"Waiting for servers (1 of 2: without slow so far)" in seen
    assert b"slow__read_note" in seen
    mortal("servers", "add", "slower", table)
    piped = mortal("tools")
    assert "slower__read_note" in piped.stdout
    assert "Waiting" not in piped.stdout + piped.stderr
    assert "\x1b" not in piped.stdout + piped.stderr


def test_a_person_waits_until_a_server_is_ready(mortal, on_a_terminal):
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
    assert mortal("servers", "remove", "slow").returncode == 0
    assert mortal("servers", "add", "slow", table, "--wait", "20").stdout == "slow is ready.\n"
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
