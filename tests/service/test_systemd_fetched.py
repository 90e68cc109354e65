"""npx and uvx under the shipped system unit, downloading what they run; by hand, since it needs the network."""

from __future__ import annotations

import shutil
from pathlib import Path
from typing import Any

import pytest


@pytest.mark.campaign
@pytest.mark.npm
def test_npx_and_uvx_run_under_the_hardening(booted: Any) -> None:
    uvx = shutil.which("uvx")
    if shutil.which("npx") is None or uvx is None:
        pytest.skip("npx and uvx are needed")
    found = booted("fetched.py", f"{Path(uvx).resolve().parent}:/opt/uv", "/etc/ssl", "/etc/hosts")("fetched")
    assert found["states"] == {"memory": "ready", "time": "ready"}
    assert "entities" in found["memory"]["content"][0]["text"]
    assert "UTC" in found["time"]["content"][0]["text"]
