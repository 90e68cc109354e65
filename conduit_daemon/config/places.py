"""Where things are by default: the configuration, the sockets, the state."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path

from conduit_daemon.config.model import Config

__all__ = ["agent_socket", "config_candidates", "control_socket", "home", "state_directory", "user_configuration"]


def config_candidates(environ: Mapping[str, str]) -> list[Path]:
    """Where a configuration is looked for when none is named, in this order (systemd's, the user's, the system's)."""
    given = [
        Path(folder) / "conduit.toml" for folder in environ.get("CONFIGURATION_DIRECTORY", "").split(":") if folder
    ]
    return [*given, user_configuration(environ), Path("/etc/conduit/conduit.toml")]


def user_configuration(environ: Mapping[str, str]) -> Path:
    """The configuration of the user's own daemon."""
    return (_absolute(environ, "XDG_CONFIG_HOME") or home(environ) / ".config") / "conduit" / "conduit.toml"


def agent_socket(config: Config, environ: Mapping[str, str]) -> Path:
    """The agents' socket: as configured, else in the runtime directory of the unit or the user, else in the state."""
    if config.rpc.agent_socket is not None:
        return config.rpc.agent_socket
    unit = _absolute(environ, "RUNTIME_DIRECTORY")
    if unit is not None:
        return unit / "agent.sock"
    user = _absolute(environ, "XDG_RUNTIME_DIR")
    return (user / "conduit" if user is not None else home(environ) / ".local/state/conduit") / "agent.sock"


def control_socket(config: Config, environ: Mapping[str, str]) -> Path:
    """The control socket: as configured, else ``control.sock`` beside the agents'."""
    if config.rpc.control_socket is not None:
        return config.rpc.control_socket
    return agent_socket(config, environ).with_name("control.sock")


def state_directory(config: Config, environ: Mapping[str, str]) -> Path:
    """Where what must survive a restart is kept: as configured, else the unit's or the user's state directory."""
    if config.state.directory is not None:
        return config.state.directory
    unit = _absolute(environ, "STATE_DIRECTORY")
    if unit is not None:
        return unit
    return (_absolute(environ, "XDG_STATE_HOME") or home(environ) / ".local/state") / "conduit"


def _absolute(environ: Mapping[str, str], name: str) -> Path | None:
    # systemd separates several directories by colons; a relative XDG directory is to be ignored (its specification).
    first = environ.get(name, "").partition(":")[0]
    return Path(first) if first.startswith("/") else None


def home(environ: Mapping[str, str]) -> Path:
    """The home directory: ``$HOME``, else the user's entry, else ``/``, as for users that have none."""
    named = _absolute(environ, "HOME")
    if named is not None:
        return named
    try:
        return Path.home()
    except RuntimeError:
        return Path("/")
