"""The supervision tree as the RPC shows it."""

from __future__ import annotations

from typing import Any

import trio

from supervisors import NoProcess, Ref
from supervisors import sys as inspection

__all__ = ["describe"]


async def describe(root: str | Ref) -> dict[str, Any]:
    """A process and all below it: id, kind, name, state, restarts, uptime, mailbox, busy_for and children.

    Args:
        root: The process to begin with, or its name.

    Raises:
        NoProcess: It does not run.
    """
    return await _node(await inspection.tree(root))


async def _node(tree: inspection.Tree) -> dict[str, Any]:
    node: dict[str, Any] = {"id": tree.id, "kind": tree.kind or "actor", "name": tree.name, "state": tree.state}
    node["restarts"] = tree.restarts
    node |= await _figures(tree.ref)
    if tree.retry_in is not None:
        node["retry_in"] = round(tree.retry_in, 3)
    node["children"] = [await _node(child) for child in tree.children]
    return {key: value for key, value in node.items() if value is not None}


async def _figures(ref: Ref | None) -> dict[str, Any]:
    if ref is None:
        return {}
    try:
        found = await inspection.statistics(ref)
    except NoProcess:
        return {}  # it ended while we looked
    now = trio.current_time()
    return {
        "uptime": round(now - found.started_at, 3),
        "mailbox": found.mailbox_len,
        "busy_for": None if found.busy_since is None else round(now - found.busy_since, 3),
    }
