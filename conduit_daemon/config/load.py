"""Reading a configuration: where it is, what it says, and everything that is wrong with it."""

from __future__ import annotations

import json
import os
import re
import tomllib
from collections.abc import Mapping
from pathlib import Path
from typing import Any, Final
from urllib.parse import unquote, unquote_plus, urlsplit

import msgspec

from conduit_daemon.config.check import CHECKS, check_between, check_server_ids
from conduit_daemon.config.decode import Decoder
from conduit_daemon.config.expand import Expander, speaks_of_secret
from conduit_daemon.config.foreign import parse_json, translate
from conduit_daemon.config.model import Config, ServerConfig
from conduit_daemon.config.places import config_candidates
from conduit_daemon.config.report import KeyPath, Report
from conduit_daemon.config.sources import digest, read_source
from conduit_daemon.errors import ConfigError, ConfigProblem

__all__ = ["ImportedServers", "Loaded", "LoadedServer", "import_servers", "load", "load_server", "parse"]

_LARGEST: Final = 16 * 1024 * 1024
_TOML_PLACE: Final = re.compile(r"\s*\(at (?:line (\d+), column (\d+)|end of document)\)\s*$")


class Loaded(msgspec.Struct, frozen=True, kw_only=True):
    """A configuration as read.

    Attributes:
        config: What it says.
        path: The file, absolute; None where there is none and everything is at its default.
        warnings: What is probably not what was meant, one sentence each.
        secrets: Values to be masked wherever people look, each at least 8 characters long.
        sources: The files that it was made of, `path` and those that are referred to, with a digest of each.
    """

    config: Config
    path: Path | None = None
    warnings: tuple[str, ...] = ()
    secrets: frozenset[str] = frozenset()
    sources: dict[Path, str | None] = {}

    @property
    def folder(self) -> Path | None:
        """What relative paths are relative to; None where there is no file."""
        return None if self.path is None else self.path.parent

    def shown(self, text: str) -> str:
        """`text` for people, with its secrets masked."""
        for secret in sorted(self.secrets, key=len, reverse=True):
            text = text.replace(secret, "[masked]")
        return text


class LoadedServer(msgspec.Struct, frozen=True, kw_only=True):
    """One server's table as read; the attributes are those of Loaded."""

    server: ServerConfig
    warnings: tuple[str, ...] = ()
    secrets: frozenset[str] = frozenset()


class ImportedServers(msgspec.Struct, frozen=True, kw_only=True):
    """Another MCP host's servers, as tables of our own.

    Attributes:
        tables: By server id, with references unresolved, so that no secret is copied out of its place.
        warnings: What was left out or renamed, one sentence each.
    """

    tables: dict[str, Any]
    warnings: tuple[str, ...] = ()


def load(path: Path | None = None, environ: Mapping[str, str] = os.environ) -> Loaded:
    """Reads the configuration at `path`, or the first that is found where one is looked for.

    Those places are ``$CONDUIT_CONFIG``, ``$CONFIGURATION_DIRECTORY/conduit.toml``,
    ``$XDG_CONFIG_HOME/conduit/conduit.toml`` and ``/etc/conduit/conduit.toml``; where none has a file, all is at
    its default and a warning says so. A ``*.json`` file is one of another MCP host (``mcpServers``).

    Raises:
        ConfigError: It cannot be read or used; holds every problem found.
    """
    chosen = path
    if chosen is None and (named := environ.get("CONDUIT_CONFIG")):
        chosen = Path(named)
    if chosen is None:
        candidates = config_candidates(environ)
        chosen = next((candidate for candidate in candidates if _exists(candidate)), None)
        if chosen is None:
            looked = ", ".join(map(str, candidates))
            return Loaded(
                config=Config(),
                warnings=(
                    f"no configuration found, so there are no servers; looked at {looked} (conduit init writes one)",
                ),
            )
    return parse(_read(chosen), chosen, environ)


def parse(data: bytes, path: Path, environ: Mapping[str, str]) -> Loaded:
    """Reads the configuration `data` as if it stood in the file `path`, which names it and decides its format.

    Raises:
        ConfigError: It cannot be used; holds every problem found.
    """
    report = Report(str(path))
    path = path.absolute()
    report.sources[path] = digest(data)
    document = _document(data, path, report)
    report.finish()
    expander = Expander(environ, path.parent, report)
    if path.suffix.lower() == ".json":
        document = {"servers": translate(document, report)}
    servers = document.get("servers")
    servers = servers if isinstance(servers, dict) else {}
    check_server_ids(servers, report)
    config = _decoder(servers, expander, report).decode(document, Config)
    report.finish()
    check_between(config, report)
    report.finish()
    return Loaded(
        config=config,
        path=path,
        warnings=tuple(report.warnings),
        secrets=frozenset(expander.secrets),
        sources=report.sources,
    )


def load_server(
    server_id: str, table: Mapping[str, Any], base: Path, environ: Mapping[str, str] = os.environ
) -> LoadedServer:
    """Reads one server's table, as it would stand under ``[servers.ID]``; relative paths are relative to `base`.

    Raises:
        ConfigError: It cannot be used; holds every problem found.
    """
    report = Report("servers/add")
    expander = Expander(environ, base.absolute(), report)
    servers = {server_id: table if isinstance(table, dict) else dict(table)}
    check_server_ids(servers, report)
    decoded = _decoder(servers, expander, report).decode(servers[server_id], ServerConfig, ("servers", server_id))
    report.finish()
    return LoadedServer(server=decoded, warnings=tuple(report.warnings), secrets=frozenset(expander.secrets))


def import_servers(data: bytes, path: Path) -> ImportedServers:
    """Translates another MCP host's configuration, the content of `path`, without resolving anything in it.

    Raises:
        ConfigError: It is no JSON, or has no servers.
    """
    report = Report(str(path))
    document = _document(data, path.with_suffix(".json"), report)
    report.finish()
    tables = translate(document, report)
    report.finish()
    return ImportedServers(tables=tables, warnings=tuple(report.warnings))


def _exists(path: Path) -> bool:
    """Whether there is such a file, or none can tell: then reading it says why."""
    try:
        return path.is_file()
    except OSError:
        return True


def _read(path: Path) -> bytes:
    try:
        data = read_source(path, _LARGEST + 1)
    except (OSError, ValueError) as error:
        reason = error.strerror if isinstance(error, OSError) and error.strerror else "the path is impossible"
        raise _unreadable(path, f"cannot be read: {reason}") from None
    if len(data) > _LARGEST:
        raise _unreadable(path, "is larger than 16 MiB, so it is no configuration")
    return data


def _unreadable(path: Path, message: str) -> ConfigError:
    return ConfigError((ConfigProblem(file=str(path), key="", message=message),), {path.absolute(): None})


def _document(data: bytes, path: Path, report: Report) -> Any:
    try:
        text = data.decode("utf-8-sig")
    except UnicodeDecodeError as error:
        line = data.count(b"\n", 0, error.start) + 1
        report.problem((), f"line {line}: is not UTF-8 text")
        return None
    try:
        return parse_json(text) if path.suffix.lower() == ".json" else tomllib.loads(text)
    except json.JSONDecodeError as error:
        report.problem((), f"line {error.lineno}, column {error.colno}: no valid JSON: {error.msg}")
    except tomllib.TOMLDecodeError as error:
        report.problem((), _toml_message(str(error), text))
    except RecursionError:
        report.problem((), "is nested too deeply")
    except ValueError:
        report.problem((), "holds a number or a date that is out of range")
    return None


def _toml_message(message: str, text: str) -> str:
    place = _TOML_PLACE.search(message)
    reason = message[: place.start()] if place else message
    if place and place[1]:
        line, column = place[1], place[2]
    else:
        lines = text.split("\n")
        line, column = str(len(lines)), str(len(lines[-1]) + 1)
    return f"line {line}, column {column}: no valid TOML: {reason}"


def _decoder(servers: Mapping[str, Any], expander: Expander, report: Report) -> Decoder:
    disabled = {name for name, table in servers.items() if isinstance(table, dict) and table.get("enabled") is False}

    def text(raw: str, path: KeyPath) -> str | None:
        # Expressions, names and words for a model are not for references: `${` there is the author's own.
        in_server = path[0] == "servers" and len(path) > 2
        if path[0] == "policy" or (in_server and (path[2] == "tools" or path[1] in disabled)):
            return raw
        value = expander.expand(raw, path)
        if value is not None:
            _mask_written(value, path, expander)
        return value

    return Decoder(report, text, expander.absolute, CHECKS)


def _pair(text: str) -> tuple[str, str]:
    name, _, value = text.partition("=")
    return name, value


def _mask_written(value: str, path: KeyPath, expander: Expander) -> None:
    """Masks secrets that stand in the file itself, by where they stand."""
    if path[0] != "servers" or len(path) < 3:
        return
    key = path[-1]
    if key == "url":
        parts = urlsplit(value) if value.isprintable() and "[" not in value else urlsplit("")
        for name, written in [("password", parts.password or ""), *(_pair(pair) for pair in parts.query.split("&"))]:
            if speaks_of_secret(unquote_plus(name)):
                for part in (written, unquote(written), unquote_plus(written)):  # as it is sent, and as it is meant
                    expander.mask(part)
    elif key == "client_secret" or (path[2] in {"env", "headers"} and isinstance(key, str) and speaks_of_secret(key)):
        expander.mask(value)
        if isinstance(key, str) and key.lower().endswith("authorization"):
            expander.mask(value.partition(" ")[2])
