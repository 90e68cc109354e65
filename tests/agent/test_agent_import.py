"""What importing the library costs, and what it does not load."""

import subprocess
import sys

from conduit_daemon import agent

PROGRAM = """
import sys
import conduit_daemon.agent
from conduit_daemon.agent import Conduit, CallFailed, DaemonUnreachable
print("\\n".join(sorted(sys.modules)))
"""


def loaded():
    done = subprocess.run([sys.executable, "-c", PROGRAM], capture_output=True, text=True, check=True, timeout=30)
    return done.stdout.split()


def test_neither_event_loops_nor_mcp_nor_the_daemon_are_loaded():
    modules = loaded()

    assert not {name.partition(".")[0] for name in modules} & {
        "trio",
        "anyio",
        "asyncio",
        "mcp",
        "pydantic",
        "structlog",
    }
    ours = {name for name in modules if name.startswith("conduit_daemon")}
    assert {name for name in ours if not name.startswith("conduit_daemon.agent")} == {"conduit_daemon"}
    assert not any(name.startswith("supervisors") for name in modules)


def test_it_is_quick():
    program = (
        "import time; start = time.process_time(); import conduit_daemon.agent; print(time.process_time() - start)"
    )
    seconds = min(
        float(subprocess.run([sys.executable, "-c", program], capture_output=True, check=True, timeout=30).stdout)
        for _ in range(5)
    )
    assert seconds < 0.1


def test_async_names_come_on_demand():
    assert all(hasattr(agent, name) for name in agent.__all__)
    assert agent.__all__ == sorted(agent.__all__)
