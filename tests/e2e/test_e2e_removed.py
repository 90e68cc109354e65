"""What somebody removes from under a running daemon is made again and said, and nobody who is connected notices."""

from __future__ import annotations

import fcntl
import json
import shutil
import signal
import socket
import stat
import subprocess
import sys
import time
from pathlib import Path
from typing import Any

CONDUIT = Path(sys.executable).with_name("conduit")
LOOKED = 6.0


def said(daemon: Any, event: str) -> list[str]:
    return [line["reason"] for line in daemon.log() if line["event"] == event]


def test_removed_sockets_are_made_again_and_open_connections_go_on(start: Any, fake_server: Any) -> None:
    daemon = start(fake_server("a"), rpc='socket_mode = "0640"')
    daemon.wait_ready("a")
    agent, control = daemon.rpc(), daemon.rpc(control=True)
    running = agent.send("conduit/call", {"name": "a__sleep", "arguments": {"seconds": 2}})
    daemon.agent.unlink()
    daemon.control.unlink()
    daemon.wait_until(lambda: len(said(daemon, "rpc.socket_restored")) == 2, LOOKED)
    assert agent.wait(running)["result"]["content"][0]["text"] == "slept"
    assert agent.call("a__echo", {"text": "old"})["content"][0]["text"] == "old"
    assert daemon.rpc().call("a__echo", {"text": "new"})["content"][0]["text"] == "new"
    assert control.result("conduit/tree")
    assert daemon.rpc(control=True).result("conduit/tree")
    assert stat.S_IMODE(daemon.agent.stat().st_mode) == 0o640
    assert stat.S_IMODE(daemon.control.stat().st_mode) == 0o600
    assert daemon.stop() == 0
    assert not daemon.agent.exists()
    assert not daemon.control.exists()


def test_a_reload_makes_them_again_at_once(start: Any) -> None:
    daemon = start()
    daemon.agent.unlink()
    daemon.process.send_signal(signal.SIGHUP)
    daemon.wait_until(daemon.agent.is_socket, 2)
    daemon.agent.unlink()
    daemon.rpc(control=True).result("conduit/reload")
    daemon.wait_until(daemon.agent.is_socket, 2)


def test_another_daemons_socket_in_its_place_is_left_alone_and_said(start: Any) -> None:
    daemon = start()
    daemon.agent.unlink()
    with socket.socket(socket.AF_UNIX) as other:
        other.bind(str(daemon.agent))
        other.listen()
        daemon.wait_until(lambda: said(daemon, "rpc.socket_lost"), LOOKED)
        assert f"A daemon already listens at {daemon.agent}" in said(daemon, "rpc.socket_lost")[0]
        time.sleep(LOOKED - 2)
        assert len(said(daemon, "rpc.socket_lost")) == 1
        status = daemon.rpc(control=True).result("conduit/status")
        assert (status["health"], status["problems"]) == ("degraded", said(daemon, "rpc.socket_lost"))
    daemon.wait_until(lambda: said(daemon, "rpc.socket_restored"), LOOKED)
    assert daemon.status()["health"] == "ok"


def test_a_removed_state_directory_is_made_again_with_what_is_known(start: Any, fake_server: Any) -> None:
    daemon = start(fake_server("a", pin="true"))
    daemon.wait_ready("a")
    agent, control = daemon.rpc(), daemon.rpc(control=True)
    agent.call("a__echo", {"text": "before"})
    state = daemon.folder / "state"
    daemon.wait_until((state / "pins.json").exists)
    daemon.wait_until((state / "listings" / "a.json").exists)
    shutil.rmtree(state)
    daemon.wait_until(lambda: said(daemon, "state.restored") and said(daemon, "audit.lost"), LOOKED)
    daemon.wait_until((state / "listings" / "a.json").exists)
    daemon.wait_until((state / "pins.json").exists)
    assert stat.S_IMODE(state.stat().st_mode) == 0o700
    assert json.loads((state / "pins.json").read_text())[0]["tool"] == "echo"
    agent.call("a__echo", {"text": "after"})
    assert control.result("conduit/audit")["rows"][0]["tool"] == "echo"
    second = subprocess.run(
        [CONDUIT, "run", "--config", daemon.config], capture_output=True, text=True, timeout=30, check=False
    )
    assert second.returncode == 1
    assert f"Another daemon (process {daemon.process.pid}) uses the state directory" in second.stderr
    assert daemon.stop() == 0
    assert (state / "lock").read_text() == ""


def test_a_daemon_that_slips_in_meanwhile_is_said(start: Any) -> None:
    daemon = start()
    state = daemon.folder / "state"
    (state / "lock").unlink()
    with (state / "lock").open("w") as other:
        fcntl.flock(other, fcntl.LOCK_EX)
        other.write("12345\n")
        other.flush()
        daemon.wait_until(lambda: said(daemon, "state.lost"), LOOKED)
        assert "Another daemon (process 12345) uses the state directory" in said(daemon, "state.lost")[0]
    daemon.wait_until(lambda: said(daemon, "state.restored"), LOOKED)
    assert (state / "lock").read_text().startswith(f"{daemon.process.pid}\n")


def test_a_removed_audit_is_begun_anew_though_nobody_calls(start: Any, fake_server: Any) -> None:
    daemon = start(fake_server("a"))
    daemon.wait_ready("a")
    agent, control = daemon.rpc(), daemon.rpc(control=True)
    audit = daemon.folder / "state" / "audit.db"
    for count, removed in enumerate((("", "-wal", "-shm"), ("",), ("-wal",)), 1):
        agent.call("a__echo", {"text": "x"})
        assert control.result("conduit/audit")["rows"]
        for suffix in removed:
            Path(f"{audit}{suffix}").unlink()
        daemon.wait_until(lambda count=count: len(said(daemon, "audit.lost")) == count, LOOKED)
        assert str(audit) in said(daemon, "audit.lost")[-1]
        daemon.wait_until(audit.exists)
        assert stat.S_IMODE(audit.stat().st_mode) == 0o600
        agent.call("a__add", {"a": 1, "b": 2})
        daemon.wait_until(lambda: [row["tool"] for row in control.result("conduit/audit")["rows"]][:1] == ["add"])
    assert daemon.stop() == 0
    assert "audit.corrupt" not in daemon.events()
