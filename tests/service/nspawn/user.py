"""As `system.py`, for the user units: a user's own service manager, and the README's commands for it."""

from __future__ import annotations

import json
import os
import pwd
import signal
from pathlib import Path
from typing import Any

from inside import FAKE, PYTHON, ask, drive, processes, run, until

USER = "alice"
RUNTIME = "/run/user/1000"
AGENT, CONTROL = f"{RUNTIME}/conduit/agent.sock", f"{RUNTIME}/conduit/control.sock"
CONFIG = f"""
[servers.files]
command = "{PYTHON}"
args = ["{FAKE}"]

[policy]
default = "allow"
"""


def as_user(*command: str, **options: Any) -> str:
    environment = [f"HOME=/home/{USER}", f"XDG_RUNTIME_DIR={RUNTIME}", f"USER={USER}", f"PATH={os.environ['PATH']}"]
    group = pwd.getpwnam(USER).pw_gid
    identity = [f"--reuid={USER}", f"--regid={group}", "--init-groups"]
    return run("setpriv", *identity, "env", "-i", *environment, *command, **options)


def show(*properties: str) -> dict[str, str]:
    lines = as_user("systemctl", "--user", "show", "conduit", f"--property={','.join(properties)}").splitlines()
    return dict(line.split("=", 1) for line in lines)


def main_pid() -> int:
    return int(show("MainPID")["MainPID"])


def readme() -> dict[str, Any]:
    run("useradd", "--create-home", "--uid=1000", USER)
    # This root has an empty /etc, so no PAM: what a login would set is set here.
    folder = Path("/etc/systemd/system/user@.service.d")
    folder.mkdir()
    (folder / "test.conf").write_text(f"[Service]\nPAMName=\nEnvironment=XDG_RUNTIME_DIR={RUNTIME}\n")
    run("systemctl", "daemon-reload")
    run("systemctl", "start", "user@1000.service")
    folder = Path(f"/home/{USER}/.config/conduit")
    as_user("mkdir", "-p", str(folder))
    (folder / "conduit.toml").write_text(CONFIG)
    text = Path("/src/systemd/README.md").read_text().partition("## User service")[2]
    commands = text.partition("```sh\n")[2].partition("```")[0].strip().splitlines()
    for command in commands[:2]:
        as_user("sh", "-ec", command, cwd="/src")
    until(lambda: ask("conduit/status", AGENT)["servers"]["files"]["state"] == "ready")
    return {
        "commands": commands,
        "status": as_user("sh", "-ec", commands[2]),
        "call": json.loads(as_user("conduit", "call", "--json", "files__add", '{"a": 1, "b": 2}')),
        "sockets": [oct(os.stat(path).st_mode & 0o777) for path in (AGENT, CONTROL)],
        **show("ActiveState", "StatusText", "Type"),
    }


def principal() -> dict[str, Any]:
    log = as_user("journalctl", "--user", "-o", "json", "CONDUIT_TOOL=add") or run(
        "journalctl", "-o", "json", "CONDUIT_TOOL=add"
    )
    return {"messages": [json.loads(line)["MESSAGE"] for line in log.splitlines()]}


def killed() -> dict[str, Any]:
    pid = main_pid()
    os.kill(pid, signal.SIGKILL)
    answer = ask("ping", AGENT)  # the connection waits in systemd's socket
    return {"answer": answer, "same": main_pid() == pid, **show("NRestarts")}


def stopped() -> dict[str, Any]:
    daemon = main_pid()
    as_user("systemctl", "--user", "stop", "conduit", "conduit-agent.socket", "conduit-control.socket")
    left = [pid for pid in processes(USER) if "conduit" in Path(f"/proc/{pid}/cgroup").read_text()]
    return {
        "daemon": daemon,
        "left": left,
        "run": os.listdir(f"{RUNTIME}/conduit"),
        **show("ActiveState", "Result", "ExecMainStatus"),
    }


if __name__ == "__main__":
    drive([readme, principal, killed, stopped])
