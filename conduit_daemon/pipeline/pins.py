"""Tool definitions fixed at their first use, so that a server cannot change what was looked at and trusted."""

from __future__ import annotations

import hashlib
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any, Final, final

import msgspec

from conduit_daemon.config.model import ServerConfig
from conduit_daemon.errors import ClientError
from conduit_daemon.hub.toolset import Entry, canonical
from conduit_daemon.model import Dropped, Tool
from conduit_daemon.state_file import StateFile
from conduit_daemon.telemetry.events import EventBus

__all__ = ["Pins"]

_FILE: Final = "pins.json"


class _Pin(msgspec.Struct, frozen=True):
    server: str
    tool: str
    parts: dict[str, str]


_Key = tuple[str, str]


@final
class Pins:
    """The pinned definitions of servers with ``pin = true``, kept in the state directory.

    A definition is the tool's title, description, schemas and annotations. A description that the configuration
    gives (``tools.describe``) takes the server's place and is not part of it.

    Args:
        directory: The state directory; None keeps nothing beyond this process.
        bus: Where ``client.tool_withheld`` events go.
    """

    def __init__(self, directory: Path | None, bus: EventBus) -> None:
        self.file = StateFile(None if directory is None else directory / _FILE, list[_Pin], bus)
        self.servers: frozenset[str] = frozenset()
        self.on_change: Callable[[str], None] = _nobody
        self._bus = bus
        self._described: dict[str, frozenset[str]] = {}
        self._pins: dict[_Key, dict[str, str]] = {}
        self._looked_at: dict[_Key, tuple[str, tuple[str, ...]]] = {}

    def load(self) -> None:
        """Reads what was kept."""
        self._pins = {(pin.server, pin.tool): pin.parts for pin in self.file.load() or ()}

    def configure(self, servers: Mapping[str, ServerConfig]) -> None:
        """Takes over which servers' tools are pinned."""
        self.servers = frozenset(name for name, config in servers.items() if config.pin)
        self._described = {name: frozenset(servers[name].tools.describe) for name in self.servers}
        self._looked_at.clear()

    def check(self, entry: Entry) -> None:
        """Passes a tool whose definition is the one that was pinned, or that nothing was pinned of.

        Raises:
            ClientError: ``denied``: it is another one than that which was pinned.
        """
        changed = self.changed(entry)
        if changed:
            server, tool = entry.server_id, entry.tool.name
            raise ClientError(
                "denied",
                f"Tool {entry.exposed} is withheld: its {_listed(changed)} changed since it was pinned. It can be "
                f"used again once the operator has looked and accepted it: conduit servers accept {server} {tool}",
                server,
                tool,
                data={"rule": "pin"},
            )

    def use(self, entry: Entry) -> None:
        """Pins the definition of a tool that is about to be used for the first time.

        Raises:
            ClientError: As `check` does.
        """
        self.check(entry)
        key = (entry.server_id, entry.tool.name)
        if key not in self._pins and not _says_nothing(entry.tool):
            self._pins[key] = self._parts(entry)
            self._save()

    def changed(self, entry: Entry) -> tuple[str, ...]:
        """What of a pinned tool's definition is not as it was pinned; empty where all is, or nothing is pinned."""
        if entry.server_id not in self.servers:
            return ()
        key = (entry.server_id, entry.tool.name)
        looked_at = self._looked_at.get(key)
        if looked_at is not None and looked_at[0] == entry.digest:
            return looked_at[1]
        pinned = self._pins.get(key)
        if pinned is None:
            return ()
        now = self._parts(entry)
        changed = tuple(part for part in now if part in pinned and now[part] != pinned[part])
        self._looked_at[key] = (entry.digest, changed)
        if changed:
            self._bus.emit(
                "client.tool_withheld",
                level="warning",
                server=entry.server_id,
                tool=entry.tool.name,
                changed=list(changed),
                reason=f"The {_listed(changed)} of a pinned tool changed; it is withheld until it is accepted.",
            )
        return changed

    def withheld(self, entry: Entry) -> Dropped | None:
        """Why a tool is not to be offered; None where it may be."""
        changed = self.changed(entry)
        if not changed:
            return None
        return Dropped(
            entry.exposed,
            ((entry.server_id, entry.tool.name),),
            f"pinned: its {_listed(changed)} changed; conduit servers accept {entry.server_id} {entry.tool.name}",
        )

    def acceptable(self, entry: Entry) -> tuple[str, ...]:
        """What of a pinned tool's definition has changed, and so can be accepted.

        Raises:
            ClientError: ``invalid_params``: its server's tools are not pinned, or it has not changed.
        """
        if entry.server_id not in self.servers:
            raise ClientError("invalid_params", f"The tools of {entry.server_id} are not pinned (pin = true).")
        changed = self.changed(entry)
        if not changed:
            raise ClientError(
                "invalid_params", f"{entry.tool.name} of {entry.server_id} is as it was pinned; nothing is to accept."
            )
        return changed

    def accept(self, entry: Entry, seen: str | None = None) -> tuple[str, ...]:
        """Pins a tool's present definition, and says what of it had changed.

        Args:
            entry: The tool as it is now.
            seen: The digest of the definition that somebody has looked at; None where nobody says.

        Raises:
            ClientError: ``invalid_params``: as of `acceptable`, or it is another definition than the one seen.
        """
        changed = self.acceptable(entry)
        if seen is not None and seen != entry.digest:
            raise ClientError(
                "invalid_params",
                f"{entry.tool.name} of {entry.server_id} has changed again since it was looked at; look once more.",
            )
        key = (entry.server_id, entry.tool.name)
        self._pins[key] = self._parts(entry)
        self._looked_at.pop(key, None)
        self._save()
        self.on_change(entry.server_id)
        return changed

    def _parts(self, entry: Entry) -> dict[str, str]:
        tool = entry.tool
        parts = {part: _digest(getattr(tool, part)) for part in _PARTS}
        if tool.name in self._described.get(entry.server_id, ()):
            del parts["description"]
        return parts

    def _save(self) -> None:
        self.file.save(lambda: [_Pin(server, tool, parts) for (server, tool), parts in self._pins.items()])


_PARTS: Final = tuple(field.name for field in msgspec.structs.fields(Tool) if field.name not in {"name", "extra"})


def _says_nothing(tool: Tool) -> bool:
    """Whether there is nothing that could change: a template makes as many resources as anybody asks for."""
    return tool.name.startswith("resource:") and not tool.title and not tool.description


def _digest(part: Any) -> str:
    return hashlib.sha256(canonical(part)).hexdigest()


def _listed(parts: tuple[str, ...]) -> str:
    words = [part.replace("_", " ") for part in parts]
    return words[0] if len(words) == 1 else f"{', '.join(words[:-1])} and {words[-1]}"


def _nobody(server: str) -> None:
    """Whom a change concerns where nobody was named."""
