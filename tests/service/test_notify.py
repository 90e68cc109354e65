"""sd_notify, received by real sockets as systemd would."""

from __future__ import annotations

import os
import re
import secrets
import socket
import sys
import time
from collections.abc import Iterator
from pathlib import Path

import pytest

from conduit_daemon.service.notify import Notifier

ABSTRACT = pytest.param("abstract", marks=pytest.mark.skipif(sys.platform != "linux", reason="abstract sockets"))


class Manager:
    """Receives what a service manager receives."""

    def __init__(self, address: str) -> None:
        self.address = address
        self.sock = socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM)
        self.sock.bind(address.replace("@", "\0", 1) if address.startswith("@") else address)
        self.sock.setblocking(False)

    def received(self) -> list[list[str]]:
        messages = []
        while True:
            try:
                messages.append(self.sock.recv(65536).decode().splitlines())
            except BlockingIOError:
                return messages


@pytest.fixture(params=["path", ABSTRACT])
def manager(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[Manager]:
    name = f"@conduit-{secrets.token_hex(8)}" if request.param == "abstract" else str(tmp_path / "notify")
    found = Manager(name)
    yield found
    found.sock.close()


def test_each_message(manager: Manager) -> None:
    notifier = Notifier(manager.address)
    notifier.ready("5 of 6 servers ready")
    notifier.status("6 of 6 servers ready")
    notifier.alive()
    notifier.stopping(30)
    assert manager.received() == [
        ["READY=1", "STATUS=5 of 6 servers ready"],
        ["STATUS=6 of 6 servers ready"],
        ["WATCHDOG=1"],
        ["STOPPING=1", "EXTEND_TIMEOUT_USEC=30000000"],
    ]


def test_a_reload_says_when_it_began_and_that_it_ended_however_it_did(manager: Manager) -> None:
    notifier = Notifier(manager.address)
    before = time.clock_gettime(time.CLOCK_MONOTONIC)
    with pytest.raises(ValueError), notifier.reload():
        after = time.clock_gettime(time.CLOCK_MONOTONIC)
        (message,) = manager.received()
        raise ValueError
    assert manager.received() == [["READY=1"]]
    assert message[0] == "RELOADING=1"
    stamp = re.fullmatch(r"MONOTONIC_USEC=(\d+)", message[1])
    assert stamp is not None
    assert before - 1e-6 <= int(stamp[1]) / 1e6 <= after


def test_a_status_is_one_line_of_bounded_length(manager: Manager) -> None:
    notifier = Notifier(manager.address)
    notifier.status("one\nREADY=1\r\ntwo\x0bthree \udcff")
    notifier.status("x" * 100_000)
    first, second = manager.received()
    assert first == ["STATUS=one READY=1 two three ?"]
    assert len(second[0]) < 1000


def test_what_does_not_fit_goes_out_later_and_only_the_newest_phase(manager: Manager) -> None:
    notifier = Notifier(manager.address)
    while True:  # fill the manager's queue
        notifier.alive()
        if notifier._unsent:
            break
    began = time.monotonic()
    with notifier.reload():
        notifier.status("old")
    notifier.status("new")
    assert time.monotonic() - began < 1, "it must not wait"
    manager.received()
    notifier.alive()
    (message,) = manager.received()
    assert sorted(message) == ["READY=1", "STATUS=new", "WATCHDOG=1"]
    notifier.alive()
    assert manager.received() == [["WATCHDOG=1"]], "what was sent is not sent again"


def test_a_manager_that_is_gone_is_no_error(tmp_path: Path) -> None:
    notifier = Notifier(str(tmp_path / "nobody"))
    notifier.ready()
    late = Manager(str(tmp_path / "nobody"))
    notifier.alive()
    assert late.received() == [["READY=1", "WATCHDOG=1"]]
    late.sock.close()


@pytest.mark.parametrize("address", [None, "", "/", "@", "vsock:2:1234", "relative/path"])
def test_nobody_listens(address: str | None) -> None:
    notifier = Notifier(address, watchdog=1)
    assert not notifier.active
    assert notifier.watchdog_interval is None
    notifier.ready("x")
    assert notifier._unsent == {}


def test_the_environment_is_taken(manager: Manager) -> None:
    environ = {"NOTIFY_SOCKET": manager.address, "WATCHDOG_USEC": "2500000", "WATCHDOG_PID": str(os.getpid()), "A": "b"}
    notifier = Notifier.take(environ)
    notifier.ready()
    assert manager.received() == [["READY=1"]]
    assert notifier.watchdog_interval == 2.5
    assert environ == {"A": "b"}, "no server is to speak for the daemon"


@pytest.mark.parametrize(
    ("variables", "interval"),
    [
        ({}, None),
        ({"WATCHDOG_USEC": "0"}, None),
        ({"WATCHDOG_USEC": "soon"}, None),
        ({"WATCHDOG_USEC": "-5"}, None),
        ({"WATCHDOG_USEC": "²"}, None),
        ({"WATCHDOG_USEC": "1000000"}, 1.0),
        ({"WATCHDOG_USEC": "1000000", "WATCHDOG_PID": "1"}, None),
    ],
)
def test_the_watchdogs_interval(variables: dict[str, str], interval: float | None) -> None:
    environ = {"NOTIFY_SOCKET": "@x", **variables}
    assert Notifier.take(environ).watchdog_interval == interval
    assert environ == {}


def test_without_systemd_there_is_no_watchdog() -> None:
    assert Notifier.take({"WATCHDOG_USEC": "1000000"}).watchdog_interval is None
