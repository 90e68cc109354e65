"""How the configuration in force stands to its file, as the daemon's status shows it."""

from __future__ import annotations

import msgspec

from conduit_daemon.errors import ConfigProblem

__all__ = ["ConfigStanding", "Rejected"]


class Rejected(msgspec.Struct, frozen=True, kw_only=True):
    """A file that was read and cannot be used, so that the configuration from before is in force.

    Attributes:
        time: When it was read, in unix seconds.
        file: Which; empty where there is none.
        problems: Every mistake found in it. No value of the file is among the words, so no secret either.
    """

    time: float
    file: str
    problems: tuple[ConfigProblem, ...]


class ConfigStanding(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True):
    """How the configuration in force stands to its file.

    Attributes:
        file: Where it comes from; None where there was no file.
        loaded: When it was taken over, in unix seconds.
        watch: Whether a saved change is a reload.
        rejected: What came of a later reading, where that cannot be used.
        needs_restart: Keys whose value in force is not yet the file's, for it takes a restart.
    """

    file: str | None
    loaded: float
    watch: bool
    rejected: Rejected | None = None
    needs_restart: tuple[str, ...] = ()
