"""The two sockets: who may have them, what is in their way, and what stays behind."""

from __future__ import annotations

import grp
import os
import socket
import stat
from collections.abc import Iterator
from pathlib import Path

import pytest
import trio

from conduit_daemon.errors import DaemonError
from conduit_daemon.rpc.listener import Listener, open_listener, peer


@pytest.fixture
def folder(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Path]:
    path = Path("/tmp") / f"cd-listener-{os.getpid()}"  # short: a socket's path may have 107 bytes
    path.mkdir(mode=0o700)
    yield path
    for file in path.iterdir():
        file.unlink()
    path.rmdir()


def mode(path: Path) -> int:
    return stat.S_IMODE(path.stat().st_mode)


async def test_a_connection_is_accepted_and_its_peer_known_by_the_kernels_word(folder: Path) -> None:
    listener = open_listener(folder / "a.sock", control=False, mode=0o660)
    assert mode(listener.path) == 0o660
    with socket.socket(socket.AF_UNIX) as client:
        client.connect(str(listener.path))
        accepted = await listener.accept()
        with accepted:
            assert not accepted.getblocking()
            assert (peer(accepted).uid, peer(accepted).pid) == (os.getuid(), os.getpid())
    listener.close()
    assert not listener.path.exists()


async def test_waiting_for_a_connection_ends_with_the_listener(folder: Path) -> None:
    listener = open_listener(folder / "a.sock", control=False, mode=0o600)

    async def accept() -> None:
        with pytest.raises(trio.ClosedResourceError):
            await listener.accept()

    async with trio.open_nursery() as nursery:
        nursery.start_soon(accept)
        await trio.testing.wait_all_tasks_blocked()
        listener.close()
        listener.close()


async def test_the_file_of_a_dead_daemon_is_replaced_and_that_of_a_live_one_is_not(folder: Path) -> None:
    path = folder / "a.sock"
    with socket.socket(socket.AF_UNIX) as dead:
        dead.bind(str(path))
    live = open_listener(path, control=True, mode=0o600)
    with pytest.raises(DaemonError, match="already listens"):
        open_listener(path, control=True, mode=0o600)
    with socket.socket(socket.AF_UNIX) as client:
        client.connect(str(path))
    live.close()


async def test_what_is_no_socket_is_left_alone(folder: Path) -> None:
    path = folder / "a.sock"
    path.write_text("precious")
    with pytest.raises(DaemonError, match="is no socket"):
        open_listener(path, control=False, mode=0o600)
    assert path.read_text() == "precious"


async def test_a_successors_file_is_not_removed(folder: Path) -> None:
    path = folder / "a.sock"
    first = open_listener(path, control=False, mode=0o600)
    path.unlink()
    second = open_listener(path, control=False, mode=0o600)
    first.close()
    assert path.is_socket()
    second.close()


async def test_a_socket_that_was_passed_in_stays_behind(folder: Path) -> None:
    path = folder / "a.sock"
    passed = socket.socket(socket.AF_UNIX)
    passed.bind(str(path))
    passed.listen()
    Listener(passed, path, control=False).close()
    assert path.is_socket()


@pytest.mark.parametrize(
    ("name", "group", "said"),
    [
        ("x" * 200, None, "the system allows"),
        ("a.sock", "no-such-group-anywhere", "There is no group"),
    ],
)
async def test_what_cannot_be_had_is_said(folder: Path, name: str, group: str | None, said: str) -> None:
    with pytest.raises(DaemonError, match=said):
        open_listener(folder / name, control=False, mode=0o600, group=group)


async def test_a_folder_that_cannot_be_made_is_said(folder: Path) -> None:
    (folder / "file").write_text("")
    with pytest.raises(DaemonError, match=r"Make its folder writable.*rpc\.control_socket"):
        open_listener(folder / "file" / "a.sock", control=True, mode=0o600)


async def test_a_group_is_given_its_socket(folder: Path) -> None:
    own = grp.getgrgid(os.getgid()).gr_name
    listener = open_listener(folder / "a.sock", control=True, mode=0o660, group=own)
    assert listener.path.stat().st_gid == os.getgid()
    listener.close()


async def test_bound_again_it_accepts_who_had_connected_before_and_who_comes_after(folder: Path) -> None:
    listener = open_listener(folder / "a.sock", control=False, mode=0o640)
    accepted: list[socket.socket] = []

    async def accept() -> None:
        while True:
            accepted.append(await listener.accept())

    with socket.socket(socket.AF_UNIX) as before, socket.socket(socket.AF_UNIX) as after:
        before.connect(str(listener.path))
        listener.bind_again()  # nothing is amiss, and nothing happens
        listener.path.unlink()
        assert not listener.is_in_place()
        listener.bind_again()
        assert listener.is_in_place()
        assert mode(listener.path) == 0o640
        async with trio.open_nursery() as nursery:
            nursery.start_soon(accept)
            await trio.testing.wait_all_tasks_blocked()
            listener.path.unlink()
            listener.bind_again()  # while somebody waits
            after.connect(str(listener.path))
            with trio.fail_after(2):
                while len(accepted) < 2:
                    await trio.sleep(0.01)
            nursery.cancel_scope.cancel()
        before.sendall(b"1")
        after.sendall(b"2")
        assert [sock.recv(1) for sock in accepted] == [b"1", b"2"]
    for sock in accepted:
        sock.close()
    listener.path.unlink()
    listener.close()
    assert listener.is_in_place(), "one that is closed misses nothing"


async def test_a_socket_of_a_service_manager_cannot_be_bound_again(folder: Path) -> None:
    path = folder / "c.sock"
    passed = socket.socket(socket.AF_UNIX)
    passed.bind(str(path))
    passed.listen()
    listener = Listener(passed, path, control=True)
    path.unlink()
    with pytest.raises(DaemonError, match=r"systemctl restart conduit-control\.socket conduit"):
        listener.bind_again()
    listener.close()
