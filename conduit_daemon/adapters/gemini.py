"""Tools, calls and results in the form of Gemini's generateContent (pure: dicts in, dicts out).

A schema goes out as ``parametersJsonSchema`` with the keywords that the service knows and no others, and with
``$ref`` only where a schema is recursive. The model's Content, thought signatures included, must be sent back
by the caller as it came.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Final, Literal

from msgspec import UNSET

from conduit_daemon.adapters._answers import Outcome, failure_text, plain, resolved
from conduit_daemon.adapters._declaration import check_valid, convert_all, described, object_schema
from conduit_daemon.adapters._gemini_schema import gemini_schema
from conduit_daemon.errors import ClientError, ErrorKind
from conduit_daemon.hub.toolset import Entry, ToolSet
from conduit_daemon.model import Dropped, Rejected, ToolCall, ToolResult
from conduit_daemon.text import Media, Structured, check_structured, compact_json, joined, pieces

__all__ = ["convert", "dropped", "function_calls", "function_declarations", "function_response"]

_NATIVE: Final = frozenset({"application/pdf", "image/jpeg", "image/png", "image/webp"})
_LARGEST_EXACT: Final = 2**53


def function_declarations(toolset: ToolSet, *, max_description_chars: int | None = None) -> list[dict[str, Any]]:
    """The toolset's tools, to stand under ``functionDeclarations`` in a request's ``tools``.

    Args:
        toolset: What the model is offered.
        max_description_chars: The most characters of a description.

    Raises:
        ValueError: `max_description_chars` is negative.

    Example:
        >>> from conduit_daemon.hub.naming import build
        >>> toolset, _ = build([("files", [{"name": "read", "inputSchema": {"type": "object"}}])])
        >>> function_declarations(toolset)[0]["parametersJsonSchema"]
        {'type': 'object', 'properties': {}}
    """
    return convert(toolset, max_description_chars=max_description_chars)[0]


def dropped(toolset: ToolSet) -> tuple[Dropped, ...]:
    """The tools that Gemini cannot take, and why: ``hidden_characters`` or ``invalid_schema``, with
    detail after a colon.
    """
    return convert(toolset)[1]


def convert(
    toolset: ToolSet, *, max_description_chars: int | None = None
) -> tuple[list[dict[str, Any]], tuple[Dropped, ...]]:
    """What `function_declarations` and `dropped` give, at the price of one conversion.

    Raises:
        ValueError: `max_description_chars` is negative.
    """
    return convert_all(toolset, lambda entry: _declaration(entry, max_description_chars))


def function_calls(response: Any, toolset: ToolSet) -> list[ToolCall | Rejected]:
    """The function calls of a response in the model's order, each ready to run or already answered.

    A call's id is None where Gemini gave none; such calls are answered by their place.

    Args:
        response: A generateContent response (its first candidate counts), a Content, or a list of parts.
        toolset: What the model was offered; names resolve against it only.

    Raises:
        ValueError: `response` is none of these.
    """
    calls = []
    for part in _parts(plain(response)):
        call = part.get("functionCall", part.get("function_call")) if isinstance(part, Mapping) else None
        if isinstance(call, Mapping):
            calls.append(_call(call, toolset))
    return calls


def function_response(
    name: str,
    outcome: Outcome,
    *,
    id: str | None = None,
    structured: Structured = "prefer",
    media: Literal["placeholder", "native"] = "placeholder",
) -> dict[str, Any]:
    """The ``functionResponse`` part that answers one call.

    The answers of a turn belong into one Content of the user, in the order of the calls.

    Args:
        name: The exposed name that the model used.
        outcome: What came of the call: ``response.output``, or ``response.error`` for a failure.
        id: The call's id, where Gemini gave one.
        structured: ``prefer`` gives structured content itself as the output.
        media: ``native`` sends images and PDFs as parts of the answer.

    Raises:
        ValueError: `structured` or `media` is unknown.
    """
    check_structured(structured)
    if media not in {"placeholder", "native"}:
        raise ValueError(f"media is {media!r}, but must be placeholder or native.")
    if isinstance(outcome, ClientError):
        return _answer(name, {"error": failure_text(outcome)}, id)
    if outcome.is_error:
        return _answer(name, {"error": joined(pieces(outcome, "auto"))}, id)
    sent = [part for part in pieces(outcome, "ignore") if _is_native(part)] if media == "native" else []
    answer = _answer(name, {"output": _output(outcome, structured, bool(sent))}, id)
    if sent:
        answer["functionResponse"]["parts"] = [
            {"inlineData": {"mimeType": part.actual, "data": part.data}} for part in sent if isinstance(part, Media)
        ]
    return answer


def _declaration(entry: Entry, max_chars: int | None) -> dict[str, Any]:
    schema, notes = gemini_schema(check_valid(object_schema(entry, max_chars)))
    return {
        "name": entry.exposed,
        "description": described(entry, max_chars, notes) or "",
        "parametersJsonSchema": schema,
    }


def _parts(response: Any) -> list[Any]:
    found = response
    if isinstance(found, Mapping) and "parts" not in found:
        if "candidates" not in found and found.keys().isdisjoint({"promptFeedback", "usageMetadata", "role"}):
            raise ValueError(
                "This is no Gemini response: expected a generateContent response, a Content or a list of parts."
            )
        candidates = found.get("candidates")
        first = candidates[0] if isinstance(candidates, list) and candidates else None
        found = first.get("content") if isinstance(first, Mapping) else None
    if isinstance(found, Mapping):
        found = found.get("parts")
    if found is None:  # a blocked prompt, or a candidate that was stopped
        return []
    if not isinstance(found, list):
        raise ValueError("This is no Gemini response: its parts are no list.")
    return found


def _call(call: Mapping[str, Any], toolset: ToolSet) -> ToolCall | Rejected:
    given = call.get("id")
    call_id = given if isinstance(given, str) else None
    name = call.get("name")
    exposed = name if isinstance(name, str) else ""

    def reject(message: str, kind: ErrorKind) -> Rejected:
        return Rejected(call_id, exposed, _answer(exposed, {"error": message}, call_id), kind)

    arguments = call.get("args")
    return resolved(
        toolset,
        name,
        call_id,
        {} if arguments is None else arguments,
        reject,
        lambda entry: _declaration(entry, None),
    )


def _answer(name: str, response: dict[str, Any], call_id: str | None) -> dict[str, Any]:
    made: dict[str, Any] = {"name": name, "response": response}
    if call_id is not None:
        made = {"id": call_id, **made}
    return {"functionResponse": made}


def _output(result: ToolResult, structured: Structured, has_native: bool) -> Any:
    value = result.structured_content
    if structured == "prefer" and value is not UNSET:
        return compact_json(value) if _is_altered_in_transit(value) else value
    parts = pieces(result, structured)
    texts = [part for part in parts if not (has_native and _is_native(part))]
    # An image alone would leave the model without a word.
    return joined(texts or parts)


def _is_native(part: str | Media) -> bool:
    return isinstance(part, Media) and part.kind != "audio" and part.actual in _NATIVE


def _is_altered_in_transit(value: Any) -> bool:
    """Whether the service would read it otherwise: ``$ref`` names a part, and numbers are doubles there."""
    waiting = [value]
    while waiting:
        node = waiting.pop()
        if isinstance(node, dict):
            if "$ref" in node:
                return True
            waiting.extend(node.values())
        elif isinstance(node, list):
            waiting.extend(node)
        elif isinstance(node, int) and abs(node) > _LARGEST_EXACT:
            return True
    return False
