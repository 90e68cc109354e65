"""How much of the SDK is imported, and that nobody who imports it himself sees a difference."""

from __future__ import annotations

import json
import subprocess
import sys
from typing import Any

PROGRAM = """
import json, sys, trio
from conduit_daemon.clients.sdk import import_sdk

assert "mcp" not in sys.modules
trio.run(import_sdk)
seen = {name: name in sys.modules for name in ("mcp.client.session", "mcp.server", "starlette", "cryptography")}
import mcp.client.session
session = mcp.client.session.ClientSession
try:
    mcp.no_such_name
except AttributeError as error:
    seen["missing"] = str(error)
from mcp import ClientSession, Client
from mcp.client import ClientSession as again
import mcp.server
seen["one class"] = ClientSession is session is again
seen["whole"] = mcp.Client is Client and hasattr(mcp.server, "Server") and not hasattr(mcp, "no_such_name")
print(json.dumps(seen))
"""


def imported(program: str) -> dict[str, Any]:
    done = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, timeout=60, check=False)
    assert done.returncode == 0, done.stderr
    seen: dict[str, Any] = json.loads(done.stdout)
    return seen


def test_the_sdks_server_is_not_imported_and_the_whole_sdk_can_be() -> None:
    seen = imported(PROGRAM)
    assert seen["mcp.client.session"]
    assert not any(seen[name] for name in ("mcp.server", "starlette", "cryptography"))
    assert seen["one class"]
    assert seen["whole"]
    assert "no_such_name" in seen["missing"]


def test_a_program_that_has_imported_it_keeps_what_it_has() -> None:
    seen = imported(
        "import json, trio, mcp\n"
        "from conduit_daemon.clients.sdk import import_sdk\n"
        "before = mcp.ClientSession\n"
        "trio.run(import_sdk)\n"
        "import mcp.client.session\n"
        "print(json.dumps({'same': mcp.client.session.ClientSession is before is mcp.ClientSession}))"
    )
    assert seen["same"]
