"""The stage that asks the policy about a call, and tells of conditions that could not be evaluated."""

from __future__ import annotations

from conduit_daemon.hub.toolset import Entry
from conduit_daemon.model import Call
from conduit_daemon.pipeline.policy import Decision, Facts, Policy
from conduit_daemon.telemetry.events import EventBus

__all__ = ["decide"]


def decide(policy: Policy, call: Call, entry: Entry, taint: frozenset[str], bus: EventBus) -> Decision:
    """What the policy says of `call` with `taint` in its caller's context. Never raises."""
    decision = policy.decide(
        Facts(
            server=entry.server_id,
            tool=entry.tool.name,
            annotations=entry.tool.annotations,
            principal=call.principal.name,
            taint=taint,
            arguments=call.arguments,
            assigns=call.assigns,
        )
    )
    for failed in decision.errors:
        bus.emit(
            "policy.condition_failed",
            level="warning",
            server=entry.server_id,
            tool=entry.tool.name,
            call=call.id,
            reason=failed,
        )
    return decision
