"""The installed command, and a scripted daemon for it to talk to."""

import os
import subprocess
import sys
from pathlib import Path

import pytest

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
