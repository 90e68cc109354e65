"""Tools, calls and results in the forms of OpenAI's chat completions and responses (pure: dicts in, dicts out).

Where its schema has a strict form a tool is sent strict: the model then cannot send malformed arguments, but
sends null for what it leaves out. Those nulls are known by their paths and taken out again.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any, Final, Literal, get_args

import msgspec

from conduit_daemon.adapters._answers import Outcome, failure_text, plain, resolved
from conduit_daemon.adapters._declaration import check_valid, convert_all, described, object_schema
from conduit_daemon.adapters._drafts import lifted
from conduit_daemon.adapters._folding import fold_root
from conduit_daemon.adapters._hygiene import clean_schema
from conduit_daemon.adapters._references import pruned
from conduit_daemon.adapters._schema import Schema, Unusable, map_children
from conduit_daemon.adapters.strict import Fallback, NullPath, StrictForm, strict_form, strip_nulls
from conduit_daemon.errors import ClientError, ErrorKind, StrictSchemaError
from conduit_daemon.hub.toolset import Entry, ToolSet
from conduit_daemon.model import Dropped, Rejected, ToolCall
from conduit_daemon.text import Media, Structured, check_structured, joined, pieces

__all__ = ["Api", "OpenAITools", "dropped", "tool_calls", "tool_output", "tools"]

Api = Literal["chat", "responses"]

_IMAGES: Final = frozenset({"image/gif", "image/jpeg", "image/png", "image/webp"})
_AT_ROOT: Final = frozenset({"const", "enum", "not"})
"""What the API refuses at a schema's root, besides the combining keywords."""


class OpenAITools(msgspec.Struct, frozen=True, kw_only=True):
    """A toolset in OpenAI's format.

    Attributes:
        tools: For a request's ``tools``, in the toolset's order.
        null_paths: By exposed name, for each tool sent strict: where null stands for an absent argument.
            To be given to `tool_calls`.
        fallbacks: By exposed name, why a tool is sent non-strict under ``strict="auto"``.
        dropped: The tools that OpenAI cannot take, and why.
    """

    tools: list[dict[str, Any]]
    null_paths: dict[str, list[NullPath]] = {}
    fallbacks: dict[str, str] = {}
    dropped: tuple[Dropped, ...] = ()


def tools(
    toolset: ToolSet,
    *,
    api: Api,
    strict: bool | Literal["auto"] = "auto",
    max_description_chars: int | None = None,
) -> OpenAITools:
    """The toolset's tools for a request's ``tools``.

    Args:
        toolset: What the model is offered.
        api: ``chat`` or ``responses``; their forms differ.
        strict: ``"auto"`` sends a tool strict where its schema has a strict form, and says in
            ``fallbacks`` why it has none; True wants it for all; False for none.
        max_description_chars: The most characters of a description.

    Raises:
        StrictSchemaError: `strict` is True and a tool's schema has no strict form.
        ValueError: `api` or `strict` is unknown, or `max_description_chars` negative.

    Example:
        >>> from conduit_daemon.hub.naming import build
        >>> schema = {"type": "object", "properties": {"n": {"type": "integer"}}}
        >>> toolset, _ = build([("s", [{"name": "t", "inputSchema": schema}])])
        >>> tools(toolset, api="responses").null_paths
        {'s__t': [['n']]}
    """
    _check_api(api)
    if strict not in (True, False, "auto"):
        raise ValueError(f"strict is {strict!r}, but must be True, False or 'auto'.")
    null_paths: dict[str, list[NullPath]] = {}
    fallbacks: dict[str, str] = {}

    def convert(entry: Entry) -> dict[str, Any]:
        definition = _loose(entry, max_description_chars)
        if strict is not False:
            try:
                form = _strict(entry, max_description_chars)
            except Fallback as error:
                if strict is True:
                    raise StrictSchemaError(entry.exposed, error.reason) from None
                fallbacks[entry.exposed] = error.reason
            else:
                null_paths[entry.exposed] = form.null_paths
                definition = _definition(entry, described(entry, max_description_chars), form.schema, strict=True)
        return {"type": "function", "function": definition} if api == "chat" else {"type": "function", **definition}

    made, left_out = convert_all(toolset, convert)
    return OpenAITools(tools=made, null_paths=null_paths, fallbacks=fallbacks, dropped=left_out)


def dropped(toolset: ToolSet) -> tuple[Dropped, ...]:
    """The tools that OpenAI cannot take, and why: ``hidden_characters`` or ``invalid_schema``, with
    detail after a colon.
    """
    return convert_all(toolset, _usable)[1]


def tool_calls(
    response: Any,
    toolset: ToolSet,
    *,
    api: Api,
    null_paths: Mapping[str, list[NullPath]] | None = None,
    error_prefix: str = "Error: ",
) -> list[ToolCall | Rejected]:
    """The function calls of a response in the model's order, each ready to run or already answered.

    Calls of custom tools are answered with an error, since none are offered; all else is ignored.

    Args:
        response: For chat a ChatCompletion (its first choice counts), a message or a list of tool calls;
            for responses a Response or its list of output items.
        toolset: What the model was offered; names resolve against it only.
        api: ``chat`` or ``responses``.
        null_paths: Of the listing; nulls at these paths are taken out of the arguments.
        error_prefix: Stands before the text of each refusal.

    Raises:
        ValueError: `api` is unknown, or `response` is none of these.
    """
    _check_api(api)
    calls = _chat_calls(plain(response)) if api == "chat" else _output_items(plain(response))
    paths = null_paths or {}
    return [_call(call, toolset, api, paths, error_prefix) for call in calls]


def tool_output(
    call_id: str,
    outcome: Outcome,
    *,
    api: Api,
    structured: Structured = "auto",
    error_prefix: str = "Error: ",
    media: Literal["placeholder", "native"] = "placeholder",
) -> dict[str, Any]:
    """The answer to one call: a tool message for chat, a ``function_call_output`` item for responses.

    Args:
        call_id: The call's ``id`` in chat, its ``call_id`` in responses.
        outcome: What came of the call.
        api: ``chat`` or ``responses``.
        structured: What becomes of structured content.
        error_prefix: Stands before the text of a failure, for which the API has no field.
        media: ``native`` sends images and PDFs as such; responses only.

    Raises:
        ValueError: An option is unknown, or native media are asked of chat, which takes text only.
    """
    _check_api(api)
    check_structured(structured)
    if media not in {"placeholder", "native"}:
        raise ValueError(f"media is {media!r}, but must be placeholder or native.")
    if media == "native" and api == "chat":
        raise ValueError("OpenAI's chat completions take text from tools only: use media='placeholder'.")
    if isinstance(outcome, ClientError):
        return _answer(call_id, error_prefix + failure_text(outcome), api)
    parts = pieces(outcome, structured)
    if outcome.is_error:
        return _answer(call_id, error_prefix + joined(parts), api)
    if media == "placeholder" or all(_native(part) is None for part in parts):
        return _answer(call_id, joined(parts), api)
    return _answer(call_id, list(_items(parts)), api)


def _check_api(api: str) -> None:
    if api not in get_args(Api):
        raise ValueError(f"api is {api!r}, but must be 'chat' or 'responses'.")


def _definition(entry: Entry, description: str | None, schema: Schema, *, strict: bool) -> dict[str, Any]:
    said = {"description": description} if description else {}
    return {"name": entry.exposed, **said, "parameters": schema, "strict": strict}


def _usable(entry: Entry) -> dict[str, Any]:
    return _loose(entry, None)


def _loose(entry: Entry, max_chars: int | None) -> dict[str, Any]:
    """The definition without strict mode: what the API wants of any schema."""
    folded, notes = fold_root(object_schema(entry, max_chars))
    schema = {key: value for key, value in folded.items() if key not in _AT_ROOT}
    checked = check_valid(pruned(_with_items(schema)))
    return _definition(entry, described(entry, max_chars, notes), checked, strict=False)


def _strict(entry: Entry, max_chars: int | None) -> StrictForm:
    schema = clean_schema(lifted(entry.tool.input_schema), max_chars)
    try:
        # The loose form may be valid although this is not: it leaves out what stands at the root.
        return strict_form(check_valid(schema), max_chars)
    except Unusable as error:
        raise Fallback(error.reason) from None


def _with_items(node: Any) -> Any:
    if not isinstance(node, dict):
        return node
    made = map_children(node, _with_items)
    declared = made.get("type")
    if declared == "array" or (isinstance(declared, list) and "array" in declared):
        made.setdefault("items", {})
    return made


def _chat_calls(response: Any) -> list[Mapping[str, Any]]:
    found = response
    if isinstance(found, Mapping) and "choices" in found:
        choices = found["choices"]
        first = choices[0] if isinstance(choices, list) and choices else {}
        found = first.get("message") if isinstance(first, Mapping) else None
    if isinstance(found, Mapping) and ("tool_calls" in found or "role" in found):
        found = found.get("tool_calls") or []
    if not isinstance(found, list):
        raise ValueError("This is no chat response: expected a ChatCompletion, a message or a list of tool calls.")
    return [
        call for call in found if isinstance(call, Mapping) and call.get("type", "function") in {"function", "custom"}
    ]


def _output_items(response: Any) -> list[Mapping[str, Any]]:
    found = response.get("output") if isinstance(response, Mapping) else response
    if not isinstance(found, list):
        raise ValueError("This is no response of the Responses API: expected a Response or its list of output items.")
    kinds = {"function_call", "custom_tool_call"}
    return [item for item in found if isinstance(item, Mapping) and item.get("type") in kinds]


def _call(
    call: Mapping[str, Any], toolset: ToolSet, api: Api, null_paths: Mapping[str, list[NullPath]], prefix: str
) -> ToolCall | Rejected:
    is_custom = call.get("type") in {"custom", "custom_tool_call"}
    given = call.get("id" if api == "chat" else "call_id")
    call_id = given if isinstance(given, str) else ""
    holder = call.get("custom" if is_custom else "function") if api == "chat" else call
    function: Mapping[str, Any] = holder if isinstance(holder, Mapping) else {}
    name = function.get("name")

    def reject(message: str, kind: ErrorKind) -> Rejected:
        exposed = name if isinstance(name, str) else ""
        return Rejected(call_id, exposed, _answer(call_id, prefix + message, api, is_custom=is_custom), kind)

    if is_custom:
        return reject("There are no custom tools. Call one of the listed functions instead.", "unknown_tool")
    try:
        arguments = _parsed(function.get("arguments"))
    except ValueError as error:
        if toolset.resolve(name) is not None:
            return reject(f"The arguments are no valid JSON ({error}). Send a JSON object.", "invalid_arguments")
        arguments = {}
    found = resolved(toolset, name, call_id, arguments, reject, _usable)
    if isinstance(found, ToolCall) and (paths := null_paths.get(found.exposed_name)):
        return msgspec.structs.replace(found, arguments=strip_nulls(found.arguments, paths))
    return found


def _parsed(arguments: Any) -> Any:
    """The arguments as JSON; absent or blank ones are an empty object.

    Raises:
        ValueError: They are no JSON (in which NaN is no number).
    """
    if arguments is None:
        return {}
    if not isinstance(arguments, str):
        return arguments
    if not arguments.strip():
        return {}
    try:
        value = msgspec.json.decode(arguments)
    except (RecursionError, UnicodeEncodeError) as error:
        raise ValueError(type(error).__name__) from None
    return {} if value is None else value


def _answer(call_id: str, output: str | list[dict[str, Any]], api: Api, *, is_custom: bool = False) -> dict[str, Any]:
    if api == "chat":
        return {"role": "tool", "tool_call_id": call_id, "content": output}
    kind = "custom_tool_call_output" if is_custom else "function_call_output"
    return {"type": kind, "call_id": call_id, "output": output}


def _items(parts: list[str | Media]) -> Iterator[dict[str, Any]]:
    for part in parts:
        native = _native(part)
        if native is not None:
            yield native
            continue
        text = part if isinstance(part, str) else part.placeholder
        if text.strip():
            yield {"type": "input_text", "text": text}


def _native(part: str | Media) -> dict[str, Any] | None:
    """The part as an image or a file that the API takes; None where it must be text."""
    if isinstance(part, str) or part.data is None:
        return None
    url = f"data:{part.actual};base64,{part.data}"
    if part.actual in _IMAGES and part.kind != "audio":
        return {"type": "input_image", "image_url": url, "detail": "auto"}
    if part.actual == "application/pdf" and part.kind == "blob":
        name = (part.uri or "").rsplit("/", 1)[-1] or "document.pdf"
        return {"type": "input_file", "filename": name, "file_data": url}
    return None
