"""What a configuration must keep to beyond types and bounds: rules inside one table, and between tables."""

from __future__ import annotations

import hashlib
import re
from collections.abc import Callable, Iterable, Mapping
from pathlib import Path
from typing import Any, Final
from urllib.parse import urlsplit

from conduit_daemon.config.condition import compile_condition
from conduit_daemon.config.globs import glob_problem, is_plain, matcher
from conduit_daemon.config.model import (
    UNTRUSTED,
    AuthConfig,
    BackoffConfig,
    Config,
    HooksConfig,
    LimitsConfig,
    MetricsConfig,
    PolicyConfig,
    PolicyRule,
    RpcConfig,
    ServerConfig,
    ToolFilter,
    ToolsetConfig,
)
from conduit_daemon.config.report import KeyPath, Report, nearest

__all__ = ["CHECKS", "SERVER_ID", "as_server_id", "check_between", "check_server_ids"]

SERVER_ID: Final = re.compile(r"[A-Za-z0-9-]+(_[A-Za-z0-9-]+)*")
"""What a server may be called, so that ``ID__tool`` can be read in one way only."""
_VARIABLE: Final = re.compile(r"[^=\x00]+")
_HEADER: Final = re.compile(r"[A-Za-z0-9!#$%&'*+.^_`|~-]+")
_HEADER_VALUE: Final = re.compile(r"(?:[!-~](?:[\t -~]*[!-~])?)?")
_OWN_HEADERS: Final = frozenset({"connection", "content-length", "transfer-encoding", "upgrade"})
_HOOK: Final = re.compile(r"[^\W\d]\w*(\.[^\W\d]\w*)*:[^\W\d]\w*(\.[^\W\d]\w*)*")
_SCHEMES: Final = {"http": ("http", "sse"), "https": ("http", "sse"), "ws": ("websocket",), "wss": ("websocket",)}
_LONGEST_SOCKET_PATH: Final = 107  # sun_path of unix(7), less its NUL
_LOOPBACK: Final = frozenset({"localhost", "127.0.0.1", "::1"})


def as_server_id(name: str) -> str:
    """The server id nearest to `name`: ``My Server`` becomes ``my-server``; a valid id stays as it is."""
    if SERVER_ID.fullmatch(name):
        return name
    words = re.sub(r"[^a-z0-9_]+", "-", name.lower())
    found = re.sub(r"_{2,}", "_", words).strip("-_")
    return found if SERVER_ID.fullmatch(found) else f"server-{_digest(name)}"


def check_server_ids(servers: Mapping[str, Any], report: Report) -> None:
    """Notes ids that would make the names composed from them ambiguous."""
    for name in servers:
        if not SERVER_ID.fullmatch(name):
            report.problem(
                ("servers", name),
                "is no server id; expected letters, digits, '-' and single '_' between them",
                as_server_id(name),
            )
        elif name == UNTRUSTED:
            report.problem(("servers", name), "means all servers that are not trusted in rules; choose another id")


def check_between(config: Config, report: Report) -> None:
    """Notes what tables say of each other that cannot be meant, as warnings."""
    for index, rule in enumerate(config.policy.rules):
        here = ("policy", "rules", index)
        _warn_unknown_servers(rule.servers, config, (*here, "servers"), report)
        _warn_unknown_servers(rule.tainted_by or (), config, (*here, "tainted_by"), report)
        _warn_agents(rule, (*here, "principals"), report)
        meant = matcher(rule.servers)
        if rule.annotations and not any(server.trusted and meant(name) for name, server in config.servers.items()):
            report.warning(
                (*here, "annotations"), "never matches: annotations count on servers with trusted = true alone"
            )
    for name, toolset in config.toolsets.items():
        _warn_unknown_servers(toolset.servers, config, ("toolsets", name, "servers"), report)


def _check_server(server: ServerConfig, path: KeyPath, report: Report) -> None:
    if (server.command is None) == (server.url is None):
        which = "neither is here" if server.command is None else "both are here"
        report.problem(path, f"expected either command (to start the server) or url (to reach it); {which}")
        return
    if server.command is not None:
        _check_started(server, server.command, path, report)
    elif server.url is not None:
        _check_reached(server, server.url, path, report)


def _check_started(server: ServerConfig, command: str, path: KeyPath, report: Report) -> None:
    if not command.strip():
        report.problem((*path, "command"), "expected the name or the path of a program, found empty text")
    elif " " in command and "/" not in command and not server.args:
        report.warning((*path, "command"), "holds spaces: it is the name of one program; its arguments belong in args")
    if server.transport not in {None, "stdio"}:
        report.problem((*path, "transport"), f'a server with a command speaks "stdio", not "{server.transport}"')
    for key in ("headers", "auth"):
        if getattr(server, key):
            report.problem((*path, key), "is for servers with a url; one with a command gets its secrets through env")
    for name in server.env:
        if not _VARIABLE.fullmatch(name):
            report.problem((*path, "env", name), "is no name that an environment variable can have")


def _check_reached(server: ServerConfig, url: str, path: KeyPath, report: Report) -> None:
    host = _check_url(url, (*path, "url"), report)
    scheme = url.partition(":")[0].lower()
    if host is not None and server.transport is not None and server.transport not in _SCHEMES[scheme]:
        expected = " or ".join(f'"{transport}"' for transport in _SCHEMES[scheme])
        report.problem((*path, "transport"), f'a {scheme}:// url speaks {expected}, not "{server.transport}"')
    for key in ("args", "env", "cwd"):
        if getattr(server, key):
            report.problem((*path, key), "is for servers with a command; nothing is started for a url")
    if server.auth is not None and scheme in {"ws", "wss"}:
        report.problem((*path, "auth"), "works over http:// and https:// alone; give a WebSocket its token by headers")
    for name, value in server.headers.items():
        if not _HEADER.fullmatch(name):
            report.problem((*path, "headers", name), "is no name that a header can have")
        if not _HEADER_VALUE.fullmatch(value):
            problem = "has a value that no header can have: line breaks, spaces at its ends, or letters beyond ASCII"
            report.problem((*path, "headers", name), problem)
        if name.lower() in _OWN_HEADERS or (scheme in {"ws", "wss"} and name.lower() == "host"):
            report.problem((*path, "headers", name), "is set by the connection itself")
        if name.lower() == "authorization" and host not in _LOOPBACK and scheme in {"http", "ws"}:
            report.warning((*path, "headers", name), "is sent unencrypted; use an https:// or wss:// url")


def _check_url(url: str, path: KeyPath, report: Report, schemes: Iterable[str] = _SCHEMES) -> str | None:
    """The host, or None after a problem."""
    expected = ", ".join(f"{scheme}://" for scheme in schemes)
    try:
        parts = urlsplit(url)
        host, scheme, port = parts.hostname, parts.scheme, parts.port
    except ValueError:
        host, scheme, port = None, "", None
    if scheme not in schemes or not host or port == 0 or not url.isprintable() or " " in url:
        report.problem(path, f"expected a URL that begins with one of {expected} and names a host")
        return None
    return host


def _check_auth(auth: AuthConfig, path: KeyPath, report: Report) -> None:
    if auth.token_url is not None:
        _check_url(auth.token_url, (*path, "token_url"), report, ("https", "http"))
    if auth.type == "client_credentials" and not (auth.client_id and auth.client_secret):
        report.problem(path, "client_credentials needs client_id and client_secret")


def _check_backoff(backoff: BackoffConfig, path: KeyPath, report: Report) -> None:
    if backoff.maximum < backoff.initial:
        report.problem((*path, "maximum"), "must be at least initial")


def _check_filter(tools: ToolFilter, path: KeyPath, report: Report) -> None:
    _check_globs(tools.allow, (*path, "allow"), report)
    _check_globs(tools.deny, (*path, "deny"), report)


def _check_rule(rule: PolicyRule, path: KeyPath, report: Report) -> None:
    for key in ("servers", "tools", "principals", "tainted_by"):
        globs = getattr(rule, key)
        if globs == ():
            report.problem((*path, key), "an empty list matches nothing; name some, or leave the key out to match all")
        _check_globs(globs or (), (*path, key), report)
    if rule.name is not None and (not rule.name or rule.name == "default" or rule.name.startswith("rules[")):
        report.problem((*path, "name"), "expected a name of its own; empty, default and rules[N] are not")
    if rule.when is not None:
        try:
            compile_condition(rule.when)
        except ValueError as error:
            report.problem((*path, "when"), str(error))


def _check_policy(policy: PolicyConfig, path: KeyPath, report: Report) -> None:
    seen: dict[str, int] = {}
    for index, rule in enumerate(policy.rules):
        if rule.name is None:
            continue
        if rule.name in seen:
            report.problem((*path, "rules", index, "name"), f"is the name of rules[{seen[rule.name]}] too")
        seen.setdefault(rule.name, index)


def _check_toolset(toolset: ToolsetConfig, path: KeyPath, report: Report) -> None:
    _check_globs(toolset.servers, (*path, "servers"), report)
    _check_globs(toolset.tools, (*path, "tools"), report)


def _check_hooks(hooks: HooksConfig, path: KeyPath, report: Report) -> None:
    for key in ("before_call", "after_call"):
        for index, hook in enumerate(getattr(hooks, key)):
            if not _HOOK.fullmatch(hook):
                report.problem((*path, key, index), 'expected "module:function"')


def _check_metrics(metrics: MetricsConfig, path: KeyPath, report: Report) -> None:
    if metrics.listen is None:
        return
    host, colon, port = metrics.listen.rpartition(":")
    if not colon or not host.strip("[]") or not re.fullmatch(r"[0-9]{1,5}", port) or not 0 < int(port) < 65536:
        report.problem((*path, "listen"), 'expected HOST:PORT, as "127.0.0.1:9464"')


def _check_rpc(rpc: RpcConfig, path: KeyPath, report: Report) -> None:
    for key in ("agent_socket", "control_socket"):
        socket: Path | None = getattr(rpc, key)
        if socket is not None and len(bytes(socket)) > _LONGEST_SOCKET_PATH:
            report.problem(
                (*path, key), f"is longer than the {_LONGEST_SOCKET_PATH} bytes that a socket's path can have"
            )
    if rpc.agent_socket is not None and rpc.agent_socket == rpc.control_socket:
        report.problem((*path, "control_socket"), "must be another path than agent_socket")


def _check_limits(limits: LimitsConfig, path: KeyPath, report: Report) -> None:
    if limits.call_timeout > limits.max_call_time:
        report.warning((*path, "call_timeout"), "is longer than max_call_time, which ends the call first")


def _check_globs(globs: Iterable[str], path: KeyPath, report: Report) -> None:
    for index, glob in enumerate(globs):
        problem = glob_problem(glob)
        if problem is not None:
            report.problem((*path, index), problem)


def _warn_agents(rule: PolicyRule, path: KeyPath, report: Report) -> None:
    """An agent beneath a user names itself, so no rule about its name holds against it."""
    for index, glob in enumerate(rule.principals):
        if glob.partition("/")[2] in {"", "*"}:
            continue
        if rule.effect == "allow":
            message = "opens to whoever connects as that user: what follows '/' is a name that its caller gives itself"
        else:
            message = "is passed by whoever gives itself another name after '/'; the user alone means all its agents"
        report.warning((*path, index), f"{glob[:64]!a} {message}")


def _warn_unknown_servers(globs: Iterable[str], config: Config, path: KeyPath, report: Report) -> None:
    for index, glob in enumerate(globs):
        if is_plain(glob) and glob not in config.servers and glob != UNTRUSTED:
            near = nearest(glob, config.servers)
            hint = f"; did you mean {near!r}?" if near else ""
            report.warning((*path, index), f"there is no server {glob[:64]!a}{hint}")


def _digest(text: str) -> str:
    return hashlib.sha256(text.encode("utf-8", "surrogatepass")).hexdigest()[:8]


CHECKS: Final[dict[type, Callable[[Any, KeyPath, Report], None]]] = {
    AuthConfig: _check_auth,
    BackoffConfig: _check_backoff,
    HooksConfig: _check_hooks,
    LimitsConfig: _check_limits,
    MetricsConfig: _check_metrics,
    PolicyConfig: _check_policy,
    PolicyRule: _check_rule,
    RpcConfig: _check_rpc,
    ServerConfig: _check_server,
    ToolFilter: _check_filter,
    ToolsetConfig: _check_toolset,
}
"""By the type of a Struct: what checks each one by itself."""
