"""Waiting for servers, with a person told which ones are awaited."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any, Final

import msgspec

from conduit_daemon.agent import AgentError, Conduit, Progress, ServerStatus, Status, requests
from conduit_daemon.cli import output
from conduit_daemon.cli.connection import ask

__all__ = ["until_ready", "waiting_for_servers"]

_HOPELESS: Final = "needs_attention"
_LOOK: Final = 0.1
_COMING: Final = frozenset({"connecting", "waiting"})


@contextmanager
def waiting_for_servers(conduit: Conduit) -> Iterator[None]:
    """Tells a person, while something waits for servers to come up, how many are there and which are not.

    Args:
        conduit: The connection on which is waited; it is asked for the status meanwhile.
    """
    with output.waiting("Waiting for servers") as tell:
        if tell is None:
            yield
            return
        over = threading.Event()
        teller = threading.Thread(target=_keep_telling, args=(conduit, tell, over), daemon=True)
        teller.start()
        try:
            yield
        finally:
            over.set()
            teller.join()


def _keep_telling(conduit: Conduit, tell: Callable[[Progress], None], over: threading.Event) -> None:
    while not over.wait(_LOOK):
        try:
            tell(_how_many(conduit.send(requests.status(), timeout=1.0)))
        except AgentError:
            return  # what is waited for fails as well, and says why


def _how_many(status: Status) -> Progress:
    ready = sum(server.state == "ready" for server in status.servers.values())
    missing = [name for name, server in status.servers.items() if server.state in _COMING]
    said = f"without {', '.join(missing)} so far" if missing else None
    return Progress(progress=ready, total=ready + len(missing), message=said)


def until_ready(
    conduit: Conduit, server: str, seconds: float, before: ServerStatus | None = None
) -> tuple[dict[str, Any], ServerStatus]:
    """Waits until a server is ready, or cannot become so without a person, or the time is over.

    Args:
        conduit: The connection.
        server: The server's id.
        seconds: The longest wait.
        before: The server as it was, where it is to be another one that is ready.

    Returns:
        Its status then: as it came, and read.

    Raises:
        AgentError: The daemon does not answer.
    """
    deadline = time.monotonic() + seconds
    with output.waiting(f"Waiting for {server}") as tell:
        while True:
            answer, status = ask(conduit, requests.status())
            now = status.servers.get(server, ServerStatus(state="removed"))
            same = before is not None and (now.pid, now.since) == (before.pid, before.since)
            if (now.state == "ready" and not same) or now.state == _HOPELESS or time.monotonic() >= deadline:
                return answer.get("servers", {}).get(server, msgspec.to_builtins(now)), now
            if tell is not None:
                rest = deadline - time.monotonic()
                tell(Progress(progress=round(seconds - rest), total=round(seconds), message=f"it is {now.state}"))
            time.sleep(_LOOK)
