"""Tools, calls and results in the form of Anthropic's Messages API (pure: dicts in, dicts out).

The API refuses a whole request for one bad tool: combining keywords at a schema's root, property keys
outside ``^[a-zA-Z0-9_.-]{1,64}$``, and what is no draft 2020-12. So the first are folded, and the others
leave their tool out, with a report (`dropped`).
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Final, Literal

from conduit_daemon.adapters._answers import Outcome, failure_text, plain, resolved
from conduit_daemon.adapters._declaration import check_keys, check_valid, convert_all, described, object_schema
from conduit_daemon.adapters._folding import fold_root
from conduit_daemon.adapters._references import pruned
from conduit_daemon.errors import ClientError, ErrorKind
from conduit_daemon.hub.toolset import Entry, ToolSet
from conduit_daemon.model import Dropped, Rejected, ToolCall
from conduit_daemon.text import EMPTY, Media, Structured, check_structured, joined, pieces

__all__ = ["convert", "dropped", "tool_calls", "tool_result", "tools"]

_NATIVE: Final = frozenset({"image/gif", "image/jpeg", "image/png", "image/webp"})


def tools(
    toolset: ToolSet,
    *,
    cache_control: Mapping[str, Any] | None = None,
    max_description_chars: int | None = None,
) -> list[dict[str, Any]]:
    """The toolset's tools for a request's ``tools``, in its order, without what `dropped` reports.

    Args:
        toolset: What the model is offered.
        cache_control: As ``{"type": "ephemeral"}``; put on the last tool, so that all are cached.
        max_description_chars: The most characters of a description.

    Raises:
        ValueError: `max_description_chars` is negative.

    Example:
        >>> from conduit_daemon.hub.naming import build
        >>> toolset, _ = build([("files", [{"name": "read", "inputSchema": {"type": "object"}}])])
        >>> tools(toolset)
        [{'name': 'files__read', 'input_schema': {'type': 'object', 'properties': {}}}]
    """
    return convert(toolset, cache_control=cache_control, max_description_chars=max_description_chars)[0]


def dropped(toolset: ToolSet) -> tuple[Dropped, ...]:
    """The tools that Anthropic cannot take, and why: ``hidden_characters``, ``invalid_property_key``
    or ``invalid_schema``, with detail after a colon.
    """
    return convert(toolset)[1]


def convert(
    toolset: ToolSet,
    *,
    cache_control: Mapping[str, Any] | None = None,
    max_description_chars: int | None = None,
) -> tuple[list[dict[str, Any]], tuple[Dropped, ...]]:
    """What `tools` and `dropped` give, at the price of one conversion.

    Raises:
        ValueError: `max_description_chars` is negative.
    """
    made, left_out = convert_all(toolset, lambda entry: _tool(entry, max_description_chars))
    if made and cache_control is not None:
        made[-1]["cache_control"] = dict(cache_control)
    return made, left_out


def tool_calls(response: Any, toolset: ToolSet) -> list[ToolCall | Rejected]:
    """The tool calls of a response in the model's order, each ready to run or already answered.

    Only blocks of type ``tool_use`` are calls; text, thinking, ``server_tool_use`` and unknown blocks
    are ignored.

    Args:
        response: A Message, or its list of content blocks.
        toolset: What the model was offered; names resolve against it only.

    Raises:
        ValueError: `response` is neither.
    """
    blocks = plain(response)
    if isinstance(blocks, Mapping):
        blocks = blocks.get("content")
        if isinstance(blocks, str):
            return []
    if not isinstance(blocks, list):
        raise ValueError("This is no Anthropic response: expected a Message with content, or its list of blocks.")
    return [_call(block, toolset) for block in blocks if isinstance(block, Mapping) and block.get("type") == "tool_use"]


def tool_result(
    call_id: str,
    outcome: Outcome,
    *,
    structured: Structured = "auto",
    media: Literal["native", "placeholder"] = "native",
) -> dict[str, Any]:
    """The ``tool_result`` block that answers one call.

    All answers of a turn belong into one list, the content of the single next user message.

    Args:
        call_id: The ``tool_use`` block's id.
        outcome: What came of the call; a failure becomes text with ``is_error``.
        structured: What becomes of structured content.
        media: Whether images may stay images; those that are no JPEG, PNG, GIF or WebP by their bytes
            become placeholders anyway.

    Raises:
        ValueError: `structured` or `media` is unknown.
    """
    check_structured(structured)
    if media not in {"native", "placeholder"}:
        raise ValueError(f"media is {media!r}, but must be native or placeholder.")
    if isinstance(outcome, ClientError):
        return _answer(call_id, failure_text(outcome), is_error=True)
    parts = pieces(outcome, structured)
    if outcome.is_error or media == "placeholder" or not any(map(_is_native, parts)):
        return _answer(call_id, joined(parts), is_error=outcome.is_error)
    return _answer(call_id, [_block(part) for part in parts if not isinstance(part, str) or part.strip()])


def _tool(entry: Entry, max_chars: int | None) -> dict[str, Any]:
    schema, notes = fold_root(object_schema(entry, max_chars))
    made: dict[str, Any] = {"name": entry.exposed}
    if description := described(entry, max_chars, notes):
        made["description"] = description
    return {**made, "input_schema": check_valid(check_keys(pruned(schema)))}


def _call(block: Mapping[str, Any], toolset: ToolSet) -> ToolCall | Rejected:
    given = block.get("id")
    call_id = given if isinstance(given, str) else ""
    name = block.get("name")

    def reject(message: str, kind: ErrorKind) -> Rejected:
        exposed = name if isinstance(name, str) else ""
        return Rejected(call_id, exposed, _answer(call_id, message, is_error=True), kind)

    return resolved(toolset, name, call_id, block.get("input"), reject, lambda entry: _tool(entry, None))


def _answer(call_id: str, content: str | list[dict[str, Any]], *, is_error: bool = False) -> dict[str, Any]:
    made: dict[str, Any] = {"type": "tool_result", "tool_use_id": call_id, "content": content or EMPTY}
    if is_error:
        made["is_error"] = True
    return made


def _is_native(part: str | Media) -> bool:
    return isinstance(part, Media) and part.kind == "image" and part.actual in _NATIVE


def _block(part: str | Media) -> dict[str, Any]:
    if isinstance(part, Media) and _is_native(part):
        # The API compares the declared type with the bytes, so the bytes decide.
        source = {"type": "base64", "media_type": part.actual, "data": part.data}
        return {"type": "image", "source": source}
    return {"type": "text", "text": part if isinstance(part, str) else part.placeholder}
