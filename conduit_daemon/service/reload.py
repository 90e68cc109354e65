"""Reading the configuration again: on SIGHUP and by command. A file that cannot be used changes nothing."""

from __future__ import annotations

import os
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import final

import msgspec
import trio

from conduit_daemon.config import Diff, Loaded, load
from conduit_daemon.errors import ClientError, ConfigError, ConfigProblem, DaemonError
from conduit_daemon.service.notify import Notifier
from conduit_daemon.telemetry.events import EventBus

__all__ = ["Reloader"]


@final
class Reloader:
    """Reads the file that the daemon was started with, and applies it whole or not at all.

    Args:
        path: The file; None where there was none, and the default places are looked through again.
        environ: Where default places and references are looked up.
        apply: Takes a usable configuration over and returns what changed.
        bus: Where ``config.reloaded`` and ``config.rejected`` go.
        notifier: Told of the begin and the end.

    Attributes:
        rejected: What is wrong with the file as it was last read; empty where it is in force.
    """

    def __init__(
        self,
        path: Path | None,
        environ: Mapping[str, str],
        apply: Callable[[Loaded], Diff],
        bus: EventBus,
        notifier: Notifier,
    ) -> None:
        self.rejected: tuple[ConfigProblem, ...] = ()
        self._path = path
        self._environ = environ
        self._apply = apply
        self._bus = bus
        self._notifier = notifier
        self._one_at_a_time = trio.Lock()
        self._asked = trio.Event()

    def ask(self) -> None:
        """Has `run` read the file; what comes of it is an event."""
        self._asked.set()

    async def run(self) -> None:
        """Reads the file whenever it was asked to, until cancelled."""
        while True:
            await self._asked.wait()
            self._asked = trio.Event()
            try:
                await self.reload()
            except ClientError:
                continue  # it was said by an event

    async def reload(self) -> Diff:
        """Reads the file and takes it over.

        Returns:
            Which servers were added, removed, changed and left alone.

        Raises:
            ClientError: ``invalid_config``, with every mistake in ``data["problems"]``; nothing has changed.
        """
        async with self._one_at_a_time:
            with self._notifier.reload():
                return await self._reload()

    async def _reload(self) -> Diff:
        try:
            loaded = await trio.to_thread.run_sync(load, self._path, self._environ)
            changed = self._apply(loaded)
        except ConfigError as error:
            raise self._reject(error.problems) from error
        except DaemonError as error:
            raise self._reject(
                (ConfigProblem(file=os.fspath(self._path or ""), key="", message=str(error)),)
            ) from error
        self.rejected = ()
        for warning in loaded.warnings:
            self._bus.emit("config.warning", level="warning", reason=warning)
        self._bus.emit("config.reloaded", **msgspec.to_builtins(changed))
        return changed

    def _reject(self, problems: tuple[ConfigProblem, ...]) -> ClientError:
        self.rejected = problems
        said = "; ".join(str(problem) for problem in problems)
        self._bus.emit("config.rejected", level="error", reason=f"The old configuration stays in force: {said}")
        return ClientError(
            "invalid_config",
            f"The configuration cannot be used and the old one stays in force: {said}",
            data={"problems": [msgspec.to_builtins(problem) for problem in problems]},
        )
