"""How a host and this server come to terms: the handshake of the older era, the discovery of the newer."""

from __future__ import annotations

from typing import Any, Final, Literal

import msgspec

from conduit_daemon.rpc import protocol
from conduit_daemon.rpc.connection import Connection
from conduit_daemon.rpc.mcp.eras import HANDSHAKE_VERSIONS, MODERN_VERSIONS, SERVER_INFO
from conduit_daemon.rpc.protocol import Request

__all__ = ["discover", "initialize", "set_level"]

_INSTRUCTIONS: Final = (
    "Tools of many MCP servers, named server__tool. Calls are governed by the operator's policy: "
    "a denied call says why and what to do."
)
_CAPABILITIES: Final[dict[str, Any]] = {
    "tools": {"listChanged": True},
    "resources": {"listChanged": True, "subscribe": True},
    "prompts": {"listChanged": True},
    "completions": {},
}
_LATEST: Final = HANDSHAKE_VERSIONS[-1]


class _InitializeParams(msgspec.Struct, frozen=True):
    protocolVersion: str
    clientInfo: dict[str, Any] = {}
    capabilities: dict[str, Any] = {}


class _LevelParams(msgspec.Struct, frozen=True):
    level: Literal["debug", "info", "notice", "warning", "error", "critical", "alert", "emergency"]


def initialize(connection: Connection, request: Request, version: str) -> dict[str, Any]:
    """Answers the handshake; `version` is the daemon's own.

    Raises:
        ClientError: ``invalid_params``.
    """
    params = protocol.decode_params(request.params, _InitializeParams)
    connection.host.initialized = True
    connection.host.capabilities = params.capabilities
    wanted = params.protocolVersion
    return {
        "protocolVersion": wanted if wanted in HANDSHAKE_VERSIONS else _LATEST,
        "capabilities": {**_CAPABILITIES, "logging": {}},
        "serverInfo": _server_info(version),
        "instructions": _INSTRUCTIONS,
    }


def discover(version: str) -> dict[str, Any]:
    """The result of ``server/discover``, but for what each result of the newer era has."""
    return {
        "supportedVersions": [*MODERN_VERSIONS],
        "capabilities": _CAPABILITIES,
        "instructions": _INSTRUCTIONS,
        "_meta": {SERVER_INFO: _server_info(version)},
    }


def set_level(connection: Connection, request: Request) -> dict[str, Any]:
    """Answers ``logging/setLevel``: from which level on the host is told what servers log.

    Servers of its own log from there on. One that all share logs as it will, and what is below is left out: to have it
    log less or more for one host would be to have it do so for all.

    Raises:
        ClientError: ``invalid_params``.
    """
    level = connection.host.log_level = protocol.decode_params(request.params, _LevelParams).level
    for port in connection.context.own:
        if port.target is not None:
            port.target.pass_on("logging/setLevel", {"level": level})
    return {}


def _server_info(version: str) -> dict[str, Any]:
    return {"name": "conduit", "title": "Conduit", "version": version}
