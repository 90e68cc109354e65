"""What the tables of servers, metrics and hooks must keep to beyond types: above all the rules about remote servers."""

from pathlib import Path

import pytest

from conduit_daemon import config
from conduit_daemon.errors import ConfigError


def parse(text: str) -> config.Loaded:
    return config.parse(text.encode(), Path("c.toml"), {})


def test_a_disabled_server_may_ask_for_anything() -> None:
    assert parse("[servers.x]\nenabled = false\nurl = 'https://example.com'\nscope = 'connection'")


@pytest.mark.parametrize(
    ("table", "key"),
    [
        ("url = 'ftp://x'", "url"),
        ("url = 'https://'", "url"),
        ("url = 'example.com/mcp'", "url"),
        ("url = 'https://a b/'", "url"),
        ("url = 'https://x:99999/'", "url"),
        ("url = 'https://[::1/'", "url"),
        ("url = 'https://x'\ntransport = 'websocket'", "transport"),
        ("url = 'wss://x'\ntransport = 'sse'", "transport"),
        ("url = 'https://x'\ntransport = 'stdio'", "transport"),
        ("url = 'https://x'\nargs = ['a']", "args"),
        ("url = 'https://x'\nenv = { A = 'b' }", "env"),
        ("url = 'https://x'\nheaders = { 'A B' = 'c' }", "headers.'A B'"),
        ("url = 'https://x'\nheaders = { A = \"b\\r\\nC: d\" }", "headers.A"),
        ("url = 'https://x'\nheaders = { A = ' b' }", "headers.A"),
        ("url = 'https://x'\nheaders = { A = 'é' }", "headers.A"),
        ("url = 'https://x'\nheaders = { content-length = '5' }", "headers.content-length"),
        ("url = 'wss://x'\nheaders = { Host = 'y' }", "headers.Host"),
        ("url = 'https://x'\nauth = { type = 'client_credentials' }", "auth"),
        ("url = 'wss://x'\nauth = { type = 'oauth' }", "auth"),
        ("url = 'https://x'\nauth = { type = 'oauth', token_url = 'wss://y' }", "auth.token_url"),
    ],
)
def test_mistakes_about_remote_servers(table: str, key: str) -> None:
    with pytest.raises(ConfigError) as caught:
        parse(f"[servers.s]\n{table}")
    assert [problem.key for problem in caught.value.problems] == [f"servers.s.{key}"]


def test_both_a_command_and_a_url_are_one_too_many() -> None:
    with pytest.raises(ConfigError, match="both are here"):
        parse("[servers.s]\ncommand = 'c'\nurl = 'https://x'")


@pytest.mark.parametrize(
    ("table", "kind"),
    [
        ("url = 'https://x/mcp'", "http"),
        ("url = 'http://[::1]:8080/mcp'", "http"),
        ("url = 'https://x'\ntransport = 'sse'", "sse"),
        ("url = 'WSS://x'", "websocket"),
        ("command = 'c'", "stdio"),
    ],
)
def test_the_transport_follows_from_the_address(table: str, kind: str) -> None:
    assert parse(f"[servers.s]\n{table}").config.servers["s"].kind == kind


def test_a_token_in_the_clear_is_a_warning() -> None:
    header = "headers = { Authorization = 'Bearer x' }"
    assert "unencrypted" in parse(f"[servers.s]\nurl = 'http://x/'\n{header}").warnings[0]
    assert parse(f"[servers.s]\nurl = 'http://localhost/'\n{header}").warnings == ()


@pytest.mark.parametrize("listen", ["9464", ":9464", "localhost:", "localhost:0", "localhost:65536", "localhost:http"])
def test_where_metrics_listen_is_a_host_and_a_port(listen: str) -> None:
    with pytest.raises(ConfigError, match="HOST:PORT"):
        parse(f"[metrics]\nlisten = '{listen}'")


@pytest.mark.parametrize("hook", ["my_hooks", "my hooks:f", "m:", ":f", "m:f:g", "1m:f"])
def test_a_hook_is_a_module_and_a_function(hook: str) -> None:
    with pytest.raises(ConfigError, match="module:function"):
        parse(f"[hooks]\nbefore_call = ['{hook}']")
