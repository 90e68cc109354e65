"""Keys whose capability this version does not have: refused, since ignoring one silently would mislead.

A row leaves this table in the change that brings its capability.
"""

from __future__ import annotations

from typing import Final

from conduit_daemon.config.model import Config

__all__ = ["UNSUPPORTED"]

UNSUPPORTED: Final[dict[tuple[type, str], str]] = {
    (Config, "watch"): "reloading when the file is saved",
}
"""By Struct and field: what is missing, as the subject of a sentence. Only a value other than the default counts."""
