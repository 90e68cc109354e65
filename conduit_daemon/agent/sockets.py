"""Where the daemon's two sockets lie: one pure rule for clients, the command line and the daemon.

The order is that of the RPC's page: what is asked for, ``$CONDUIT_SOCKET``, the configuration's, the
defaults. The control socket is ``control.sock`` beside the agent socket unless the configuration says
otherwise.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from pathlib import Path

import msgspec

__all__ = ["Sockets", "configured", "defaults", "lookup"]

_REFERENCE = re.compile(r"\$\{env:([A-Za-z_][A-Za-z0-9_]*)(?::-([^}]*))?\}")


class Sockets(msgspec.Struct, frozen=True):
    """One daemon's two sockets.

    Attributes:
        agent: For listing and running tools.
        control: For approvals and administration.
    """

    agent: Path
    control: Path

    @classmethod
    def beside(cls, agent: Path) -> Sockets:
        """The pair whose agent socket is `agent`."""
        return cls(agent, agent.with_name("control.sock"))


def defaults(environ: Mapping[str, str]) -> tuple[Sockets, ...]:
    """The places that need no configuration, the daemon's own choice first.

    A daemon listens at the first. A client tries them in turn, since it may run outside the session or
    the service that the daemon belongs to; ``/run/conduit`` is the system service's and only ever tried.

    Args:
        environ: The environment; ``RUNTIME_DIRECTORY`` (systemd), ``XDG_RUNTIME_DIR`` and ``HOME`` count.
    """
    folders = [
        _absolute(environ, "RUNTIME_DIRECTORY"),
        session / "conduit" if (session := _absolute(environ, "XDG_RUNTIME_DIR")) else None,
        _home(environ) / ".local/state/conduit",
        Path("/run/conduit"),
    ]
    return tuple(Sockets.beside(folder / "agent.sock") for folder in dict.fromkeys(folders) if folder)


def configured(environ: Mapping[str, str], file: Path | None = None) -> Sockets | None:
    """The sockets that a configuration names, or None where there is none or it names none.

    It is read for its ``[rpc]`` table alone, and never complained about: ``conduit check`` does that.

    Args:
        environ: For the places of the configuration, and for ``${env:NAME}`` in a path.
        file: The configuration; else the one that the daemon would find.
    """
    for candidate in [file] if file is not None else _configurations(environ):
        try:
            text = candidate.read_text(encoding="utf-8")
        except (OSError, UnicodeDecodeError):
            continue
        if candidate.suffix == ".json":
            return None
        return _in_toml(text, candidate.parent, environ)
    return None


def lookup(
    environ: Mapping[str, str], *, socket: str | Path | None = None, config: Path | None = None
) -> tuple[Sockets, ...]:
    """The sockets to try, in order; the first at which a daemon answers is the one.

    Args:
        environ: The environment.
        socket: An agent socket asked for by the user; nothing else is tried then.
        config: A configuration file to look into instead of the one that the daemon would find.
    """
    if asked := socket or environ.get("CONDUIT_SOCKET"):
        return (Sockets.beside(Path(asked).expanduser()),)
    if found := configured(environ, config):
        return (found,)
    return defaults(environ)


def _configurations(environ: Mapping[str, str]) -> list[Path]:
    if named := environ.get("CONDUIT_CONFIG"):
        return [Path(named)]
    service = [Path(folder) for folder in environ.get("CONFIGURATION_DIRECTORY", "").split(":") if folder]
    user = (_absolute(environ, "XDG_CONFIG_HOME") or _home(environ) / ".config") / "conduit"
    return [folder / "conduit.toml" for folder in (*service, user, Path("/etc/conduit"))]


def _absolute(environ: Mapping[str, str], name: str) -> Path | None:
    # systemd joins several with colons; a relative XDG directory is to be ignored (its specification).
    first = environ.get(name, "").partition(":")[0]
    return Path(first) if first.startswith("/") else None


def _home(environ: Mapping[str, str]) -> Path:
    return _absolute(environ, "HOME") or Path.home()


def _in_toml(text: str, folder: Path, environ: Mapping[str, str]) -> Sockets | None:
    import tomllib  # noqa: PLC0415 - most lookups never parse a file

    try:
        rpc = tomllib.loads(text).get("rpc")
    except tomllib.TOMLDecodeError:
        return None
    if not isinstance(rpc, dict):
        return None
    agent = _path(rpc.get("agent_socket"), folder, environ)
    control = _path(rpc.get("control_socket"), folder, environ)
    if agent is None and control is None:
        return None
    agent = agent or defaults(environ)[0].agent
    return Sockets(agent, control) if control else Sockets.beside(agent)


def _path(value: object, folder: Path, environ: Mapping[str, str]) -> Path | None:
    if not isinstance(value, str) or not value:
        return None
    expanded = _REFERENCE.sub(lambda match: environ.get(match[1]) or match[2] or "", value)
    return folder / Path(expanded).expanduser()
