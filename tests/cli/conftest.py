"""The installed command, and daemons for it to talk to: a scripted one, and real ones with the example server."""

import json
import os
import pty
import select
import signal
import subprocess
import sys
from contextlib import contextmanager
from pathlib import Path

import pytest

from conduit_daemon.agent import Conduit

SCRIPT = Path(__file__).parent.parent / "fakes" / "rpc_daemon.py"
CONDUIT = Path(sys.executable).with_name("conduit")


class Command:
    def __init__(self, home):
        self.environ = {**os.environ, "HOME": str(home), "XDG_CONFIG_HOME": str(home / "config")}
        for name in (
            "CONDUIT_SOCKET",
            "CONDUIT_CONFIG",
            "XDG_RUNTIME_DIR",
            "RUNTIME_DIRECTORY",
            "NO_COLOR",
            "PYTHONUNBUFFERED",
            "COLUMNS",
            "LINES",
        ):
            self.environ.pop(name, None)

    def __call__(self, *words, stdin=None, timeout=30, program="conduit"):
        return subprocess.run(
            [CONDUIT.with_name(program), *map(str, words)],
            check=False,
            input=stdin,
            capture_output=True,
            text=True,
            env=self.environ,
            timeout=timeout,
        )

    def open(self, *words, terminal=None, stdin=subprocess.DEVNULL):
        out = subprocess.PIPE if terminal is None else terminal
        return subprocess.Popen(
            [CONDUIT, *map(str, words)], stdin=stdin, stdout=out, stderr=out, text=True, env=self.environ
        )


@pytest.fixture(scope="session")
def make_command():
    """Makes the command for a home directory."""
    return Command


@pytest.fixture
def conduit(tmp_path):
    """The command in an environment in which no daemon and no configuration is to be found."""
    return Command(tmp_path)


@pytest.fixture
def talking(conduit, tmp_path):
    """The command with a scripted daemon at its socket."""
    daemon = subprocess.Popen([sys.executable, SCRIPT, tmp_path], stdout=subprocess.PIPE)
    assert daemon.stdout.readline() == b"listening\n"
    conduit.environ["CONDUIT_SOCKET"] = str(tmp_path / "agent.sock")
    yield conduit
    daemon.kill()
    daemon.wait()
    daemon.stdout.close()


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


def seen_on_a_terminal(command, *words):
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


@pytest.fixture
def on_a_terminal():
    """Runs a command on a terminal: what that gets to see of it, and its exit code."""
    return seen_on_a_terminal
