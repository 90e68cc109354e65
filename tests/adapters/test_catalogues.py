"""Real servers' catalogues: nothing dropped that need not be, and how much of them is strict.

The catalogues hold names and schemas of public servers as they list them, without their prose.
"""

from __future__ import annotations

import json
import subprocess
import sys
from collections import Counter
from pathlib import Path
from typing import Any

import pytest
import trio

from conduit_daemon.adapters import anthropic, gemini, openai, plain
from conduit_daemon.hub.naming import build
from conduit_daemon.hub.toolset import ToolSet

CATALOGUES = sorted((Path(__file__).parent / "catalogues").glob("*.json"))

# server: (tools, strict, why the others are not). The same table stands in tests/README.md.
COUNTS: dict[str, tuple[int, int, dict[str, int]]] = {
    "antv-chart": (27, 26, {"unsupported_keyword": 1}),
    "brave-search": (8, 8, {}),
    "chrome-devtools": (32, 32, {}),
    "context7": (2, 2, {}),
    "everything": (16, 10, {"free_form_object": 6}),
    "fetch": (1, 1, {}),
    "filesystem": (14, 13, {"free_form_object": 1}),
    "firecrawl": (26, 16, {"unsupported_keyword": 10}),
    "git": (12, 12, {}),
    "github": (117, 114, {"free_form_object": 2, "union_siblings": 1}),
    "memory": (9, 8, {"free_form_object": 1}),
    "notion": (24, 12, {"free_form_object": 3, "oneOf": 1, "open_object": 8}),
    "playwright": (25, 24, {"unsupported_keyword": 1}),
    "sentry": (54, 50, {"free_form_object": 1, "tuple": 2, "unsupported_keyword": 1}),
    "sequential-thinking": (1, 1, {}),
    "sqlite": (6, 5, {"free_form_object": 1}),
    "tavily": (5, 5, {}),
    "time": (2, 2, {}),
}


def toolset_of(name: str, tools: list[Any]) -> ToolSet:
    toolset, dropped = build([(name, tools)])
    assert not dropped
    return toolset


@pytest.mark.parametrize("path", CATALOGUES, ids=lambda path: path.stem)
def test_a_catalogue_converts_for_each_provider_without_loss(path: Path) -> None:
    toolset = toolset_of(path.stem, json.loads(path.read_text())["tools"])
    tools, strict, fallbacks = COUNTS[path.stem]
    assert len(toolset) == tools
    assert anthropic.dropped(toolset) == openai.dropped(toolset) == gemini.dropped(toolset) == ()
    names = [entry.exposed for entry in toolset]
    assert [tool["name"] for tool in anthropic.tools(toolset)] == names
    assert [tool["name"] for tool in gemini.function_declarations(toolset)] == names
    assert [tool["name"] for tool in plain.tools(toolset)] == names
    for api in ("chat", "responses"):
        made = openai.tools(toolset, api=api)  # type: ignore[arg-type]
        assert len(made.tools) == tools
        assert len(made.null_paths) == strict
        assert Counter(reason.split(":")[0] for reason in made.fallbacks.values()) == fallbacks


def test_the_counts(capsys: pytest.CaptureFixture[str]) -> None:
    assert sorted(COUNTS) == [path.stem for path in CATALOGUES]
    rows = ["| server | tools | strict | fallback, by reason | dropped |", "|---|---|---|---|---|"]
    for name, (tools, strict, fallbacks) in COUNTS.items():
        assert tools == strict + sum(fallbacks.values())
        why = ", ".join(f"{reason} {count}" for reason, count in fallbacks.items())
        rows.append(f"| {name} | {tools} | {strict} | {why} | 0 |")
    total = [sum(column) for column in zip(*((tools, strict) for tools, strict, _ in COUNTS.values()), strict=True)]
    rows.append(f"| all | {total[0]} | {total[1]} | {total[0] - total[1]} | 0 |")
    with capsys.disabled():
        print("\n" + "\n".join(rows))


@pytest.mark.parametrize("module", ["mcp_server_time", "mcp_server_git"])
async def test_a_live_server_converts_without_loss(module: str) -> None:
    requests = [
        {
            "id": 1,
            "method": "initialize",
            "params": {
                "protocolVersion": "2025-06-18",
                "capabilities": {},
                "clientInfo": {"name": "test", "version": "0"},
            },
        },
        {"method": "notifications/initialized"},
        {"id": 2, "method": "tools/list", "params": {}},
    ]
    with trio.fail_after(30):
        async with trio.open_nursery() as nursery:
            server: trio.Process = await nursery.start(_serving, module)
            assert server.stdin is not None
            assert server.stdout is not None
            for request in requests:
                await server.stdin.send_all(json.dumps({"jsonrpc": "2.0", **request}).encode() + b"\n")
            received = b""
            while b'"id":2' not in received or not received.endswith(b"\n"):
                received += await server.stdout.receive_some()
            nursery.cancel_scope.cancel()
    answer = next(message for message in map(json.loads, received.splitlines()) if message.get("id") == 2)
    toolset = toolset_of("live", answer["result"]["tools"])
    assert len(toolset) >= 2
    assert len(anthropic.tools(toolset)) == len(gemini.function_declarations(toolset)) == len(toolset)
    made = openai.tools(toolset, api="chat", strict=True)
    assert len(made.null_paths) == len(toolset)


async def _serving(module: str, task_status: trio.TaskStatus[trio.Process] = trio.TASK_STATUS_IGNORED) -> None:
    await trio.run_process(
        [sys.executable, "-m", module],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        stderr=subprocess.DEVNULL,
        check=False,
        task_status=task_status,
    )
