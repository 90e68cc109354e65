"""Reading the configuration again: on SIGHUP, by command, and where its file is watched.

A file that cannot be used changes nothing; what is wrong with it is said, and stays in the status until it is right.
"""

from __future__ import annotations

import os
import time
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any, Final, final

import msgspec
import trio

from conduit_daemon.config import ConfigStanding, Diff, Loaded, Rejected, load, needs_restart, without_effect
from conduit_daemon.config.sources import digest
from conduit_daemon.errors import ClientError, ConfigError, ConfigProblem, DaemonError
from conduit_daemon.service.notify import Notifier
from conduit_daemon.telemetry.events import EventBus

__all__ = ["Reloader"]

_NOTHING: Final = digest(b"")
_LONGEST_READ: Final = 120.0


@final
class Reloader:
    """Reads the file that the daemon was started with, and applies it whole or not at all.

    Args:
        loaded: What the daemon was started with. Where there was no file, the default places are looked through again.
        environ: Where default places and references are looked up.
        apply: Takes a usable configuration over and returns what changed.
        passed: Where a service manager made sockets, by their names.
        clean: Masks what is secret in a text.
        bus: Where ``config.reloaded`` and ``config.rejected`` go.
        notifier: Told of the begin and the end.

    Attributes:
        rejected: The file as it was last read, where it cannot be used; None where it is in force.
        sources: The files that were last read, with a digest of each; None of one that could not be read.
    """

    def __init__(
        self,
        loaded: Loaded,
        environ: Mapping[str, str],
        *,
        apply: Callable[[Loaded], Diff],
        passed: Mapping[str, Path],
        clean: Callable[[str], str],
        bus: EventBus,
        notifier: Notifier,
    ) -> None:
        self.rejected: Rejected | None = None
        self.sources: Mapping[Path, str | None] = loaded.sources
        self._path = loaded.path
        self._started = self._in_force = loaded
        self._since = time.time()
        self._environ = environ
        self._apply = apply
        self._passed = passed
        self._clean = clean
        self._bus = bus
        self._notifier = notifier
        self._one_at_a_time = trio.Lock()
        self._asked = trio.Event()
        self._closed = False

    def ask(self) -> None:
        """Has `run` read the file; what comes of it is an event."""
        self._asked.set()

    def close(self) -> None:
        """Takes nothing over any more: the daemon stops."""
        self._closed = True

    def standing(self) -> ConfigStanding:
        """How the configuration in force stands to its file."""
        loaded = self._in_force
        return ConfigStanding(
            file=None if loaded.path is None else os.fspath(loaded.path),
            loaded=self._since,
            watch=loaded.config.watch,
            rejected=self.rejected,
            needs_restart=self._unapplied(),
        )

    def warn(self) -> None:
        """Says what of the configuration in force is probably not what was meant."""
        loaded = self._in_force
        for warning in (*loaded.warnings, *without_effect(loaded.config, self._passed)):
            self._bus.emit("config.warning", level="warning", reason=warning)

    async def run(self) -> None:
        """Reads the file whenever it was asked to, until cancelled."""
        while True:
            await self._asked.wait()
            self._asked = trio.Event()
            try:
                await self.reload()
            except ClientError:
                continue  # it was said by an event

    async def reload(self, *, asked: bool = True) -> dict[str, Any]:
        """Reads the file and takes it over.

        Args:
            asked: Whether somebody asked for it; else a file without content is rejected, as a full disk leaves one
                behind.

        Returns:
            Which servers were ``added``, ``removed``, ``changed`` and are ``unchanged``; and where there are any,
            as ``needs_restart``, the keys whose value does not count before the daemon is restarted.

        Raises:
            ClientError: ``invalid_config``, with every mistake in ``data["problems"]``, or ``shutting_down``; nothing
                has changed.
        """
        async with self._one_at_a_time:
            self._refuse_if_closed()
            with self._notifier.reload():
                try:
                    loaded = await self._read()
                except ConfigError as error:
                    self.sources = error.sources
                    raise self._reject(error.problems) from error
                if not asked and _is_empty(loaded):
                    self.sources = loaded.sources
                    message = "is empty; if that is meant, conduit reload takes it over"
                    raise self._reject((ConfigProblem(file=os.fspath(loaded.path or ""), key="", message=message),))
                return self._take(loaded)

    async def reload_if_whole(self) -> bool:
        """As `reload`, where the content of a file has changed and can be used; else does and says nothing.

        Returns:
            Whether all is done: False where the files as they are now have to be rejected, or the configuration is
            empty. Both may be so because somebody is still writing.
        """
        async with self._one_at_a_time:
            self._refuse_if_closed()
            try:
                loaded = await self._read()
            except ConfigError as error:
                return error.sources == self.sources
            if loaded.sources == self.sources and self.rejected is None:
                return True
            if _is_empty(loaded):
                return False
            with self._notifier.reload():
                try:
                    self._take(loaded)
                except ClientError:
                    return True  # it was said by an event
            return True

    def _unapplied(self) -> tuple[str, ...]:
        return needs_restart(self._started.config, self._in_force.config, self._environ, self._passed)

    async def _read(self) -> Loaded:
        with trio.move_on_after(_LONGEST_READ):
            return await trio.to_thread.run_sync(load, self._path, self._environ, abandon_on_cancel=True)
        message = f"could not be read within {_LONGEST_READ:g} s; is the file system that it lies on there?"
        raise ConfigError((ConfigProblem(file=os.fspath(self._path or ""), key="", message=message),), self.sources)

    def _refuse_if_closed(self) -> None:
        if self._closed:
            text = "The daemon is stopping and reads its configuration no more."
            raise ClientError("shutting_down", text, retry_after=1.0)

    def _take(self, loaded: Loaded) -> dict[str, Any]:
        self._refuse_if_closed()
        self.sources = loaded.sources
        try:
            changed = self._apply(loaded)
        except DaemonError as error:
            problem = ConfigProblem(file=os.fspath(loaded.path or ""), key="", message=str(error))
            raise self._reject((problem,)) from error
        self.rejected = None
        self._in_force, self._since = loaded, time.time()
        self.warn()
        said: dict[str, Any] = msgspec.to_builtins(changed)
        if later := self._unapplied():
            said["needs_restart"] = list(later)
            self._bus.emit("config.warning", level="warning", reason=f"Needs a restart: {', '.join(later)}.")
        self._bus.emit("config.reloaded", **said)
        return said

    def _reject(self, problems: tuple[ConfigProblem, ...]) -> ClientError:
        problems = tuple(msgspec.structs.replace(each, message=self._clean(each.message)) for each in problems)
        file = os.fspath(self._path or problems[0].file)
        self.rejected = Rejected(time=time.time(), file=file, problems=problems)
        said = "; ".join(str(problem) for problem in problems)
        self._bus.emit("config.rejected", level="error", reason=f"The old configuration stays in force: {said}")
        return ClientError(
            "invalid_config",
            f"The configuration cannot be used and the old one stays in force: {said}",
            data={"problems": [msgspec.to_builtins(problem) for problem in problems]},
        )


def _is_empty(loaded: Loaded) -> bool:
    return loaded.path is not None and loaded.sources[loaded.path] == _NOTHING
