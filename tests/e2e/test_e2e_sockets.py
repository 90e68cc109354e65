"""A socket that cannot be had: what the daemon says, how the command line says it and exits, what the library raises.

Each is a sentence that says what happened, to which path, and what to do.
"""

from __future__ import annotations

import ctypes
import os
import socket
import subprocess
import sys
import tempfile
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from conduit_daemon.agent import Conduit, DaemonUnreachable

CONDUIT = Path(sys.executable).with_name("conduit")
PR_CAPBSET_DROP = 24
LONG = "x" * 120


def run(*words: object, **environ: str) -> subprocess.CompletedProcess[str]:
    command = [CONDUIT, *map(str, words)]
    env = {"PATH": os.environ["PATH"], "HOME": "/nonexistent", **environ}
    return subprocess.run(
        command, capture_output=True, text=True, timeout=30, env=env, check=False, preexec_fn=without_rights
    )


def refused(done: subprocess.CompletedProcess[str], code: int, *said: str) -> None:
    """One sentence, with all of this in it."""
    assert done.returncode == code, done
    assert "Traceback" not in done.stderr
    last = done.stderr.strip().splitlines()[-1]
    for words in said:
        assert words in last, last


def configured(folder: Path, agent: Path | None = None, state: str = "state") -> Path:
    file = folder / f"{state}.toml"
    rpc = "" if agent is None else f'[rpc]\nagent_socket = "{agent}"\n'
    file.write_text(f'{rpc}[state]\ndirectory = "{folder / state}"\n[log]\nformat = "json"\n')
    return file


def without_rights() -> None:
    """Lets a file's mode stop root too, by dropping CAP_DAC_OVERRIDE and CAP_DAC_READ_SEARCH; others have neither."""
    libc = ctypes.CDLL(None)
    for capability in (1, 2):
        libc.prctl(PR_CAPBSET_DROP, capability, 0, 0, 0)


@pytest.fixture
def short() -> Iterator[Path]:
    """A folder with a short path."""
    with tempfile.TemporaryDirectory(prefix="cd-") as folder:
        yield Path(folder)


# ---- the daemon's side


def test_a_second_daemon_at_the_same_socket_is_told_of_the_first(start: Any, tmp_path: Path) -> None:
    first = start()
    refused(
        run("run", "--config", configured(tmp_path, first.agent)),
        1,
        f"A daemon already listens at {first.agent}.",
        "Stop it first, or set rpc.agent_socket to another path.",
    )
    assert first.status()["health"] == "ok"


def test_a_second_daemon_on_the_same_state_is_told_of_the_first(start: Any) -> None:
    first = start()
    config = configured(first.folder, first.folder / "other.sock")
    refused(run("run", "--config", config), 1, f"(process {first.process.pid})", "set state.directory to another one")


def test_a_folder_that_may_not_be_written_is_named(short: Path) -> None:
    closed = short / "closed"
    closed.mkdir(mode=0o555)
    done = run("run", "--config", configured(short, closed / "agent.sock"))
    refused(done, 1, f"Cannot listen at {closed}/agent.sock (Permission denied).", "Make its folder writable")


def test_with_no_runtime_directory_the_home_is_used_and_said_where_it_cannot_be(short: Path) -> None:
    home = short / "home"
    home.mkdir(mode=0o555)
    done = run("run", "--config", configured(short), HOME=str(home))
    refused(done, 1, f"Cannot listen at {home}/.local/state/conduit/agent.sock", "or set rpc.agent_socket")


def test_a_path_that_is_too_long_is_said_before_anything_starts(tmp_path: Path) -> None:
    (tmp_path / LONG).mkdir()
    done = run("run", "--config", configured(tmp_path), XDG_RUNTIME_DIR=str(tmp_path / LONG))
    refused(done, 1, "bytes and the system allows 107", "Set rpc.agent_socket to a shorter one.")
    configured_long = configured(tmp_path, tmp_path / LONG / "agent.sock", "other")
    refused(run("run", "--config", configured_long), 78, "rpc.agent_socket", "107 bytes")


# ---- the side of those who ask


def stale(folder: Path) -> Path:
    path = folder / "agent.sock"
    with socket.socket(socket.AF_UNIX) as dead:
        dead.bind(str(path))
    return path


def no_socket(folder: Path) -> Path:
    path = folder / "agent.sock"
    path.write_text("")
    return path


UNREACHABLE: dict[str, tuple[Callable[[Path], Path], str, str]] = {
    "nothing there": (lambda folder: folder / "agent.sock", "(no such socket)", "Start one with 'conduit run'"),
    "a stale socket": (stale, "(left behind by a daemon that is gone)", "Start one with 'conduit run'"),
    "no socket": (no_socket, "(not a socket)", "name its socket: "),
    "too long a path": (lambda folder: folder / LONG, "longer than the 107 bytes", "a shorter path"),
}


@pytest.mark.parametrize("case", UNREACHABLE)
def test_who_asks_is_told_why_and_what_to_do(short: Path, case: str) -> None:
    make, why, what = UNREACHABLE[case]
    path = make(short)
    for words in (["status"], ["call", "a__b"], ["top", "--once"]):
        refused(run(*words, "--socket", path), 3, "No conduit daemon answers.", why, what)
    with pytest.raises(DaemonUnreachable) as caught:
        Conduit(path).status()
    assert why in str(caught.value)
    assert what in str(caught.value)


def test_a_socket_of_somebody_else_is_told_from_none(start: Any) -> None:
    daemon = start()
    daemon.agent.chmod(0)
    daemon.control.chmod(0)
    refused(run("status", "--socket", daemon.agent), 3, "(you may not open it)", "rpc.socket_group")
    told = run("approvals", "--list", "--socket", daemon.agent)
    refused(told, 3, f"{daemon.control} (you may not open it)", "rpc.control_group")


def test_with_no_runtime_directory_all_usual_places_are_named(short: Path) -> None:
    done = run("status", HOME=str(short))
    refused(done, 3, f"{short}/.local/state/conduit/agent.sock (no such socket)", "/run/conduit/agent.sock")
