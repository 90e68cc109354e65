"""A server as a process of ours, spoken to over its stdin and stdout, a message a line."""

from __future__ import annotations

import math
import os
import select
from collections import deque
from collections.abc import Callable, Mapping
from contextlib import suppress
from typing import Final, final

import trio

from conduit_daemon.clients.dispatcher import Dispatcher, Peer, Pending
from conduit_daemon.clients.process import PIPE_SIZE, SHORT_GRACE, Exit, ServerProcess, Warden
from conduit_daemon.clients.stderr import ErrorOutput
from conduit_daemon.clients.transport import Loss, Settings, Unreachable
from conduit_daemon.errors import ClientError
from conduit_daemon.lines import (
    READ_SIZE,
    TURN,
    LineSplitter,
    LineWriter,
    Oversized,
    Queued,
    WriterClosed,
    WriterStalled,
)

__all__ = ["LineDispatcher", "StdioTransport"]

_MAX_BACKLOG: Final = 8 << 20
_LONG: Final = 4 << 20
_LAST_ANSWERS: Final = 0.5
_LAST_WORDS: Final = 0.05
_EOF_WAIT: Final = 0.2
_TAIL: Final = 5


@final
class LineDispatcher(Dispatcher):
    """JSON-RPC over two non-blocking descriptors, a message a line.

    Args:
        server: The server's id, for messages.
        read_fd: Where the server's messages come from.
        write_fd: Where ours go. Neither descriptor is closed here.
        peer: Told what the server sends unasked.
        max_message: Longest line in bytes; the answer of a longer one fails its call as ``too_large``.
        patience: Seconds that the server may leave its input unread before `run` raises ``WriterStalled``.

    Attributes:
        input_closed: Whether `run` ended because the server closed its input.
    """

    def __init__(
        self, server: str, read_fd: int, write_fd: int, peer: Peer, *, max_message: int, patience: float = math.inf
    ) -> None:
        super().__init__(server, peer, max_message=max_message)
        self.input_closed = False
        self._over = False
        self._read_fd = read_fd
        self._write_fd = write_fd
        self._splitter = LineSplitter(max_message)
        self._lines: deque[bytes | Oversized] = deque()
        self._writer = LineWriter(write_fd, patience=patience)

    def resize(self, max_message: int) -> None:
        """Changes how long a line may be, from the next one on that is not whole yet."""
        super().resize(max_message)
        self._splitter.limit = max_message

    def send_request(
        self, pending: Pending, method: str, body: bytearray, headers: Mapping[str, str] | None
    ) -> Queued | None:
        """Writes the line, or queues it."""
        if self._writer.buffered > _MAX_BACKLOG:
            raise self._unavailable("does not read its input")
        body += b"\n"
        try:
            return self._writer.write(body)
        except WriterClosed:
            if self._over:
                raise self._unavailable("is gone") from None
            return Queued(memoryview(body), started=False)  # the connection is about to end, and this with it, unsent

    def send_message(
        self, method: str | None, body: bytearray, *, urgent: bool = False, headers: Mapping[str, str] | None = None
    ) -> None:
        """Writes the line, or queues it; it is dropped where too much is queued.

        That holds for answers too: a server may ask without end and read nothing.
        """
        if self._writer.buffered > 2 * _MAX_BACKLOG:
            return
        body += b"\n"
        try:
            self._writer.write(body, urgent=urgent)
        except WriterClosed:
            return  # nobody is left to be told

    def abandon(self, pending: Pending, reason: str | None) -> bool:
        """Takes a queued line back; else tells the server, ahead of queued lines."""
        queued = pending.queued
        if isinstance(queued, Queued) and self._writer.withdraw(queued):
            return True
        if reason is not None:
            params = {"requestId": pending.request_id, "reason": reason}
            self.notify("notifications/cancelled", params, urgent=True)
        return False

    def close(self) -> None:
        """Writes nothing more."""
        self._over = True
        self._writer.close()

    async def run(self) -> None:
        """Reads, writes and keeps deadlines until the server closes its output or its input.

        Raises:
            WriterStalled: The server left its input unread for `patience` seconds.
            OSError: Its output cannot be read.
        """
        try:
            async with trio.open_nursery() as nursery:
                nursery.start_soon(self.deadlines.run)
                nursery.start_soon(self._write, nursery.cancel_scope)
                nursery.start_soon(self._watch_input)
                await self._read()
                nursery.cancel_scope.cancel()
        finally:
            self._writer.flush()  # perhaps the news of a cancelled call
            self._writer.close()

    async def drain(self) -> None:
        """Takes in what a dead server had written before it died, while `run` may still be reading too.

        That is no more than the pipe holds. A process that outlives the server may go on writing for ever.
        """
        await self._take_lines()
        left = PIPE_SIZE
        while left > 0:
            try:
                chunk = os.read(self._read_fd, READ_SIZE)
            except (BlockingIOError, OSError):
                return
            if not chunk:
                return
            left -= len(chunk)
            await self._take_chunk(chunk)

    async def _read(self) -> None:
        while True:
            await trio.lowlevel.wait_readable(self._read_fd)
            try:
                chunk = os.read(self._read_fd, READ_SIZE)
            except BlockingIOError:
                continue
            if not chunk:
                return
            await self._take_chunk(chunk)

    async def _write(self, scope: trio.CancelScope) -> None:
        with suppress(WriterClosed):
            await self._writer.run()
        if not self._over:
            self.input_closed = True
            await trio.sleep(_EOF_WAIT)  # for the answers to what it had read, and for its exit
        scope.cancel()

    async def _watch_input(self) -> None:
        """Notices that the server closed its input while nothing is written: the pipe is then in error."""
        await trio.lowlevel.wait_readable(self._write_fd)
        poll = select.poll()
        poll.register(self._write_fd, 0)
        if poll.poll(0):
            self._writer.close()

    async def _take_chunk(self, chunk: bytes) -> None:
        self._lines.extend(self._splitter.feed(chunk))
        await self._take_lines()

    async def _take_lines(self) -> None:
        """Takes what was read, in its order whichever task read it, with a turn for others now and then."""
        taken, lines = 0, self._lines
        while lines:
            if isinstance(lines[0], bytes) and len(lines[0]) > _LONG:
                await trio.lowlevel.checkpoint()  # it was just joined; looking at it is another turn
                if not lines:
                    return
            line = lines.popleft()
            if isinstance(line, Oversized):
                self.take_oversized(line.head, line.tail, line.size)
            elif line:
                self.take(line)
            taken += 1
            if not taken % TURN:
                await trio.lowlevel.checkpoint()

    def _unavailable(self, what: str) -> ClientError:
        return ClientError(
            "unavailable", f"Server {self.server} {what}; nothing was sent.", self.server, retry_after=1.0
        )


@final
class StdioTransport:
    """Starts a server's process and ends it for certain.

    Args:
        settings: What the connection is made of.
        warden: Ends the process if the daemon cannot.
        on_stderr: Called with each line that the server writes to its stderr.
    """

    def __init__(self, settings: Settings, warden: Warden, on_stderr: Callable[[str], None]) -> None:
        self.pid: int | None = None
        self.forgotten = trio.Event()
        self._settings = settings
        self._warden = warden
        self._on_stderr = on_stderr
        self._errors: ErrorOutput | None = None
        self._broken = False

    async def attend(
        self, peer: Peer, on_lost: Callable[[Loss], None], *, task_status: trio.TaskStatus[Dispatcher]
    ) -> None:
        """Starts the process and keeps it; see `Transport.attend`."""
        settings = self._settings
        try:
            process = await ServerProcess.open(settings.config, self._warden, settings.environ)
        except OSError as error:
            raise Unreachable(Loss(reason=f"cannot start: {self._cannot_start(error)}", attention=True)) from None
        self.pid = process.pid
        self._errors = errors = ErrorOutput(process.stderr_fd, self._on_stderr, settings.clean)
        wire = LineDispatcher(
            settings.server,
            process.stdout_fd,
            process.stdin_fd,
            peer,
            max_message=settings.max_message,
            patience=settings.config.connect_timeout,
        )
        forget = settings.limits.watch(lambda _: wire.resize(settings.max_message))
        try:
            async with trio.open_nursery() as nursery:
                nursery.start_soon(errors.run)
                nursery.start_soon(self._follow, wire, process, on_lost)
                task_status.started(wire)
                exit_ = await process.wait()
                process.kill_group()  # a grandchild that holds the pipes must not keep the connection alive
                with trio.move_on_after(_LAST_ANSWERS):
                    await wire.drain()
                with trio.move_on_after(_LAST_WORDS):
                    await errors.ended.wait()
                on_lost(self._exited(exit_))
                nursery.cancel_scope.cancel()
        finally:
            forget()
            # Whoever waits for the end of one that is broken is its successor.
            await process.close(SHORT_GRACE if self._broken else settings.grace())

    async def _follow(self, wire: LineDispatcher, process: ServerProcess, on_lost: Callable[[Loss], None]) -> None:
        reason = "closed its output"
        try:
            await wire.run()
        except* WriterStalled:
            reason = f"left its input unread for {self._settings.config.connect_timeout:g} s"
        except* OSError:
            reason = "has an output that cannot be read"
        if wire.input_closed:
            reason = "closed its input"
        else:
            await trio.sleep(_EOF_WAIT)  # an exit says more than a closed pipe
        self._broken = True
        on_lost(Loss(reason=reason, words=self._last_words()))

    def settle(self, version: str, *, modern: bool) -> None:
        """Nothing goes beside the lines."""

    async def heard(self) -> None:
        """It can always speak."""

    def resume(self) -> None:
        """Nothing was held back."""

    def stderr(self) -> tuple[str, ...]:
        """The last 100 lines that the server wrote to its stderr."""
        return () if self._errors is None else tuple(self._errors.last)

    def _last_words(self) -> tuple[str, ...]:
        return () if self._errors is None else tuple(self._errors.tail(_TAIL))

    def _exited(self, exit_: Exit) -> Loss:
        return Loss(reason=str(exit_), exit=exit_, words=self._last_words())

    def _cannot_start(self, error: OSError) -> str:
        config = self._settings.config
        if isinstance(error, FileNotFoundError):
            if config.cwd is not None and not config.cwd.is_dir():
                return f"its directory {config.cwd} does not exist"
            return f"the command {config.command!r} was not found"
        return f"{config.command!r}: {error.strerror or error}"
