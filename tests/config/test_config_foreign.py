"""Other MCP hosts' JSON files."""

import json
from pathlib import Path
from typing import Any

import pytest

from conduit_daemon import config
from conduit_daemon.errors import ConfigError


def parse(document: Any, environ: dict[str, str] | None = None) -> config.Loaded:
    text = document if isinstance(document, str) else json.dumps(document)
    return config.parse(text.encode(), Path("/x/mcp.json"), environ or {})


def one(table: dict[str, Any], environ: dict[str, str] | None = None) -> config.ServerConfig:
    return parse({"mcpServers": {"s": table}}, environ).config.servers["s"]


@pytest.mark.parametrize("wrap", [("mcpServers",), ("servers",), ("mcp", "servers")])
def test_the_servers_of_each_host_are_found(wrap: tuple[str, ...]) -> None:
    document: Any = {"s": {"command": "npx", "args": ["-y", "x"], "env": {"A": "b"}}}
    for key in reversed(wrap):
        document = {key: document}
    server = parse(document).config.servers["s"]
    assert (server.command, server.args, server.env) == ("npx", ("-y", "x"), {"A": "b"})


def test_names_become_ids_and_are_told() -> None:
    loaded = parse(
        {"mcpServers": {name: {"command": "c"} for name in ("My Server", "my-server", "a__b", "天気", "OK_1")}}
    )
    assert list(loaded.config.servers)[0:3] == ["my-server-2", "my-server", "a_b"]
    assert list(loaded.config.servers)[4] == "OK_1"
    assert list(loaded.config.servers)[3].startswith("server-")
    assert len(loaded.warnings) == 3
    assert "'My Server': is no server id; the server is called my-server-2 here" in loaded.warnings[0]


def test_unknown_keys_are_ignored_with_a_warning_each() -> None:
    loaded = parse({"inputs": [], "mcpServers": {"s": {"command": "c", "autoApprove": ["x"], "timeout": 5}}})
    assert len(loaded.warnings) == 3
    assert any("mcpServers.s.autoApprove" in warning for warning in loaded.warnings)


def test_disabled_and_type_are_honoured() -> None:
    assert one({"command": "c", "disabled": True}).enabled is False
    assert one({"command": "c", "disabled": False}).enabled is True
    assert one({"command": "c", "type": "stdio"}).kind == "stdio"
    assert one({"url": "https://x", "type": "sse"}).kind == "sse"
    assert one({"url": "https://x", "type": "streamable-http"}).kind == "http"
    assert one({"httpUrl": "https://x"}).kind == "http"
    assert one({"serverUrl": "https://x"}).url == "https://x"


def test_references_come_from_the_environment() -> None:
    environ = {"HOME": "/h", "API_KEY": "k-12345678", "EMPTY": ""}
    server = one(
        {
            "command": "${HOME}/bin/x",
            "args": ["${env:HOME}", "${input:api-key}", "${NONE:-d}", "${not a name}", "$HOME", 3, True],
            "env": {"N": 1, "B": False, "Z": None},
        },
        environ,
    )
    assert server.command == "/h/bin/x"
    assert server.args == ("/h", "k-12345678", "d", "${not a name}", "$HOME", "3", "true")
    assert server.env == {"N": "1", "B": "false"}
    with pytest.raises(ConfigError, match=r"mcpServers\.s\.args\[0\]: the environment variable NONE is not set"):
        one({"command": "c", "args": ["${NONE}"]})


def test_secrets_are_known_here_too() -> None:
    loaded = parse({"mcpServers": {"s": {"command": "c", "env": {"GITHUB_TOKEN": "ghp_12345678"}}}})
    assert loaded.secrets == {"ghp_12345678"}


def test_comments_and_trailing_commas_are_no_mistakes() -> None:
    text = """
    {
      // VS Code writes these
      "servers": { /* and
                      these */
        "s": { "command": "c", "args": ["http://x", "/* not */", "a,]",], },
      },
    }
    """
    assert parse(text).config.servers["s"].args == ("http://x", "/* not */", "a,]")


def test_what_does_not_fit_the_kind_of_server_is_dropped_and_told() -> None:
    loaded = parse(
        {"mcpServers": {"s": {"type": "http", "command": "c", "args": ["x"], "url": "https://x", "env": {}}}}
    )
    assert loaded.config.servers["s"].kind == "http"
    assert loaded.config.servers["s"].args == ()
    assert len(loaded.warnings) == 2
    assert one({"command": "c", "url": "", "headers": {"A": "b"}}).headers == {}


@pytest.mark.parametrize("document", [{}, [], 3, None, {"mcpServers": []}, {"servers": "x"}])
def test_a_document_without_servers_says_what_was_expected(document: Any) -> None:
    with pytest.raises(ConfigError, match="mcpServers"):
        parse(document)


def test_problems_name_the_key_of_the_file() -> None:
    with pytest.raises(ConfigError) as caught:
        parse({"mcpServers": {"My Server": {"command": 3}, "x": 1, "y": {}}})
    keys = [problem.key for problem in caught.value.problems]
    assert keys == ["mcpServers.'My Server'.command", "mcpServers.x", "mcpServers.y"]


def test_a_syntax_error_says_where() -> None:
    with pytest.raises(ConfigError, match="line 2, column 17"):
        parse('{ // comment\n"mcpServers": { x } }')


def test_importing_copies_no_secret() -> None:
    data = b'{"mcpServers": {"s": {"command": "c", "env": {"T": "${TOKEN}"}, "disabled": true}}}'
    imported = config.import_servers(data, Path("claude_desktop_config.json"))
    assert imported.tables == {"s": {"command": "c", "env": {"T": "${env:TOKEN}"}, "enabled": False}}
