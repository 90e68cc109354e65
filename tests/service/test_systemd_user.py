"""The shipped user units under a user's own service manager; `nspawn/user.py` does it in one boot."""

from __future__ import annotations

from typing import Any

import pytest


@pytest.fixture(scope="module")
def seen(booted: Any) -> Any:
    return booted("user.py")


def test_the_readme_leads_to_a_running_service(seen: Any) -> None:
    found = seen("readme")
    assert (found["Type"], found["ActiveState"]) == ("notify", "active")
    assert "1 server ready" in found["StatusText"]
    assert "files" in found["status"]
    assert found["call"]["content"][0]["text"] == "3"
    assert found["sockets"] == ["0o600", "0o600"]


def test_agents_are_known_by_their_user(seen: Any) -> None:
    (message,) = seen("principal")["messages"]
    assert "principal=alice" in message


def test_kill_9_is_a_restart_and_a_connection_waits_for_it(seen: Any) -> None:
    found = seen("killed")
    assert found["answer"] == {}
    assert not found["same"]
    assert found["NRestarts"] == "1"


def test_stop_leaves_nothing(seen: Any) -> None:
    found = seen("stopped")
    assert found["daemon"] > 0
    assert (found["ActiveState"], found["Result"], found["ExecMainStatus"]) == ("inactive", "success", "0")
    assert found["left"] == []
    assert found["run"] == []
