"""The verbs against a scripted daemon: what they print, and how they exit."""

import inspect
import json
import re
import resource
import signal
import subprocess
import sys
import time
from importlib import import_module

import pytest

from conduit_daemon.cli.command import run
from conduit_daemon.cli.front import front_page
from conduit_daemon.cli.verbs import GROUPS, VERBS


def test_status_for_people_and_for_programs(talking):
    said = talking("status")

    assert said.returncode == 0
    assert said.stderr == ""
    lines = said.stdout.splitlines()
    assert re.match(r"conduit 9\.9\.9, degraded, up 1 h 1 min, pid \d+, 12 calls \(1 failed, 1 running\)", lines[0])
    assert lines[2].split() == ["server", "state", "tools", "calls", "errors", "p50", "p99", "restarts", "notes"]
    assert lines[3].split()[:6] == ["files", "ready", "3", "12", "1", "1.2"]
    assert lines[4].rstrip().endswith("Exited with code 1 at once. Tried again in 4.2 s.")

    answer = json.loads(talking("status", "--json").stdout)
    assert answer["from_the_future"] == {"x": 1}
    assert answer["servers"]["search"]["retry_in"] == 4.2


def test_tools(talking):
    said = talking("tools")

    assert said.returncode == 0
    assert [line.split() for line in said.stdout.splitlines()] == [
        ["tool", "description"],
        ["files__read", "Reads", "a", "file."],
        ["files__\\x1b[31mred"],
    ]
    assert "without server search (backoff): exited with code 1 at once." in said.stderr
    assert "not offered: a__b (collision; a/b, a/B)" in said.stderr
    assert json.loads(talking("tools", "anthropic", "--json").stdout)["toolset"] == "ts-1"


def test_an_api_must_be_chosen_for_openai(talking):
    said = talking("tools", "openai")

    assert said.returncode == 2
    assert said.stderr == "conduit: OpenAI has two APIs: add --api chat or --api responses.\n"
    assert talking("tools", "--provider", "openai", "--api", "chat").returncode == 0


def test_call(talking):
    said = talking("call", "echo", "a=b", "c:=[1]")

    assert (said.returncode, said.stderr) == (0, "")
    assert json.loads(said.stdout) == {"a": "b", "c": [1]}
    assert json.loads(talking("call", "echo", '{"n": -1}', "--json").stdout)["content"][0]["text"] == '{"n": -1}'


@pytest.mark.parametrize(
    ("words", "code", "said"),
    [
        (["call", "tool_error"], 5, ""),
        (["call", "error"], 4, "conduit: The rule 'no mail' denies it.\n"),
        (["call", "wrong"], 1, "cannot be read"),
        (["call", "close"], 1, "what became of it is not known"),
        (["call", "full"], 1, "conduit: Too many.\n"),
        (["call"], 2, "NAME"),
        (["call", "echo", "x"], 2, "'x' is no argument"),
        (["nonsense"], 2, "nonsense"),
        (["status", "--nonsense"], 2, "--nonsense"),
        (["status", "--socket", "/nowhere/agent.sock"], 3, "/nowhere/agent.sock (no such socket)"),
        (["execute", "anthropic", "/nowhere/response.json"], 2, "cannot be read"),
    ],
)
def test_what_goes_wrong_is_one_line_and_an_exit_code(talking, words, code, said):
    done = talking(*words)

    assert done.returncode == code
    assert said in done.stderr
    assert len(done.stderr.splitlines()) == (1 if said else 0)
    assert "Traceback" not in done.stderr


def test_a_program_gets_errors_as_json_too(talking):
    said = talking("call", "error", "--json")

    assert json.loads(said.stdout)["error"]["data"]["kind"] == "denied"
    assert said.returncode == 4


def test_execute_reads_stdin_or_a_file(talking, tmp_path):
    response = {"content": [{"type": "tool_use"}]}
    (tmp_path / "response.json").write_text(json.dumps(response))

    for said in (
        talking("execute", "anthropic", "--toolset", "ts-1", "--taint", "web", "--json", stdin=json.dumps(response)),
        talking("execute", "anthropic", tmp_path / "response.json", "--toolset", "ts-1", "--taint", "web", "--json"),
    ):
        answer = json.loads(said.stdout)
        assert answer["results"][0] == {
            "provider": "anthropic",
            "response": response,
            "toolset": "ts-1",
            "taint": ["web"],
        }
    assert "read  ok" in talking("execute", "anthropic", "-", stdin="{}").stdout
    assert talking("execute", "anthropic", stdin="no json").returncode == 2


def test_tree_and_explain_use_the_control_socket(talking):
    assert "├── hub running  actor, up 12 s, 2 messages waiting" in talking("tree").stdout
    assert json.loads(talking("tree", "--json").stdout)["id"] == "root"
    told = talking("explain", "files").stdout
    assert told.startswith(
        "files is backoff. The server exited with code 1.\nIt is tried again in 3.5 s.\nWaiting for it: 2 calls.\n"
    )
    assert re.search(r"^\S+ \S+ +\+1\.5 s +client\.down +exited with code 1 *$", told, re.MULTILINE)
    assert "Traceback: no such file" in told
    assert re.search(r"^r-1 +files/read +\d+ d \d+ h +waits for a slot +ann/x *$", told, re.MULTILINE)
    assert json.loads(talking("explain", "files", "--json").stdout)["stderr"] == ["Traceback: no such file"]


def test_metrics_are_what_prometheus_reads(talking):
    assert talking("metrics").stdout == "# TYPE conduit_up gauge\nconduit_up 1.0\n"
    assert json.loads(talking("metrics", "--json").stdout)["text"].startswith("# TYPE")


def test_a_reader_that_has_enough_is_no_error_to_talk_about(talking):
    process = talking.open("call", "big", "size:=3000000")
    assert process.stdout.read(10) == "xxxxxxxxxx"
    process.stdout.close()
    assert process.stderr.read() == ""
    assert process.wait(10) == 1
    process.stderr.close()


def test_ctrl_c_cancels_the_call(talking, tmp_path):
    process = talking.open("call", "sleep", "seconds:=30")
    log = tmp_path / "log"
    deadline = time.monotonic() + 10
    while not log.exists() or b"sleep" not in log.read_bytes():
        assert time.monotonic() < deadline
        time.sleep(0.02)
    process.send_signal(signal.SIGINT)

    assert process.communicate(timeout=10) == ("", "")
    assert process.returncode == 130
    while b'{"cancelled": true}' not in log.read_bytes():
        assert time.monotonic() < deadline
        time.sleep(0.02)


def test_a_terminal_does_not_obey_what_a_server_says(talking, on_a_terminal):
    hostile = json.dumps({"a": "x\x1b]0;title\x07\u009b31m"})
    assert "\x1b" not in hostile

    seen, code = on_a_terminal(talking, "call", "text", hostile)

    assert code == 0
    assert b"x\\x1b]0;title\\x07\\x9b31m" in seen
    assert talking("call", "text", hostile).stdout == "x\x1b]0;title\x07\x9b31m\n"


def test_a_terminal_is_shown_what_is_waited_for(talking, on_a_terminal):
    seen, code = on_a_terminal(talking, "call", "progress")

    assert code == 0
    assert b"Calling progress" in seen
    assert "Calling" not in talking("call", "progress").stderr


def test_a_terminal_that_knows_ascii_alone(talking):
    talking.environ["PYTHONIOENCODING"] = "ascii"

    assert talking("tree").stdout.splitlines()[0].startswith("root running")
    assert talking("call", "echo", "a=ü").returncode == 0


def test_conduitd_is_conduit_run(conduit, tmp_path):
    said = conduit(tmp_path / "none.toml", program="conduitd")

    assert said.returncode == 78
    assert "none.toml" in said.stderr


def test_no_daemon(conduit, tmp_path):
    said = conduit("status")

    assert said.returncode == 3
    assert len(said.stderr.splitlines()) == 1
    assert f"{tmp_path}/.local/state/conduit/agent.sock (no such socket)" in said.stderr
    assert "conduit run" in said.stderr


def test_help_and_version(conduit):
    said = conduit("--help")

    assert said.returncode == 0
    for verb in ("run", "demo", "check", "status", "tools", "call", "execute", "tree", "explain"):
        assert re.search(rf"│ {verb} ", said.stdout)
    assert re.fullmatch(r"\d+\.\d+\.\d+\S*\n", conduit("--version").stdout)
    assert conduit().returncode == 0


ALL = [((verb.name,), verb) for verb in VERBS] + [
    ((group.name, verb.name), verb) for group in GROUPS for verb in group.verbs
]


def test_every_verb_but_those_that_serve_speaks_json():
    served = {verb.name for _, verb in ALL if "json" not in inspect.signature(_function(verb)).parameters}
    assert served == {"run", "mcp"}


def _function(verb):
    module, _, function = verb.function.partition(":")
    return getattr(import_module(f"conduit_daemon.cli.{module}"), function)


@pytest.mark.parametrize(("words", "verb"), ALL, ids=lambda value: "-".join(value) if isinstance(value, tuple) else "")
def test_the_list_of_verbs_says_what_they_say(words, verb, capsys):
    told = inspect.getdoc(_function(verb))
    assert told.split("\n\n")[0] == verb.line
    assert run([*words, "--help"]) == 0
    helped = " ".join(re.sub("[│╭╮╰╯─]", " ", capsys.readouterr().out).split())
    assert f"Usage: conduit {' '.join(words)}" in helped
    assert " ".join(told.split("\n\nArgs:")[0].split()) in helped


@pytest.mark.parametrize("width", [60, 80, 120])
def test_the_first_page_is_drawn_as_all_others_are(width, capsys, monkeypatch):
    monkeypatch.setenv("COLUMNS", str(width))
    assert run(["--help"]) == 0
    drawn = [line.rstrip() for line in capsys.readouterr().out.splitlines()]
    assert [line.rstrip() for line in front_page(width).splitlines()] == drawn


def test_the_list_of_verbs_loads_none_of_them():
    code = (
        "import sys; from conduit_daemon.cli.command import run; run(['--help']); "
        "print(sorted(name for name in sys.modules if name.startswith('conduit_daemon')), file=sys.stderr)"
    )
    loaded = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True).stderr
    assert "conduit_daemon.cli.verbs" in loaded
    for name in ("cli.top", "cli.use", "cli.look", "cli.bench", "config", "pipeline", "hub"):
        assert f"'conduit_daemon.{name}'" not in loaded


def test_help_is_quick(conduit):
    def once():
        before = resource.getrusage(resource.RUSAGE_CHILDREN)
        conduit("--help")
        after = resource.getrusage(resource.RUSAGE_CHILDREN)
        return after.ru_utime + after.ru_stime - before.ru_utime - before.ru_stime

    # Of the processor's time, since a machine that is busy with other tests is no failure.
    assert min(once() for _ in range(5)) < 0.1
    code = (
        "import sys; sys.argv = ['conduit', '--help']; from conduit_daemon.cli import main; main(); "
        "print(*sorted(sys.modules), file=sys.stderr)"
    )
    loaded = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True).stderr.split()
    assert not {"rich", "cyclopts", "msgspec", "conduit_daemon.agent"}.intersection(loaded)
