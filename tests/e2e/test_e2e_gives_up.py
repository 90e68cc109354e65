"""Defects that no restart cures: the daemon ends with 1, says why in its last line, and leaves nothing behind."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import psutil
import pytest

DEFECTS = {
    "audit": """
from conduit_daemon.pipeline.audit import Audit
async def run(self):
    raise RuntimeError("planted in the audit")
Audit.run = run
""",
    "hub": """
from conduit_daemon.hub.actor import Hub
async def init(self):
    raise RuntimeError("planted in the hub")
Hub.init = init
""",
    "later": """
import trio
from conduit_daemon.service.guardian import Guardian
async def run(self):
    await trio.sleep(0.3)
    raise RuntimeError("planted in the guardian's keeper")
Guardian.run = run
""",
    "stop": """
from conduit_daemon.service.guardian import Guardian
close = Guardian.close
async def fails(self):
    await close(self)
    raise RuntimeError("planted in the stop")
Guardian.close = fails
""",
    "drain": """
from conduit_daemon.pipeline.gate import Gate
async def drain(self, seconds, hurry):
    raise RuntimeError("planted in the drain")
Gate.drain = drain
""",
    "group": """
import trio
from conduit_daemon.pipeline.gate import Gate
async def fails(self):
    raise RuntimeError("planted in a task")
Gate.quiet = fails
""",
}
"""Code of the operator's, loaded as a hook, that breaks a part of the daemon."""


def broken(start: Any, fake_server: Any, tmp_path: Path, defect: str, format: str = "json") -> Any:
    (tmp_path / f"defect_{defect}.py").write_text(DEFECTS[defect] + "\ndef hook(call): ...\n")
    daemon = start(
        fake_server("a"),
        f'[hooks]\nbefore_call = ["defect_{defect}:hook"]\n',
        wait=False,
        shell=f"PYTHONPATH={tmp_path} exec {{}}",
    )
    return daemon


def last(daemon: Any) -> dict[str, Any]:
    line: dict[str, Any] = json.loads(daemon.log_path.read_text().splitlines()[-1])
    return line


@pytest.mark.parametrize("defect", ["audit", "hub", "later"])
def test_a_crash_loop_of_the_root_ends_with_the_reason_in_the_last_line(
    start: Any, fake_server: Any, tmp_path: Path, defect: str
) -> None:
    daemon = broken(start, fake_server, tmp_path, defect)
    assert daemon.process.wait(20) == 1
    said = last(daemon)
    assert (said["event"], said["level"]) == ("daemon.failed", "error")
    assert "planted" in said["reason"]
    assert not daemon.agent.exists()
    assert not [
        process
        for process in psutil.process_iter(["cmdline"])
        if str(daemon.folder) in " ".join(process.info["cmdline"] or [])
    ]


@pytest.mark.parametrize("defect", ["stop", "drain", "group"])
def test_a_defect_while_stopping_is_said_in_the_last_line(
    start: Any, fake_server: Any, tmp_path: Path, defect: str
) -> None:
    daemon = broken(start, fake_server, tmp_path, defect)
    daemon.wait_until(daemon.agent.is_socket)
    daemon.wait_ready("a")
    server = daemon.pid("a")
    assert daemon.stop() == 1
    said = last(daemon)
    assert (said["event"], said["level"]) == ("daemon.failed", "error")
    assert "planted" in said["reason"]
    assert not psutil.pid_exists(server)
    assert not daemon.agent.exists()
