"""Daemons whose event loop is measured, and tables of what campaigns found."""

from __future__ import annotations

import importlib.util
import json
import sys
import tempfile
from collections.abc import Callable, Iterator
from pathlib import Path
from types import ModuleType
from typing import Any

import pytest

HERE = Path(__file__).parent


def _end_to_end() -> ModuleType:
    spec = importlib.util.spec_from_file_location("end_to_end", HERE.parent / "e2e" / "conftest.py")
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


@pytest.fixture
def fake_server() -> Callable[..., str]:
    """The table of a fake server, see tests/e2e."""
    table: Callable[..., str] = _end_to_end().fake
    return table


@pytest.fixture
def stalls(tmp_path: Path) -> Callable[[], list[dict[str, Any]]]:
    """What the measured daemon's meter noted so far, the longest first."""

    def noted() -> list[dict[str, Any]]:
        file = tmp_path / "stalls"
        lines = file.read_text().splitlines() if file.exists() else []
        return sorted(map(json.loads, lines), key=lambda stall: -stall["ms"])

    return noted


@pytest.fixture
def measured(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Callable[..., Any]]:
    """Starts daemons whose event loop is measured; whatever is left of them is killed."""
    monkeypatch.setenv("CONDUIT_STALLS", str(tmp_path / "stalls"))
    program = tmp_path / "conduit"
    program.write_text(f'#!/bin/sh\nexec {sys.executable} {HERE / "measured_daemon.py"} "$@"\n')
    program.chmod(0o755)
    module = _end_to_end()
    module.CONDUIT = program  # type: ignore[attr-defined]
    daemons: list[Any] = []
    with tempfile.TemporaryDirectory(prefix="cd-") as root:

        def start(*tables: str, wait: bool = True) -> Any:
            folder = Path(root) / str(len(daemons))
            folder.mkdir()
            daemons.append(module.Daemon(folder, "\n".join([module.ALLOW, *tables]), wait))
            return daemons[-1]

        yield start
        for daemon in daemons:
            for connection in daemon.connections:
                connection.close()
            if daemon.process.poll() is None:
                daemon.process.kill()
                daemon.process.wait()


@pytest.fixture
def table(capsys: pytest.CaptureFixture[str]) -> Callable[[str, list[tuple[str, object]]], None]:
    """Prints a table for tests/README.md."""

    def show(title: str, rows: list[tuple[str, object]]) -> None:
        with capsys.disabled():
            print(f"\n\n| {title} | |\n|---|---|")
            for name, value in rows:
                print(f"| {name} | {value} |")

    return show
