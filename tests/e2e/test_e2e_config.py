"""Configurations that cannot be used: one clear message a mistake, the right exit code, nothing half-started."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest

CONDUIT = Path(sys.executable).with_name("conduit")

MISTAKES = """
[rpc]
agent_socket = "agent.sock"
[limits]
max_results = "1MiB"
[servers.files]
comand = "npx"
[servers.a__b]
command = "x"
[servers.secret]
command = "x"
env = { TOKEN = "${env:NO_SUCH_VARIABLE_HERE}" }
"""


def conduit(*arguments: str | Path, cwd: Path) -> subprocess.CompletedProcess[str]:
    environ = {"PATH": os.environ["PATH"], "HOME": str(cwd), "XDG_RUNTIME_DIR": str(cwd / "run")}
    return subprocess.run(
        [CONDUIT, *arguments], cwd=cwd, env=environ, capture_output=True, text=True, timeout=30, check=False
    )


@pytest.mark.parametrize(
    ("text", "said"),
    [
        (MISTAKES, ["limits.max_results", "max_result", "servers.files.comand", "command", "a__b", "NO_SUCH_VARIABLE"]),
        ("[servers", ["line 1"]),
        ('[rpc]\nmax_message = "many"\n', ["rpc.max_message"]),
    ],
)
def test_every_mistake_is_said_and_nothing_starts(tmp_path: Path, text: str, said: list[str]) -> None:
    file = tmp_path / "conduit.toml"
    file.write_text(text)
    for verb, code in (("check", 1), ("run", 78)):
        arguments = [verb, file] if verb == "check" else [verb, "--config", file]
        done = conduit(*arguments, cwd=tmp_path)
        assert done.returncode == code, done
        for word in said:
            assert word in done.stdout + done.stderr
        assert "Traceback" not in done.stderr
    assert sorted(path.name for path in tmp_path.iterdir()) == ["conduit.toml"]


def test_a_file_that_cannot_be_read_is_said(tmp_path: Path) -> None:
    for verb, code in (("check", 1), ("run", 78)):
        arguments = [verb, "none.toml"] if verb == "check" else [verb, "--config", "none.toml"]
        done = conduit(*arguments, cwd=tmp_path)
        assert done.returncode == code
        assert "none.toml" in done.stderr + done.stdout
        assert "Traceback" not in done.stderr


@pytest.mark.parametrize(("name", "code", "said"), [("in_the_way", 1, "is in the way"), ("x" * 120, 78, "107 bytes")])
def test_a_socket_that_cannot_be_had_is_one_sentence(tmp_path: Path, name: str, code: int, said: str) -> None:
    (tmp_path / "in_the_way").write_text("")
    file = tmp_path / "conduit.toml"
    state = f'[state]\ndirectory = "{tmp_path}/state"\n[log]\nformat = "json"\n'
    file.write_text(f'[rpc]\nagent_socket = "{tmp_path / name}"\n{state}')
    done = conduit("run", "--config", file, cwd=tmp_path)
    assert done.returncode == code
    assert said in done.stderr.splitlines()[-1]
    assert "Traceback" not in done.stderr
