"""The first stage: which tool a name means, in the toolset that the model was offered."""

from __future__ import annotations

import difflib
from itertools import islice
from typing import Final

from conduit_daemon.errors import ClientError
from conduit_daemon.hub.catalogue import Catalogue
from conduit_daemon.hub.naming import exposed_name
from conduit_daemon.hub.toolset import Entry
from conduit_daemon.model import Call
from conduit_daemon.pipeline.gate import Gate

__all__ = ["resolve", "unknown_tool", "unknown_toolset"]

_LONGEST_NAME: Final = 64
_OTHER_LENGTH: Final = 8
_COMPARED: Final = 300
_LONGEST_URI: Final = 8192


def resolve(call: Call, gate: Gate) -> Entry:
    """The tool that `call` names, by exact lookup.

    With a toolset's id, only what that toolset holds and the configuration still allows; else what is known
    today, servers that are down included (their calls fail as ``unavailable``, which says more than a name
    that is unknown).

    Raises:
        ClientError: ``unknown_tool``, or ``unknown_toolset``.
    """
    catalogue = gate.catalogue.current
    if call.method != "tools/call":
        return _resolve_offer(call, catalogue)
    if call.toolset is None:
        entry = catalogue.known.resolve(call.name)
        if entry is not None:
            return entry
    else:
        toolset = gate.recall(call.toolset)
        if toolset is None:
            raise unknown_toolset(call.toolset)
        entry = toolset.resolve(call.name)
        if entry is not None:
            if (entry.server_id, entry.tool.name) not in catalogue.filtered and entry.server_id in gate.ports:
                return _as_it_is_now(entry, catalogue)
            raise _unknown(call.name, (), filtered=True)
    raise unknown_tool(call.name, catalogue)


def _as_it_is_now(entry: Entry, catalogue: Catalogue) -> Entry:
    """The tool of an older listing, under the name it had there, as its server defines it today.

    Pins, approvals and annotations are about what would run, not about what was offered once.
    """
    known = catalogue.known
    exposed = known.exposed_name(entry.server_id, entry.tool.name)
    now = entry if exposed is None else known.resolve(exposed)
    if now is None or now.digest == entry.digest:
        return entry
    return Entry(entry.exposed, entry.server_id, now.tool, now.digest)


def _resolve_offer(call: Call, catalogue: Catalogue) -> Entry:
    offer = catalogue.offers.resolve(call.name) if len(call.name) <= _LONGEST_URI else None
    if offer is None:
        kind, _, key = call.name.partition(":")
        raise ClientError(
            "unknown_tool",
            f"There is no {kind} {key[:200]!r}; use one from the list of {kind}s.",
            data={"filtered": len(call.name) <= _LONGEST_URI and catalogue.offers.is_filtered(call.name)},
        )
    if call.method == "completion/complete" and not offer.completes:
        server = offer.entry.server_id
        raise ClientError("invalid_params", f"Server {server} completes no arguments.", server, offer.entry.tool.name)
    return offer.entry


def unknown_tool(name: str, catalogue: Catalogue) -> ClientError:
    """The error of a name that no tool has, with the nearest one that is offered."""
    return _unknown(name, _near(name, catalogue), filtered=_is_filtered(name, catalogue.filtered))


def unknown_toolset(toolset_id: str) -> ClientError:
    """The error of a toolset's id that means nothing any more."""
    return ClientError(
        "unknown_toolset", f"Toolset {toolset_id[:64]} is not known any more; list the tools again and use the new id."
    )


def _near(name: str, catalogue: Catalogue) -> list[str]:
    """The nearest name that is offered, among the first few of about that length: comparing takes its time."""
    alike = (entry.exposed for entry in catalogue.offered if abs(len(entry.exposed) - len(name)) <= _OTHER_LENGTH)
    if len(name) > _LONGEST_NAME + _OTHER_LENGTH:
        return []
    return difflib.get_close_matches(name, islice(alike, _COMPARED), 1)


def _is_filtered(name: str, filtered: frozenset[tuple[str, str]]) -> bool:
    return any(name == exposed_name(server, tool) for server, tool in filtered)


def _unknown(name: str, near: list[str] | tuple[()], *, filtered: bool) -> ClientError:
    hint = f"; did you mean {near[0]}?" if near else "; use a name from the list of tools."
    return ClientError("unknown_tool", f"There is no tool {name[:100]!r}{hint}", data={"filtered": filtered})
