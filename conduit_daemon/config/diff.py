"""What a reload changes: which servers are new, gone, different or the same."""

from __future__ import annotations

import msgspec

from conduit_daemon.config.model import Config

__all__ = ["Diff", "diff"]


class Diff(msgspec.Struct, frozen=True):
    """Server ids by what becomes of them, each list in the order of its file.

    Attributes:
        added: In the new configuration alone.
        removed: In the old configuration alone.
        changed: In both, with another table: these restart.
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
