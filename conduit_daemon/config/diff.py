"""What a reload changes: which servers are new, gone, different or the same, and what waits for a restart."""

from __future__ import annotations

from collections.abc import Callable, Collection, Mapping
from typing import Any, Final

import msgspec

from conduit_daemon.config.model import Config, ServerConfig, ToolFilter
from conduit_daemon.config.places import agent_socket, control_socket, state_directory

__all__ = ["Diff", "diff", "needs_restart", "started_alike"]


class Diff(msgspec.Struct, frozen=True):
    """Server ids by what becomes of them, each list in the order of its file.

    Attributes:
        added: In the new configuration alone.
        removed: In the old configuration alone.
        changed: In both, with another table: what is new in it holds at once, by a restart where it must.
        unchanged: In both, alike: these are left running.
    """

    added: tuple[str, ...] = ()
    removed: tuple[str, ...] = ()
    changed: tuple[str, ...] = ()
    unchanged: tuple[str, ...] = ()


def diff(old: Config, new: Config) -> Diff:
    """Compares two configurations server by server.

    A server is changed when its own table is: what other tables say (limits, policy) applies without a
    restart. Tables are compared as resolved, so a secret that was rotated in its file is a change.

    Example:
        >>> from conduit_daemon.config.model import ServerConfig
        >>> diff(Config(), Config(servers={"files": ServerConfig(command="npx")})).added
        ('files',)
    """
    return Diff(
        added=tuple(name for name in new.servers if name not in old.servers),
        removed=tuple(name for name in old.servers if name not in new.servers),
        changed=tuple(name for name, server in new.servers.items() if old.servers.get(name, server) != server),
        unchanged=tuple(name for name, server in new.servers.items() if old.servers.get(name) == server),
    )


def started_alike(one: ServerConfig | None, other: ServerConfig | None) -> bool:
    """Whether a server that was started by one table need not restart for the other; None is no server.

    It need not for what governs its calls and is nothing to the server itself: which of its tools exist and how they
    are described, whether it is trusted, pins, rates, and how many calls run at a time.

    Example:
        >>> from conduit_daemon.config.model import ServerConfig
        >>> started_alike(ServerConfig(command="npx"), ServerConfig(command="npx", trusted=True))
        True
    """
    if one is None or other is None:
        return one is other
    return _as_started(one) == _as_started(other)


def _as_started(server: ServerConfig) -> ServerConfig:
    return msgspec.structs.replace(server, tools=ToolFilter(), trusted=False, pin=False, rate=None, max_in_flight=1)


_OF_SOCKET: Final = {
    "agent": ("rpc.agent_socket", "rpc.socket_mode", "rpc.socket_group"),
    "control": ("rpc.control_socket", "rpc.control_group"),
}

_FIXED: Final[dict[str, Callable[[Config, Mapping[str, str]], Any]]] = {
    "rpc.agent_socket": agent_socket,
    "rpc.control_socket": lambda config, environ: config.rpc.control_socket and control_socket(config, environ),
    "rpc.socket_mode": lambda config, environ: config.rpc.socket_mode,
    "rpc.socket_group": lambda config, environ: config.rpc.socket_group,
    "rpc.control_group": lambda config, environ: config.rpc.control_group,
    "state.directory": state_directory,
    "metrics.listen": lambda config, environ: config.metrics.listen,
    "log.format": lambda config, environ: config.log.format,
}
"""What is set up once, at the start, by the key that says it: what the daemon makes of it."""


def needs_restart(
    started: Config, wanted: Config, environ: Mapping[str, str], passed: Collection[str] = ()
) -> tuple[str, ...]:
    """The keys whose new value counts only once the daemon is restarted.

    Args:
        started: The configuration that the daemon was started with.
        wanted: The one in force now.
        environ: Where default places are looked up.
        passed: The sockets that a service manager made (``agent``, ``control``): keys about those never count.

    Example:
        >>> from conduit_daemon.config.model import LogConfig
        >>> needs_restart(Config(), Config(log=LogConfig(format="json", level="debug")), {})
        ('log.format',)
    """
    without_effect = {key for name in passed for key in _OF_SOCKET[name]}
    return tuple(
        key
        for key, meant in _FIXED.items()
        if key not in without_effect and meant(started, environ) != meant(wanted, environ)
    )
