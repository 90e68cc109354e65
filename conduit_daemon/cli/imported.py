"""Servers of other hosts, gathered: from which files, under which ids, and what is to be set for them."""

from __future__ import annotations

import re
from collections.abc import Collection, Iterable, Iterator, Mapping
from pathlib import Path
from typing import Any, Final

import msgspec

from conduit_daemon.cli.hosts import Place, read
from conduit_daemon.cli.secret_values import Vault
from conduit_daemon.cli.toml_text import table
from conduit_daemon.config import parse
from conduit_daemon.errors import ConfigError

__all__ = ["Imported", "Source", "Variable", "gather"]

_VARIABLE: Final = re.compile(r"(?<!\$)\$\{env:([A-Za-z_][A-Za-z0-9_]*)\}")


class Source(msgspec.Struct, frozen=True):
    """A file that servers were taken from: whose it is, where it lies, the ids of its servers here."""

    host: str
    file: str
    servers: list[str]


class Variable(msgspec.Struct, frozen=True):
    """An environment variable that the servers need.

    Attributes:
        name: Its name.
        servers: The ids of the servers that need it.
        found_at: Where its value stands in plain text now, as ``FILE: servers.ID.env.KEY``; empty where nowhere.
        state: ``unset``, ``set``, or ``different``: it is set, but not to what stands there.
    """

    name: str
    servers: list[str]
    found_at: list[str]
    state: str


class Imported(msgspec.Struct, frozen=True):
    """What an import comes to.

    Attributes:
        servers: The tables by id, without secrets.
        toml: The same as text for a configuration.
        variables: What must be set where the daemon is started.
        sources: The files, in the order read.
        kept: Ids that the configuration has already, and that are left as they are.
        warnings: What was left out, renamed, or will not work, one sentence each.
    """

    servers: dict[str, Any]
    toml: str
    variables: list[Variable]
    sources: list[Source]
    kept: list[str]
    warnings: list[str]


class _Gathering:
    def __init__(self, existing: Collection[str]) -> None:
        self.existing = existing
        self.vault = Vault()
        self.servers: dict[str, Any] = {}
        self.files: dict[str, str] = {}
        self.kept: list[str] = []
        self.warnings: list[str] = []

    def take(self, file: str, name: str, found: Any) -> str | None:
        """Takes one server, and returns its id where it is a new one."""
        if not isinstance(found, dict):
            self.warnings.append(f"{file}: {name}: is no table; it is left out")
            return None
        if name in self.existing:
            self.kept.append(name)
            return None
        identifier, number = name, 2
        while identifier in self.servers or (identifier != name and identifier in self.existing):
            if self.servers.get(identifier) == found:
                return None  # the same server of another host
            identifier, number = f"{name}-{number}", number + 1
        if identifier != name:
            self.warnings.append(f"{file}: {name}: is another server than {name} above; it is called {identifier} here")
        self.servers[identifier] = found
        self.files[identifier] = file
        return identifier


def gather(
    places: Iterable[Place],
    folder: Path,
    environ: Mapping[str, str],
    existing: Collection[str] = (),
    *,
    strict: bool,
) -> tuple[Imported, dict[str, str]]:
    """Reads all `places` and makes one set of servers of them.

    Args:
        places: The files.
        folder: The project whose servers count.
        environ: What is set now.
        existing: Ids that are taken.
        strict: Whether a file that cannot be used is an error, and no mere warning.

    Returns:
        What was found, and the secrets that were moved out, by their variables' names.

    Raises:
        ConfigError: A file cannot be used.
    """
    all_ = _Gathering(existing)
    sources: list[Source] = []
    for place in places:
        try:
            found = read(place, folder, environ, optional=not place.named)
        except ConfigError as error:
            if strict:
                raise
            all_.warnings.extend(str(problem) for problem in error.problems)
            continue
        all_.warnings.extend(found.warnings)
        taken = [all_.take(str(place.path), name, value) for name, value in found.tables.items()]
        if found.tables:
            sources.append(Source(place.host, str(place.path), [name for name in taken if name is not None]))
    servers = {name: all_.vault.without_secrets(name, found) for name, found in all_.servers.items()}
    text = _toml(sources, servers)
    all_.warnings.extend(_problems(text, folder))
    variables = _variables(servers, all_, environ)
    made = Imported(servers, text, variables, sources, list(dict.fromkeys(all_.kept)), all_.warnings)
    return made, all_.vault.values


def _toml(sources: list[Source], servers: Mapping[str, Any]) -> str:
    parts = []
    for source in sources:
        for place, name in enumerate(source.servers):
            origin = "" if place else f"# From {source.host}: {_one_line(source.file)}\n"
            parts.append(origin + table(("servers", name), servers[name]))
    return "\n".join(parts)


def _variables(servers: Mapping[str, Any], all_: _Gathering, environ: Mapping[str, str]) -> list[Variable]:
    users: dict[str, list[str]] = {}
    for server, found in servers.items():
        for name in _VARIABLE.findall(msgspec.json.encode(found).decode()):
            if server not in users.setdefault(name, []):
                users[name].append(server)
    places: dict[str, list[str]] = {}
    for moved in all_.vault.moved:
        places.setdefault(moved.name, []).append(f"{all_.files[moved.server]}: {moved.server}: {moved.key}")
    made = []
    for name, needed_by in users.items():
        value, known = environ.get(name), all_.vault.values.get(name)
        state = "unset" if value is None else "set" if known in {None, value} else "different"
        made.append(Variable(name, needed_by, places.get(name, []), state))
    return made


class _AllSet(Mapping[str, str]):
    """An environment in which everything is set to one text, to look for every other mistake."""

    def __init__(self, text: str) -> None:
        self._text = text

    def __getitem__(self, name: str) -> str:
        return self._text

    def __iter__(self) -> Iterator[str]:
        return iter(())

    def __len__(self) -> int:
        return 0


def _problems(text: str, folder: Path) -> list[str]:
    """What `conduit check` will say of the servers, whatever the variables hold: a whole URL, or a part of one."""
    found = []
    for held in ("https://example.com", "a"):
        try:
            parse(text.encode(), folder / "conduit.toml", _AllSet(held))
        except ConfigError as error:
            found.append([f"{problem.key}: {problem.message}" for problem in error.problems])
        else:
            return []
    return [problem for problem in found[0] if problem in found[1]]


def _one_line(text: str) -> str:
    return "".join(char if char.isprintable() else "?" for char in text)
