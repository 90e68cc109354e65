"""Runs as root inside a booted container, drives the shipped system units there, and writes what it saw to /out.

Each step's findings are one entry of the results; `test_systemd.py` says what they have to be.
"""

from __future__ import annotations

import json
import os
import pwd
import re
import shutil
import signal
import threading
import time
from pathlib import Path
from typing import Any

from inside import AGENT, CONTROL, FAKE, PYTHON, Rpc, ask, call, drive, main_pid, processes, run, show, state, until

WHEEL = "/opt/wheels/tiny_mcp_server-1-py3-none-any.whl"
SECRET = "planted-credential-58213"

CONFIG = f"""
[limits]
shutdown_timeout = 20

[servers.files]
command = "{PYTHON}"
args = ["{FAKE}", "cleared=/var/lib/conduit/detached"]
env = {{ DATABASE_PASSWORD = "${{credential:database}}" }}

[servers.slow]
command = "{PYTHON}"
args = ["{FAKE}", "hang"]

[servers.git]
command = "mcp-server-git"
args = ["--repository", "/var/lib/conduit/repository"]

[policy]
default = "allow"
"""

NODE_TABLE = """
[servers.node]
command = "node"
args = ["/var/lib/conduit/server.js"]
"""

NODE = """
const os = require("os");
function fib(n) { return n < 2 ? n : fib(n - 1) + fib(n - 2); }
const answer = (id, result) => process.stdout.write(JSON.stringify({jsonrpc: "2.0", id, result}) + "\\n");
require("readline").createInterface({input: process.stdin}).on("line", (line) => {
  const {id, method, params} = JSON.parse(line);
  if (method === "initialize")
    answer(id, {protocolVersion: params.protocolVersion, capabilities: {tools: {}},
                serverInfo: {name: "n", version: "1"}});
  else if (method === "tools/list")
    answer(id, {tools: [{name: "machine", inputSchema: {type: "object"}}]});
  else if (method === "tools/call") {
    const found = {fib: fib(27), processors: os.cpus().length, memory: os.totalmem() > 0,
                   interfaces: Object.keys(os.networkInterfaces()).length};
    answer(id, {content: [{type: "text", text: JSON.stringify(found)}]});
  } else if (id !== undefined)
    process.stdout.write(JSON.stringify({jsonrpc: "2.0", id, error: {code: -32601, message: "no"}}) + "\\n");
});
"""


def connects_as(user: str, path: str) -> str:
    program = f"import socket; socket.socket(socket.AF_UNIX).connect({path!r}); print('connected')"
    command = [
        "setpriv",
        f"--reuid={user}",
        f"--regid={pwd.getpwnam(user).pw_gid}",
        "--init-groups",
        PYTHON,
        "-c",
        program,
    ]
    # As a line of its own: Python 3.13 shows the program's text where it fails.
    return "connected" if "connected" in run(*command, check=False).splitlines() else "refused"


# ---- the steps, in their order


def _config(more: str = "") -> str:
    return CONFIG + (NODE_TABLE if shutil.which("node") else "") + more


def readme() -> dict[str, Any]:
    text = Path("/src/systemd/README.md").read_text()
    commands = text.partition("```sh\n")[2].partition("```")[0].strip().splitlines()
    for command in commands[1:]:  # the first installs the package, which is there already
        run("sh", "-ec", command, cwd="/src")
    until(lambda: state("time") == "ready")
    return {
        "commands": commands,
        "status": run("/opt/conduit/bin/conduit", "status"),
        "call": run("/opt/conduit/bin/conduit", "call", "time__get_current_time", "timezone=Europe/Berlin"),
        "enabled": run("systemctl", "is-enabled", "conduit", "conduit-agent.socket", "conduit-control.socket").split(),
    }


def ready() -> dict[str, Any]:
    Path("/etc/conduit/conduit.toml").write_text(_config())
    Path("/etc/conduit/database").write_text(SECRET)
    os.chmod("/etc/conduit/database", 0o600)
    folder = Path("/etc/systemd/system/conduit.service.d")
    folder.mkdir()
    (folder / "credentials.conf").write_text(Path("/src/systemd/drop-ins/credentials.conf").read_text())
    (folder / "test.conf").write_text("[Service]\nWatchdogSec=2s\nTimeoutAbortSec=1s\n")
    Path("/var/lib/conduit/server.js").write_text(NODE)
    os.chmod("/var/lib/conduit/server.js", 0o644)
    run("git", "init", "-q", "/var/lib/conduit/repository")
    run("chown", "-R", "conduit:conduit", "/var/lib/conduit")
    run("systemctl", "daemon-reload")
    began = time.monotonic()
    run("systemctl", "restart", "conduit")
    took = time.monotonic() - began
    slow = state("slow")
    until(lambda: state("files") == "ready")
    return {
        "took": took,
        "slow": slow,
        "user": pwd.getpwuid(os.stat(f"/proc/{main_pid()}").st_uid).pw_name,
        **show("ActiveState", "SubState", "NRestarts", "Type"),
    }


def access() -> dict[str, Any]:
    run("useradd", "alice")
    run("useradd", "-G", "conduit-agents", "agent")
    run("useradd", "-G", "conduit-admin", "admin")
    return {
        f"{user} {name}": connects_as(user, path)
        for user in ("alice", "agent", "admin", "conduit")
        for name, path in (("agent", AGENT), ("control", CONTROL))
    }


def called() -> dict[str, Any]:
    before = Path(f"/proc/{main_pid()}/environ").read_bytes().decode()
    server = ask("conduit/status")["servers"]["files"]["pid"]
    variables = Path(f"/proc/{server}/environ").read_bytes().decode().split("\0")
    return {
        "passed": re.findall(r"LISTEN_FDNAMES=([^\0]*)", before),
        "answer": call("files__add", a=2, b=3),
        "server_variables": [one.partition("=")[0] for one in variables if one],
    }


def status_line() -> dict[str, Any]:
    wanted = [name for name in ask("conduit/status")["servers"] if name != "slow"]
    until(lambda: all(state(name) == "ready" for name in wanted))
    ready = f"{len(wanted)} of {len(wanted) + 1} servers ready"
    idle = until(lambda: (text := show("StatusText")["StatusText"]).startswith(ready) and text)
    connection = Rpc()
    connection.send("tools/call", name="files__sleep", arguments={"seconds": 4})
    call("files__add", a=1, b=1)  # the line is looked at when a call has ended
    busy = until(lambda: (text := show("StatusText")["StatusText"]).endswith("1 call running") and text, 4)
    connection.close()
    return {"ready": ready, "idle": idle, "busy": busy}


def real_servers() -> dict[str, Any]:
    return {
        "git": call("git__git_status", repo_path="/var/lib/conduit/repository"),
        "node": call("node__machine") if shutil.which("node") else None,
        "privileges": re.findall(
            r"(?:NoNewPrivs|Seccomp|CapBnd):\s*(\w+)", Path(f"/proc/{main_pid()}/status").read_text()
        ),
    }


def runners() -> dict[str, Any]:
    """Servers as people start them: by npx and by uvx, which run what lies beside them, for there may be no network."""
    tables = {
        "npx": {
            "command": "npx",
            "args": ["--no-install", "mcp-server-memory"],
            "cwd": "/opt/npm",
            "env": {"MEMORY_FILE_PATH": "/var/lib/conduit/memory.json"},
        },
        "uvx": {
            "command": "/opt/uv/uvx",
            "args": ["--offline", "--no-python-downloads", "--python", PYTHON, "--from", WHEEL, "tiny-mcp-server"],
        },
    }
    calls = {"npx": ("memory__read_graph", {}), "uvx": ("uvx__add", {"a": 40, "b": 2})}
    found: dict[str, Any] = {}
    for name, table in tables.items():
        if not os.path.exists({"npx": "/opt/npm", "uvx": WHEEL}[name]):
            continue
        ask("conduit/servers/add", CONTROL, server=name, config=table)
        until(lambda name=name: state(name) == "ready", 60, 0.1)
        tool, arguments = calls[name]
        pid = ask("conduit/status")["servers"][name]["pid"]
        found[name] = {
            "answer": call(f"{name}__{tool.partition('__')[2]}", **arguments),
            "processes": run("ps", "-o", "args=", "--ppid", str(pid), check=False) + run("ps", "-o", "args=", str(pid)),
        }
        ask("conduit/servers/remove", CONTROL, server=name)
        until(lambda pid=pid: pid not in processes(), 10)
    return found


def journal() -> dict[str, Any]:
    call("files__add", a=20, b=22)
    entries: list[dict[str, Any]] = []

    def look() -> bool:
        command = ["journalctl", "-u", "conduit", "-o", "json", "CONDUIT_SERVER=files", "CONDUIT_TOOL=add"]
        entries[:] = [json.loads(line) for line in run(*command).splitlines()]
        return len(entries) >= 2

    until(look)
    return {"entries": entries, "text": run("journalctl", "-o", "cat")}


def credentials() -> dict[str, Any]:
    server = ask("conduit/status")["servers"]["files"]["pid"]
    return {
        "server": f"DATABASE_PASSWORD={SECRET}" in Path(f"/proc/{server}/environ").read_text().split("\0"),
        "journal": SECRET in run("journalctl", "-o", "json"),
        "status": SECRET in json.dumps(ask("conduit/status")),
        "explain": SECRET in json.dumps(ask("conduit/servers/explain", CONTROL, server="files")),
    }


def reload() -> dict[str, Any]:
    before = main_pid(), ask("conduit/status")["servers"]["files"]["pid"]
    earlier = len(_logged("config.reloaded"))
    path = Path("/etc/conduit/conduit.toml")
    path.write_text(_config(f'\n[servers.second]\ncommand = "{PYTHON}"\nargs = ["{FAKE}"]\n'))
    run("systemctl", "reload", "conduit")
    until(lambda: "second" in ask("conduit/status")["servers"] and state("second") == "ready")
    path.write_text(_config("\nservers = 5\n"))
    run("systemctl", "reload", "conduit")
    rejected = until(lambda: _logged("config.rejected"))
    path.write_text(_config())
    run("systemctl", "reload", "conduit")
    until(lambda: "second" not in ask("conduit/status")["servers"])
    until(lambda: show("ActiveState")["ActiveState"] == "active")
    after = main_pid(), ask("conduit/status")["servers"]["files"]["pid"]
    uptime = ask("conduit/status")["uptime"]
    return {
        "same": before == after,
        "rejected": rejected,
        "reloaded": _logged("config.reloaded")[earlier:],
        "uptime": uptime,
        **show("ActiveState", "SubState", "NRestarts", "Result"),
    }


def _logged(event: str) -> list[str]:
    log = run("journalctl", "-u", "conduit", "-o", "json", f"CONDUIT_EVENT={event}").splitlines()
    return [json.loads(line)["MESSAGE"] for line in log]


def killed() -> dict[str, Any]:
    pid = main_pid()
    left = [one for one in processes() if one != pid]
    refused: list[str] = []
    answered: list[float] = []
    stop = threading.Event()

    def connect() -> None:
        while not stop.is_set():
            began = time.monotonic()
            try:
                ask("ping")
                answered.append(time.monotonic() - began)
            except (EOFError, ConnectionResetError, BrokenPipeError):
                pass  # it was connected to the daemon that was killed
            except OSError as error:
                refused.append(repr(error))
            time.sleep(0.005)

    threads = [threading.Thread(target=connect) for _ in range(4)]
    for thread in threads:
        thread.start()
    time.sleep(0.2)
    os.kill(pid, signal.SIGKILL)
    time.sleep(0.9)
    alive = sorted(set(left) & set(processes()))
    until(lambda: int(show("MainPID")["MainPID"]) not in (0, pid))
    until(lambda: show("ActiveState")["ActiveState"] == "active")
    time.sleep(0.2)
    stop.set()
    for thread in threads:
        thread.join()
    until(lambda: state("files") == "ready")
    return {
        "refused": refused,
        "answered": len(answered),
        "longest": max(answered),
        "servers": len(left),
        "alive": alive,
        "answer": call("files__add", a=1, b=1),
        **show("NRestarts", "Result"),
    }


def wedged() -> dict[str, Any]:
    pid = main_pid()
    before = int(show("NRestarts")["NRestarts"])
    os.kill(pid, signal.SIGSTOP)
    began = time.monotonic()
    until(lambda: int(show("MainPID")["MainPID"]) not in (0, pid))
    until(lambda: show("ActiveState")["ActiveState"] == "active")
    return {
        "took": time.monotonic() - began,
        "restarts": int(show("NRestarts")["NRestarts"]) - before,
        "answer": call("files__add", a=1, b=2) if until(lambda: state("files") == "ready") else None,
        "journal": run("journalctl", "-u", "conduit", "-o", "cat", "--grep=Watchdog timeout"),
        "stacks": run("journalctl", "-u", "conduit", "-o", "cat", "--grep=most recent call first", check=False),
    }


def stopped() -> dict[str, Any]:
    connection = Rpc()
    connection.send("tools/call", name="files__sleep", arguments={"seconds": 3})
    time.sleep(0.2)
    began = time.monotonic()
    run("systemctl", "stop", "conduit")
    took = time.monotonic() - began
    answer = connection.receive()
    connection.close()
    return {
        "took": took,
        "answer": answer,
        "processes": processes(),
        "sockets": [os.path.exists(AGENT), os.path.exists(CONTROL)],
        "run": sorted(os.listdir("/run/conduit")),
        **show("ActiveState", "Result", "ExecMainStatus", "ExecMainCode"),
        "log": run("journalctl", "-u", "conduit", "-o", "cat", "-n", "30"),
    }


def activated() -> dict[str, Any]:
    answer = ask("ping")  # answered as soon as the RPC runs, which is a little before the daemon calls itself ready
    return {"answer": answer, "active": until(lambda: show("ActiveState")["ActiveState"] == "active")}


def drop_ins() -> dict[str, Any]:
    folder = Path("/etc/systemd/system/conduit.service.d")
    for path in ("/home/alice/projects/one", "/home/bob"):
        Path(path).mkdir(parents=True)
    copies = [folder / name for name in ("home.conf", "offline.conf")]
    for copy in copies:
        copy.write_text((Path("/src/systemd/drop-ins") / copy.name).read_text())
    run("systemctl", "daemon-reload")
    run("systemctl", "restart", "conduit")
    until(lambda: state("files") == "ready")
    seen = Path(f"/proc/{main_pid()}/root/home")
    found = {
        "homes": sorted(str(path.relative_to(seen)) for path in seen.rglob("*")),
        "network": re.findall(r"^ *(\w+):", Path(f"/proc/{main_pid()}/net/dev").read_text(), re.MULTILINE),
        "answer": call("files__add", a=3, b=3),
    }
    for copy in copies:
        copy.unlink()
    run("systemctl", "daemon-reload")
    return found


def misconfigured() -> dict[str, Any]:
    run("systemctl", "stop", "conduit")
    Path("/etc/conduit/conduit.toml").write_text("[servers.files]\ncomand = 'x'\n")
    run("systemctl", "start", "conduit", check=False)
    time.sleep(1.5)
    found = show("ActiveState", "ExecMainStatus", "NRestarts", "Result")
    log = run("journalctl", "-u", "conduit", "-o", "cat", "-n", "20")
    Path("/etc/conduit/conduit.toml").write_text("")
    run("systemctl", "start", "conduit")
    return {**found, "log": log, "then": show("ActiveState")["ActiveState"]}


def removed() -> dict[str, Any]:
    run("systemctl", "disable", "--now", "conduit", "conduit-agent.socket", "conduit-control.socket")
    return {"run": os.listdir("/run/conduit"), "processes": processes(), **show("ActiveState", "Result")}


if __name__ == "__main__":
    drive(
        [
            readme,
            ready,
            access,
            called,
            status_line,
            real_servers,
            runners,
            journal,
            credentials,
            reload,
            killed,
            wedged,
            stopped,
            activated,
            drop_ins,
            misconfigured,
            removed,
        ]
    )
