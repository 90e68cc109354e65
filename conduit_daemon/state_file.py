"""What must survive a restart: one small file, read once, written whole and in the background."""

from __future__ import annotations

import os
import time
from collections.abc import Callable
from contextlib import suppress
from pathlib import Path
from typing import Any, Final, Generic, TypeVar, final

import msgspec
import trio

from conduit_daemon.telemetry.events import EventBus

__all__ = ["StateFile"]

T = TypeVar("T")

_RETRY: Final = 5.0
_LAST_WRITE: Final = 2.0


@final
class StateFile(Generic[T]):
    """A file that holds one value as JSON.

    It is replaced by a rename, so that whatever ends the daemon leaves the old or the new one. Where it cannot be
    written the value stays in memory, an event says so, and it is tried again.

    Args:
        path: Where it is; None keeps nothing.
        kind: The value's type.
        bus: Where ``state.unsaved`` and ``state.damaged`` go.

    Attributes:
        name: The file's name.
        problem: Why it could not be written the last time; None where it could.
    """

    def __init__(self, path: Path | None, kind: type[T], bus: EventBus) -> None:
        self._path = path
        self._decoder = msgspec.json.Decoder(kind)
        self._bus = bus
        self._make: Callable[[], T] | None = None
        self._wanted = 0
        self._written = 0
        self._changed = trio.Event()
        self._settled = trio.Event()
        self._failing = False
        self.name = "" if path is None else path.name
        self.problem: str | None = None

    def load(self) -> T | None:
        """The value kept; None where there is none. A damaged file is moved aside and said to be."""
        if self._path is None:
            return None
        try:
            value = self._decoder.decode(self._path.read_bytes())
        except FileNotFoundError:
            return None
        except (OSError, msgspec.MsgspecError, UnicodeDecodeError, RecursionError) as error:
            aside = self._path.with_name(f"{self._path.name}.damaged-{time.strftime('%Y%m%dT%H%M%S', time.gmtime())}")
            with suppress(OSError):
                self._path.rename(aside)
            self._bus.emit("state.damaged", level="error", file=self._path.name, reason=str(error), moved_to=aside.name)
            return None
        self._make = lambda: value
        return value

    def save(self, make: Callable[[], T]) -> None:
        """Has the value that `make` returns written soon; `make` is called in the event loop."""
        if self._path is None:
            return
        self._make = make
        self._wanted += 1
        self._changed.set()

    def save_again(self) -> None:
        """Has the value that was last loaded or saved written once more, for its file may be gone."""
        if self._make is not None:
            self.save(self._make)

    async def saved(self, patience: float = 2.0) -> bool:
        """Waits until all that is to be saved is, `patience` seconds at most; tells whether it is."""
        wanted = self._wanted
        with trio.move_on_after(patience):
            while self._written < wanted and not self._failing:
                await self._settled.wait()
        return self._written >= wanted

    async def run(self) -> None:
        """Writes what is to be saved, until cancelled; then what is left."""
        try:
            while True:
                if self._written == self._wanted:
                    self._changed = trio.Event()
                    await self._changed.wait()
                if self._failing:
                    await trio.sleep(_RETRY)
                await self._write()
        finally:
            with trio.move_on_after(_LAST_WRITE, shield=True):
                await self._write(abandon=True)

    async def _write(self, *, abandon: bool = False) -> None:
        wanted, make, path = self._wanted, self._make, self._path
        if make is None or path is None or wanted == self._written:
            return
        try:
            data = _encoded(make())
            await trio.to_thread.run_sync(_replace, path, data, abandon_on_cancel=abandon)
        except (OSError, ValueError) as error:
            self.problem = (error.strerror if isinstance(error, OSError) else None) or str(error)
            if not self._failing:
                self._failing = True
                self._bus.emit("state.unsaved", level="error", file=path.name, reason=self.problem)
        else:
            self._failing = False
            self.problem = None
            self._written = wanted
        settled, self._settled = self._settled, trio.Event()
        settled.set()


def _encoded(value: Any) -> bytes:
    """`value` as JSON; of a list, the items that have a JSON form: a server's odd name must not cost the others."""
    try:
        return msgspec.json.encode(value)
    except UnicodeEncodeError:
        if not isinstance(value, list):
            raise
    items = []
    for item in value:
        with suppress(UnicodeEncodeError):
            items.append(msgspec.json.encode(item))
    return b"[" + b",".join(items) + b"]"


def _replace(path: Path, data: bytes) -> None:
    path.parent.mkdir(mode=0o700, parents=True, exist_ok=True)
    beside = path.with_name(f".{path.name}.new")
    fd = os.open(beside, os.O_WRONLY | os.O_CREAT | os.O_TRUNC | os.O_CLOEXEC, 0o600)
    try:
        os.fchmod(fd, 0o600)
        view = memoryview(data)
        while view:
            view = view[os.write(fd, view) :]
        os.fsync(fd)
    finally:
        os.close(fd)
    beside.rename(path)
    folder = os.open(path.parent, os.O_RDONLY | os.O_CLOEXEC)
    try:
        os.fsync(folder)
    finally:
        os.close(folder)
