"""The signals that a daemon answers to."""

from __future__ import annotations

import signal
from collections.abc import Callable
from typing import Any

import trio

__all__ = ["watch_signals"]


async def watch_signals(
    stop: Callable[[str], None], reload: Callable[[], Any], *, task_status: Any = trio.TASK_STATUS_IGNORED
) -> None:
    """Calls `stop` with the signal's name for TERM and INT, and `reload` for HUP, until cancelled.

    Args:
        stop: May be called again; the second time it means at once.
        reload: Asks for the configuration to be read again.
        task_status: Told once the signals are caught.
    """
    with trio.open_signal_receiver(signal.SIGTERM, signal.SIGINT, signal.SIGHUP) as received:
        task_status.started()
        async for number in received:
            if number == signal.SIGHUP:
                reload()
            else:
                stop(signal.Signals(number).name)
