"""`conduit import`: the servers that another MCP host has, as tables of one's own configuration."""

from __future__ import annotations

import os
import shlex
import sys
import tempfile
import tomllib
from pathlib import Path
from typing import TYPE_CHECKING

import msgspec

from conduit_daemon.cli import output
from conduit_daemon.cli.exits import DONE, FAILED, UsageError

if TYPE_CHECKING:
    from conduit_daemon.cli.hosts import Place
    from conduit_daemon.cli.imported import Imported

__all__ = ["import_servers"]


def import_servers(
    source: str | None = None,
    *,
    into: Path | None = None,
    secrets: Path | None = None,
    json: bool = False,
) -> int:
    """Prints the servers of another MCP host as TOML, their secrets replaced by ${env:...}.

    What was renamed or left out, and which variables must be set, is said on stderr.

    Args:
        source: claude-desktop, claude-code, cursor, vscode, or a file of theirs; every host's without.
        into: Add the servers to this configuration; what it has already stays as it is.
        secrets: Write the secrets to this new file, as NAME="value" lines that shells and systemd read.
        json: Print what was found as JSON.
    """
    from conduit_daemon.cli.imported import gather  # noqa: PLC0415 - loaded by those alone who import
    from conduit_daemon.errors import ConfigError  # noqa: PLC0415

    if secrets is not None and secrets.exists():
        raise UsageError(f"{secrets} exists; it is not overwritten. Name a new file.")
    folder = Path.cwd()
    text = "" if into is None else _configuration(into)
    existing = _servers(text, into)
    try:
        found, values = gather(_places(source, folder), folder, os.environ, existing, strict=source is not None)
    except ConfigError as error:
        output.print_error("; ".join(str(problem) for problem in error.problems))
        return FAILED
    if not found.servers and not found.kept:
        output.print_error(_nothing(source, found))
        return FAILED
    if into is not None and found.servers:
        _add(into, text, found.toml)
    if secrets is not None and values:
        _write_secrets(secrets, values)
    if json:
        output.print_json({**msgspec.to_builtins(found), "written": None if into is None else str(into)})
        return DONE
    if into is None:
        sys.stdout.write(found.toml)
    else:
        output.print_text(f"{into}: added {', '.join(found.servers) or 'nothing'}.")
    _tell(found, secrets if values else None, into)
    return DONE


def _tell(found: Imported, secrets: Path | None, into: Path | None) -> None:
    for name in found.kept:
        output.print_error(f"{name}: the configuration has it already; it is left as it is")
    for warning in found.warnings:
        output.print_error(warning)
    if secrets is not None:
        named = [] if into is None or _is_default(into) else ["--config", str(into.absolute())]
        run = shlex.join(["conduit", "run", *named])
        setting = f"set -a; . {shlex.quote(str(secrets.absolute()))}; set +a"
        output.print_error(f"the secrets are in {secrets}; to start with them: {setting}; {run}")
    missing = [each for each in found.variables if each.state != "set" and not (secrets and each.found_at)]
    if missing:
        output.print_error("to be set in the environment in which the daemon is started:")
    for each in missing:
        what = "is set to another value than in" if each.state == "different" else "its value stands in"
        where = f"; {what} {'; '.join(each.found_at)}" if each.found_at else ""
        output.print_error(f"  {each.name} (for {', '.join(each.servers)}{where})")


def _is_default(path: Path) -> bool:
    """Whether `conduit run` takes this configuration without being told."""
    from conduit_daemon.config import config_candidates  # noqa: PLC0415

    if named := os.environ.get("CONDUIT_CONFIG"):
        return path.absolute() == Path(named).absolute()
    first = next((place for place in config_candidates(os.environ) if place.is_file()), None)
    return first is not None and path.absolute() == first


def _places(source: str | None, folder: Path) -> list[Place]:
    from conduit_daemon.cli.hosts import HOSTS, Place, known_places, places  # noqa: PLC0415

    if source is None:
        return known_places(os.environ, folder)
    host = next((host for host in HOSTS if host == source), None)
    if host is None:
        path = Path(source).expanduser().absolute()
        if not path.is_file():
            raise UsageError(f"{source!r} is neither a file nor one of {', '.join(HOSTS)}.")
        known = (place for place in known_places(os.environ, folder) if place.path == path)
        return [msgspec.structs.replace(next(known, Place("a file", path)), named=True)]
    candidates = places(host, os.environ, folder, mac=sys.platform == "darwin")
    found = [place for place in candidates if place.path.is_file()]
    if not found:
        looked = ", ".join(str(place.path) for place in candidates)
        raise UsageError(f"{HOSTS[host]} has no servers here; looked at {looked}. Name the file if it is elsewhere.")
    return found


def _nothing(source: str | None, found: Imported) -> str:
    why = "; ".join(found.warnings)
    where = "in it" if source else "in the files of Claude Desktop, Claude Code, Cursor and VS Code"
    return f"There are no servers {where}{f' ({why})' if why else ''}."


def _configuration(path: Path) -> str:
    """The text of a configuration that servers are added to; empty where there is none yet."""
    try:
        return path.read_text("utf-8")
    except FileNotFoundError:
        return ""
    except UnicodeDecodeError as error:
        raise UsageError(f"{path} is not UTF-8 text, so it is no configuration.") from error


def _servers(text: str, path: Path | None) -> list[str]:
    try:
        servers = tomllib.loads(text).get("servers", {})
    except tomllib.TOMLDecodeError as error:
        raise UsageError(f"{path} is no valid TOML: {error}. Nothing was added.") from error
    if not isinstance(servers, dict):
        raise UsageError(f"{path}: servers is no table. Nothing was added.")
    return list(servers)


def _add(path: Path, text: str, toml: str) -> None:
    """Adds tables at the end of a file, all or nothing, in a file of the same mode."""
    whole = f"{text.rstrip()}\n\n{toml}" if text.strip() else toml
    try:
        after = tomllib.loads(whole)
    except tomllib.TOMLDecodeError as error:
        raise UsageError(f"{path}: tables cannot be added at its end ({error}). Nothing was added.") from error
    before = {"servers": {}} | tomllib.loads(text)
    if after | {"servers": {name: after["servers"].get(name) for name in before["servers"]}} != before:
        raise UsageError(f"{path}: tables cannot be added at its end. Nothing was added.")
    target = path.resolve()
    target.parent.mkdir(parents=True, exist_ok=True)
    mode = target.stat().st_mode & 0o777 if target.exists() else 0o600
    number, name = tempfile.mkstemp(dir=target.parent, prefix=f".{target.name}-")
    try:
        with open(number, "w", encoding="utf-8") as file:
            file.write(whole)
            file.flush()
            os.fsync(number)
            os.fchmod(number, mode)
        Path(name).replace(target)
    except BaseException:
        Path(name).unlink()
        raise


def _write_secrets(path: Path, values: dict[str, str]) -> None:
    lines = []
    for name, value in values.items():
        quoted = "".join(f"\\{char}" if char in '"\\$`' else char for char in value)
        lines.append(f'{name}="{quoted}"\n')
    with open(os.open(path, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o600), "w", encoding="utf-8") as file:
        file.writelines(lines)
