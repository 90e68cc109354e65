"""What a server left behind does not add up: it goes with the server, and at the latest with the next daemon."""

from __future__ import annotations

import os
import signal
from pathlib import Path
from typing import Any

import pytest

pytestmark = pytest.mark.skipif(not Path("/proc/self/environ").exists(), reason="needs /proc")


def alive(pid: int) -> bool:
    try:
        return Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0] not in "ZX"
    except (FileNotFoundError, ProcessLookupError):
        return False


@pytest.mark.parametrize("order", ["restart", "kill"])
def test_a_process_that_left_its_servers_group_ends_with_the_server(
    start: Any, fake_server: Any, tmp_path: Path, order: str
) -> None:
    mark, other = tmp_path / "detached", tmp_path / "other"
    daemon = start(fake_server("a", f"detached={mark}"), fake_server("b", f"detached={other}"))
    daemon.wait_ready("a", "b")
    first, of_b = int(mark.read_text()), int(other.read_text())
    before = daemon.pid("a")
    if order == "restart":
        daemon.rpc(control=True).result("conduit/servers/restart", {"server": "a"})
    else:
        os.kill(before, signal.SIGKILL)
    daemon.wait_until(lambda: not alive(first))
    daemon.wait_until(lambda: daemon.pid("a") not in {0, before} and daemon.state("a") == "ready")
    second = int(mark.read_text())
    assert second != first
    assert alive(second)
    assert alive(of_b)
    assert daemon.stop() == 0
    assert not alive(second)
    assert not alive(of_b)


def test_the_next_daemon_ends_what_is_left_where_the_guardian_was_killed_too(
    start: Any, fake_server: Any, tmp_path: Path
) -> None:
    mark = tmp_path / "detached"
    daemon = start(fake_server("a", "deaf_to_term", f"detached={mark}"))
    daemon.wait_ready("a")
    left = [daemon.pid("a"), int(mark.read_text())]
    (guardian,) = [line["pid"] for line in daemon.log() if line["event"] == "guardian.started"]
    os.kill(guardian, signal.SIGKILL)
    os.kill(daemon.process.pid, signal.SIGKILL)
    daemon.process.wait()
    assert all(map(alive, left))
    following = type(daemon)(daemon.folder, '[policy]\ndefault = "allow"\n' + fake_server("b"))
    try:
        following.wait_until(lambda: not any(map(alive, left)))
        following.wait_ready("b")
    finally:
        following.stop()
        for pid in filter(alive, left):
            os.kill(pid, signal.SIGKILL)
