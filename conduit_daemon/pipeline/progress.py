"""Progress that a waiting call makes up, and the server's own after it, so that a caller sees it only grow."""

from __future__ import annotations

from functools import partial
from typing import Any, Final

import msgspec

from conduit_daemon.clients.dispatcher import OnProgress

__all__ = ["EVERY", "resumed", "waiting"]

EVERY: Final = 10.0
"""Seconds between two of them: hosts give up after a silence of a minute or so."""


def waiting(waited: float, total: float) -> msgspec.Raw:
    """The params of the progress of a call that has waited `waited` seconds for a person's decision."""
    told = {"progress": round(waited, 3), "total": total, "message": "Waiting for a person's approval."}
    return msgspec.Raw(msgspec.json.encode(told))


def resumed(on_progress: OnProgress, waited: float) -> OnProgress:
    """`on_progress` for the time after the wait: what the server tells is added to what was told already."""
    return partial(_shifted, on_progress, waited)


def _shifted(on_progress: OnProgress, by: float, raw: msgspec.Raw) -> None:
    try:
        told = msgspec.json.decode(raw, type=dict[str, Any])
    except (msgspec.MsgspecError, UnicodeDecodeError, RecursionError):
        return  # what a server garbles is not worth more than silence
    for key in ("progress", "total"):
        if isinstance(told.get(key), (int, float)):
            told[key] += by
    on_progress(msgspec.Raw(msgspec.json.encode(told)))
