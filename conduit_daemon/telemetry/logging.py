"""The daemon's log: each event one line, and what libraries log by structlog or stdlib logging beside them.

The event loop only puts an entry into a bounded backlog. One thread renders, masks and writes them in
batches, so that neither a stalled stderr nor a slow journal is ever felt by a call; lines for which there
is no room are dropped, counted, and reported once there is room again.
"""

from __future__ import annotations

import functools
import logging
import os
import sys
import threading
import time
from collections.abc import Iterator, Mapping, MutableMapping, Sequence
from contextlib import ExitStack, contextmanager, suppress
from pathlib import Path
from typing import Any, Final, Literal, NoReturn, final, get_args

import structlog
import trio

from conduit_daemon.telemetry.backlog import Backlog
from conduit_daemon.telemetry.events import LEVELS, Event, EventBus, Level
from conduit_daemon.telemetry.masking import Masker, redact_arguments
from conduit_daemon.telemetry.rendering import Entry, Renderer, console, journal, json_line, render
from conduit_daemon.telemetry.sinks import JOURNAL_SOCKET, JournalSink, Sink, StreamSink, is_journal

__all__ = ["Format", "Log", "open_logging"]

Format = Literal["auto", "json", "console", "journal"]

_NAME: Final = "conduit"
_DROPPED: Final = "log.lines_dropped"
_BACKLOG: Final = 8192
_GATHER: Final = 0.01  # seconds: the thread wakes at most a hundred times in one
_BATCH: Final = 32  # lines rendered before the write that lets the event loop run again
_FLUSH: Final = 1.0
_RETRY: Final = 1.0
_REMEMBERED: Final = 60.0

_NAMES: Final[dict[int, Level]] = {LEVELS[name]: name for name in get_args(Level)}

_CHATTY: Final = ("httpx", "httpx2", "httpcore", "httpcore2", "mcp", "trio", "trio_websocket", "wsproto", "asyncio")
"""Libraries that tell at info what is a call's debug to us."""


@final
class Log:
    """The running log, as ``open_logging`` gives it.

    Attributes:
        format: What is written: ``json``, ``console`` or ``journal``; ``off`` where stderr is closed.
        dropped: Lines dropped so far.
    """

    def __init__(self, level: Level, masker: Masker, renderer: Renderer, sink: Sink | None, format: str) -> None:
        self.format = format
        self.dropped = 0
        self._masker = masker
        self._renderer = renderer
        self._sink = sink
        self._level = level
        self._threshold = LEVELS[level]
        self._servers: dict[str | None, int] = {}
        self._backlog = Backlog[Event | Entry](_BACKLOG)
        self._unreported = 0
        self._reported_at = 0.0
        self._broken_until = 0.0
        self._give_up_at: float | None = None
        self._bus: EventBus | None = None
        self._token: trio.lowlevel.TrioToken | None = None

    def logger(self, name: str = _NAME) -> Any:
        """A structlog logger whose lines bear `name`; it may be used in any thread.

        Example:
            >>> log.logger("conduit.hooks").info("hook.loaded", hook="my_hooks:redact")
        """
        logger = structlog.wrap_logger(
            None,
            processors=[structlog.contextvars.merge_contextvars, self._take_structlog],
            wrapper_class=structlog.make_filtering_bound_logger(0),
            context_class=dict,
        )
        return logger.bind(logger=name)

    def set_level(self, level: Level | None, server: str | None = None) -> Level:
        """Changes the lowest level that is logged, from the next event on.

        Args:
            level: The new one; None has `server` follow the daemon's level again.
            server: Whose events it is for; the daemon's level where None. A server's own level stays
                when the daemon's changes.

        Returns:
            The one until now.

        Raises:
            ValueError: There is no such level, or the daemon is to have none.
        """
        if level not in LEVELS and (level is not None or server is None):
            raise ValueError(f"{level!r} is no log level: use debug, info, warning or error.")
        old = self.level(server)
        if server is None:
            self._level = level or self._level
            self._threshold = LEVELS[self._level]
            _set_stdlib_levels(self._level)
        elif level is None:
            self._servers.pop(server, None)
        else:
            self._servers[server] = LEVELS[level]
        return old

    def level(self, server: str | None = None) -> Level:
        """The lowest level that is logged, of `server`'s events or of the daemon."""
        threshold = self._servers.get(server, self._threshold)
        return _NAMES[threshold]

    @property
    def missing(self) -> int:
        """Lines dropped so far, those of which the log could not tell yet among them."""
        return self.dropped + self._unreported + self._backlog.refused

    def problem(self) -> str | None:
        """What is wrong with it at present; None where all lines of the last minute were written."""
        if self.missing > self.dropped:
            return f"The log cannot be written, or not fast enough: {self.missing} lines were dropped."
        if self.dropped and time.monotonic() < self._reported_at + _REMEMBERED:
            return f"Log lines were dropped within the last minute; {self.dropped} since the start."
        return None

    # --- the event loop's side

    def _take(self, event: Event) -> None:
        if LEVELS[event.level] >= self._servers.get(event.server, self._threshold):
            self._backlog.put(event)

    def _take_structlog(self, _logger: Any, method: str, entry: MutableMapping[str, Any]) -> NoReturn:
        level = LEVELS.get(method, LEVELS["error"])
        if level >= self._servers.get(entry.get("server"), self._threshold):
            event, name = entry.pop("event", ""), entry.pop("logger", _NAME)
            if (exc_info := entry.get("exc_info")) and not isinstance(exc_info, (tuple, BaseException)):
                entry["exc_info"] = sys.exc_info()
            self._backlog.put({"timestamp": time.time(), "level": method, "event": event, "logger": name, **entry})
        raise structlog.DropEvent

    def _take_record(self, record: logging.LogRecord) -> None:
        try:
            text = record.getMessage()
        except Exception as error:  # noqa: BLE001 - arguments of others, with any __str__
            text = f"{record.msg!r} % {record.args!r} ({error.__class__.__name__}: {error})"
        level = _NAMES.get(min(record.levelno // 10 * 10, LEVELS["error"]), "debug")
        entry: Entry = {"timestamp": record.created, "level": level, "event": text, "logger": record.name}
        if record.exc_info:
            entry["exc_info"] = record.exc_info
        self._backlog.put(entry)

    # --- the thread's side

    def _write_all(self) -> None:
        while True:
            self._backlog.wait(_GATHER)
            while entries := self._backlog.peek(_BATCH):
                written = self._write(entries)
                self._backlog.drop(len(entries))
                if written:
                    self._report_dropped()
                else:
                    self._unreported += len(entries)
            if self._backlog.closed:
                return

    def _write(self, items: Sequence[Event | Entry]) -> bool:
        now = time.monotonic()
        if self._sink is None or now < self._broken_until or not self._patient():
            return False
        try:
            lines = render([self._entry(item) for item in items], self._renderer, self._masker)
            return self._sink.write(lines, self._patient)
        except Exception:  # noqa: BLE001 - also a defect of ours: a log that ended would hide all others
            self._broken_until = now + _RETRY
            return False

    def _patient(self) -> bool:
        return self._give_up_at is None or time.monotonic() < self._give_up_at

    def _entry(self, item: Event | Entry) -> Entry:
        if isinstance(item, dict):
            return item
        entry: Entry = {"timestamp": item.time, "level": item.level, "event": item.type, "logger": _NAME}
        if item.server is not None:
            entry["server"] = item.server
        if item.tool is not None:
            entry["tool"] = item.tool
        if item.call is not None:
            entry["call"] = item.call
        entry.update(item.fields)
        if "arguments" in entry:
            if self._servers.get(item.server, self._threshold) > LEVELS["debug"]:
                del entry["arguments"]
            else:
                try:
                    entry["arguments"] = redact_arguments(entry["arguments"], self._masker)
                except RecursionError:
                    entry["arguments"] = "(nested too deeply)"
        return entry

    def _report_dropped(self) -> None:
        """Says how many lines are missing, once a second at most, where something has just been written."""
        now = time.monotonic()
        if now < self._reported_at + _RETRY and not self._backlog.closed:
            return
        self._unreported += self._backlog.take_refused()
        if not self._unreported:
            return
        count, self._unreported, self._reported_at = self._unreported, 0, now
        self.dropped += count
        # Written here, past the backlog: while that overflows the report would itself be dropped.
        self._write(
            [{"timestamp": time.time(), "level": "warning", "event": _DROPPED, "logger": _NAME, "count": count}]
        )
        if self._token is not None and self._bus is not None:
            emit = functools.partial(self._bus.emit, _DROPPED, level="warning", count=count)
            with suppress(trio.RunFinishedError):
                self._token.run_sync_soon(emit)

    # --- its life

    def _serve(self, bus: EventBus, stack: ExitStack) -> None:
        """Begins to write; `stack` undoes it."""
        self._bus = bus
        with suppress(RuntimeError):  # outside of trio the bus has nobody to hear of dropped lines either
            self._token = trio.lowlevel.current_trio_token()
        thread = threading.Thread(target=self._write_all, name="conduit-log", daemon=True)
        thread.start()
        stack.callback(self._finish, thread)
        _join_stdlib(self, stack)
        _join_structlog(self, stack)
        token = bus.attach(lambda event: None if event.type == _DROPPED else self._take(event))
        stack.callback(bus.detach, token)

    def _finish(self, thread: threading.Thread) -> None:
        self._give_up_at = time.monotonic() + _FLUSH
        self._backlog.close()
        thread.join(_FLUSH + 0.5)
        if self._sink is not None and not thread.is_alive():
            self._sink.close()


@contextmanager
def open_logging(
    bus: EventBus,
    masker: Masker,
    *,
    format: Format = "auto",
    level: Level = "info",
    fd: int = 2,
    environ: Mapping[str, str] = os.environ,
    journal_socket: Path = JOURNAL_SOCKET,
) -> Iterator[Log]:
    """Logs all events of `bus` and what libraries log, until left; then writes out what waits, for a second at most.

    Meanwhile the process' stdlib logging and structlog's defaults write here too.

    Args:
        bus: Each of its events is one line.
        masker: What is never shown.
        format: ``auto`` is the journal where `fd` ends there anyway, a console's on a terminal, else JSON.
        level: The lowest level logged. Libraries known to be chatty are held at warning above debug.
        fd: Where lines go. Where it is closed nothing is logged, and nothing fails.
        environ: JOURNAL_STREAM and NO_COLOR are looked up in it.
        journal_socket: The journal's datagram socket.

    Raises:
        DaemonError: `format` is ``journal`` and there is no journal.
        ValueError: There is no such level.
    """
    if level not in LEVELS:
        raise ValueError(f"{level!r} is no log level: use debug, info, warning or error.")
    usable = _is_open(fd)
    if format == "auto":
        format = _fitting(fd, environ, journal_socket) if usable else "json"
    sink: Sink | None = None
    renderer: Renderer = json_line
    if format == "journal":
        renderer, sink = journal(_NAME), JournalSink(journal_socket)
    elif usable:
        sink = StreamSink(fd)
        if format == "console":
            renderer = console(colors=os.isatty(fd) and not environ.get("NO_COLOR"))
    log = Log(level, masker, renderer, sink, format if sink is not None else "off")
    with ExitStack() as stack:
        log._serve(bus, stack)
        yield log


def _is_open(fd: int) -> bool:
    # A process started with stderr closed may have got another file under its number since.
    if fd == 2 and sys.__stderr__ is None:
        return False
    try:
        os.fstat(fd)
    except OSError:
        return False
    return True


def _fitting(fd: int, environ: Mapping[str, str], journal_socket: Path) -> Format:
    if is_journal(fd, environ.get("JOURNAL_STREAM")) and journal_socket.is_socket():
        return "journal"
    return "console" if os.isatty(fd) else "json"


class _StdlibHandler(logging.Handler):
    def __init__(self, log: Log) -> None:
        super().__init__()
        self._log = log

    def emit(self, record: logging.LogRecord) -> None:
        self._log._take_record(record)


def _join_stdlib(log: Log, stack: ExitStack) -> None:
    root = logging.getLogger()
    for logger in (root, *map(logging.getLogger, _CHATTY)):
        stack.callback(logger.setLevel, logger.level)
    _set_stdlib_levels(log.level())
    handler = _StdlibHandler(log)
    root.addHandler(handler)
    stack.callback(root.removeHandler, handler)
    logging.captureWarnings(True)
    stack.callback(logging.captureWarnings, False)


def _set_stdlib_levels(level: Level) -> None:
    logging.getLogger().setLevel(LEVELS[level])
    for name in _CHATTY:
        logging.getLogger(name).setLevel(LEVELS["info"] if level == "debug" else max(LEVELS[level], LEVELS["warning"]))


def _join_structlog(log: Log, stack: ExitStack) -> None:
    old = structlog.get_config() if structlog.is_configured() else None
    structlog.configure(
        processors=[structlog.contextvars.merge_contextvars, log._take_structlog],
        wrapper_class=structlog.make_filtering_bound_logger(0),
        context_class=dict,
        logger_factory=structlog.ReturnLoggerFactory(),
        cache_logger_on_first_use=False,
    )
    stack.callback(lambda: structlog.configure(**old) if old is not None else structlog.reset_defaults())
