"""The official conformance suite's server scenarios against the agent socket, through a small HTTP bridge."""

from __future__ import annotations

import json
import re
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

pytestmark = pytest.mark.npm

HERE = Path(__file__).parent
CONDUIT = Path(sys.executable).with_name("conduit")
PACKAGES = ("@modelcontextprotocol/conformance@0.2.0-alpha.12", "node@22.23.3")
PASSED = {"2025-11-25": 30, "2026-07-28": 37}
"""How many scenarios each revision requires; all of them pass."""


@pytest.fixture(scope="session")
def suite(npm_install: Callable[..., Path]) -> list[str]:
    """The suite's command, and the Node that it needs."""
    programs = npm_install(*PACKAGES)
    return [str(programs / "node"), str(programs / "conformance")]


@pytest.fixture(params=["2025-11-25", "2026-07-28"])
def bridge(request: pytest.FixtureRequest) -> Iterator[tuple[str, int]]:
    """A daemon with the suite's server of an era behind it, and the bridge's port."""
    era: str = request.param
    with tempfile.TemporaryDirectory(prefix="cd-") as folder:
        words = json.dumps([str(HERE / "server_fixture.py"), *(["modern"] if era == "2026-07-28" else [])])
        config = Path(folder, "conduit.toml")
        config.write_text(
            f'[rpc]\nagent_socket = "{folder}/agent.sock"\n[state]\ndirectory = "{folder}/state"\n'
            f'[policy]\ndefault = "allow"\n[servers.suite]\ncommand = "{sys.executable}"\nargs = {words}\n'
        )
        with Path(folder, "log").open("ab") as log:
            daemon = subprocess.Popen([CONDUIT, "run", "--config", config], stdout=log, stderr=log)
        socket = Path(folder, "agent.sock")
        until = time.monotonic() + 20
        while not socket.is_socket() and time.monotonic() < until:
            time.sleep(0.02)
        carrier = subprocess.Popen(
            [sys.executable, HERE / "server_bridge.py", socket, "suite"], stdout=subprocess.PIPE, text=True
        )
        assert carrier.stdout is not None
        yield era, int(carrier.stdout.readline())
        carrier.stdout.close()
        for process in (carrier, daemon):
            process.terminate()
            process.wait(20)


def test_every_scenario_that_a_revision_requires_passes(
    suite: list[str], bridge: tuple[str, int], tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    era, port = bridge
    url = f"http://127.0.0.1:{port}/mcp"
    done = subprocess.run(
        [*suite, "server", "--url", url, "--requirements", era, "--output-dir", tmp_path],
        capture_output=True,
        text=True,
        timeout=300,
        check=False,
    )
    said = done.stdout + done.stderr
    passed = set(re.findall(r"^✓ (\S+): \d+ passed, 0 failed", said, re.MULTILINE))
    optional = set(re.findall(r"^  [✓✗] (\S+) \(", said, re.MULTILINE))
    failed = set(re.findall(r"^✗ (\S+):", said, re.MULTILINE)) - optional
    passed -= optional
    with capsys.disabled():
        print(f"\nconformance {era}: {len(passed)} of {PASSED[era]} server scenarios pass")
    assert not failed, said[-8000:]
    assert len(passed) == PASSED[era], said[-8000:]
