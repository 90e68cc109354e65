"""A sign of life for systemd's watchdog, given only while the daemon does its work, and its line of health.

A process that merely runs proves nothing. So before each sign the hub and the RPC are asked something, as an agent
would ask; where one of them does not answer within the interval, the sign is not given and systemd restarts the daemon.
"""

from __future__ import annotations

import contextlib
import math
import socket
from collections.abc import Awaitable, Callable, Iterable, Mapping
from functools import partial
from typing import Final

import trio

import supervisors
from conduit_daemon.messages import GetGate
from conduit_daemon.service.notify import Notifier
from conduit_daemon.telemetry.events import EventBus
from supervisors import ChildSpec

__all__ = ["Admit", "Probe", "children", "health_line", "hub_answers", "report_health", "rpc_answers", "watch"]

Probe = Callable[[], Awaitable[bool]]
"""Asks a part of the daemon something: whether it answered. May wait for ever; must not raise."""

Admit = Callable[[socket.socket], Awaitable[object]]
"""Serves a connected, non-blocking socket of an agent, and owns it."""

_STATUS_PAUSE: Final = 1.0
_STATUS_IDLE: Final = 10.0
_PING: Final = b'{"jsonrpc":"2.0","id":"watchdog","method":"ping"}\n'
_ANSWER: Final = 4096


def children(notifier: Notifier, *, admit: Admit, health: Callable[[], str], bus: EventBus) -> list[ChildSpec]:
    """The tasks that keep the service manager informed: none where there is none, or where it wants no sign of life.

    Args:
        notifier: Where everything goes.
        admit: How the RPC takes a connection.
        health: The daemon's line of health.
        bus: Tells when the line may have changed, and is told when a part of the daemon does not answer.
    """
    specs = []
    if notifier.active:
        specs.append(ChildSpec(id="status_line", start=lambda: partial(report_health, notifier, health, bus)))
    interval = notifier.watchdog_interval
    if interval is not None:
        probes: dict[str, Probe] = {"hub": hub_answers, "rpc": partial(rpc_answers, admit)}
        specs.append(ChildSpec(id="watchdog", start=lambda: partial(watch, notifier, interval, probes, bus)))
    return specs


async def watch(notifier: Notifier, interval: float, probes: Mapping[str, Probe], bus: EventBus) -> None:
    """Gives signs of life while every probe answers, until cancelled.

    A sign is due every third of the watchdog's interval, and a probe has half of it: a part that answers late once
    costs nothing, one that is silent for the whole interval costs the daemon its life.

    Args:
        notifier: Where signs go.
        interval: The longest time without one that the manager allows, in seconds.
        probes: By the name of the part asked.
        bus: Told as ``daemon.unresponsive`` when a part begins to be silent.
    """
    silent_before: set[str] = set()
    while True:
        silent = await _silent(probes, interval / 2)
        if not silent:
            notifier.alive()
        elif silent - silent_before:
            bus.emit(
                "daemon.unresponsive",
                level="error",
                parts=sorted(silent),
                reason=f"Not answering: {', '.join(sorted(silent))}. If that lasts, systemd restarts the daemon.",
            )
        silent_before = silent
        await trio.sleep(interval / (16 if silent else 3))


async def _silent(probes: Mapping[str, Probe], limit: float) -> set[str]:
    silent = set(probes)

    async def ask(name: str, probe: Probe) -> None:
        if await probe():
            silent.discard(name)

    with trio.move_on_after(limit):
        async with trio.open_nursery() as nursery:
            for name, probe in probes.items():
                nursery.start_soon(ask, name, probe)
    return silent


async def hub_answers() -> bool:
    """Asks the hub for what only its actor can give."""
    try:
        await supervisors.call("hub", GetGate(), timeout=math.inf)
    except (supervisors.NoProcess, supervisors.ServerExit):
        return False  # its supervisor is starting it again; the next probe will tell
    return True


async def rpc_answers(admit: Admit) -> bool:
    """Sends a ping over a connection of its own and waits for the answer.

    The connection is a pair of sockets, handed to the RPC as an acceptor hands it one: the daemon's own user need not
    be allowed to connect to its sockets, and a full backlog is not taken for a dead daemon.

    Args:
        admit: As an acceptor does it.
    """
    ours, theirs = socket.socketpair()
    theirs.setblocking(False)
    with trio.socket.from_stdlib_socket(ours) as sock:
        try:
            await admit(theirs)
            with contextlib.suppress(BrokenPipeError):  # refused and closed already, which is an answer too
                await sock.send(_PING)
            return b"\n" in await sock.recv(_ANSWER)
        except (supervisors.ActorError, OSError):
            return False  # the RPC, or this connection, has just crashed


async def report_health(notifier: Notifier, line: Callable[[], str], bus: EventBus) -> None:
    """Keeps the manager's status line as `line` says, until cancelled.

    It is looked at when something has happened to a server or a call, once a second at most, and else every ten
    seconds: an idle daemon is to be idle.
    """
    happened = trio.Event()
    token = bus.attach(lambda _: happened.set(), types=["client.*", "call.finished", "config.*"])
    try:
        said = None
        while True:
            now = line()
            if now != said:
                notifier.status(now)
                said = now
            with trio.move_on_after(_STATUS_IDLE):
                await happened.wait()
            await trio.sleep(_STATUS_PAUSE)
            happened = trio.Event()
    finally:
        bus.detach(token)


def health_line(states: Iterable[str], running: int, *, rejected: bool = False, problems: Iterable[str] = ()) -> str:
    """One line on how the daemon is.

    Args:
        states: The state of each enabled server.
        running: How many calls are on their way.
        rejected: Whether the configuration as it was last read cannot be used.
        problems: What is wrong with the daemon itself, one sentence each.

    Example:
        >>> health_line(["ready", "waiting", "idle"], 2)
        '1 of 3 servers ready, 1 idle, 2 calls running'
    """
    states = list(states)
    ready, idle = states.count("ready"), states.count("idle")
    parts = [f"{ready} of {len(states)} server{'' if len(states) == 1 else 's'} ready"]
    if idle:
        parts.append(f"{idle} idle")
    parts.append(f"{running} call{'' if running == 1 else 's'} running")
    if rejected:
        parts.append("the changed configuration is rejected (conduit status)")
    return "; ".join([", ".join(parts), *problems])
