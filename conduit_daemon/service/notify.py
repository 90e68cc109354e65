"""What the daemon tells the service manager that started it: sd_notify's protocol, written out.

One datagram of ``NAME=value`` lines to the socket that ``$NOTIFY_SOCKET`` names (sd_notify(3)). Sending never waits
and never fails: what the manager cannot take now goes out with the next message.
"""

from __future__ import annotations

import os
import socket
import time
from collections.abc import Iterator, MutableMapping
from contextlib import contextmanager
from typing import Final, final

__all__ = ["Notifier"]

_MOST: Final = 512  # characters of a status line; systemd takes 4 KiB a message
_PHASES: Final = ("READY", "RELOADING", "STOPPING")


@final
class Notifier:
    """Speaks to the service manager, or to nobody where there is none.

    Args:
        address: A socket's path, or ``@name`` for an abstract one; None where nobody listens. Other kinds of
            address (``vsock:``, of virtual machines) are taken as nobody.
        watchdog: Seconds within which the manager wants a sign of life; None where it wants none.

    Attributes:
        active: Whether somebody listens.
        watchdog_interval: `watchdog`, as given.

    Example:
        >>> notifier = Notifier.take(os.environ)
        >>> notifier.ready("5 of 6 servers ready")
    """

    def __init__(self, address: str | None = None, *, watchdog: float | None = None) -> None:
        known = address is not None and len(address) > 1 and address[0] in "/@"
        self._address = "\0" + address[1:] if known and address is not None and address[0] == "@" else address
        self._unsent: dict[str, str] = {}
        self.active = known
        self.watchdog_interval = watchdog if known else None

    @classmethod
    def take(cls, environ: MutableMapping[str, str]) -> Notifier:
        """A notifier for what systemd put into `environ`, and removes it there: no server is to speak for the daemon.

        Args:
            environ: The process's environment. ``WATCHDOG_PID`` of another process means no watchdog for this one.
        """
        address = environ.pop("NOTIFY_SOCKET", None)
        interval, pid = environ.pop("WATCHDOG_USEC", ""), environ.pop("WATCHDOG_PID", "")
        meant = pid in ("", str(os.getpid()))
        watchdog = int(interval) / 1e6 if interval.isascii() and interval.isdigit() and meant else 0.0
        return cls(address, watchdog=watchdog or None)

    def ready(self, status: str | None = None) -> None:
        """The start is complete."""
        self._send({"READY": "1"}, status)

    @contextmanager
    def reload(self) -> Iterator[None]:
        """While this is entered the configuration is being read again; whether it can be used is not said here."""
        now = time.clock_gettime_ns(time.CLOCK_MONOTONIC) // 1000
        self._send({"RELOADING": "1", "MONOTONIC_USEC": str(now)}, None)
        try:
            yield
        finally:
            self.ready()

    def stopping(self, seconds: float, status: str | None = None) -> None:
        """The daemon stops, and may take this many seconds for it whatever the unit's own timeout is."""
        self._send({"STOPPING": "1", "EXTEND_TIMEOUT_USEC": str(max(1, int(seconds * 1e6)))}, status)

    def status(self, text: str) -> None:
        """One line for people, as ``systemctl status`` shows it."""
        self._send({}, text)

    def alive(self) -> None:
        """A sign of life for the watchdog."""
        self._send({"WATCHDOG": "1"}, None)

    def _send(self, fields: dict[str, str], status: str | None) -> None:
        if not self.active or self._address is None:
            return
        if any(phase in fields for phase in _PHASES):  # the newest phase is the one that counts
            for outdated in (*_PHASES, "MONOTONIC_USEC"):
                self._unsent.pop(outdated, None)
        self._unsent |= fields
        if status is not None:
            self._unsent["STATUS"] = " ".join(status.split())[:_MOST]
        text = "\n".join(f"{name}={value}" for name, value in self._unsent.items())
        try:
            with socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM) as sock:
                sock.setblocking(False)
                sock.sendto(text.encode("utf-8", "replace"), self._address)
        except OSError:
            return  # busy, or being restarted: the next message takes this one along
        self._unsent.clear()
