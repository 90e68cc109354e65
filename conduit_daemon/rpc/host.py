"""What is known of the MCP host at the other end of a connection."""

from __future__ import annotations

from typing import Any, final

from conduit_daemon.rpc.protocol import RequestId

__all__ = ["HostState"]


@final
class HostState:
    """One host's state; of a host of 2026-07-28, which keeps none, only what it listens to.

    Attributes:
        initialized: Whether it has shaken hands, and so is told of changes.
        capabilities: What it declared then.
        log_level: From which level on it wants to know what servers log; None before it said so.
        listening: By the id of each ``subscriptions/listen``: what that one wants to be told; a URI for each
            resource among it.
        subscriptions: By URI of a resource that it subscribed to: the server's id.
        toolset: The name of the configured toolset that it is confined to; None for all tools.
    """

    __slots__ = ("capabilities", "initialized", "listening", "log_level", "subscriptions", "toolset")

    def __init__(self) -> None:
        self.initialized = False
        self.capabilities: dict[str, Any] = {}
        self.log_level: str | None = None
        self.listening: dict[RequestId, frozenset[str]] = {}
        self.subscriptions: dict[str, str] = {}
        self.toolset: str | None = None

    def wants(self, server: str, uri: str) -> bool:
        """Whether it is to be told of changes of this resource."""
        return self.subscriptions.get(uri) == server or any(uri in wanted for wanted in self.listening.values())
