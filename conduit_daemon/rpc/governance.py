"""The control socket's methods about governance: approvals, the policy, the audit, taint, pinned tools.

None of them can be reached from the agents' socket, so that no agent decides about its own calls.
"""

from __future__ import annotations

from typing import Any, Final, final

import msgspec
import trio

from conduit_daemon.config import Config
from conduit_daemon.errors import ClientError
from conduit_daemon.hub.toolset import Entry
from conduit_daemon.model import Tool
from conduit_daemon.pipeline.audit import Audit
from conduit_daemon.pipeline.gate import Gate
from conduit_daemon.pipeline.policy import Facts
from conduit_daemon.pipeline.policy_tests import exposed_prefix
from conduit_daemon.pipeline.question import Change, Question
from conduit_daemon.pipeline.remembered import Answer
from conduit_daemon.pipeline.resolve import unknown_tool
from conduit_daemon.published import Published
from conduit_daemon.rpc import protocol
from conduit_daemon.rpc.connection import Connection, Handler
from conduit_daemon.rpc.folding import folded
from conduit_daemon.rpc.params import (
    AcceptParams,
    ApprovalsParams,
    AuditParams,
    DecideParams,
    ExplainPolicyParams,
    ResetTaintParams,
)
from conduit_daemon.rpc.protocol import Request

__all__ = ["GovernanceMethods"]

_LARGEST_SHOWN: Final = 1 << 18
_ALL_SHOWN: Final = 1 << 24


@final
class GovernanceMethods:
    """What administrators ask and decide.

    Args:
        gate: The pipeline's shared parts.
        config: The configuration in force.
        audit: The record of calls.
        connections: All connections that are open.
    """

    def __init__(self, gate: Gate, config: Published[Config], audit: Audit, connections: set[Connection]) -> None:
        self._gate = gate
        self._config = config
        self._audit = audit
        self._connections = connections
        self._approvals = gate.governance.approvals

    @property
    def handlers(self) -> dict[str, Handler]:
        """The methods by name."""
        return {
            "conduit/approvals": self._list_approvals,
            "conduit/approvals/decide": self._decide,
            "conduit/policy/explain": self._explain,
            "conduit/audit": self._read_audit,
            "conduit/servers/accept": self._accept,
            "conduit/taint/reset": self._reset_taint,
        }

    # ---- approvals

    async def _list_approvals(self, connection: Connection, request: Request) -> object:
        params = protocol.decode_params(request.params, ApprovalsParams)
        if not params.watch:
            limit = self._room()
            waiting = self._approvals.pending.values()
            return {"approvals": [_shown(each.question, each.expires_in, limit) for each in waiting]}

        def tell(change: Change) -> None:
            told: dict[str, Any] = {
                "subscription": request.number,
                "type": change.type,
                "approval": _shown(change.question, change.expires_in, self._room()),
            }
            if change.type == "decided":
                answer = change.answer
                told["decision"] = "deny" if answer is None else answer.decision
                told["reason"] = "nobody decided in time" if answer is None else answer.reason
                told["approver"] = None if answer is None else answer.approver
            shown = {key: value for key, value in told.items() if value is not None}
            connection.notify("conduit/approval", self._gate.masker.mask_value(shown))

        stop = self._approvals.watch(tell)
        connection.stream(request.number)
        try:
            await trio.sleep_forever()
        finally:
            stop()

    def _room(self) -> int:
        """Bytes for one question's arguments: all together must stay what a line may have, however many there are."""
        return min(_LARGEST_SHOWN, _ALL_SHOWN // (len(self._approvals.pending) + 1))

    async def _decide(self, connection: Connection, request: Request) -> object:
        params = protocol.decode_params(request.params, DecideParams)
        answer = Answer(
            decision=params.decision,
            approver=connection.principal.name,
            reason=params.reason,
            halt=params.halt and params.decision == "deny",
        )
        decided = self._approvals.decide(params.id, answer, params.remember)
        if params.remember is not None or decided.late:
            await self._approvals.saved()
        return decided

    # ---- the policy

    async def _explain(self, connection: Connection, request: Request) -> object:
        params = protocol.decode_params(request.params, ExplainPolicyParams)
        if self._gate.policy is None:
            raise ClientError("invalid_params", "There is no policy here.")
        entry = self._named(params.name)
        return self._gate.policy.current.explain(
            Facts(
                server=entry.server_id,
                tool=entry.tool.name,
                annotations=entry.tool.annotations,
                principal=connection.principal.name if params.principal is None else params.principal,
                taint=frozenset(params.taint),
                arguments=params.arguments,
                assigns=params.assigns,
            )
        )

    def _named(self, name: str) -> Entry:
        """The tool of an exposed name; one that its server has not listed yet is taken at its word."""
        catalogue = self._gate.catalogue.current
        entry = catalogue.known.resolve(name)
        if entry is not None:
            return entry
        if name.startswith(("resource:", "prompt:")):
            offer = catalogue.offers.resolve(name)
            if offer is not None:
                return offer.entry
        for server in self._config.current.servers:
            prefix = exposed_prefix(server)
            port = self._gate.ports.get(server)
            if name.startswith(prefix) and name != prefix and (port is None or port.listing is None):
                return Entry(name, server, Tool(name=name.removeprefix(prefix)), "")
        raise unknown_tool(name, catalogue)

    # ---- the audit

    async def _read_audit(self, connection: Connection, request: Request) -> object:
        params = protocol.decode_params(request.params, AuditParams)
        rows = await self._audit.query(
            since=params.since,
            until=params.until,
            server=params.server,
            tool=params.tool,
            principal=params.principal,
            outcome=params.outcome,
            limit=params.limit,
        )
        return {"rows": rows}

    # ---- pinned tools and taint

    async def _accept(self, connection: Connection, request: Request) -> object:
        params = protocol.decode_params(request.params, AcceptParams)
        known = self._gate.catalogue.current.known
        if params.server not in self._gate.ports:
            raise ClientError("invalid_params", f"There is no server {params.server!r} that is enabled.")
        exposed = known.exposed_name(params.server, params.tool)
        entry = None if exposed is None else known.resolve(exposed)
        if entry is None:
            raise ClientError(
                "unknown_tool", f"Server {params.server} has no tool {params.tool!r}.", params.server, params.tool
            )
        pins = self._gate.governance.pins
        about = {"server": params.server, "tool": params.tool}
        if params.look:
            changed = pins.acceptable(entry)
            definition = {part: getattr(entry.tool, part) for part in changed}
            return {**about, "changed": changed, "definition": definition, "digest": entry.digest}
        changed = pins.accept(entry, params.digest)
        await pins.file.saved()
        return {**about, "changed": changed}

    async def _reset_taint(self, connection: Connection, request: Request) -> object:
        params = protocol.decode_params(request.params, ResetTaintParams)
        sessions = self._gate.governance.sessions
        count = sessions.reset(params.principal, params.session)
        if params.session is None:
            for other in self._connections:
                if params.principal in {None, other.principal.name} and other.context.taint:
                    other.context.forget_taint()
                    count += 1
        await sessions.file.saved()
        return {"reset": count}


def _shown(question: Question, expires_in: float, limit: int) -> dict[str, Any]:
    shown: dict[str, Any] = msgspec.to_builtins(question)
    shown["arguments"] = folded(question.arguments, limit)
    if shown["arguments"] is not question.arguments:
        shown["folded"] = True
    for member in ("annotations", "taint"):
        shown[member] = folded(shown[member], limit)
    shown["expires_in"] = expires_in
    return shown
