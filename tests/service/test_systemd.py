"""The shipped system units in a real systemd: what an operator sees from the first command to the last.

`nspawn/system.py` does it all in one boot; each test here looks at one part of what it saw.
"""

from __future__ import annotations

import json
import os
import re
import shutil
import subprocess
import zipfile
from pathlib import Path
from typing import Any

import pytest

ROOT = Path(__file__).parents[2]
UNITS = ROOT / "systemd"


NPM = tuple(f"@modelcontextprotocol/server-{name}@2026.8.31" for name in ("everything", "filesystem", "memory"))
"""Those of the end-to-end tests, so that both share one installation."""
UV = "uv==0.13.9"
PROGRAM = "import runpy\ndef main(): runpy.run_path('/src/tests/fakes/stdio_server.py', run_name='__main__')\n"
METADATA = "Metadata-Version: 2.1\nName: tiny-mcp-server\nVersion: 1\n"
WHEEL = "Wheel-Version: 1.0\nGenerator: by hand\nRoot-Is-Purelib: true\nTag: py3-none-any\n"


def _wheel(folder: Path) -> Path:
    """Writes a package that needs nothing else, for uvx to run."""
    folder.chmod(0o755)  # the unit's user reads it
    about = "tiny_mcp_server-1.dist-info"
    files = {
        "tiny_mcp_server.py": PROGRAM,
        f"{about}/METADATA": METADATA,
        f"{about}/WHEEL": WHEEL,
        f"{about}/entry_points.txt": "[console_scripts]\ntiny-mcp-server = tiny_mcp_server:main\n",
    }
    files[f"{about}/RECORD"] = "".join(f"{name},,\n" for name in [*files, f"{about}/RECORD"])
    with zipfile.ZipFile(folder / "tiny_mcp_server-1-py3-none-any.whl", "w") as wheel:
        for name, content in files.items():
            wheel.writestr(name, content)
    return folder


@pytest.fixture(scope="module")
def seen(booted: Any, npm_install: Any, pip_install: Any, tmp_path_factory: pytest.TempPathFactory) -> Any:
    shown = [f"{pip_install(UV)}:/opt/uv", f"{_wheel(tmp_path_factory.mktemp('wheels'))}:/opt/wheels"]
    if shutil.which("npm") is not None:
        shown.append(f"{npm_install(*NPM).parents[1]}:/opt/npm")
    return booted("system.py", *shown)


def text(result: dict[str, Any]) -> str:
    assert "content" in result, result
    written: str = result["content"][0]["text"]
    return written


def test_the_readme_leads_to_a_running_service_in_five_commands(seen: Any) -> None:
    found = seen("readme")
    assert len(found["commands"]) == 5
    assert "pip install" in found["commands"][0], "the one that is not run word by word, since it needs the network"
    assert "time" in found["status"]
    assert "Europe/Berlin" in found["call"]
    assert found["enabled"] == ["enabled"] * 3


def test_ready_when_the_sockets_listen_whatever_a_slow_server_does(seen: Any) -> None:
    found = seen("ready")
    assert found["took"] < 15
    assert found["slow"] == "connecting"
    assert found["user"] == "conduit"
    assert (found["Type"], found["ActiveState"], found["SubState"]) == ("notify", "active", "running")


def test_who_may_connect(seen: Any) -> None:
    found = seen("access")
    assert {who for who, how in found.items() if how == "connected"} == {"agent agent", "admin control"}


def test_a_call_over_the_activated_socket(seen: Any) -> None:
    found = seen("called")
    assert sorted(found["passed"][0].split(":")) == ["agent", "control"]
    assert text(found["answer"]) == "5"
    assert not [name for name in found["server_variables"] if re.match("LISTEN_|NOTIFY_|WATCHDOG_", name)]


def test_the_status_line(seen: Any) -> None:
    found = seen("status_line")
    assert found["idle"] == f"{found['ready']}, 0 calls running"
    assert found["busy"] == f"{found['ready']}, 1 call running"


def test_real_servers_run_under_the_hardening(seen: Any) -> None:
    found = seen("real_servers")
    assert found["privileges"] == ["0000000000000000", "1", "2"], "no capabilities, nothing to gain, a filter"
    assert "No commits yet" in text(found["git"])
    if found["node"] is None:
        pytest.skip("there is no node to run")
    machine = json.loads(text(found["node"]))
    assert machine["fib"] == 196418
    assert machine["processors"] >= 1
    assert machine["interfaces"] >= 1


def test_what_npx_and_uvx_start_runs_under_the_hardening(seen: Any) -> None:
    found = seen("runners")
    assert text(found["uvx"]["answer"]) == "42"
    assert "tiny-mcp-server" in found["uvx"]["processes"]
    if "npx" not in found:
        pytest.skip("there is no npm to run")
    assert "entities" in text(found["npx"]["answer"])
    assert "mcp-server-memory" in found["npx"]["processes"]


def test_journal_fields(seen: Any) -> None:
    found = seen("journal")
    for entry in found["entries"]:
        assert entry["CONDUIT_CALL"]
        assert entry["CONDUIT_TOOL"] == "add"
        assert entry["PRIORITY"] == "6"
        assert entry["_SYSTEMD_UNIT"] == "conduit.service"
        assert entry["SYSLOG_IDENTIFIER"] == "conduit"
    assert len({entry["CONDUIT_CALL"] for entry in found["entries"]}) >= 2


def test_credentials_reach_the_server_and_nobody_else(seen: Any) -> None:
    found = seen("credentials")
    assert found["server"]
    assert not found["journal"]
    assert not found["status"]
    assert not found["explain"]


def test_reload(seen: Any) -> None:
    found = seen("reload")
    assert found["same"], "neither the daemon nor an unchanged server is started again"
    assert (found["ActiveState"], found["SubState"], found["Result"]) == ("active", "running", "success")
    assert len(found["reloaded"]) == 2
    (rejected,) = found["rejected"]
    assert "/etc/conduit/conduit.toml" in rejected
    assert found["NRestarts"] == "0"
    assert found["uptime"] > 2, "longer than the watchdog's interval: signs of life were given"


def test_kill_9_is_a_restart_without_a_refused_connection(seen: Any) -> None:
    found = seen("killed")
    assert found["refused"] == []
    assert found["answered"] > 20
    assert found["longest"] < 10
    assert found["servers"] >= 3
    assert found["alive"] == []
    assert found["NRestarts"] == "1"
    assert text(found["answer"]) == "2"


def test_a_wedged_daemon_is_restarted_by_the_watchdog(seen: Any) -> None:
    found = seen("wedged")
    assert found["restarts"] == 1
    assert found["took"] < 15
    assert "Watchdog timeout" in found["journal"]
    assert "hread 0x" in found["stacks"], "where each thread was"
    assert text(found["answer"]) == "3"


def test_stop_answers_what_runs_and_leaves_nothing(seen: Any) -> None:
    found = seen("stopped")
    assert text(found["answer"]["result"]) == "slept"
    assert 2 < found["took"] < 10
    assert (found["ActiveState"], found["Result"]) == ("inactive", "success")
    assert (found["ExecMainCode"], found["ExecMainStatus"]) == ("1", "0")
    assert found["processes"] == []
    assert found["run"] == ["agent.sock", "control.sock"], "the sockets are systemd's and stay"
    assert "daemon.stopped" in found["log"] or "Stopped" in found["log"]


def test_a_connection_starts_it_again(seen: Any) -> None:
    found = seen("activated")
    assert found["answer"] == {}
    assert found["active"]


def test_the_drop_ins_do_what_they_say(seen: Any) -> None:
    found = seen("drop_ins")
    assert found["homes"] == ["alice", "alice/projects", "alice/projects/one"]
    assert found["network"] == ["lo"]
    assert text(found["answer"]) == "6"


def test_a_wrong_configuration_is_not_tried_again(seen: Any) -> None:
    found = seen("misconfigured")
    assert (found["ActiveState"], found["ExecMainStatus"], found["NRestarts"]) == ("failed", "78", "0")
    assert "comand" in found["log"]
    assert "/etc/conduit/conduit.toml" in found["log"]
    assert found["then"] == "active"


def test_removed_with_its_sockets(seen: Any) -> None:
    found = seen("removed")
    assert found["run"] == []
    assert found["processes"] == []


analyze = pytest.mark.skipif(shutil.which("systemd-analyze") is None, reason="systemd-analyze is missing")


@analyze
@pytest.mark.parametrize("kind", ["system", "user"])
def test_verify_is_silent(kind: str, tmp_path: Path) -> None:
    done = subprocess.run(
        ["systemd-analyze", f"--{kind}", "verify", *sorted(map(str, (UNITS / kind).iterdir()))],
        env={**os.environ, "XDG_RUNTIME_DIR": str(tmp_path)},
        capture_output=True,
        text=True,
        check=False,
    )
    assert (done.returncode, done.stdout, done.stderr) == (0, "", "")


@analyze
def test_verify_is_silent_with_each_drop_in(tmp_path: Path) -> None:
    drop_ins = sorted((UNITS / "drop-ins").iterdir())
    assert drop_ins
    for drop_in in drop_ins:
        folder = tmp_path / drop_in.stem
        shutil.copytree(UNITS / "system", folder)
        (folder / "conduit.service.d").mkdir()
        shutil.copy(drop_in, folder / "conduit.service.d")
        units = sorted(str(unit) for unit in folder.iterdir() if unit.is_file())
        done = subprocess.run(["systemd-analyze", "verify", *units], capture_output=True, text=True, check=False)
        assert (done.returncode, done.stdout, done.stderr) == (0, "", ""), drop_in


@analyze
def test_exposure() -> None:
    done = subprocess.run(
        ["systemd-analyze", "security", "--offline=true", "--no-pager", str(UNITS / "system" / "conduit.service")],
        capture_output=True,
        text=True,
        check=False,
    )
    if "Unknown" in done.stderr or "unrecognized" in done.stderr:
        pytest.skip("this systemd-analyze is too old to judge a file")
    exposure = re.search(r"exposure level for conduit.service: ([\d.]+)", done.stdout)
    assert exposure is not None, done.stdout + done.stderr
    assert float(exposure[1]) <= 1.5


def test_every_line_of_hardening_has_its_reason() -> None:
    lines = (UNITS / "system" / "conduit.service").read_text().splitlines()
    hardening = lines[lines.index(next(line for line in lines if line.startswith("# ---- hardening"))) + 1 :]
    explained = False
    for line in hardening[: hardening.index("# Not set, with reasons:")]:
        explained = bool(line) and (explained or line.startswith("# "))
        assert not line or explained, f"{line} stands below no comment"


def test_the_readme_names_every_drop_in_and_the_exposure() -> None:
    readme = (UNITS / "README.md").read_text()
    for drop_in in (UNITS / "drop-ins").iterdir():
        assert f"`{drop_in.name}`" in readme
    assert "1.3" in readme
