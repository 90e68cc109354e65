"""One log entry as the bytes of one line: JSON, a console's, or a journal datagram.

An entry is a dict that begins with ``timestamp`` (unix seconds), ``level``, ``event`` and ``logger``. What is
rendered never fails and is bounded: a value that has no JSON form, is broken, too deep or too long is shown
as well as it can be.
"""

from __future__ import annotations

import math
import re
import struct
import time
from collections.abc import Callable, Mapping
from functools import lru_cache
from typing import Any, Final

import msgspec
import structlog
from structlog.dev import ConsoleRenderer

from conduit_daemon.telemetry.masking import Masker

__all__ = ["Entry", "Renderer", "console", "journal", "json_line", "render"]

Entry = dict[str, Any]
Renderer = Callable[[Entry], bytes]

LONGEST: Final = 64 * 1024
"""Bytes of one line, beyond which its values are shortened."""

_LONG_TEXT: Final = 2048
_MANY: Final = 32
_DEEP: Final = 5
_HEAD: Final = ("timestamp", "level", "event", "logger")
_PRIORITY: Final = {"debug": b"7", "info": b"6", "warning": b"4", "error": b"3", "critical": b"2"}
_PICTURES: Final = {
    **{code: 0x2400 + code for code in range(32)},
    127: 0x2421,
    **dict.fromkeys(range(128, 160), 0xFFFD),
}
_PICTURES_BUT_LINES: Final = {code: picture for code, picture in _PICTURES.items() if chr(code) not in "\t\n"}
_BARE: Final = re.compile(r"[^\s\"=\x00-\x1f\x7f-\x9f]+")


def render(entries: list[Entry], renderer: Renderer, masker: Masker) -> list[bytes]:
    """The entries' lines, without secrets.

    Args:
        entries: Their exceptions are still tuples, as stdlib logging has them.
        renderer: One of this module's.
        masker: What is secret.
    """
    lines = [_line(entry, renderer, masker) for entry in entries]
    # One search through all lines costs a fraction of one through each, and hardly ever finds anything.
    if not masker.occurs_in(b"\0".join(lines)):
        return lines
    return [_line(_masked(entry, masker), renderer, masker) for entry in entries]


def json_line(entry: Entry) -> bytes:
    """A JSON object and a newline."""
    return _ENCODER.encode({**entry, "timestamp": _timestamp(entry["timestamp"])}) + b"\n"


def console(colors: bool) -> Renderer:
    """For a person: aligned, in colour where asked; control characters of others' text are shown, not obeyed."""
    renderer = ConsoleRenderer(colors=colors, exception_formatter=structlog.dev.plain_traceback, pad_event_to=24)

    def line(entry: Entry) -> bytes:
        shown = {_shown(key): _shown(value) for key, value in entry.items()}
        shown["timestamp"] = _timestamp(entry["timestamp"])
        if "exception" in entry:
            shown["exception"] = str(entry["exception"]).translate(_PICTURES_BUT_LINES)
        return str(renderer(None, str(entry["level"]), shown)).encode("utf-8", "backslashreplace") + b"\n"

    return line


def journal(identifier: str) -> Renderer:
    """Datagrams of journald's native protocol.

    Each field is one of the journal's, with ``CONDUIT_`` before its name, so that ``journalctl CONDUIT_SERVER=files``
    filters by it; MESSAGE repeats them for reading.
    https://systemd.io/JOURNAL_NATIVE_PROTOCOL/
    """
    start = b"SYSLOG_IDENTIFIER=" + identifier.encode() + b"\n"

    def datagram(entry: Entry) -> bytes:
        message = [str(entry["event"])]
        parts = [start, b"PRIORITY=", _PRIORITY.get(entry["level"], b"6"), b"\n"]
        for key, value in entry.items():
            if key in {"timestamp", "level", "exception"}:
                continue
            text = value if isinstance(value, str) else _ENCODER.encode(value).decode()
            parts.append(_field(_journal_name(key), text))
            if key not in {"event", "logger"}:
                message.append(f"{key}={text if _BARE.fullmatch(text) else _ENCODER.encode(text).decode()}")
        text = " ".join(message)
        if "exception" in entry:
            text = f"{text}\n{entry['exception']}"
        parts.append(_field(b"MESSAGE", text))
        return b"".join(parts)

    return datagram


def _shown(value: Any) -> Any:
    if isinstance(value, msgspec.Raw):
        value = bytes(value).decode("utf-8", "backslashreplace")
    # Looked at first, since it is hardly ever so and translating costs more than all the rest of the line.
    return value.translate(_PICTURES) if isinstance(value, str) and not value.isprintable() else value


def _line(entry: Entry, renderer: Renderer, masker: Masker) -> bytes:
    try:
        line = renderer(_formatted(entry))
    except Exception as error:  # noqa: BLE001 - values of others, with any __str__
        return _rescued(_masked(entry, masker), renderer, f"{error.__class__.__name__}: {error}")
    if len(line) > LONGEST:
        # Masked before it is cut, for half a secret would not be recognised any more.
        line = _rescued(_masked(entry, masker), renderer, f"{len(line)} bytes, shortened")
    return line


def _formatted(entry: Entry) -> Entry:
    return dict(structlog.processors.format_exc_info(None, "", entry)) if "exc_info" in entry else entry


def _rescued(entry: Entry, renderer: Renderer, why: str) -> bytes:
    """The line of an entry that could not be rendered, or is too long, with what can be shown of it."""
    head = {key: entry.get(key) if key == "timestamp" else _plain(entry.get(key, "")) for key in _HEAD}
    fields = {str(_plain(key)): _plain(value) for key, value in entry.items() if key not in _HEAD}
    line = renderer({**head, **fields, "log_problem": why})
    if len(line) <= LONGEST:
        return line
    return renderer({**head, "log_problem": f"{why}; fields left out: {', '.join(fields)}"[:_LONG_TEXT]})


def _masked(entry: Entry, masker: Masker) -> Entry:
    masked: Entry = {}
    for key, value in _formatted(entry).items():
        try:
            masked[key] = value if key in {"timestamp", "level"} else masker.mask_value(value)
        except RecursionError:
            masked[key] = "(nested too deeply)"
    return masked


def _plain(value: Any, depth: int = 0) -> Any:
    """`value` as short, valid JSON values."""
    if value is None or isinstance(value, bool):
        return value
    if isinstance(value, int):
        return value if abs(value) < 2**63 else "(a very large number)"
    if isinstance(value, float):
        return value if math.isfinite(value) else str(value)
    if isinstance(value, str):
        text = value.encode("utf-8", "backslashreplace").decode()
        return text if len(text) <= _LONG_TEXT else f"{text[:_LONG_TEXT]}... ({len(text)} characters)"
    if depth >= _DEEP:
        return "..."
    if isinstance(value, Mapping):
        return {str(_plain(key, depth)): _plain(item, depth + 1) for key, item in list(value.items())[:_MANY]}
    if isinstance(value, (list, tuple, set, frozenset)):
        return [_plain(item, depth + 1) for item in list(value)[:_MANY]]
    return _unknown(value)


def _unknown(value: Any) -> str:
    """What is shown of a value that JSON does not have."""
    if isinstance(value, BaseException):
        text = f"{value.__class__.__name__}: {value}"
    elif isinstance(value, msgspec.Raw):
        text = bytes(value).decode("utf-8", "backslashreplace")
    else:
        try:
            text = str(value)
        except Exception as error:  # noqa: BLE001 - values of others, with any __str__
            text = f"({value.__class__.__name__} whose text cannot be made: {error.__class__.__name__})"
    return str(_plain(text))


_ENCODER: Final = msgspec.json.Encoder(enc_hook=_unknown)


def _timestamp(seconds: float) -> str:
    number = int(seconds)
    return f"{_second(number)}.{int((seconds - number) * 1e6):06d}Z"


@lru_cache(maxsize=2)
def _second(number: int) -> str:
    # Kept, since most lines share it with the one before.
    return time.strftime("%Y-%m-%dT%H:%M:%S", time.gmtime(number))


def _field(name: bytes, text: str) -> bytes:
    data = text.encode("utf-8", "backslashreplace")
    if b"\n" in data:
        return name + b"\n" + struct.pack("<Q", len(data)) + data + b"\n"
    return name + b"=" + data + b"\n"


@lru_cache(maxsize=256)
def _journal_name(key: str) -> bytes:
    return re.sub(r"[^A-Z0-9_]", "_", f"CONDUIT_{key.upper()}")[:64].encode()
