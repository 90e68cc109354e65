"""Programs that tests install themselves, once a machine, each in a folder of its own under the user's cache."""

from __future__ import annotations

import fcntl
import hashlib
import os
import shutil
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

import pytest

CACHE = Path(os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache") / "conduit-tests"


def _installed(kind: str, packages: tuple[str, ...], install: Callable[[Path], None]) -> Path:
    """The folder of these packages, installed if nobody has before; several tests at once wait for the first."""
    CACHE.mkdir(parents=True, exist_ok=True)
    folder = CACHE / f"{kind}-{hashlib.sha256(' '.join(packages).encode()).hexdigest()[:12]}"
    with (CACHE / f"{folder.name}.lock").open("w") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        if not (folder / "complete").exists():
            shutil.rmtree(folder, ignore_errors=True)
            folder.mkdir()
            install(folder)
            (folder / "complete").touch()
    return folder


@pytest.fixture(scope="session")
def npm_install() -> Callable[..., Path]:
    """Installs npm packages (``name@version``) and returns the folder of their programs."""

    def packages(*wanted: str) -> Path:
        def install(folder: Path) -> None:
            command = ["npm", "install", "--no-audit", "--no-fund", "--loglevel=error", "--prefix", folder, *wanted]
            subprocess.run(command, check=True, timeout=300, stdout=subprocess.DEVNULL)

        return _installed("npm", wanted, install) / "node_modules" / ".bin"

    return packages


@pytest.fixture(scope="session")
def pip_install() -> Callable[..., Path]:
    """Installs Python packages in an environment of their own and returns the folder of their programs."""

    def packages(*wanted: str) -> Path:
        def install(folder: Path) -> None:
            subprocess.run([sys.executable, "-m", "venv", folder], check=True, timeout=120)
            command = [folder / "bin" / "python", "-m", "pip", "install", "-q", *wanted]
            subprocess.run(command, check=True, timeout=300)

        return _installed("pip", wanted, install) / "bin"

    return packages
