"""What a thousand tools cost: building the toolset, converting it, and listing it again from what is kept.

    python tests/benchmarks/bench_toolset.py

20 servers with 50 tools each, of the shapes that real catalogues have. Every figure is the median of several runs, in
ms of this process' CPU; goals: building at most 50 ms, a listing that is kept at most 5 ms.
"""

from __future__ import annotations

import statistics
import time
from collections.abc import Callable
from typing import Any

import msgspec
import trio

from conduit_daemon.adapters import ListingOptions, list_tools
from conduit_daemon.hub.naming import build
from conduit_daemon.hub.toolset import ToolSet
from conduit_daemon.model import Tool
from conduit_daemon.telemetry.events import EventBus

OPTIONS = {
    "MCP": ListingOptions(),
    "Anthropic": ListingOptions(provider="anthropic"),
    "OpenAI, chat": ListingOptions(provider="openai", api="chat"),
    "OpenAI, responses": ListingOptions(provider="openai", api="responses"),
    "Gemini": ListingOptions(provider="gemini"),
}


def tool(number: int) -> Tool:
    """One of four shapes: flat, with options, with a list of objects, with alternatives."""
    text = {"type": "string", "description": "A few words about what goes in here, as servers write them."}
    shapes: list[dict[str, Any]] = [
        {"path": text},
        {"query": text, "limit": {"type": "integer", "minimum": 1, "default": 20}, "sort": {"enum": ["new", "old"]}},
        {"edits": {"type": "array", "items": {"type": "object", "properties": {"old": text, "new": text}}}},
        {"target": {"anyOf": [{"type": "string"}, {"type": "integer"}]}, "note": text, "dry": {"type": "boolean"}},
    ]
    properties = shapes[number % len(shapes)]
    schema = {"type": "object", "properties": properties, "required": [next(iter(properties))]}
    return Tool(
        name=f"tool_{number}", description="Does one thing well, and says so in a line. " * 3, input_schema=schema
    )


def measured(work: Callable[[], Any], runs: int = 7) -> float:
    times = []
    for _ in range(runs):
        began = time.process_time()
        work()
        times.append(time.process_time() - began)
    return statistics.median(times) * 1000


def main() -> None:
    servers = [(f"server-{i}", [tool(j) for j in range(50)]) for i in range(20)]
    bus = EventBus()
    print(f"{'building the toolset':28}{measured(lambda: build(servers)):10.2f} ms")
    print(f"{'':28}{'first':>13}{'kept':>13}{'kept, as JSON':>17}")
    for name, options in OPTIONS.items():
        fresh: list[ToolSet] = [build(servers)[0] for _ in range(3)]
        kept = fresh[0]

        def again(toolset: ToolSet = kept, options: ListingOptions = options) -> Any:
            return trio.run(list_tools, toolset, options, bus)

        first = measured(lambda fresh=fresh, options=options: trio.run(list_tools, fresh.pop(), options, bus), 3)
        trio.run(list_tools, kept, options, bus)
        overhead = measured(lambda: trio.run(trio.lowlevel.checkpoint))
        encoded = measured(lambda: msgspec.json.encode({"tools": again().encoded}))
        print(f"{name:28}{first - overhead:10.2f} ms{measured(again) - overhead:10.2f} ms{encoded - overhead:14.2f} ms")


if __name__ == "__main__":
    main()
