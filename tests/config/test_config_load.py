"""Reading a configuration: what is found, what it says, and what is wrong with it."""

from pathlib import Path

import msgspec
import pytest

from conduit_daemon import config
from conduit_daemon.config import Config
from conduit_daemon.errors import ConfigError, ConfigProblem


def parse(
    text: str, environ: dict[str, str] | None = None, path: Path = Path("/etc/conduit/conduit.toml")
) -> config.Loaded:
    return config.parse(text.encode(), path, environ or {})


def problems_of(text: str, environ: dict[str, str] | None = None) -> dict[str, ConfigProblem]:
    with pytest.raises(ConfigError) as caught:
        parse(text, environ)
    found = {problem.key: problem for problem in caught.value.problems}
    assert len(found) == len(caught.value.problems)
    return found


def test_an_empty_file_is_all_defaults() -> None:
    loaded = parse("")
    assert loaded.config == Config()
    assert loaded.warnings == ()
    assert loaded.secrets == frozenset()


def test_what_is_written_is_what_is_read() -> None:
    loaded = parse(
        """
        [rpc]
        socket_mode = "0600"
        max_message = "1.5MiB"
        max_connections = 3
        [log]
        level = "debug"
        [limits]
        max_result = "10MB"
        call_timeout = 5
        [servers.files]
        command = "npx"
        args = ["-y", "x"]
        env = { A = "b" }
        connect_timeout = 2.5
        tools = { allow = ["read_*"], deny = ["*_secret"], describe = { read_file = "reads" } }
        backoff = { initial = 1, maximum = 2 }
        [policy]
        default = "deny"
        [[policy.rules]]
        effect = "allow"
        servers = ["files"]
        tainted_by = ["files"]
        [shape]
        max_text = 100
        [toolsets.few]
        servers = ["files"]
        """
    ).config
    assert loaded.rpc.socket_mode == 0o600
    assert loaded.rpc.max_message == 3 * 512 * 1024
    assert loaded.limits.max_result == 10_000_000
    assert loaded.limits.call_timeout == 5.0
    assert isinstance(loaded.limits.call_timeout, float)
    files = loaded.servers["files"]
    assert files.args == ("-y", "x")
    assert files.env == {"A": "b"}
    assert files.kind == "stdio"
    assert files.tools.allow == ("read_*",)
    assert files.tools.describe == {"read_file": "reads"}
    assert files.backoff.factor == 2.0
    assert loaded.policy.rules[0].tainted_by == ("files",)
    assert loaded.policy.rules[0].tools == ("*",)
    assert loaded.shape.max_text == 100
    assert loaded.toolsets["few"].tools == ("*",)


def test_every_mistake_is_told_at_once_with_its_key_and_the_nearest_known_one() -> None:
    found = problems_of(
        """
        [rpc]
        max_message = "lots"
        [log]
        levle = "info"
        format = "jsno"
        [limits]
        max_in_flight = 0
        call_timeout = "60"
        [servers.files]
        comand = "npx"
        [servers.bad__id]
        command = "x"
        args = "-y"
        [policy]
        default = true
        [[policy.rules]]
        tools = ["x"]
        """
    )
    assert found["log.levle"].suggestion == "level"
    assert found["log.format"].suggestion == "json"
    assert found["servers.files.comand"].suggestion == "command"
    assert found["servers.bad__id"].suggestion == "bad_id"
    assert "64MiB" in found["rpc.max_message"].message
    assert found["limits.max_in_flight"].message == "must be at least 1"
    assert found["limits.call_timeout"].message == "expected a number, found text"
    assert "expected a list" in found["servers.bad__id.args"].message
    assert '"allow", "approve", "deny"' in found["policy.default"].message
    assert "is missing" in found["policy.rules[0].effect"].message
    assert len(found) == 10
    assert {problem.file for problem in found.values()} == {"/etc/conduit/conduit.toml"}


@pytest.mark.parametrize(
    ("text", "key", "words"),
    [
        ("[limits]\ncall_timeout = 0", "limits.call_timeout", "more than 0"),
        ("[limits]\ncall_timeout = inf", "limits.call_timeout", "finite"),
        ("[limits]\ncall_timeout = nan", "limits.call_timeout", "finite"),
        ("[limits]\ncall_timeout = 1e12", "limits.call_timeout", "at most"),
        ("[limits]\nmax_in_flight = true", "limits.max_in_flight", "a whole number, found true or false"),
        ("[limits]\nmax_in_flight = 1.5", "limits.max_in_flight", "a whole number, found a number"),
        ("[limits]\nmax_result = 0", "limits.max_result", "more than 0"),
        ("[limits]\nmax_result = '10M'", "limits.max_result", "64MiB"),
        ("[limits]\nmax_result = '99999999GiB'", "limits.max_result", "at most"),
        ("[rpc]\nsocket_mode = '0999'", "rpc.socket_mode", "0660"),
        ("[rpc]\nsocket_mode = '7777'", "rpc.socket_mode", "at most"),
        ("[rpc]\nagent_socket = ''", "rpc.agent_socket", "a path"),
        ("servers = 3", "servers", "a table, found a whole number"),
        ("[servers]\nx = 3", "servers.x", "a table"),
        ("log = 2020-01-01", "log", "found a date"),
        ("[servers.x]\ncommand = 'a\\u0000b'".replace("'", '"'), "servers.x.command", "NUL"),
        ("[servers.x]", "servers.x", "neither"),
        ("[servers.x]\ncommand = ' '", "servers.x.command", "empty"),
        ("[servers.x]\ncommand = 'y'\nheaders = { A = 'b' }", "servers.x.headers", "url"),
        ("[servers.x]\ncommand = 'y'\ntransport = 'sse'", "servers.x.transport", "stdio"),
        ("[servers.x]\ncommand = 'y'\nenv = { 'A=B' = 'c' }", "servers.x.env.'A=B'", "environment variable"),
        ("[servers.x]\ncommand = 'y'\nbackoff = { initial = 9, maximum = 1 }", "servers.x.backoff.maximum", "initial"),
        ("[servers.x]\ncommand = 'y'\ntools = { allow = ['[a'] }", "servers.x.tools.allow[0]", "never closed"),
        ("[servers.x]\ncommand = 'y'\ntools = { deny = [''] }", "servers.x.tools.deny[0]", "empty"),
        ("[servers.untrusted]\ncommand = 'y'", "servers.untrusted", "another id"),
        ("[servers.'']\ncommand = 'y'", "servers.''", "no server id"),
        ("[[policy.rules]]\neffect = 'allow'\ntools = []", "policy.rules[0].tools", "matches nothing"),
        ("[[policy.rules]]\neffect = 'allow'\ntainted_by = []", "policy.rules[0].tainted_by", "matches nothing"),
        ("[[policy.rules]]\neffect = 'allow'\nname = 'default'", "policy.rules[0].name", "of its own"),
        ("[[policy.rules]]\neffect = 'allow'\nwhen = 'args.'", "policy.rules[0].when", "line 1, column 6"),
        ("[[policy.rules]]\neffect = 'allow'\nwhen = 'arg.x == 1'", "policy.rules[0].when", "'arg'"),
        (
            "[[policy.tests]]\ncall = 'x'\nexpect = 'deny'\narguments = { d = 2020-01-01 }",
            "policy.tests[0].arguments.d",
            "date",
        ),
        ("[rpc]\nagent_socket = '/a'\ncontrol_socket = '/a'", "rpc.control_socket", "another path"),
        ("[rpc]\nagent_socket = '/" + "a" * 120 + "'", "rpc.agent_socket", "107"),
        ("[toolsets.x]\ntools = ['[']", "toolsets.x.tools[0]", "never closed"),
    ],
)
def test_a_mistake_is_told_in_words(text: str, key: str, words: str) -> None:
    found = problems_of(text)
    assert list(found) == [key]
    assert words in found[key].message


def test_two_rules_of_one_name_are_refused() -> None:
    rule = "[[policy.rules]]\neffect = 'allow'\nname = 'a'\n"
    assert "rules[0] too" in problems_of(rule + rule)["policy.rules[1].name"].message


@pytest.mark.parametrize(
    ("data", "words"),
    [
        (b"a = ", "line 1, column 5"),
        (b"[log]\nlevel = = 3", "line 2, column 9"),
        (b"[a]\n[a]", "line 2, column 3"),
        (b'x = 1\ny = "\xff"', "line 2"),
        (b"a = '''", "line 1, column 8"),
        (b"x = " + b"[" * 5000, "nested too deeply"),
        (b"x = " + b"9" * 5000, "out of range"),
    ],
)
def test_a_syntax_error_says_where(data: bytes, words: str) -> None:
    with pytest.raises(ConfigError) as caught:
        config.parse(data, Path("c.toml"), {})
    (problem,) = caught.value.problems
    assert words in problem.message
    assert problem.file == "c.toml"


def test_a_byte_order_mark_is_no_mistake() -> None:
    assert config.parse(b"\xef\xbb\xbf[log]\nlevel = 'error'", Path("c.toml"), {}).config.log.level == "error"


def test_paths_are_relative_to_the_file() -> None:
    loaded = parse(
        """
        [rpc]
        agent_socket = "run/agent.sock"
        [state]
        directory = "~/state"
        [servers.a]
        command = "./bin/server"
        args = ["./as/it/is"]
        cwd = "data"
        roots = ["one", "file:///two"]
        [servers.b]
        command = "npx"
        [servers.c]
        command = "/usr/bin/x"
        """,
        {"HOME": "/home/me"},
    ).config
    base = Path("/etc/conduit")
    assert loaded.rpc.agent_socket == base / "run/agent.sock"
    assert loaded.state.directory == Path("/home/me/state")
    assert loaded.servers["a"].command == "/etc/conduit/bin/server"
    assert loaded.servers["a"].args == ("./as/it/is",)
    assert loaded.servers["a"].cwd == base / "data"
    assert loaded.servers["a"].roots == (base / "one", Path("/two"))
    assert loaded.servers["b"].command == "npx"
    assert loaded.servers["c"].command == "/usr/bin/x"


def test_the_file_is_found_where_the_page_says(tmp_path: Path) -> None:
    def write(folder: str, level: str) -> Path:
        path = tmp_path / folder / "conduit.toml"
        path.parent.mkdir(parents=True)
        path.write_text(f"[log]\nlevel = '{level}'")
        return path

    given, named = write("given", "debug"), write("named", "warning")
    unit, user = write("unit", "error"), write("user/conduit", "info")
    environ = {
        "CONDUIT_CONFIG": str(named),
        "CONFIGURATION_DIRECTORY": f"{tmp_path / 'none'}:{unit.parent}",
        "XDG_CONFIG_HOME": str(tmp_path / "user"),
        "HOME": str(tmp_path),
    }
    assert config.load(given, environ).path == given
    assert config.load(None, environ).path == named
    del environ["CONDUIT_CONFIG"]
    assert config.load(None, environ).path == unit
    del environ["CONFIGURATION_DIRECTORY"]
    assert config.load(None, environ).path == user


def test_no_file_anywhere_is_all_defaults_and_says_where_it_looked(tmp_path: Path) -> None:
    if Path("/etc/conduit/conduit.toml").exists():
        pytest.skip("this machine has a configuration of its own")
    loaded = config.load(None, {"HOME": str(tmp_path)})
    assert loaded.config == Config()
    assert loaded.path is None
    assert str(tmp_path / ".config/conduit/conduit.toml") in loaded.warnings[0]


def test_a_file_that_is_named_and_missing_is_an_error(tmp_path: Path) -> None:
    missing = tmp_path / "none.toml"
    with pytest.raises(ConfigError, match="No such file"):
        config.load(missing, {})
    with pytest.raises(ConfigError, match="No such file"):
        config.load(None, {"CONDUIT_CONFIG": str(missing)})
    with pytest.raises(ConfigError, match="directory"):
        config.load(tmp_path, {})


def test_what_cannot_be_meant_is_a_warning() -> None:
    loaded = parse(
        """
        [limits]
        call_timeout = 700
        [servers.search]
        command = "npx -y server"
        [[policy.rules]]
        effect = "deny"
        servers = ["seach", "other*"]
        tainted_by = ["untrusted", "search", "web"]
        annotations = { readOnlyHint = true }
        [toolsets.x]
        servers = ["none"]
        """
    )
    text = "\n".join(loaded.warnings)
    assert "call_timeout: is longer than max_call_time" in text
    assert "servers.search.command: holds spaces" in text
    assert "policy.rules[0].servers[0]: there is no server 'seach'; did you mean 'search'?" in text
    assert "policy.rules[0].tainted_by[2]" in text
    assert "policy.rules[0].annotations: never matches" in text
    assert "toolsets.x.servers[0]" in text
    assert len(loaded.warnings) == 6


def test_default_places() -> None:
    nothing = {"HOME": "/home/me"}
    assert config.agent_socket(Config(), nothing) == Path("/home/me/.local/state/conduit/agent.sock")
    assert config.control_socket(Config(), nothing) == Path("/home/me/.local/state/conduit/control.sock")
    assert config.state_directory(Config(), nothing) == Path("/home/me/.local/state/conduit")
    user = {**nothing, "XDG_RUNTIME_DIR": "/run/user/7", "XDG_STATE_HOME": "/s"}
    assert config.agent_socket(Config(), user) == Path("/run/user/7/conduit/agent.sock")
    assert config.state_directory(Config(), user) == Path("/s/conduit")
    unit = {**user, "RUNTIME_DIRECTORY": "/run/conduit:/run/other", "STATE_DIRECTORY": "/var/lib/conduit"}
    assert config.agent_socket(Config(), unit) == Path("/run/conduit/agent.sock")
    assert config.control_socket(Config(), unit) == Path("/run/conduit/control.sock")
    assert config.state_directory(Config(), unit) == Path("/var/lib/conduit")
    written = msgspec.structs.replace(Config(), rpc=config.RpcConfig(agent_socket=Path("/x/a.sock")))
    assert config.control_socket(written, unit) == Path("/x/control.sock")


def test_one_server_is_read_as_from_the_file() -> None:
    loaded = config.load_server(
        "extra", {"command": "./x", "env": {"A_TOKEN": "${env:T}"}}, Path("/base"), {"T": "longenough"}
    )
    assert loaded.server.command == "/base/x"
    assert loaded.secrets == {"longenough"}
    with pytest.raises(ConfigError) as caught:
        config.load_server("a__b", {"comand": "x"}, Path("/base"), {})
    assert [problem.key for problem in caught.value.problems] == ["servers.a__b", "servers.a__b.comand"]


def test_a_rule_that_rests_on_an_agents_own_word_is_worth_a_look() -> None:
    warnings = parse(
        """
        [[policy.rules]]
        effect = "allow"
        principals = ["ann", "ann/*", "bob/researcher", "*/reports"]
        [[policy.rules]]
        effect = "deny"
        principals = ["ann", "bob/r\u202eb*"]
        """
    ).warnings
    assert [warning.partition("policy.")[2].partition(": ")[0] for warning in warnings] == [
        "rules[0].principals[2]",
        "rules[0].principals[3]",
        "rules[1].principals[1]",
    ]
    assert "'bob/researcher' opens to whoever connects as that user" in warnings[0]
    assert "'bob/r\\u202eb*' is passed by whoever gives itself another name" in warnings[2]
