"""A saved change of the configuration is a reload, where ``watch = true``.

The files are looked at once a second rather than followed by inotify: that works on every file system and on macOS,
sees through symbolic links whichever link of the chain is changed (as Kubernetes and NixOS change them), survives that
a file or its folder is removed and made again, and costs an idle daemon next to nothing. Only the files themselves
count, so a backup beside one is never noticed.
"""

from __future__ import annotations

import threading
from collections.abc import Mapping
from contextlib import suppress
from pathlib import Path
from typing import Final, final

import trio

from conduit_daemon.config import Config
from conduit_daemon.config.sources import Stamp, stamp
from conduit_daemon.errors import ClientError
from conduit_daemon.published import Published
from conduit_daemon.service.reload import Reloader

__all__ = ["Watch"]

_LOOK: Final = 1.0
_REST: Final = 0.4  # seconds without a change after which a file is taken for saved
_MOST_RESTS: Final = 10
_PATIENCE: Final = 2.0  # seconds more for one that is broken, empty or gone: somebody may be writing it

Stamps = dict[Path, Stamp]


@final
class Watch:
    """Watches the files that the configuration was made of: its own, and those that it refers to.

    A change is read once the files have come to rest. What cannot be used then, or is empty, has two seconds more to
    become whole before it is rejected as by any other reload.

    Args:
        config: The configuration in force, which says whether to watch.
        reloader: Knows the files, and reads them.
    """

    def __init__(self, config: Published[Config], reloader: Reloader) -> None:
        self._config = config
        self._reloader = reloader
        self._seen: Stamps = {}

    async def run(self) -> None:
        """Watches, until cancelled."""
        while True:
            changed = self._config.next_change()
            if not self._config.current.watch:
                await changed.wait()
                continue
            try:
                await self._wait_for_change()
                if self._config.current.watch:
                    await self._read()
            except ClientError:
                await trio.sleep_forever()  # the daemon is stopping and will end this task

    async def _wait_for_change(self) -> None:
        """Waits until the files look otherwise than they last did, or are not to be watched any more.

        One thread looks all the while, and not the event loop: it costs a fraction of waking that up each time, and a
        look at a file of a server that is gone, which may take minutes, stops nobody.
        """
        ended = threading.Event()

        def look() -> None:
            while self._config.current.watch and _stamps(self._reloader.sources) == self._seen:
                if ended.wait(_LOOK):
                    return

        try:
            await trio.to_thread.run_sync(look, abandon_on_cancel=True, limiter=trio.CapacityLimiter(1))
        finally:
            ended.set()

    async def _read(self) -> None:
        now = self._seen = await self._at_rest()
        if await self._reloader.reload_if_whole():
            return
        until = trio.current_time() + _PATIENCE
        while trio.current_time() < until:
            await trio.sleep(_REST)
            if await self._stamps() != now:
                return  # it is being written: the next look reads it
        with suppress(ClientError):  # it was said by an event
            await self._reloader.reload(asked=False)

    async def _at_rest(self) -> Stamps:
        now = await self._stamps()
        for _ in range(_MOST_RESTS):
            await trio.sleep(_REST)
            before, now = now, await self._stamps()
            if now == before:
                break
        return now

    async def _stamps(self) -> Stamps:
        return await trio.to_thread.run_sync(_stamps, self._reloader.sources, abandon_on_cancel=True)


def _stamps(files: Mapping[Path, object]) -> Stamps:
    return {file: stamp(file) for file in files}
