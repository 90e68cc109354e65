"""A real systemd in a container on this machine's own /usr, booted once for the tests of a module."""

from __future__ import annotations

import compileall
import fcntl
import json
import os
import re
import shutil
import subprocess
import sys
import sysconfig
import tempfile
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

Findings = Callable[[str], dict[str, Any]]

ROOT = Path(__file__).parents[2]
WRAPPERS = {"conduit": "-m conduit_daemon.cli", "python": "", "mcp-server-time": "-m mcp_server_time"}
WRAPPERS["mcp-server-git"] = "-m mcp_server_git"

SERVICE = """[Unit]
Description=What the tests do in here
SuccessAction=poweroff
FailureAction=poweroff

[Service]
Type=oneshot
Environment=PATH=/opt/conduit/bin:/usr/sbin:/usr/bin:/sbin:/bin
ExecStartPre={prepare}
ExecStart=/opt/conduit/bin/python {driver}
"""
TARGET = """[Unit]
Description=A system that is up as far as the tests need it
Requires=basic.target
After=basic.target
Wants=tests.service
AllowIsolate=yes
"""


def _hindrance() -> str | None:
    if sys.platform != "linux":
        return "systemd is for Linux"
    if os.geteuid() != 0:
        return "systemd-nspawn needs root"
    if shutil.which("systemd-nspawn") is None:
        return "systemd-nspawn is missing (Debian: systemd-container)"
    if not any(Path(folder, "systemd/systemd").exists() for folder in ("/usr/lib", "/lib")):
        return "there is no systemd on this machine to boot"
    return None


def _stage(folder: Path, driver: str) -> list[str]:
    """Writes what the container needs and returns nspawn's options for it."""
    base, site = Path(sys.base_prefix), sysconfig.get_paths()["purelib"]
    python, prepare = Path(sys.executable).resolve(), "/bin/true"
    binds = {ROOT: "/src", Path(site): "/opt/site", folder / "lib": "/opt/lib", folder / "bin": "/opt/conduit/bin"}
    if not base.is_relative_to("/usr"):  # /usr is there anyway; anything else may lie in a home that units cannot see
        binds[base] = "/opt/python"
        python = Path("/opt/python") / python.relative_to(base)
        prepare = "/sbin/ldconfig /opt/python/lib"  # where its own library is, if it is a shared one
    for package in ("conduit_daemon", "supervisors"):
        shutil.copytree(ROOT / package, folder / "lib" / package)
    compileall.compile_dir(folder / "lib", quiet=2)
    (folder / "bin").mkdir()
    for name, arguments in WRAPPERS.items():
        wrapper = folder / "bin" / name
        wrapper.write_text(f'#!/bin/sh\nexport PYTHONPATH=/opt/lib:/opt/site\nexec {python} {arguments} "$@"\n')
        wrapper.chmod(0o755)
    sudo = folder / "bin" / "sudo"
    sudo.write_text('#!/bin/sh\nexec "$@"\n')  # the driver is root already
    sudo.chmod(0o755)
    (folder / "tests.service").write_text(SERVICE.format(prepare=prepare, driver=f"/src/tests/service/nspawn/{driver}"))
    (folder / "tests.target").write_text(TARGET)
    (folder / "out").mkdir()
    options = [f"--bind-ro={source}:{target}" for source, target in binds.items()]
    options += [f"--bind-ro={folder}/{unit}:/etc/systemd/system/{unit}" for unit in ("tests.service", "tests.target")]
    return [*options, f"--bind={folder}/out:/out"]


def boot(driver: str, *shown: str) -> Findings:
    """Boots, runs a driver of `nspawn/` as root in there, and returns what each of its steps found.

    The root is this machine's /usr, read-only, with everything else empty and in memory (``--volatile``).

    Args:
        driver: A module of `nspawn/`.
        shown: What else of this machine is seen in there, as ``PATH`` or ``PATH:PATH-IN-THERE``.
    """
    hindrance = _hindrance()
    if hindrance is not None:
        pytest.skip(hindrance)
    with (
        tempfile.TemporaryDirectory(prefix="conduit-nspawn-") as name,
        open(Path(tempfile.gettempdir()) / "conduit-nspawn.lock", "wb") as lock,
    ):
        fcntl.flock(lock, fcntl.LOCK_EX)  # containers started so share one control group
        folder = Path(name)
        folder.chmod(0o755)
        command = [
            "systemd-nspawn",
            "--machine=conduit-tests",
            "--register=no",
            "--keep-unit",
            "--volatile=yes",
            "-D",
            "/",
        ]
        done = subprocess.run(
            [
                *command,
                *_stage(folder, driver),
                *(f"--bind-ro={path}" for path in shown),
                "-b",
                "systemd.firstboot=off",
                "systemd.unit=tests.target",
            ],
            stdin=subprocess.DEVNULL,
            capture_output=True,
            text=True,
            errors="replace",
            timeout=180,
            check=False,
        )
        results, journal = folder / "out" / "results.json", folder / "out" / "journal"
        if not results.exists():
            if re.search(r"not permitted|Permission denied|Read-only file system|Failed to \w+", done.stderr):
                pytest.skip(f"systemd-nspawn may not work here: {done.stderr.strip().splitlines()[-1]}")
            pytest.fail(f"nothing ran in the container:\n{done.stdout[-3000:]}\n{done.stderr[-3000:]}")
        keep = os.environ.get("CONDUIT_NSPAWN_LOG")
        if keep and journal.exists():
            shutil.copy(journal, keep)
        steps: dict[str, dict[str, Any]] = json.loads(results.read_text())

    def found(step: str) -> dict[str, Any]:
        if step not in steps:
            pytest.fail(f"not reached, since {list(steps)[-1]} failed")
        assert "failed" not in steps[step], steps[step]["failed"]
        return steps[step]

    return found


@pytest.fixture(scope="module")
def booted() -> Callable[..., Findings]:
    return boot
