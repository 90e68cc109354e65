"""Using tools by hand: `conduit tools`, `conduit call`, `conduit execute`."""

from __future__ import annotations

import sys
from pathlib import Path
from typing import Annotated, Any, Literal

import msgspec
from cyclopts import Parameter

from conduit_daemon.agent import CallResult, requests
from conduit_daemon.cli import output
from conduit_daemon.cli.arguments import parse_arguments
from conduit_daemon.cli.connection import HERE, Where, ask
from conduit_daemon.cli.exits import DENIED, DONE, TOOL_ERROR, UsageError
from conduit_daemon.cli.readiness import waiting_for_servers

__all__ = ["call", "execute", "tools"]

Provider = Literal["anthropic", "openai", "gemini"]
Api = Literal["chat", "responses"]

_STRICT: dict[str, bool | str] = {"auto": "auto", "true": True, "false": False}


def tools(
    provider: Provider | None = None,
    *,
    api: Api | None = None,
    strict: Literal["auto", "true", "false"] | None = None,
    client: str | None = None,
    prefix: str | None = None,
    set: str | None = None,
    refresh: bool = False,
    principal: str | None = None,
    timeout: float | None = None,
    json: bool = False,
    where: Where = HERE,
) -> int:
    """Lists the tools, plain or in a model provider's format.

    Args:
        provider: Whose format; plain MCP tools without.
        api: For OpenAI, which of its APIs.
        strict: For OpenAI, whether schemas are converted to its strict form.
        client: Only this server's tools, under their own names.
        prefix: Put before every name.
        set: A named toolset of the configuration.
        refresh: Ask the servers anew.
        principal: Ask for this agent.
        timeout: Seconds to wait for servers that are connecting (5; 0 for not at all).
        json: Print the daemon's answer, with the tools as the provider takes them.
    """
    _check_api(provider, api)
    request = requests.tools(
        provider,
        api=api,
        strict=None if strict is None else _STRICT[strict],
        client=client,
        prefix=prefix,
        set=set,
        refresh=refresh or None,
        principal=principal,
        timeout=timeout,
    )
    with where.open() as conduit, waiting_for_servers(conduit):
        answer, listing = ask(conduit, request)
    if json:
        output.print_json(answer)
        return DONE
    rows = [
        (str(tool.get("name", "")), output.first_line(tool.get("description"))) for tool in map(_plain, listing.tools)
    ]
    if rows:
        output.table(("tool", "description"), rows)
    else:
        output.print_text("No tools.")
    for server in listing.missing:
        output.print_error(f"without server {server.server} ({server.state}): {server.reason or 'no reason is known'}")
    for dropped in listing.dropped:
        members = ", ".join("/".join(member) for member in dropped.members)
        output.print_error(f"not offered: {dropped.exposed or members} ({dropped.reason}; {members})")
    for warning in listing.warnings:
        output.print_error(warning)
    return DONE


def call(
    name: str,
    /,
    *arguments: str,
    taint: Annotated[list[str] | None, Parameter(negative=())] = None,
    timeout: float | None = None,
    shape: Literal["llm"] | None = None,
    principal: str | None = None,
    json: bool = False,
    where: Where = HERE,
) -> int:
    """Calls one tool and prints its result.

    Args:
        name: The tool's name, as `conduit tools` lists it.
        arguments: A JSON object, or name=text and name:=JSON.
        taint: A server whose output is in the caller's context (may be repeated).
        timeout: Seconds that the call may take in all.
        shape: "llm" cleans and caps the result as for a model.
        principal: Call as this agent.
        json: Print the result as it came.
    """
    request = requests.call(
        name, parse_arguments(arguments), taint=taint, timeout=timeout, shape=shape, principal=principal
    )
    with where.open() as conduit, output.waiting(f"Calling {name}") as progress:
        answer, result = ask(conduit, request, progress)
    if json:
        output.print_json(answer)
    else:
        output.print_data(_shown(result))
    return TOOL_ERROR if result.is_error else DONE


def execute(
    provider: Provider,
    file: Annotated[Path | None, Parameter(allow_leading_hyphen=True)] = None,
    *,
    api: Api | None = None,
    toolset: str | None = None,
    call_timeout: float | None = None,
    max_concurrency: int | None = None,
    taint: Annotated[list[str] | None, Parameter(negative=())] = None,
    principal: str | None = None,
    json: bool = False,
    where: Where = HERE,
) -> int:
    """Runs the tool calls of a model's response (stdin or a file).

    Args:
        provider: Whose response it is.
        file: The response as JSON; stdin without, or where it is "-".
        api: For OpenAI, which of its APIs.
        toolset: The id of the listing that the model was offered.
        call_timeout: Seconds that one call may take.
        max_concurrency: Calls that run at once.
        taint: A server whose output is in the model's context (may be repeated).
        principal: Call as this agent.
        json: Print the daemon's answer; its "results" go into the next request to the provider.
    """
    _check_api(provider, api)
    request = requests.execute(
        provider,
        _response(file),
        api=api,
        toolset=toolset,
        call_timeout=call_timeout,
        max_concurrency=max_concurrency,
        taint=taint,
        principal=principal,
    )
    with where.open() as conduit, output.waiting("Running the calls") as progress:
        answer, done = ask(conduit, request, progress)
    if json:
        output.print_json(answer)
    elif not done.results:
        output.print_text("The response calls no tools.")
    else:
        rows = [
            (outcome.tool, outcome.kind, output.took(outcome.duration), msgspec.json.encode(result).decode())
            for outcome, result in zip(done.outcomes, done.results, strict=True)
        ]
        output.table(("tool", "outcome", "took", "answer for the model"), rows, numbers=("took",))
    if done.status == "halt":
        output.print_error("A person has denied a call and said that the agent shall stop.")
        return DENIED
    return DONE


def _check_api(provider: str | None, api: str | None) -> None:
    if provider == "openai" and api is None:
        raise UsageError("OpenAI has two APIs: add --api chat or --api responses.")


def _plain(tool: dict[str, Any]) -> dict[str, Any]:
    function = tool.get("function")
    return function if isinstance(function, dict) else tool


def _response(file: Path | None) -> Any:
    if file is not None and str(file).startswith("--"):
        raise UsageError(f"Unknown option: {file}. See 'conduit execute --help'.")
    try:
        data = sys.stdin.buffer.read() if file is None or str(file) == "-" else file.read_bytes()
    except OSError as error:
        raise UsageError(f"{file} cannot be read: {error.strerror}.") from error
    try:
        return msgspec.json.decode(data)
    except (msgspec.DecodeError, RecursionError) as error:
        raise UsageError(f"The response in {file or 'stdin'} cannot be read as JSON: {error}.") from error


def _shown(result: CallResult) -> str:
    parts = [_block(block) for block in result.content]
    if not result.text and result.structured_content is not msgspec.UNSET:
        parts.append(msgspec.json.format(msgspec.json.encode(result.structured_content), indent=2).decode())
    return "\n".join(parts) or "(empty result)"


def _block(block: dict[str, Any]) -> str:
    match block.get("type"):
        case "text":
            return str(block.get("text", ""))
        case "image" | "audio" as kind:
            size = len(str(block.get("data", ""))) * 3 // 4
            return f"[{kind}: {block.get('mimeType')}, about {size} bytes; --json prints it]"
        case "resource" if isinstance(resource := block.get("resource"), dict):
            return f"[resource: {resource.get('uri')}]\n{resource.get('text', '(binary; --json prints it)')}"
        case "resource_link":
            return f"[resource link: {block.get('name')}, {block.get('uri')}]"
        case other:
            return f"[{other}; --json prints it]"
