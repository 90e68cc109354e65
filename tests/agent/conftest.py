"""A scripted daemon, as a real process in a folder of its own."""

import subprocess
import sys
from pathlib import Path

import msgspec
import pytest

SCRIPT = Path(__file__).parent.parent / "fakes" / "rpc_daemon.py"


class FakeDaemon:
    def __init__(self, folder):
        self.folder = folder
        self.socket = folder / "agent.sock"
        self.process = None

    def start(self):
        if self.process:
            self.kill()
        self.process = subprocess.Popen([sys.executable, SCRIPT, self.folder], stdout=subprocess.PIPE)
        assert self.process.stdout.readline() == b"listening\n"

    def kill(self):
        self.process.kill()
        self.process.wait()
        self.process.stdout.close()

    def received(self):
        log = self.folder / "log"
        return [msgspec.json.decode(line) for line in log.read_bytes().splitlines()] if log.exists() else []

    def methods(self):
        return [line.get("method") for line in self.received()]


@pytest.fixture
def fake(tmp_path):
    daemon = FakeDaemon(tmp_path)
    daemon.start()
    yield daemon
    daemon.kill()
