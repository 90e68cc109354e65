"""`conduit top` on a real terminal, beside a real daemon that does what daemons do."""

import fcntl
import json
import os
import pty
import re
import select
import signal
import struct
import subprocess
import sys
import termios
import threading
import time

import pytest

from conduit_daemon.agent import Conduit

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
default = "allow"
"""
LEFT = b"\x1b[?1049l"


class Daemon:
    def __init__(self, command, folder):
        (folder / "run").mkdir()
        (folder / "conduit.toml").write_text(CONFIG.format(python=json.dumps(sys.executable)))
        command.environ["CONDUIT_CONFIG"] = str(folder / "conduit.toml")
        self.command, self.folder, self.socket = command, folder, folder / "run/agent.sock"

    def start(self):
        with (self.folder / "log").open("ab") as log:
            self.process = self.command.open("run", terminal=log)
        with Conduit(self.socket) as client:
            client.connect(15)
            client.tools(timeout=15)

    def stop(self):
        self.process.send_signal(signal.SIGTERM)
        assert self.process.wait(15) == 0


@pytest.fixture(scope="module")
def daemon(make_command, tmp_path_factory):
    folder = tmp_path_factory.mktemp("top")
    daemon = Daemon(make_command(folder), folder)
    daemon.start()
    yield daemon
    daemon.stop()


class Terminal:
    """A pseudo-terminal with `conduit top` on it."""

    def __init__(self, daemon, *words, lines=40, columns=150):
        self.ours, theirs = pty.openpty()
        fcntl.ioctl(theirs, termios.TIOCSWINSZ, struct.pack("HHHH", lines, columns, 0, 0))
        self.before = termios.tcgetattr(theirs)
        daemon.command.environ |= {"TERM": "xterm-256color"}
        self.process = daemon.command.open("top", "--interval", "0.2", *words, terminal=theirs, stdin=theirs)
        self.theirs = theirs
        self.seen = b""

    def until(self, *wanted, within=20.0):
        """Reads until all of `wanted` came after what was read before; returns what came."""
        start = len(self.seen)
        deadline = time.monotonic() + within
        while not all(text in self.seen[start:] for text in wanted):
            rest = deadline - time.monotonic()
            assert rest > 0, self.seen[start:][-3000:]
            if select.select([self.ours], [], [], rest)[0]:
                self.seen += os.read(self.ours, 65536)
        return self.seen[start:]

    def ended(self):
        """The exit code, once all that it wrote was read and the terminal was seen to be as before."""
        deadline = time.monotonic() + 15
        while self.process.poll() is None or select.select([self.ours], [], [], 0.1)[0]:
            assert time.monotonic() < deadline
            if select.select([self.ours], [], [], 0.1)[0]:
                self.seen += os.read(self.ours, 65536)
        assert termios.tcgetattr(self.theirs) == self.before
        assert self.seen.rindex(b"\x1b[?25h") > self.seen.rindex(b"\x1b[?25l")
        assert self.seen.count(b"\x1b[?1049h") == self.seen.count(LEFT) == 1
        assert b"Traceback" not in self.seen
        return self.process.returncode

    def close(self):
        if self.process.poll() is None:
            self.process.kill()
        self.process.wait()
        os.close(self.ours)
        os.close(self.theirs)


@pytest.fixture
def open_top(daemon):
    opened = []

    def start(*words, **size):
        opened.append(Terminal(daemon, *words, **size))
        return opened[-1]

    yield start
    for terminal in opened:
        terminal.close()


def test_it_shows_servers_calls_and_the_tree_as_they_are(daemon, open_top):
    top = open_top()
    seen = top.until(b"notebook", b"ready", b"broken", b"/nowhere/at/all", b"supervisor", b"acceptor:agent")
    assert seen.index(b"\x1b[?1049h") < seen.index(b"notebook")
    stop = threading.Event()

    def work():
        with Conduit(daemon.socket) as client:
            while not stop.is_set():
                client.call("notebook__read_note", {"id": "n1"})

    thread = threading.Thread(target=work)
    thread.start()
    try:
        deadline = time.monotonic() + 10
        while not re.search(rb"[1-9]\d*(\.\d)? calls/s", top.until(b"calls/s", b"acceptor:agent")):
            assert time.monotonic() < deadline
    finally:
        stop.set()
        thread.join()
    os.write(top.ours, b"q")
    assert top.ended() == 0


@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM])
def test_whatever_ends_it_the_terminal_is_as_before(open_top, number):
    top = open_top()
    top.until(b"notebook")
    top.process.send_signal(signal.SIGTSTP)  # a shell must not get its screen
    top.until(b"notebook")
    for _ in range(3):
        top.process.send_signal(number)

    assert top.ended() == 130


def test_a_terminal_that_cannot_draw_gets_plain_text(daemon, on_a_terminal):
    daemon.command.environ["TERM"] = "dumb"
    seen, code = on_a_terminal(daemon.command, "top", "--interval", "0.1")

    assert code == 0
    assert b"notebook" in seen
    assert b"\x1b[?1049h" not in seen


def test_a_small_terminal_shows_what_fits(open_top):
    top = open_top("--count", "2", lines=5, columns=40)

    assert top.ended() == 0
    assert b"and 1 server more" in top.seen
    assert b"acceptor" not in top.seen
    assert b"broken" in top.seen, "what is in trouble comes first"


def test_a_restart_of_the_daemon_is_survived(make_command, tmp_path, open_top):
    mortal = Daemon(make_command(tmp_path), tmp_path)
    mortal.start()
    top = Terminal(mortal)
    try:
        top.until(b"notebook", b"acceptor:agent")
        mortal.process.kill()
        mortal.process.wait()
        assert b"Traceback" not in top.until(b"Waiting for the daemon since")
        mortal.start()
        assert top.process.poll() is None
        pid = str(mortal.process.pid).encode()
        top.until(b"pid " + pid, b"acceptor:agent")
        os.write(top.ours, b"q")
        assert top.ended() == 0
    finally:
        top.close()
        mortal.stop()


def test_once_for_programs(daemon):
    with Conduit(daemon.socket) as client:
        for _ in range(3):
            client.call("notebook__read_note", {"id": "n1"})
        process = daemon.command.open("top", "--once", "--json", "--interval", "1")
        while process.poll() is None:
            client.call("notebook__read_note", {"id": "n1"})
    out, err = process.communicate()
    assert (process.returncode, err) == (0, "")
    found = json.loads(out)
    assert (found["pid"], found["health"]) == (daemon.process.pid, "degraded")
    notebook = found["servers"]["notebook"]
    assert notebook["calls_per_second"] > 0
    assert found["calls_per_second"] == pytest.approx(notebook["calls_per_second"], rel=0.5)
    assert set(notebook) >= {"state", "running", "calls", "errors", "p50_ms", "p99_ms", "restarts", "tools"}
    assert found["tree"]["id"] == "root"


def test_a_pipe_gets_plain_text(daemon):
    said = daemon.command("top", "--interval", "0.1")

    assert (said.returncode, said.stderr) == (0, "")
    assert "\x1b" not in said.stdout
    assert re.search(r"^notebook +ready ", said.stdout, re.MULTILINE)
    assert "acceptor:control" in said.stdout
    assert max(map(len, said.stdout.splitlines())) < 400


def test_a_line_a_look_for_programs(daemon):
    said = daemon.command("top", "--json", "--interval", "0.1", "--count", "3")

    lines = [json.loads(line) for line in said.stdout.splitlines()]
    assert [line["pid"] for line in lines] == [daemon.process.pid] * 3
    assert lines[0]["calls_per_second"] is None
    assert lines[1]["calls_per_second"] >= 0


def test_without_the_control_socket_the_rest_is_shown(daemon, tmp_path):
    alone = tmp_path / "agent.sock"
    alone.symlink_to(daemon.socket)

    said = daemon.command("top", "--once", "--interval", "0.1", "--socket", alone)

    assert said.returncode == 0
    assert "notebook" in said.stdout
    assert f"The tree cannot be shown: the control socket cannot be used: {tmp_path}/control.sock" in said.stdout


def test_what_makes_no_sense_is_refused(conduit):
    assert conduit("top", "--interval", "0").returncode == 2
    assert conduit("top").returncode == 3
    assert conduit("top", "--json").returncode == 3


def test_hundreds_of_connections_do_not_hide_the_rest(daemon):
    clients = [Conduit(daemon.socket) for _ in range(12)]
    for client in clients:
        client.ping()
    said = subprocess.run(
        [sys.executable, "-m", "conduit_daemon.cli", "top", "--once", "--interval", "0.1"],
        env=daemon.command.environ,
        capture_output=True,
        text=True,
        check=True,
        timeout=30,
    ).stdout
    for client in clients:
        client.close()
    assert re.search(r"and \d+ more", said)
    assert len(re.findall(r"connection:\d", said)) == 6
