"""As `system.py`, with servers that npx and uvx download and run under the unit's hardening. Needs the network."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from inside import ask, call, drive, run, state, until

CERTIFICATES = "/etc/ssl/certs/ca-certificates.crt"
CONFIG = f"""
[servers.memory]
command = "npx"
args = ["-y", "@modelcontextprotocol/server-memory"]
connect_timeout = 120
env = {{ NODE_EXTRA_CA_CERTS = "{CERTIFICATES}" }}

[servers.time]
command = "/opt/uv/uvx"
args = ["mcp-server-time"]
connect_timeout = 120
env = {{ SSL_CERT_FILE = "{CERTIFICATES}", UV_SYSTEM_CERTS = "1" }}

[policy]
default = "allow"
"""


def fetched() -> dict[str, Any]:
    install = Path("/src/systemd/README.md").read_text().partition("```sh\n")[2].splitlines()[1:3]
    for command in install:
        run("sh", "-ec", command, cwd="/src")
    Path("/etc/conduit/conduit.toml").write_text(CONFIG)
    run("systemctl", "enable", "--now", "conduit")
    until(lambda: state("memory") == "ready" and state("time") == "ready", 120, 0.5)
    return {
        "states": {name: server["state"] for name, server in ask("conduit/status")["servers"].items()},
        "memory": call("memory__read_graph"),
        "time": call("time__get_current_time", timezone="UTC"),
    }


if __name__ == "__main__":
    drive([fetched])
