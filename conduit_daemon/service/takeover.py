"""Putting a configuration into force while the daemon runs: what governs calls at once, the servers by the roster."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any, final

import msgspec

from conduit_daemon.config import Config, Diff, Loaded, LoadedServer, ServerConfig, diff, load_server
from conduit_daemon.config.model import LimitsConfig
from conduit_daemon.pipeline.audit import Audit
from conduit_daemon.pipeline.gate import Gate
from conduit_daemon.pipeline.hooks import load_hooks
from conduit_daemon.pipeline.policy import Policy, compile_policy
from conduit_daemon.published import Published
from conduit_daemon.telemetry.events import EventBus
from conduit_daemon.telemetry.logging import Log
from conduit_daemon.telemetry.masking import Masker

__all__ = ["Takeover"]


@final
class Takeover:
    """Whole or not at all: what can fail comes before anything is changed.

    Args:
        loaded: What the daemon was started with.
        environ: What a server's table that is added refers to.
        config: Published with each configuration, last: whoever waits for it finds the rest in force.
        limits: Published likewise.
        policy: Published likewise.
        gate: What calls go through.
        audit: What keeps account of them.
        log: Whose level it sets.
        masker: Learns the secrets.
        bus: Where it is said that servers were added or removed.
        on_change: Called after each.
    """

    def __init__(
        self,
        loaded: Loaded,
        environ: Mapping[str, str],
        *,
        config: Published[Config],
        limits: Published[LimitsConfig],
        policy: Published[Policy],
        gate: Gate,
        audit: Audit,
        log: Log,
        masker: Masker,
        bus: EventBus,
        on_change: Callable[[], None],
    ) -> None:
        self._folder = loaded.folder
        self._secrets = loaded.secrets
        self._environ = environ
        self._config = config
        self._limits = limits
        self._policy = policy
        self._gate = gate
        self._audit = audit
        self._log = log
        self._masker = masker
        self._bus = bus
        self._on_change = on_change

    def apply(self, loaded: Loaded) -> Diff:
        """Takes a configuration over and returns what changed.

        Raises:
            DaemonError: A hook cannot be loaded.
        """
        old, new, gate = self._config.current, loaded.config, self._gate
        self._masker.update("config", self._secrets | loaded.secrets)
        hooks = load_hooks(new.hooks, self._folder)
        policy = compile_policy(new.policy, new.trusted)
        self._secrets = loaded.secrets
        gate.governance.hooks = hooks
        self._policy.publish(policy)
        gate.configure(new)
        self._limits.publish(new.limits)
        for server in gate.ports:
            if server in new.servers:
                gate.configure_server(server, new.servers[server])
        self._audit.config = new.audit
        if new.log.level != old.log.level:
            self._log.set_level(new.log.level)
        self._config.publish(new)
        self._on_change()
        return diff(old, new)

    def read_server(self, server: str, table: Mapping[str, Any]) -> LoadedServer:
        """A server's table as it would stand in the file.

        Raises:
            ConfigError: It is not usable.
        """
        return load_server(server, table, self._folder or Path.cwd(), self._environ)

    def change_servers(self, servers: dict[str, ServerConfig], secrets: frozenset[str]) -> None:
        """Puts other servers into force than the file's, until it is read again."""
        config = msgspec.structs.replace(self._config.current, servers=servers)
        changed = self.apply(Loaded(config=config, secrets=self._secrets | secrets))
        self._bus.emit("config.reloaded", **msgspec.to_builtins(changed))
