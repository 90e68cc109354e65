"""What all providers' answers have in common: parsing what a model sent, and refusing it in words (pure)."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, Protocol

from conduit_daemon.adapters._declaration import refusal
from conduit_daemon.errors import ClientError, ErrorKind
from conduit_daemon.hub.toolset import Entry, ToolSet
from conduit_daemon.model import Rejected, ToolCall, ToolResult
from conduit_daemon.text import clean_line, clean_message

__all__ = ["Outcome", "RejectCall", "failure_text", "plain", "resolved"]

Outcome = ToolResult | ClientError

_LONGEST_NAME_SHOWN = 100


class RejectCall(Protocol):
    """Makes the provider's error answer to one call."""

    def __call__(self, message: str, kind: ErrorKind) -> Rejected: ...


def plain(response: Any) -> Any:
    """A response as dicts and lists; an object of an official SDK gives its JSON form."""
    if isinstance(response, list):
        return [plain(part) for part in response]
    dump = getattr(response, "model_dump", None)
    return dump(mode="json", by_alias=True, exclude_none=True) if callable(dump) else response


def resolved(
    toolset: ToolSet,
    exposed: Any,
    call_id: str | None,
    arguments: Any,
    reject: RejectCall,
    convert: Callable[[Entry], object],
) -> ToolCall | Rejected:
    """The call, or its refusal: for a name that was not offered, or for arguments that are no object.

    Args:
        toolset: What the model was offered.
        exposed: The name that it used.
        call_id: The provider's id of the call.
        arguments: What it sent, parsed.
        reject: Makes the refusal.
        convert: The provider's conversion; a tool that it refuses was not offered.
    """
    entry = toolset.resolve(exposed)
    if entry is None or refusal(entry, convert) is not None:
        shown = clean_line(exposed[:_LONGEST_NAME_SHOWN]) if isinstance(exposed, str) else ""
        return reject(f"There is no tool named {shown!r}. Use one of the tools that are listed.", "unknown_tool")
    if not isinstance(arguments, dict):
        return reject(f"The arguments of {exposed} must be a JSON object.", "invalid_arguments")
    return ToolCall(call_id, entry.server_id, entry.tool.name, entry.exposed, arguments)


def failure_text(error: ClientError) -> str:
    """The error's message for a model, cleaned, capped and never blank."""
    message = clean_message(error.message)
    return message if message.strip() else f"The call failed ({error.kind})."
