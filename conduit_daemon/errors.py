"""What can go wrong, as one hierarchy of sentences for people.

    ConduitError(Exception)
    ├── ClientError            one call or request failed; has a kind, an outcome and data
    ├── ConfigError            a configuration cannot be used; holds every problem found in it
    ├── StrictSchemaError      a tool's schema has no strict form and strict=True was asked for
    ├── InvalidServerId        (also a ValueError) a server's id would make names ambiguous
    └── DaemonError            the daemon cannot start or go on: another one runs, no folder to listen in

A ClientError is raised, returned as the outcome of a call, and rendered as a JSON-RPC error; its
kinds and codes are those of the RPC's table.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any, Final, Literal, get_args

import msgspec

__all__ = [
    "CODES",
    "ClientError",
    "ConduitError",
    "ConfigError",
    "ConfigProblem",
    "DaemonError",
    "ErrorKind",
    "InvalidServerId",
    "Sent",
    "StrictSchemaError",
]

ErrorKind = Literal[
    "unknown_tool",
    "invalid_arguments",
    "invalid_params",
    "internal",
    "denied",
    "approval_timeout",
    "timeout",
    "unavailable",
    "cancelled",
    "rate_limited",
    "too_large",
    "protocol",
    "forbidden",
    "shutting_down",
    "unknown_toolset",
    "server_error",
    "invalid_config",
]

Sent = Literal["not_sent", "failed", "outcome_unknown"]
"""How far a failed call came: never left, answered with an error, or sent and then lost."""

CODES: Final[dict[ErrorKind, int]] = {
    "unknown_tool": -32602,
    "invalid_arguments": -32602,
    "invalid_params": -32602,
    "internal": -32603,
    "denied": -31001,
    "approval_timeout": -31002,
    "timeout": -31003,
    "unavailable": -31004,
    "cancelled": -31005,
    "rate_limited": -31006,
    "too_large": -31007,
    "protocol": -31008,
    "forbidden": -31009,
    "shutting_down": -31010,
    "unknown_toolset": -31011,
    "server_error": -31012,
    "invalid_config": -31013,
}
assert set(CODES) == set(get_args(ErrorKind))  # noqa: S101 - the table and the type are one list


class ConduitError(Exception):
    """The base of all errors that this package raises on purpose."""


class ClientError(ConduitError):
    """A call or a request that failed, in words that a person or a model can act on.

    Attributes:
        kind: What happened, one of ``ErrorKind``.
        message: One sentence. Never a secret, a traceback or a path of the daemon's own.
        server: The server's id, where one is concerned.
        tool: The server's own name of the tool, where one is concerned.
        outcome: How far the call came.
        retry_after: Seconds after which trying again makes sense, where that is known.
        data: Further facts, as in the RPC's error data (``exit_code``, ``signal``, ``stderr``,
            ``problems``, ``error``, ...).
    """

    def __init__(
        self,
        kind: ErrorKind,
        message: str,
        server: str | None = None,
        tool: str | None = None,
        outcome: Sent = "not_sent",
        retry_after: float | None = None,
        data: dict[str, Any] | None = None,
    ) -> None:
        super().__init__(message)
        self.kind: ErrorKind = kind
        self.message = message
        self.server = server
        self.tool = tool
        self.outcome: Sent = outcome
        self.retry_after = retry_after
        self.data: dict[str, Any] = data or {}

    def __repr__(self) -> str:
        return f"ClientError({self.kind!r}, {self.message!r}, server={self.server!r}, tool={self.tool!r})"

    def mask(self, clean: Callable[[str], str]) -> None:
        """Takes secrets out of its words and its data, which may be a server's own.

        Args:
            clean: Masks what is secret in a text.
        """
        self.message = clean(self.message)
        try:
            self.data = _masked(self.data, clean)
        except RecursionError:  # nobody reads what is nested so deeply
            self.data = {}

    @property
    def code(self) -> int:
        """The JSON-RPC error code of this kind."""
        return CODES[self.kind]

    def to_data(self) -> dict[str, Any]:
        """The ``data`` of the JSON-RPC error: kind, outcome, and what else is known."""
        data: dict[str, Any] = {"kind": self.kind, "outcome": self.outcome}
        if self.server is not None:
            data["server"] = self.server
        if self.tool is not None:
            data["tool"] = self.tool
        if self.retry_after is not None:
            data["retry_after"] = self.retry_after
        return {**self.data, **data}


def _masked(value: Any, clean: Callable[[str], str]) -> Any:
    if isinstance(value, str):
        return clean(value)
    if isinstance(value, dict):
        return {_masked(key, clean): _masked(item, clean) for key, item in value.items()}
    if isinstance(value, list | tuple):
        return [_masked(item, clean) for item in value]
    return value


class ConfigProblem(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True):
    """One mistake in a configuration.

    Attributes:
        file: The file it stands in.
        key: The dotted key, as ``servers.files.comand``; empty for the file as a whole.
        message: One sentence: what is wrong and what was expected.
        suggestion: The nearest known key, where one is near.
    """

    file: str
    key: str
    message: str
    suggestion: str | None = None

    def __str__(self) -> str:
        where = f"{self.file}: {self.key}" if self.key else self.file
        hint = f" (did you mean {self.suggestion!r}?)" if self.suggestion else ""
        return f"{where}: {self.message}{hint}"


class ConfigError(ConduitError):
    """A configuration that cannot be used.

    Attributes:
        problems: Every mistake found, in the file's order.
        sources: The files that were read for it, or looked for: a digest of each, None where it could not be read.
    """

    def __init__(self, problems: tuple[ConfigProblem, ...], sources: Mapping[Path, str | None] | None = None) -> None:
        super().__init__("\n".join(str(problem) for problem in problems))
        self.problems = problems
        self.sources: dict[Path, str | None] = dict(sources or {})


class StrictSchemaError(ConduitError):
    """A tool whose schema has no strict form, where ``strict=True`` asked for one.

    Attributes:
        tool: The exposed name.
        reason: The fallback's reason, as ``free_form_object``.
    """

    def __init__(self, tool: str, reason: str) -> None:
        super().__init__(f"Tool {tool!r} has no strict form: {reason}. Use strict='auto' to send it non-strict.")
        self.tool = tool
        self.reason = reason


class InvalidServerId(ConduitError, ValueError):
    """A server id that is refused, because names composed from it would be ambiguous."""

    def __init__(self, server_id: str) -> None:
        super().__init__(
            f"{server_id!r} is no server id: use letters, digits, '-' and single '_' between them, as in 'my_files'."
        )
        self.server_id = server_id


class DaemonError(ConduitError):
    """The daemon cannot start or go on; the message says why and what to do."""
