"""A server's last listing, kept across restarts of the daemon, so that its tools have names before it is up."""

from __future__ import annotations

import hashlib
from pathlib import Path
from typing import Final, final

import msgspec

from conduit_daemon.clients.listing import Listing
from conduit_daemon.clients.offerings import Offerings
from conduit_daemon.config.model import ServerConfig
from conduit_daemon.state_file import StateFile
from conduit_daemon.telemetry.events import EventBus

__all__ = ["Kept", "KeptListing"]

_FOLDER: Final = "listings"


class Kept(msgspec.Struct, frozen=True):
    """What a server last said it has, as it is kept across restarts of the daemon.

    Attributes:
        origin: A digest of what makes the server the one that it is.
        listing: Its tools.
        offerings: What it offers beside tools, where it has told.
    """

    origin: str
    listing: Listing
    offerings: Offerings | None = None


@final
class KeptListing:
    """The file of one server's listing.

    What another program or another address listed under the same id does not count.

    Args:
        directory: The state directory; None keeps nothing beyond this process.
        server: The server's id.
        config: Its configuration.
        bus: Where it is said that a file is damaged or cannot be written.
    """

    def __init__(self, directory: Path | None, server: str, config: ServerConfig, bus: EventBus) -> None:
        path = None if directory is None else directory / _FOLDER / f"{server}.json"
        self._file = StateFile(path, Kept, bus)
        self._origin = _origin(config)
        self._newest: Kept | None = None

    def load(self) -> Kept | None:
        """What was kept; None where nothing of use was."""
        kept = self._file.load()
        if kept is None or kept.origin != self._origin:
            return None
        self._newest = kept
        return kept

    def save(self, listing: Listing, offerings: Offerings | None) -> None:
        """Has these kept, if they are others; soon, and in the background."""
        kept = Kept(self._origin, listing, offerings)
        if kept != self._newest:
            self._newest = kept
            self._file.save(lambda: kept)

    def save_again(self) -> None:
        """Has what is kept written once more, for its file may be gone."""
        self._file.save_again()

    async def run(self) -> None:
        """Writes what is to be kept, until cancelled."""
        await self._file.run()


def _origin(config: ServerConfig) -> str:
    """A digest of what makes a server the one that it is; nothing secret goes into it."""
    parts = (config.command, config.args, config.cwd and str(config.cwd), config.url, config.transport)
    return hashlib.sha256(msgspec.json.encode(parts)).hexdigest()
