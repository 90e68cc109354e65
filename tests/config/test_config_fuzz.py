"""Whatever a file holds, the loader ends with a configuration or with a ConfigError, and gives no secret away."""

import json
from pathlib import Path
from typing import Any

from hypothesis import given, settings
from hypothesis import strategies as st

from conduit_daemon import config
from conduit_daemon.errors import ConfigError

SECRET = "s3cr3t-v4lue"
KEYS = [
    *("rpc", "log", "limits", "state", "servers", "policy", "hooks", "audit", "metrics", "shape", "toolsets", "watch"),
    *("agent_socket", "max_message", "level", "call_timeout", "rate", "rules", "tests", "effect", "tools", "when"),
    *("command", "args", "env", "url", "headers", "auth", "backoff", "allow", "deny", "describe", "transport", "type"),
    *("mcpServers", "disabled", "files", "a__b", "x y", "", "é", "calls", "call", "expect", "arguments", "listen"),
]
texts = st.one_of(
    st.sampled_from(["${env:TOKEN}", "x${env:TOKEN}y", "${env:NONE}", "${file:none}", "${", "$${x}", "10MiB", "0660"]),
    st.sampled_from(["allow", "deny", "npx", "a b", "https://x", "wss://${env:TOKEN}@x", "args.x == 1", "[", "*", "~"]),
    st.text(max_size=8),
)
scalars = st.one_of(
    st.none(), st.booleans(), st.integers(-5, 10**20), st.floats(), texts, st.dates(), st.datetimes(), st.times()
)
values = st.recursive(
    scalars,
    lambda inner: st.one_of(st.lists(inner, max_size=3), st.dictionaries(st.sampled_from(KEYS), inner, max_size=4)),
    max_leaves=25,
)
documents = st.dictionaries(st.sampled_from(KEYS), values, max_size=6)


def toml(value: Any) -> str:
    if isinstance(value, dict):
        return "{" + ", ".join(f"{toml(key)} = {toml(item)}" for key, item in value.items()) + "}"
    if isinstance(value, list):
        return "[" + ", ".join(map(toml, value)) + "]"
    if isinstance(value, str):
        return '"' + "".join(f"\\U{ord(c):08x}" if ord(c) < 32 or c in '"\\\x7f' else c for c in value) + '"'
    if isinstance(value, bool):
        return str(value).lower()
    return str(value) if isinstance(value, int | float) else "0" if value is None else value.isoformat()


def attempt(data: bytes, name: str) -> None:
    try:
        loaded = config.parse(data, Path("/nowhere") / name, {"TOKEN": SECRET})
    except ConfigError as error:
        problems, said = error.problems, str(error)
    else:
        problems, said = (), "".join(loaded.warnings)
        assert isinstance(loaded.config, config.Config)
    assert SECRET not in said
    assert all(problem.file.endswith(name) and problem.message for problem in problems)


@given(st.binary(max_size=200), st.sampled_from(["c.toml", "c.json"]))
def test_any_bytes(data: bytes, name: str) -> None:
    attempt(data, name)


@given(documents)
@settings(max_examples=300)
def test_any_toml(document: dict[str, Any]) -> None:
    text = "".join(f"{toml(key)} = {toml(value)}\n" for key, value in document.items())
    attempt(text.encode("utf-8", "replace"), "c.toml")


@given(documents)
@settings(max_examples=200)
def test_any_json(document: dict[str, Any]) -> None:
    attempt(json.dumps({"mcpServers": document}, default=str).encode(), "c.json")


def test_deep_and_endless_json_end_in_an_error() -> None:
    for data in (b'{"mcpServers": ' + b"[" * 100_000, b'{"mcpServers": {"a": ' + b"9" * 5000 + b"}}", b'"' * 1001):
        attempt(data, "c.json")
