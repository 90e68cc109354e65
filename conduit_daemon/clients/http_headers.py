"""What 2026-07-28 wants in a request's headers beside the message: the method, the name, and marked arguments."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Final, final

from mcp.shared.inbound import (
    MCP_METHOD_HEADER,
    MCP_NAME_HEADER,
    MCP_PROTOCOL_VERSION_HEADER,
    encode_header_value,
    find_invalid_x_mcp_header,
    mcp_param_headers,
    x_mcp_header_map,
)

from conduit_daemon.clients.listing import Listing
from conduit_daemon.model import Dropped

__all__ = ["ModernHeaders"]

_CALL: Final = "tools/call"


@final
class ModernHeaders:
    """The headers of the requests of one connection; see `transport.CallHeaders`.

    Args:
        version: The negotiated version.
    """

    def __init__(self, version: str) -> None:
        self._version = version
        self._maps: dict[str, dict[tuple[str, ...], str]] = {}

    def of_method(self, method: str) -> Mapping[str, str]:
        """The version and the method."""
        return {MCP_PROTOCOL_VERSION_HEADER: self._version, MCP_METHOD_HEADER: method}

    def of_call(self, tool: str, arguments: Mapping[str, Any]) -> Mapping[str, str]:
        """Those, the tool's name, and the arguments that its schema marks with ``x-mcp-header``."""
        headers = {**self.of_method(_CALL), MCP_NAME_HEADER: encode_header_value(tool)}
        marked = self._maps.get(tool)
        if marked:
            headers.update(mcp_param_headers(marked, arguments))
        return headers

    def learn(self, listing: Listing, server: str) -> Listing:
        """Notes the marks; a tool whose marks are invalid must not be used, so it is dropped."""
        kept, dropped = [], list(listing.dropped)
        self._maps = {}
        for tool in listing.tools:
            wrong = find_invalid_x_mcp_header(tool.input_schema)
            if wrong is not None:
                dropped.append(Dropped("", ((server, tool.name),), f"malformed: x-mcp-header: {wrong}"))
                continue
            marked = x_mcp_header_map(tool.input_schema)
            if marked:
                self._maps[tool.name] = marked
            kept.append(tool)
        return Listing(tuple(kept), tuple(dropped), listing.note)
