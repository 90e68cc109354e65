"""The socket as an MCP server, in both eras of the protocol: any MCP host can use it as it is."""

from __future__ import annotations

from conduit_daemon.rpc.mcp.calls import CallRequest, call_tool, failed_result
from conduit_daemon.rpc.mcp.methods import McpMethods
from conduit_daemon.rpc.mcp.offers import listed
from conduit_daemon.rpc.mcp.subscriptions import Changed, tell_changed

__all__ = ["CallRequest", "Changed", "McpMethods", "call_tool", "failed_result", "listed", "tell_changed"]
