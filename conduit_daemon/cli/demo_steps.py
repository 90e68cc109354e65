"""The demo's daemon, and what is done with it: no printing here."""

from __future__ import annotations

import os
import shutil
import signal
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator
from contextlib import contextmanager
from importlib.resources import files
from pathlib import Path
from typing import Any, Final

import msgspec

from conduit_daemon.agent import Conduit, DaemonUnreachable, Execution, Tools
from conduit_daemon.cli.interruption import undisturbed

__all__ = ["FORMATS", "START_TIMEOUT", "DemoFailed", "Format", "Turn", "configuration", "running_daemon", "take_turn"]

START_TIMEOUT: Final = 8.0
"""Seconds that the daemon, and then its server, have to be there."""
STOP_TIMEOUT: Final = 8.0
_LONGEST_FOLDER: Final = 80  # a socket's path has at most 107 bytes


class DemoFailed(Exception):
    """The demo's daemon did not do its part; the message holds the last lines of its log."""


class Format(msgspec.Struct, frozen=True):
    """A provider's format.

    Attributes:
        title: For people.
        provider: As the RPC names it.
        api: For OpenAI, which of its APIs.
        recorded: The file with an example of its responses.
    """

    title: str
    provider: str
    api: str | None
    recorded: str


FORMATS: Final = (
    Format("Anthropic", "anthropic", None, "anthropic.json"),
    Format("OpenAI, chat", "openai", "chat", "openai_chat.json"),
    Format("OpenAI, responses", "openai", "responses", "openai_responses.json"),
    Format("Gemini", "gemini", None, "gemini.json"),
)


class Turn(msgspec.Struct, frozen=True):
    """One turn with a provider: what was listed for it and what became of its model's calls."""

    format: Format
    listing: Tools
    done: Execution


def configuration(folder: Path, protocol: str | None = None) -> str:
    """The demo's configuration, as one would write it.

    Args:
        folder: Where its sockets and its state lie.
        protocol: The revision of MCP that its server speaks; None leaves it to the two of them.
    """
    return f"""\
[rpc]
agent_socket = {_toml(folder / "agent.sock")}

[state]
directory = {_toml(folder / "state")}

[servers.notebook]
command = {_toml(sys.executable)}
args = ["-m", "conduit_daemon.cli.example_server"]
{"" if protocol is None else f"protocol = {_toml(protocol)}"}
[policy]
default = "deny"

[[policy.rules]]
effect = "allow"
servers = ["notebook"]
tools = ["search_*", "read_*", "chart_*"]
"""


@contextmanager
def running_daemon(protocol: str | None = None) -> Iterator[tuple[Conduit, str]]:
    """A daemon of its own, as a process in a temporary folder; nothing of it is left afterwards.

    Args:
        protocol: The revision of MCP that its server speaks; None leaves it to the two of them.

    Yields:
        A client of it, and its configuration.

    Raises:
        DemoFailed: It does not start.
    """
    base = tempfile.gettempdir()
    if len(base) >= _LONGEST_FOLDER:
        base = "/tmp"  # noqa: S108
    folder: Path | None = None
    process: subprocess.Popen[bytes] | None = None
    try:
        with undisturbed():
            folder = Path(tempfile.mkdtemp(prefix="conduit-demo-", dir=base))
        text = configuration(folder, protocol)
        (folder / "conduit.toml").write_text(text, encoding="utf-8")
        log = folder / "daemon.log"
        with log.open("wb") as stderr, undisturbed():
            # Its own session: Ctrl-C comes to us alone, and we stop it in good order.
            process = subprocess.Popen(
                [sys.executable, "-m", "conduit_daemon.cli", "run", "--config", str(folder / "conduit.toml")],
                stdin=subprocess.DEVNULL,
                stdout=stderr,
                stderr=stderr,
                start_new_session=True,
                env={**os.environ, "CONDUIT_SOCKET": ""},
            )
        with Conduit(folder / "agent.sock", timeout=START_TIMEOUT) as conduit:
            _wait(conduit, process, log)
            yield conduit, text
    finally:
        try:
            if process is not None:
                _stop(process)
        finally:
            if folder is not None:
                shutil.rmtree(folder, ignore_errors=True)


def take_turn(conduit: Conduit, format: Format) -> Turn:
    """Lists the tools for a provider and runs the calls of its recorded response.

    Raises:
        CallFailed: The daemon refuses.
    """
    listing = conduit.tools(format.provider, api=format.api, timeout=START_TIMEOUT)
    response = recorded(format)
    done = conduit.execute(format.provider, response, api=format.api, toolset=listing.toolset)
    return Turn(format, listing, done)


def recorded(format: Format) -> Any:
    """An example of a response in this format: one good call, one unknown tool, one with wrong arguments."""
    return msgspec.json.decode((files(__package__) / "recorded" / format.recorded).read_bytes())


def _wait(conduit: Conduit, process: subprocess.Popen[bytes], log: Path) -> None:
    deadline = time.monotonic() + START_TIMEOUT
    while True:
        try:
            conduit.connect()
        except DaemonUnreachable:
            if process.poll() is not None:
                raise DemoFailed(_end(f"The daemon ended with exit code {process.returncode}", log)) from None
            if time.monotonic() > deadline:
                raise DemoFailed(_end(f"The daemon did not listen within {START_TIMEOUT:g} s", log)) from None
            time.sleep(0.02)
        else:
            return


def _end(what: str, log: Path) -> str:
    lines = log.read_text(encoding="utf-8", errors="replace").splitlines()[-5:]
    return f"{what}. It said:\n" + "\n".join(f"  {line}" for line in lines) if lines else f"{what} and said nothing."


def _stop(process: subprocess.Popen[bytes]) -> None:
    if process.poll() is None:
        process.send_signal(signal.SIGTERM)
    try:
        process.wait(STOP_TIMEOUT)
    except subprocess.TimeoutExpired:
        os.killpg(process.pid, signal.SIGKILL)  # not reaped yet, so the group still is its own
        process.wait()


def _toml(value: object) -> str:
    return msgspec.json.encode(str(value)).decode()  # a TOML basic string has JSON's escapes
