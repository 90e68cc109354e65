"""What a server offers beside tools: resources, templates of resources, prompts; and completion of their arguments."""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from typing import Any, Final

import msgspec

from conduit_daemon.errors import ClientError

__all__ = ["LISTS", "Offerings", "list_offerings"]

LISTS: Final = {
    "resources/list": ("resources", "resources", "uri"),
    "resources/templates/list": ("resources", "resourceTemplates", "uriTemplate"),
    "prompts/list": ("prompts", "prompts", "name"),
}
"""By method: the capability that it needs, the result's member, and the member that names an entry."""

_MOST: Final = 10_000


class Offerings(msgspec.Struct, frozen=True, kw_only=True):
    """What a server last said it offers, as it said it; entries without a name of theirs are left out.

    Attributes:
        resources: The entries of ``resources/list``.
        templates: Those of ``resources/templates/list``.
        prompts: Those of ``prompts/list``.
        completes: Whether it completes arguments.
    """

    resources: tuple[dict[str, Any], ...] = ()
    templates: tuple[dict[str, Any], ...] = ()
    prompts: tuple[dict[str, Any], ...] = ()
    completes: bool = False


async def list_offerings(
    request: Callable[[str, dict[str, Any]], Awaitable[msgspec.Raw]],
    capabilities: frozenset[str],
    before: Offerings,
) -> Offerings:
    """Everything that a server offers beside tools.

    A list that fails, goes in a circle or is longer than 10,000 ends there; what came before is kept. One that
    cannot be read at all is taken to be what it was.

    Args:
        request: Sends a method with params and returns the raw result.
        capabilities: What the server declared.
        before: What was offered when it was last asked.
    """
    return Offerings(
        resources=await _list(request, capabilities, "resources/list", before.resources),
        templates=await _list(request, capabilities, "resources/templates/list", before.templates),
        prompts=await _list(request, capabilities, "prompts/list", before.prompts),
        completes="completions" in capabilities,
    )


async def _list(
    request: Callable[[str, dict[str, Any]], Awaitable[msgspec.Raw]],
    capabilities: frozenset[str],
    method: str,
    before: tuple[dict[str, Any], ...],
) -> tuple[dict[str, Any], ...]:
    capability, member, name = LISTS[method]
    if capability not in capabilities:
        return ()
    entries: list[dict[str, Any]] = []
    cursors: set[str] = set()
    params: dict[str, Any] = {}
    while len(entries) < _MOST:
        try:
            page = msgspec.json.decode(await request(method, params), type=dict[str, Any])
        except (ClientError, msgspec.MsgspecError, UnicodeDecodeError, RecursionError):
            if not cursors:
                return before
            break
        listed = page.get(member)
        if not isinstance(listed, list):
            break
        entries += [entry for entry in listed if isinstance(entry, dict) and isinstance(entry.get(name), str)]
        cursor = page.get("nextCursor")
        if not isinstance(cursor, str) or not cursor or cursor in cursors:
            break
        cursors.add(cursor)
        params = {"cursor": cursor}
    return tuple(entries[:_MOST])
