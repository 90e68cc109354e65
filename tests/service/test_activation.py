"""Sockets passed as systemd passes them: by number, to a process of their own."""

from __future__ import annotations

import os
import select
import socket
import subprocess
import sys
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from conduit_daemon.errors import DaemonError
from conduit_daemon.service.activation import take_sockets

Pass = Callable[..., tuple[int, dict[str, str]]]


def listening(path: Path) -> socket.socket:
    sock = socket.socket(socket.AF_UNIX)
    sock.bind(str(path))
    sock.listen()
    return sock


@pytest.fixture
def passed() -> Iterator[Pass]:
    """Puts descriptors at numbers in a row, and gives the first and systemd's variables; it owns them no more."""
    first = 200

    def pass_on(*sockets: socket.socket, names: str | None, **more: str) -> tuple[int, dict[str, str]]:
        for number, sock in enumerate(sockets, first):
            os.dup2(sock.fileno(), number, inheritable=True)
            sock.close()
        environ = {"LISTEN_FDS": str(len(sockets)), "LISTEN_PID": str(os.getpid()), "A": "b"}
        if names is not None:
            environ["LISTEN_FDNAMES"] = names
        return first, environ | more

    yield pass_on
    for number in range(first, first + 4):
        with pytest.raises(OSError):
            os.fstat(number)  # every descriptor that was passed was taken or closed


def test_sockets_by_name_whatever_their_order(tmp_path: Path, passed: Pass) -> None:
    first, environ = passed(listening(tmp_path / "c"), listening(tmp_path / "a"), names="control:agent")
    taken = take_sockets(environ, first=first)
    assert environ == {"A": "b"}, "no server is to take them for its own"
    assert {name: sock.getsockname() for name, sock in taken.items()} == {
        "control": str(tmp_path / "c"),
        "agent": str(tmp_path / "a"),
    }
    for sock in taken.values():
        assert not sock.getblocking()
        assert not sock.get_inheritable()
    with socket.socket(socket.AF_UNIX) as client:
        client.connect(str(tmp_path / "a"))
        select.select([taken["agent"]], [], [], 5)
        accepted, _ = taken["agent"].accept()
        accepted.close()
    for sock in taken.values():
        sock.close()


def test_one_alone(tmp_path: Path, passed: Pass) -> None:
    first, environ = passed(listening(tmp_path / "a"), names="agent")
    with take_sockets(environ, first=first)["agent"] as sock:
        assert sock.getsockname() == str(tmp_path / "a")


@pytest.mark.parametrize(
    "environ",
    [
        {},
        {"LISTEN_FDS": "1"},
        {"LISTEN_FDS": "1", "LISTEN_PID": "1", "LISTEN_FDNAMES": "agent"},
        {"LISTEN_FDS": "x", "LISTEN_PID": str(os.getpid())},
        {"LISTEN_FDS": "-1", "LISTEN_PID": str(os.getpid())},
        {"LISTEN_FDS": "0", "LISTEN_PID": str(os.getpid()), "LISTEN_PIDFDID": "7"},
    ],
)
def test_nothing_for_this_process(environ: dict[str, str]) -> None:
    assert take_sockets(environ) == {}
    assert environ == {}


def test_what_cannot_be_used_is_said(tmp_path: Path, passed: Pass) -> None:
    deaf, datagrams = socket.socket(socket.AF_UNIX), socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM)
    inet = socket.create_server(("127.0.0.1", 0))
    path = tmp_path / "a"
    read, write = os.pipe()
    pipe = socket.socket(fileno=os.dup(datagrams.fileno()))
    os.dup2(read, pipe.fileno())
    os.close(read)
    os.close(write)
    for sockets, names, words in (
        ([listening(path)], "conduit-agent.socket", "named 'conduit-agent.socket'"),
        ([listening(tmp_path / "b")], None, "named ''"),
        ([listening(tmp_path / "c"), listening(tmp_path / "d")], "agent", "named ''"),
        ([listening(tmp_path / "e"), listening(tmp_path / "f")], "agent:agent", "two are named 'agent'"),
        ([listening(tmp_path / "g"), deaf], "agent:control", "control does not listen"),
        ([datagrams], "agent", "agent is no Unix stream socket"),
        ([inet], "agent", "agent is no Unix stream socket"),
        ([pipe], "agent", "(agent) is no socket"),
    ):
        first, environ = passed(*sockets, names=names)
        with pytest.raises(DaemonError) as caught:
            take_sockets(environ, first=first)
        assert words in str(caught.value)
        assert environ == {"A": "b"}
        if "no socket" in words:
            os.close(first)  # what is no socket is left to whoever passed it


def test_a_process_gets_them_at_three(tmp_path: Path) -> None:
    agent, control = listening(tmp_path / "a"), listening(tmp_path / "c")
    program = (
        "import os; from conduit_daemon.service.activation import take_sockets\n"
        "os.environ['LISTEN_PID'] = str(os.getpid())\n"
        "taken = take_sockets(os.environ)\n"
        "print({name: (sock.fileno(), sock.getsockname()) for name, sock in taken.items()})\n"
        "print([name for name in os.environ if name.startswith('LISTEN_')])\n"
    )
    shell = f'exec 3<&{agent.fileno()} 4<&{control.fileno()} "$0" -c "$1"'
    done = subprocess.run(
        ["bash", "-c", shell, sys.executable, program],
        env={**os.environ, "LISTEN_FDS": "2", "LISTEN_FDNAMES": "agent:control"},
        pass_fds=[agent.fileno(), control.fileno()],
        capture_output=True,
        text=True,
        check=True,
    )
    agent.close()
    control.close()
    taken = {"agent": (3, str(tmp_path / "a")), "control": (4, str(tmp_path / "c"))}
    assert done.stdout.splitlines() == [str(taken), "[]"]
