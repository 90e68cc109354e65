"""What the linters and the type checker say, as tests: one line runs everything."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[1]
BIN = Path(sys.executable).parent


@pytest.mark.parametrize(
    "command",
    [
        ["ruff", "check", "."],
        ["ruff", "format", "--check", "conduit_daemon", "supervisors", "tests"],
        ["mypy"],
        ["lint-imports"],
    ],
    ids=" ".join,
)
def test_style(command: list[str]) -> None:
    done = subprocess.run(
        [BIN / command[0], *command[1:]], cwd=ROOT, capture_output=True, text=True, timeout=300, check=False
    )
    assert done.returncode == 0, done.stdout + done.stderr


def test_ci_calls_the_line_of_the_readme() -> None:
    line = next(
        line for line in (ROOT / "README.md").read_text().splitlines() if "-m pytest" in line and "venv" in line
    )
    assert line.strip() in (ROOT / ".ci" / "run").read_text()
