"""Keys about sockets that systemd makes: they have no effect, since mode, group and place are the socket unit's."""

from __future__ import annotations

import os
import re
from collections.abc import Mapping
from pathlib import Path
from typing import Any, Final

from conduit_daemon.config.model import Config, RpcConfig
from conduit_daemon.config.places import home, user_configuration

__all__ = ["installed_sockets", "without_effect"]

_SETTINGS: Final = {
    "agent": {"agent_socket": "ListenStream=", "socket_mode": "SocketMode=", "socket_group": "SocketGroup="},
    "control": {"control_socket": "ListenStream=", "control_group": "SocketGroup="},
}
_SYSTEM: Final = (
    "/etc/systemd/system",
    "/run/systemd/system",
    "/usr/local/lib/systemd/system",
    "/usr/lib/systemd/system",
)
_USER: Final = ("/etc/systemd/user", "/usr/local/lib/systemd/user", "/usr/lib/systemd/user")
_LISTENS: Final = re.compile(r"^ListenStream=(.+)$", re.MULTILINE)


def without_effect(config: Config, sockets: Mapping[str, Path]) -> tuple[str, ...]:
    """What a configuration says of sockets that systemd makes, one sentence for each key.

    Args:
        config: The configuration.
        sockets: Where systemd listens, by ``agent`` and ``control``; one that it does not make is not among them.

    Example:
        >>> from conduit_daemon.config.model import RpcConfig
        >>> without_effect(Config(rpc=RpcConfig(socket_group="agents")), {"agent": Path("/run/conduit/agent.sock")})
        ('rpc.socket_group has no effect: systemd makes the agent socket. Set SocketGroup= in conduit-agent.socket.',)
    """
    default = RpcConfig()
    said: list[str] = []
    for name, path in sockets.items():
        for key, setting in _SETTINGS[name].items():
            value: Any = getattr(config.rpc, key)
            if value not in (getattr(default, key), path):
                said.append(
                    f"rpc.{key} has no effect: systemd makes the {name} socket. Set {setting} in conduit-{name}.socket."
                )
    return tuple(said)


def installed_sockets(file: Path | None, environ: Mapping[str, str]) -> dict[str, Path]:
    """Where systemd listens for the daemon that a configuration is for, as far as its place and the units tell.

    Args:
        file: The configuration: the system's is the system unit's, the user's is the user unit's.
        environ: Where directories are looked up.
    """
    if file is None:
        return {}
    if file == user_configuration(environ):
        folders = [file.parent.parent / "systemd" / "user", home(environ) / ".local/share/systemd/user"]
        folders += map(Path, _USER)
    elif file.parent == Path("/etc/conduit"):
        folders = list(map(Path, _SYSTEM))
    else:
        return {}
    runtime = environ.get("XDG_RUNTIME_DIR") or f"/run/user/{os.getuid()}"
    found: dict[str, Path] = {}
    for name in _SETTINGS:
        for folder in folders:
            try:
                unit = (folder / f"conduit-{name}.socket").read_text("utf-8", "replace")
            except OSError:
                continue
            if listens := _LISTENS.search(unit):
                found[name] = Path(listens[1].strip().replace("%t", runtime))
            break
    return found
