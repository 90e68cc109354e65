"""`watch = true`: a saved change is a reload, however it was saved; what is no change of the file is none."""

from __future__ import annotations

import os
import shutil
import signal
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import psutil
import pytest

WATCH = "watch = true\n"
LOOKED = 2.6  # seconds in which a change that counts would have been seen and read
TOLD = ("config.reloaded", "config.rejected", "config.warning")


def told(daemon: Any) -> list[str]:
    return [line["event"] for line in daemon.log() if line["event"] in TOLD]


def saved(daemon: Any, tools: int, table: Callable[..., str]) -> str:
    text: str = daemon.config.read_text().split("[servers.")[0]
    return text + table("a", f"tools={tools}")


def wait_told(daemon: Any, *events: str) -> None:
    daemon.wait_until(lambda: len(told(daemon)) >= len(events))
    assert told(daemon) == list(events)


def move_over(path: Path, text: str) -> None:
    beside = path.with_name(".conduit.toml.swp")
    beside.write_text(text)
    beside.rename(path)


def write_in_place(path: Path, text: str) -> None:
    path.write_text(text)


def write_piece_by_piece(path: Path, text: str) -> None:
    with path.open("w") as file:
        for at in range(0, len(text), 40):
            file.write(text[at : at + 40])
            file.flush()
            time.sleep(0.05)


def write_with_a_pause(path: Path, text: str) -> None:
    """The pause is amid a line, and longer than a file has to be at rest."""
    with path.open("w") as file:
        file.write(text[: text.index("command") + 3])
        file.flush()
        time.sleep(1.5)
        file.write(text[text.index("command") + 3 :])


def truncate_and_wait(path: Path, text: str) -> None:
    with path.open("w") as file:
        time.sleep(1.5)
        file.write(text)


def remove_and_make_again(path: Path, text: str) -> None:
    path.unlink()
    time.sleep(1.2)
    path.write_text(text)


def keep_the_times(path: Path, text: str) -> None:
    before = path.stat()
    path.write_text(text)
    os.utime(path, ns=(before.st_atime_ns, before.st_mtime_ns))


def set_a_time_to_come(path: Path, text: str) -> None:
    path.write_text(text)
    os.utime(path, (time.time() + 1e8, time.time() + 1e8))


WAYS = [
    move_over,
    write_in_place,
    write_piece_by_piece,
    write_with_a_pause,
    truncate_and_wait,
    remove_and_make_again,
    keep_the_times,
    set_a_time_to_come,
]


def test_a_change_is_taken_over_once_however_it_is_saved(start: Any, fake_server: Any) -> None:
    daemon = start(fake_server("a"), top=WATCH)
    daemon.wait_ready("a")
    for count, way in enumerate(WAYS, 1):
        way(daemon.config, saved(daemon, count, fake_server))
        daemon.wait_until(lambda count=count: daemon.status()["servers"]["a"]["tools"] == 9 + count)
        wait_told(daemon, *["config.reloaded"] * count)
    daemon.wait_ready("a")
    unchanged = daemon.pid("a")
    time.sleep(LOOKED)
    assert told(daemon) == ["config.reloaded"] * len(WAYS)
    assert daemon.pid("a") == unchanged


def test_what_is_no_change_of_the_file_is_no_reload(start: Any, fake_server: Any) -> None:
    daemon = start(fake_server("a"), top=WATCH)
    text = daemon.config.read_text()
    shutil.copy(daemon.config, daemon.folder / "conduit.toml.bak")
    (daemon.folder / "conduit.toml~").hardlink_to(daemon.config)
    (daemon.folder / ".conduit.toml.swp").write_text("half of")
    daemon.config.touch()
    daemon.config.chmod(0o600)
    move_over(daemon.config, text)
    time.sleep(LOOKED)
    assert told(daemon) == []


@pytest.mark.parametrize("linked", ["file", "folder"])
def test_a_change_at_the_end_of_symbolic_links_is_seen(
    start: Any, fake_server: Any, linked: str, tmp_path: Path
) -> None:
    """As Kubernetes mounts a ConfigMap (``conduit.toml -> ..data/conduit.toml``, ``..data -> ..1``), and NixOS."""
    daemon = start(top=WATCH)
    for name, tools in (("..1", 1), ("..2", 2)):
        (tmp_path / name).mkdir()
        (tmp_path / name / "conduit.toml").write_text(saved(daemon, tools, fake_server))

    def lead(link: Path, target: Path) -> None:
        new = link.with_name("..new")
        new.symlink_to(target)
        new.rename(link)

    lead(tmp_path / "..data", Path("..1"))
    lead(daemon.config, tmp_path / "..data" / "conduit.toml")
    daemon.wait_until(lambda: daemon.status()["servers"].get("a", {}).get("tools") == 10)
    if linked == "folder":
        lead(tmp_path / "..data", Path("..2"))
    else:
        lead(daemon.config, tmp_path / "..2" / "conduit.toml")
    daemon.wait_until(lambda: daemon.status()["servers"]["a"]["tools"] == 11)
    wait_told(daemon, "config.reloaded", "config.reloaded")


def test_the_whole_folder_may_be_replaced(start: Any, fake_server: Any, tmp_path: Path) -> None:
    daemon = start(top=WATCH)
    folder = tmp_path / "etc"
    folder.mkdir()
    (folder / "conduit.toml").write_text(saved(daemon, 1, fake_server))
    other = saved(daemon, 1, lambda name, *behaviours: fake_server("b", *behaviours))
    daemon.config.unlink()
    daemon.config.symlink_to(folder / "conduit.toml")
    daemon.wait_until(lambda: "a" in daemon.status()["servers"])
    shutil.rmtree(folder)
    daemon.wait_until(lambda: "config.rejected" in told(daemon))
    daemon.wait_ready("a")
    folder.mkdir()
    (folder / "conduit.toml").write_text(other)
    daemon.wait_until(lambda: daemon.status()["servers"].keys() == {"b"})
    wait_told(daemon, "config.reloaded", "config.rejected", "config.reloaded")


def test_a_broken_file_is_rejected_once_as_a_signal_rejects_it(start: Any, fake_server: Any) -> None:
    daemon = start(fake_server("a"), top=WATCH)
    daemon.wait_ready("a")
    pid, good = daemon.pid("a"), daemon.config.read_text()
    move_over(daemon.config, good + "\n[servers.b]\ncomand = 'x'\n")
    wait_told(daemon, "config.rejected")
    daemon.config.touch()
    time.sleep(LOOKED)
    daemon.process.send_signal(signal.SIGHUP)
    wait_told(daemon, "config.rejected", "config.rejected")
    watched, by_signal = (
        {key: value for key, value in line.items() if key != "timestamp"}
        for line in daemon.log()
        if line["event"] == "config.rejected"
    )
    assert watched == by_signal
    rejected = daemon.status()["config"]["rejected"]
    assert rejected["file"] == str(daemon.config)
    assert abs(rejected["time"] - time.time()) < 60
    assert [problem["key"] for problem in rejected["problems"]] == ["servers.b.comand"]
    assert rejected["problems"][0]["suggestion"] == "command"
    assert daemon.pid("a") == pid
    move_over(daemon.config, good)
    wait_told(daemon, "config.rejected", "config.rejected", "config.reloaded")
    assert "rejected" not in daemon.status()["config"]
    assert daemon.pid("a") == pid


def test_an_emptied_file_ends_no_server_unless_somebody_asks(start: Any, fake_server: Any) -> None:
    daemon = start(fake_server("a"), top=WATCH)
    daemon.wait_ready("a")
    pid = daemon.pid("a")
    daemon.config.write_text("")
    wait_told(daemon, "config.rejected")
    assert daemon.status()["config"]["rejected"]["problems"][0]["message"].startswith("is empty; if that is meant")
    assert daemon.pid("a") == pid
    daemon.rpc(control=True).result("conduit/reload")
    daemon.wait_until(lambda: daemon.status()["servers"] == {})


def test_a_secret_that_is_rotated_in_its_file_restarts_who_has_it(start: Any, fake_server: Any, tmp_path: Path) -> None:
    secret = tmp_path / "token"
    secret.write_text("the-first-secret")
    table = fake_server("a", env=f'{{ TOKEN = "${{file:{secret}}}" }}')
    daemon = start(table, fake_server("b"), top=WATCH)
    daemon.wait_ready("a", "b")
    a, b = daemon.pid("a"), daemon.pid("b")
    move_over(secret, "the-second-secret")
    daemon.wait_until(lambda: daemon.pid("a") not in (a, 0))
    daemon.wait_ready("a")
    assert psutil.Process(daemon.pid("a")).environ()["TOKEN"] == "the-second-secret"
    assert daemon.pid("b") == b
    secret.unlink()
    daemon.wait_until(lambda: "config.rejected" in told(daemon))
    (problem,) = daemon.status()["config"]["rejected"]["problems"]
    assert problem["key"] == "servers.a.env.TOKEN"
    secret.write_text("the-third-secret")
    daemon.wait_until(lambda: daemon.status()["config"].get("rejected") is None)
    assert "-secret" not in daemon.log_path.read_text()


def test_it_begins_and_ends_with_the_key(start: Any, fake_server: Any) -> None:
    daemon = start(fake_server("a"))
    control = daemon.rpc(control=True)
    text = daemon.config.read_text()
    move_over(daemon.config, WATCH + text)
    time.sleep(LOOKED)
    assert told(daemon) == []
    control.result("conduit/reload")
    assert daemon.status()["config"]["watch"]
    move_over(daemon.config, text)
    wait_told(daemon, "config.reloaded", "config.reloaded")
    assert not daemon.status()["config"]["watch"]
    move_over(daemon.config, WATCH + text + fake_server("b"))
    time.sleep(LOOKED)
    wait_told(daemon, "config.reloaded", "config.reloaded")


def test_only_changed_servers_restart_policy_holds_at_once_and_running_calls_finish(
    start: Any, fake_server: Any
) -> None:
    daemon = start(fake_server("kept"), fake_server("changed"), top=WATCH)
    daemon.wait_ready("kept", "changed")
    kept, changed = daemon.pid("kept"), daemon.pid("changed")
    rpc = daemon.rpc()
    running = rpc.send("conduit/call", {"name": "changed__sleep", "arguments": {"seconds": 4}})
    head = daemon.config.read_text().split("[policy]")[0]
    rules = '[policy]\ndefault = "allow"\n[[policy.rules]]\neffect = "deny"\ntools = ["echo"]\n'
    move_over(daemon.config, head + rules + fake_server("kept") + fake_server("changed", "tools=2"))
    wait_told(daemon, "config.reloaded")
    denied = rpc.ask("conduit/call", {"name": "kept__echo", "arguments": {"text": "x"}})["error"]
    assert denied["data"]["kind"] == "denied"
    assert rpc.wait(running)["result"]["content"][0]["text"] == "slept"
    daemon.wait_until(lambda: daemon.status()["servers"]["changed"]["tools"] == 11)
    assert daemon.pid("kept") == kept
    assert daemon.pid("changed") != changed
