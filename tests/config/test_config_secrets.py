"""References and secrets: what is resolved, what is masked, and that no message gives one away."""

from pathlib import Path

import pytest

from conduit_daemon import config
from conduit_daemon.errors import ConfigError


def parse(text: str, environ: dict[str, str], folder: Path = Path("/etc")) -> config.Loaded:
    return config.parse(text.encode(), folder / "conduit.toml", environ)


def env_of(value: str, environ: dict[str, str], folder: Path = Path("/etc"), name: str = "X") -> str:
    return (
        parse(f"[servers.s]\ncommand = 'c'\nenv = {{ {name} = '{value}' }}", environ, folder)
        .config.servers["s"]
        .env[name]
    )


def test_references_are_resolved(tmp_path: Path) -> None:
    (tmp_path / "secret").write_text("from a file\n")
    (tmp_path / "db").write_text("from systemd\r\n")
    environ = {"A": "1", "EMPTY": "", "CREDENTIALS_DIRECTORY": str(tmp_path)}
    assert env_of("${env:A}-${env:A}", environ) == "1-1"
    assert env_of("${env:EMPTY}", environ) == ""
    assert env_of("${env:EMPTY:-d}", environ) == "d"
    assert env_of("${env:NONE:-}", environ) == ""
    assert env_of("${env:NONE:-a:-b}", environ) == "a:-b"
    assert env_of("${file:secret}", environ, tmp_path) == "from a file"
    assert env_of(f"${{file:{tmp_path}/secret}}", environ) == "from a file"
    assert env_of("${credential:db}", environ) == "from systemd"
    assert env_of("$${env:A} $A $$", environ) == "${env:A} $A $$"


@pytest.mark.parametrize(
    ("value", "words"),
    [
        ("${env:NONE}", "NONE is not set"),
        ("${env:}", "a variable's name"),
        ("${env:A B}", "a variable's name"),
        ("${A}", "none that is known"),
        ("${vault:x}", "none that is known"),
        ("${env:A", "never closed"),
        ("${file:}", "names no file"),
        ("${file:none}", "the file none does not exist"),
        ("${file:.}", "no regular file"),
        ("${credential:x}", "CREDENTIALS_DIRECTORY is not set"),
        ("${credential:../x}", "a credential's name"),
        ("${credential:..}", "a credential's name"),
    ],
)
def test_a_reference_that_cannot_be_resolved_is_a_problem(value: str, words: str, tmp_path: Path) -> None:
    with pytest.raises(ConfigError) as caught:
        env_of(value, {"A": "1"}, tmp_path)
    (problem,) = caught.value.problems
    assert problem.key == "servers.s.env.X"
    assert words in problem.message


def test_files_that_are_no_text_are_problems(tmp_path: Path) -> None:
    (tmp_path / "binary").write_bytes(b"\xff\xfe")
    (tmp_path / "large").write_bytes(b"a" * (1024 * 1024 + 1))
    with pytest.raises(ConfigError, match="UTF-8"):
        env_of("${file:binary}", {}, tmp_path)
    with pytest.raises(ConfigError, match="1 MiB"):
        env_of("${file:large}", {}, tmp_path)


def test_expressions_and_words_for_models_are_left_alone() -> None:
    loaded = parse(
        """
        [servers.s]
        command = "c"
        tools = { describe = { t = "say ${x}" } }
        [[policy.rules]]
        effect = "deny"
        reason = "no ${y}"
        when = "args.s == '${z}'"
        """,
        {},
    )
    assert loaded.config.servers["s"].tools.describe == {"t": "say ${x}"}
    assert loaded.config.policy.rules[0].reason == "no ${y}"


def test_a_disabled_server_needs_nothing() -> None:
    text = "[servers.s]\nenabled = false\nurl = 'https://example.com'\nheaders = { A = '${env:NONE}' }"
    assert parse(text, {}).config.servers["s"].headers == {"A": "${env:NONE}"}


def test_secrets_are_known_by_where_they_come_from_and_what_they_are_called(tmp_path: Path) -> None:
    (tmp_path / "pem").write_text("-----BEGIN KEY-----\nabcdefghijklmnopqrstuvwxyz\n-----END KEY-----\n")
    (tmp_path / "cred").write_text("credential value")
    (tmp_path / "short").write_text("1234567")
    loaded = parse(
        """
        [servers.s]
        command = "c"
        args = ["--key=${env:MY_API_KEY}", "${env:PLAIN}"]
        [servers.s.env]
        A = "${file:pem}"
        B = "${credential:cred}"
        C = "${file:short}"
        D = "${env:PLAIN}"
        SESSION_COOKIE = "${env:OTHER}"
        PASSWORD = "written down"
        LANG = "en_GB.UTF-8"
        """,
        {
            "MY_API_KEY": "key from env",
            "PLAIN": "no secret here",
            "OTHER": "by its key",
            "CREDENTIALS_DIRECTORY": str(tmp_path),
        },
        tmp_path,
    )
    assert "abcdefghijklmnopqrstuvwxyz" in loaded.secrets
    assert "-----BEGIN KEY-----" not in loaded.secrets
    assert {"credential value", "key from env", "by its key", "written down"} <= loaded.secrets
    assert not {"1234567", "no secret here", "en_GB.UTF-8"} & loaded.secrets


def test_headers_and_urls_hold_secrets_too() -> None:
    loaded = parse(
        """
        [servers.s]
        url = "https://me:passw0rd99@example.com/mcp?api_key=0123456789&page=123456789"
        [servers.s.headers]
        Authorization = "Bearer abcdefgh-1"
        X-Trace = "trace-number"
        """,
        {},
    )
    assert loaded.secrets == {"passw0rd99", "0123456789", "Bearer abcdefgh-1", "abcdefgh-1"}


def test_no_problem_gives_a_secret_away(tmp_path: Path) -> None:
    secret = "s3cr3t-v4lue"
    (tmp_path / "secret").write_text(secret)
    places = """
        watch = "R"
        [rpc]
        max_message = "R"
        socket_mode = "R"
        agent_socket = "R"
        control_socket = "R"
        [log]
        level = "R"
        format = ["R"]
        [limits]
        call_timeout = "R"
        [audit]
        retention_days = "R"
        [metrics]
        listen = "R"
        [hooks]
        before_call = ["R"]
        [servers.s]
        command = "R"
        url = "R"
        transport = "R"
        args = "R"
        env = "R"
        start = "R"
        [servers.t]
        url = "ftp://R/\\n"
        headers = { "a b" = "R\\r\\n" }
        auth = { type = "client_credentials", token_url = "R" }
    """
    for reference in ("${env:TOKEN}", "${file:secret}", "${credential:secret}"):
        with pytest.raises(ConfigError) as caught:
            parse(places.replace("R", reference), {"TOKEN": secret, "CREDENTIALS_DIRECTORY": str(tmp_path)}, tmp_path)
        assert len(caught.value.problems) >= 12
        assert secret not in str(caught.value)
        assert all(secret not in str(problem) for problem in caught.value.problems)
