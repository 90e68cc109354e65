"""Where other MCP hosts keep their servers, and how those are taken out of their files.

The places are those that the hosts document for Linux and macOS:

* Claude Desktop: https://modelcontextprotocol.io/quickstart/user
* Claude Code: https://docs.claude.com/en/docs/claude-code/mcp (``~/.claude.json``, by project too; ``.mcp.json``)
* Cursor: https://docs.cursor.com/context/model-context-protocol
* VS Code: https://code.visualstudio.com/docs/copilot/chat/mcp-servers
"""

from __future__ import annotations

import json
import re
import sys
from collections.abc import Mapping
from pathlib import Path
from typing import Any, Final, Literal

import msgspec

from conduit_daemon.config import ImportedServers, import_servers
from conduit_daemon.config.foreign import parse_json
from conduit_daemon.config.places import home
from conduit_daemon.errors import ConfigError, ConfigProblem

__all__ = ["HOSTS", "Host", "Place", "known_places", "places", "read"]

Host = Literal["claude-desktop", "claude-code", "cursor", "vscode"]

HOSTS: Final[dict[Host, str]] = {
    "claude-desktop": "Claude Desktop",
    "claude-code": "Claude Code",
    "cursor": "Cursor",
    "vscode": "VS Code",
}
"""The hosts whose places are known, with their names for people."""

_SERVERS: Final = ("mcpServers", "servers", "mcp_servers")
_EDITIONS: Final = ("Code", "Code - Insiders")
_LARGEST: Final = 16 * 1024 * 1024
_EDITORS_OWN: Final = re.compile(r"\$\{(workspaceFolder|workspaceFolderBasename|userHome|pathSeparator|/)\}")


class Place(msgspec.Struct, frozen=True):
    """A file that may hold servers.

    Attributes:
        host: Whose file it is, for people.
        path: Where it lies.
        project: The folder that its servers are started in; None where the file is the user's.
        named: Whether a person named this very file, so that it should have servers.
    """

    host: str
    path: Path
    project: Path | None = None
    named: bool = False


def known_places(environ: Mapping[str, str], folder: Path) -> list[Place]:
    """The files that exist, of every host on this system."""
    mac = sys.platform == "darwin"
    found = [place for host in HOSTS for place in places(host, environ, folder, mac=mac)]
    return [place for place in found if place.path.is_file()]


def places(host: Host, environ: Mapping[str, str], folder: Path, *, mac: bool) -> list[Place]:
    """The files of one host, whether they exist or not; the user's first.

    Args:
        host: The host.
        environ: For ``HOME``, ``XDG_CONFIG_HOME`` and ``CLAUDE_CONFIG_DIR``.
        folder: The folder whose project's files count too.
        mac: Whether this is macOS.
    """
    at_home = home(environ)
    configured = environ.get("XDG_CONFIG_HOME", "")
    settings = Path(configured) if configured.startswith("/") else at_home / ".config"
    if mac:
        settings = at_home / "Library/Application Support"
    match host:
        case "claude-desktop":
            users, projects = [settings / "Claude/claude_desktop_config.json"], []
        case "claude-code":
            users = [Path(environ.get("CLAUDE_CONFIG_DIR") or at_home) / ".claude.json"]
            projects = [folder / ".mcp.json"]
        case "cursor":
            users, projects = [at_home / ".cursor/mcp.json"], [folder / ".cursor/mcp.json"]
        case "vscode":
            users = [
                settings / edition / "User" / name for edition in _EDITIONS for name in ("mcp.json", "settings.json")
            ]
            projects = [folder / ".vscode/mcp.json", folder / ".vscode/settings.json"]
    name = HOSTS[host]
    found = [Place(name, path) for path in users]
    return found + [Place(name, path, folder) for path in projects if path not in users]


def read(place: Place, folder: Path, environ: Mapping[str, str], *, optional: bool) -> ImportedServers:
    """The servers of a file, as tables of our own, with nothing in them resolved.

    Args:
        place: The file.
        folder: The project whose servers count where a file holds several (Claude Code's).
        environ: For the home directory.
        optional: Whether a file without any servers is in order: hosts keep other things in theirs too.

    Raises:
        ConfigError: It cannot be read, is no JSON or has no servers.
    """
    picked = _picked(_document(place.path), folder)
    if optional and not any(picked.values()):
        return ImportedServers(tables={})
    known = {"workspaceFolder": str(place.project or folder), "userHome": str(home(environ)), "pathSeparator": "/"}
    known |= {"/": "/", "workspaceFolderBasename": (place.project or folder).name}
    data = msgspec.json.encode(_with(picked, known))
    found = import_servers(data, place.path)
    if place.project is not None:
        for table in found.tables.values():
            if isinstance(table, dict) and "command" in table:
                table.setdefault("cwd", str(place.project))
    return found


def _document(path: Path) -> Any:
    try:
        with path.open("rb") as file:
            data = file.read(_LARGEST + 1)
        if len(data) <= _LARGEST:
            return parse_json(data.decode("utf-8-sig"))
        message = "is larger than 16 MiB, so it holds no servers"
    except OSError as error:
        message = f"cannot be read: {error.strerror or error}"
    except UnicodeDecodeError:
        message = "is not UTF-8 text"
    except json.JSONDecodeError as error:
        message = f"line {error.lineno}, column {error.colno}: no valid JSON: {error.msg}"
    except (ValueError, RecursionError):
        message = "is nested too deeply, or holds a number that is out of range"
    raise ConfigError((ConfigProblem(file=str(path), key="", message=message),))


def _picked(document: Any, folder: Path) -> dict[str, Any]:
    """What of a host's file is about servers: the rest is the host's own and no cause for warnings."""
    if not isinstance(document, dict):
        return {"mcpServers": document}  # refused with a sentence where it is translated
    editor = document.get("mcp")
    holders = [document, editor] if isinstance(editor, dict) else [document]
    servers = next((holder[key] for holder in holders for key in _SERVERS if key in holder), None)
    projects = document.get("projects")
    project = projects.get(str(folder)) if isinstance(projects, dict) else None
    local = project.get("mcpServers") if isinstance(project, dict) else None
    if isinstance(local, dict) and isinstance(servers, dict | None):
        servers = {**(servers or {}), **local}
    return {"mcpServers": servers}


def _with(value: Any, known: Mapping[str, str]) -> Any:
    """`value` with the variables resolved that editors alone know."""
    if isinstance(value, str):
        return _EDITORS_OWN.sub(lambda match: known[match[1]], value)
    if isinstance(value, list):
        return [_with(item, known) for item in value]
    if isinstance(value, dict):
        return {key: _with(item, known) for key, item in value.items()}
    return value
