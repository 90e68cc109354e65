"""Running the calls that a model made, and answering them in its provider's own shape."""

from __future__ import annotations

import os
from typing import Any, Literal

import msgspec
import trio

from conduit_daemon.adapters import anthropic, gemini, openai
from conduit_daemon.adapters.listing import Api, ListingOptions, Provider, list_tools, render
from conduit_daemon.errors import ClientError
from conduit_daemon.hub.toolset import ToolSet
from conduit_daemon.model import Call, Outcome, Principal, Rejected, ToolCall, ToolReport, ToolResult
from conduit_daemon.pipeline.gate import Context
from conduit_daemon.pipeline.run import OnProgress, run
from conduit_daemon.pipeline.shape import MAX_TEXT, shape

__all__ = ["ExecuteOptions", "Executed", "Structured", "execute"]

Structured = Literal["auto", "append", "prefer", "ignore"]


class ExecuteOptions(msgspec.Struct, frozen=True, kw_only=True):
    """How calls are run and answered.

    Attributes:
        provider: Whose shapes.
        api: OpenAI's API, required there.
        null_paths: As the listing gave them; None takes those of the toolset's strict listing.
        max_concurrency: Calls that run at a time; None for the number of processors.
        call_timeout: Seconds that one call may take in all.
        structured: What becomes of structured content; None for the provider's default.
        error_prefix: What stands before a failure (OpenAI); None for the default.
        shape: ``llm`` cleans and caps results; None leaves them.
        max_text: Bytes of text that a shaped result may have.
        assigns: Facts of the caller's own, for rules.
        taint: Ids of the servers whose output is in the model's context.
        meta: Passed to the servers.
    """

    provider: Provider
    api: Api | None = None
    null_paths: dict[str, list[list[str | None]]] | None = None
    max_concurrency: int | None = None
    call_timeout: float = 300.0
    structured: Structured | None = None
    error_prefix: str | None = None
    shape: Literal["llm"] | None = "llm"
    max_text: int = MAX_TEXT
    assigns: dict[str, Any] = {}
    taint: frozenset[str] = frozenset()
    meta: dict[str, Any] = {}


class Executed(msgspec.Struct, frozen=True, kw_only=True):
    """What came of a model's calls.

    Attributes:
        status: ``halt`` where an approver asked for the agent's loop to end, else ``ok``.
        results: The answers in the provider's shape, in the model's order.
        taint: The servers whose results now are in the model's context, to be given with the next turn.
        outcomes: What became of each call, in the same order.
    """

    status: Literal["ok", "halt"]
    results: list[dict[str, Any]]
    taint: tuple[str, ...]
    outcomes: list[ToolReport]


async def execute(
    context: Context,
    principal: Principal,
    toolset: ToolSet,
    calls_or_response: Any,
    options: ExecuteOptions,
    *,
    on_progress: OnProgress | None = None,
) -> Executed:
    """Runs a model's calls through the pipeline and answers each, in the model's order.

    Calls of unknown tools or with arguments that are no object are answered and not sent. A call that fails is
    an answer too. No call is tainted by what another one of them reads, in whatever order they run.

    Args:
        context: The pipeline as the caller sees it.
        principal: Who calls.
        toolset: What the model was offered; calls resolve against it alone.
        calls_or_response: What the provider's adapter parses, or a list of ToolCalls.
        options: How they are run and answered.
        on_progress: Called with the raw params of each progress notification of any call.

    Raises:
        ClientError: ``invalid_params``: the response is none of the provider's, or an option does not fit it.
    """
    shapes = _Shapes(toolset, options)
    if options.provider == "openai" and options.api is not None and options.null_paths is None:
        await list_tools(toolset, ListingOptions(provider="openai", api=options.api), context.gate.bus)
    wanted = shapes.parse(calls_or_response)
    context.gate.remember(toolset)
    answers: list[tuple[dict[str, Any], ToolReport] | None] = [None] * len(wanted)
    view = context.turn()
    touched: list[str] = []
    halt = False
    limit = trio.CapacityLimiter(max(1, options.max_concurrency or os.cpu_count() or 1))

    async def one(place: int, wish: ToolCall) -> None:
        nonlocal halt
        call = Call(
            id=context.gate.new_call_id(),
            name=wish.exposed_name,
            arguments=wish.arguments,
            principal=principal,
            taint=options.taint,
            assigns=options.assigns,
            meta=options.meta,
            timeout=options.call_timeout,
            toolset=toolset.id,
        )
        async with limit:
            outcome = await run(call, view, on_progress=on_progress)
        halt = halt or outcome.halt
        if outcome.heard_from is not None:
            touched.append(outcome.heard_from)
        answers[place] = shapes.answer(wish, outcome), outcome.report(wish.call_id)

    async with trio.open_nursery() as nursery:
        for place, wish in enumerate(wanted):
            if isinstance(wish, Rejected):
                report = ToolReport(
                    call_id=wish.call_id,
                    server=None,
                    tool=wish.exposed_name,
                    kind=wish.kind,
                    outcome="not_sent",
                    duration=0.0,
                )
                answers[place] = wish.answer, report
            else:
                nursery.start_soon(one, place, wish)
    done = [answer for answer in answers if answer is not None]
    return Executed(
        status="halt" if halt else "ok",
        results=[result for result, _ in done],
        taint=tuple(sorted(options.taint.union(touched))),
        outcomes=[report for _, report in done],
    )


class _Shapes:
    """One provider's way to ask and to be answered."""

    def __init__(self, toolset: ToolSet, options: ExecuteOptions) -> None:
        self._toolset = toolset
        self._options = options
        if options.provider == "openai" and options.api is None:
            raise ClientError("invalid_params", "OpenAI needs an api: 'chat' or 'responses'.")

    def parse(self, given: Any) -> list[ToolCall | Rejected]:
        """The calls that the model made, and the ready answers of those that are refused, in its order."""
        options = self._options
        if isinstance(given, list) and given and all(isinstance(item, ToolCall) for item in given):
            return list(given)
        try:
            match options.provider:
                case "anthropic":
                    return anthropic.tool_calls(given, self._toolset)
                case "gemini":
                    return gemini.function_calls(given, self._toolset)
                case "openai":
                    assert options.api is not None  # noqa: S101 - the constructor looked
                    prefix: dict[str, Any] = {}
                    if options.error_prefix is not None:
                        prefix["error_prefix"] = options.error_prefix
                    return openai.tool_calls(
                        given, self._toolset, api=options.api, null_paths=self._null_paths(options.api), **prefix
                    )
        except (ValueError, TypeError) as error:
            raise ClientError("invalid_params", f"This is no response of {options.provider}: {error}") from error

    def _null_paths(self, api: Api) -> dict[str, list[list[str | None]]]:
        if self._options.null_paths is not None:
            return self._options.null_paths
        return render(self._toolset, ListingOptions(provider="openai", api=api)).null_paths

    def answer(self, wish: ToolCall, outcome: Outcome) -> dict[str, Any]:
        """The answer to one call."""
        options = self._options
        result: ToolResult | ClientError
        try:
            result = outcome.tool_result()
            if options.shape is not None:
                default: Structured = "prefer" if options.provider == "gemini" else "auto"
                result = shape(result, max_text=options.max_text, structured=options.structured or default)
        except ClientError as error:
            result = error
        more: dict[str, Any] = {} if options.structured is None else {"structured": options.structured}
        match options.provider:
            case "anthropic":
                return anthropic.tool_result(wish.call_id or "", result, **more)
            case "gemini":
                return gemini.function_response(wish.exposed_name, result, id=wish.call_id, **more)
            case "openai":
                assert options.api is not None  # noqa: S101 - the constructor looked
                if options.error_prefix is not None:
                    more["error_prefix"] = options.error_prefix
                return openai.tool_output(wish.call_id or "", result, api=options.api, **more)
