"""Tools in MCP's own form, with their text made fit for a model (pure: dicts in, dicts out)."""

from __future__ import annotations

from typing import Any

from conduit_daemon.adapters._declaration import convert_all
from conduit_daemon.adapters._hygiene import clean_schema
from conduit_daemon.hub.toolset import Entry, ToolSet
from conduit_daemon.model import Dropped
from conduit_daemon.text import clean_description, clean_json

__all__ = ["convert", "dropped", "tools"]


def tools(toolset: ToolSet, *, max_description_chars: int | None = None) -> list[dict[str, Any]]:
    """The entries of a tools/list result, under the exposed names; schemas keep their draft.

    Args:
        toolset: What is offered.
        max_description_chars: The most characters of a description.

    Raises:
        ValueError: `max_description_chars` is negative.
    """
    return convert(toolset, max_description_chars=max_description_chars)[0]


def dropped(toolset: ToolSet) -> tuple[Dropped, ...]:
    """The tools that no model may see: those with ``hidden_characters`` where none may be altered."""
    return convert(toolset)[1]


def convert(
    toolset: ToolSet, *, max_description_chars: int | None = None
) -> tuple[list[dict[str, Any]], tuple[Dropped, ...]]:
    """What `tools` and `dropped` give, at the price of one conversion.

    Raises:
        ValueError: `max_description_chars` is negative.
    """
    return convert_all(toolset, lambda entry: _tool(entry, max_description_chars))


def _tool(entry: Entry, max_chars: int | None) -> dict[str, Any]:
    wire = entry.tool.to_wire(entry.exposed)
    for key in ("title", "description"):
        if key in wire:
            wire[key] = clean_description(wire[key], max_chars)
    for key in ("inputSchema", "outputSchema"):
        if key in wire:
            wire[key] = clean_schema(wire[key], max_chars)
    if "annotations" in wire:
        wire["annotations"] = clean_json(wire["annotations"])
    return wire
