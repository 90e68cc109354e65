"""The README, word by word: its lines are run, its loops are run, its tables are compared with the code."""

import json
import os
import re
import shutil
import subprocess
import sys
import time
from pathlib import Path

import pytest

from conduit_daemon.cli.command import application
from conduit_daemon.errors import CODES
from conduit_daemon.rpc import params
from conduit_daemon.telemetry.events import EVENTS

ROOT = Path(__file__).parents[2]
README = (ROOT / "README.md").read_text(encoding="utf-8")
PROVIDERS = Path(__file__).parent.parent / "fakes" / "rpc_providers.py"


def blocks(language):
    return re.findall(rf"^```{language}\n(.*?)^```$", README, re.MULTILINE | re.DOTALL)


def table(heading):
    """The cells of the table whose header row begins with `heading`."""
    lines = README.splitlines()
    start = next(place for place, line in enumerate(lines) if line.startswith(f"| {heading} |"))
    rows = []
    for line in lines[start + 2 :]:
        if not line.startswith("|"):
            break
        rows.append([cell.strip() for cell in line.strip("|").split("|")])
    return rows


def words(cell):
    return re.findall(r"`([^`]+)`", cell)


SET_UP, TESTS, SERVERS, IN_FRONT, BESIDE, BY_HAND = blocks("sh")


def test_ci_runs_the_line_that_the_readme_gives():
    assert TESTS.strip() in (ROOT / ".ci/run").read_text(encoding="utf-8").splitlines()
    assert re.fullmatch(r"python3 -m venv \.venv && .*\n", SET_UP)


def test_the_table_of_events_is_the_codes():
    listed = {words(name)[0]: meaning for name, meaning in table("event")}
    missing = [f"| `{name}` | {meaning} |" for name, meaning in EVENTS.items() if listed.get(name) != meaning]
    assert not missing, "\n".join(["the README's table of events needs these rows:", *missing])
    assert list(listed) == list(EVENTS)


def test_the_table_of_errors_is_the_codes():
    assert {kind: int(code) for code, kinds in table("code") for kind in words(kinds)} == CODES


METHODS = {
    "conduit/tools": params.ToolsParams,
    "conduit/execute": params.ExecuteParams,
    "conduit/call": params.CallParams,
    "conduit/events": params.EventsParams,
    "conduit/servers/add": params.AddServerParams,
    "conduit/servers/remove": params.ServerParams,
    "conduit/log_level": params.LogLevelParams,
    "conduit/shutdown": params.ShutdownParams,
    "conduit/approvals": params.ApprovalsParams,
    "conduit/approvals/decide": params.DecideParams,
    "conduit/policy/explain": params.ExplainPolicyParams,
    "conduit/audit": params.AuditParams,
    "conduit/servers/restart": params.ServerParams,
    "conduit/servers/explain": params.ServerParams,
    "conduit/servers/accept": params.AcceptParams,
    "conduit/taint/reset": params.ResetTaintParams,
}


@pytest.mark.parametrize("method", METHODS)
def test_the_table_of_methods_has_every_parameter(method):
    listed = {words(row[0])[0]: row[1] for row in table("method")}
    named = set(re.findall(r"[a-z_]+", listed[method])) - {"or", "and"}
    assert named == set(METHODS[method].__struct_encode_fields__) - {"_meta"}


def test_the_table_of_commands_is_the_commands():
    listed = {words(row[0])[0].split()[1] for row in table("command")}
    assert listed == {name for name in application() if not name.startswith("-")}


@pytest.fixture(scope="module")
def place(tmp_path_factory, make_command):
    """A folder after the quick start's first steps, with the daemon running as the README starts it."""
    folder = tmp_path_factory.mktemp("quick-start")
    (folder / ".venv").symlink_to(sys.prefix)
    (folder / "conduit.toml").write_text(blocks("toml")[0])
    environ = make_command(folder).environ
    environ["GIT_CONFIG_GLOBAL"] = "/dev/null"
    for line in ("git init -q .", "git -c user.name=a -c user.email=a@b commit -q --allow-empty -m First"):
        subprocess.run(line, shell=True, check=True, cwd=folder, env=environ)
    assert re.fullmatch(r"\.venv/bin/pip install [a-z -]+\n", SERVERS)
    check, run = IN_FRONT.splitlines()
    checked = subprocess.run(check, shell=True, cwd=folder, env=environ, capture_output=True, text=True, check=False)
    assert checked.returncode == 0, checked.stdout
    assert "1 of 1 test passed" in checked.stdout
    assert "warning" not in checked.stdout
    with (folder / "log").open("wb") as log:
        process = subprocess.Popen(f"exec {run}", shell=True, cwd=folder, env=environ, stdout=log, stderr=log)
    socket = folder / ".local/state/conduit/agent.sock"
    try:
        deadline = time.monotonic() + 10
        while not socket.exists():
            assert process.poll() is None, (folder / "log").read_text()
            assert time.monotonic() < deadline
            time.sleep(0.02)
        yield folder, environ
    finally:
        process.terminate()
        code = process.wait(15)
    assert code == 0
    assert not socket.exists()


def sh(place, line):
    folder, environ = place
    return subprocess.run(
        line, shell=True, cwd=folder, env=environ, capture_output=True, text=True, timeout=30, check=False
    )


def test_the_quick_start(place):
    status, tools, clock, log, commit = BESIDE.splitlines()

    listed = sh(place, tools)
    assert {line.split()[0] for line in listed.stdout.splitlines()} >= {"time__get_current_time", "git__git_log"}
    shown = sh(place, status)
    assert re.search(r"^time +ready +2 ", shown.stdout, re.MULTILINE)
    assert re.search(r"^git +ready +\d+ ", shown.stdout, re.MULTILINE)
    assert "Europe/Zurich" in sh(place, clock).stdout
    assert "First" in sh(place, log).stdout
    denied = sh(place, commit)
    assert denied.returncode == 4
    assert "denied by the policy" in denied.stderr


def test_the_line_for_any_program(place):
    if shutil.which("nc") is None or "-N" not in sh(place, "nc -h").stderr:
        pytest.skip("needs OpenBSD's nc")
    answered = sh(place, BY_HAND)

    assert answered.returncode == 0
    assert "UTC" in json.loads(answered.stdout)["result"]["content"][0]["text"]


@pytest.mark.parametrize("program", blocks("python"), ids=["anthropic", "openai-chat", "openai-responses", "gemini"])
def test_the_loops_of_agents(place, program, tmp_path):
    assert len(program.splitlines()) <= 25
    folder, environ = place
    log = tmp_path / "requests"
    provider = subprocess.Popen([sys.executable, PROVIDERS, log], stdout=subprocess.PIPE, text=True)
    base = f"http://127.0.0.1:{provider.stdout.readline().strip()}"
    keys = dict.fromkeys(("ANTHROPIC_API_KEY", "OPENAI_API_KEY", "GEMINI_API_KEY"), "no-key")
    bases = {"ANTHROPIC_BASE_URL": base, "OPENAI_BASE_URL": f"{base}/v1", "GOOGLE_GEMINI_BASE_URL": base}
    try:
        done = subprocess.run(
            [sys.executable, "-c", program],
            cwd=folder,
            env={**environ, **keys, **bases, "no_proxy": "*"},
            capture_output=True,
            text=True,
            timeout=60,
            check=False,
        )
    finally:
        provider.kill()
        provider.wait()
        provider.stdout.close()

    assert done.stdout == "It is late.\n", done.stderr
    first, second = [json.loads(line)["body"] for line in log.read_text().splitlines()]
    assert "time__get_current_time" in json.dumps(first["tools"])
    assert "Europe/Zurich" in json.dumps(second)
    assert "datetime" in json.dumps(second)
    if "contents" in second:
        assert second["contents"][1]["parts"][0]["thoughtSignature"] == "c2lnbmVk"


def test_it_names_no_file_that_is_not_there():
    for link in re.findall(r"\]\(([^)#]+)\)", README):
        assert (ROOT / link).exists(), link
    assert os.access(ROOT / ".ci/run", os.X_OK)
