"""`conduit config schema`: editors must mark what the daemon refuses, and nothing that it takes."""

import json
import tomllib
from pathlib import Path

import jsonschema_rs
import pytest

from conduit_daemon import config
from conduit_daemon.config.schema import json_schema
from conduit_daemon.errors import ConfigError

EXAMPLES = sorted((Path(__file__).parents[2] / "config").glob("*.toml"))
SERVER = '[servers.s]\ncommand = "c"\n'


@pytest.fixture(scope="module")
def validator():
    return jsonschema_rs.Draft202012Validator(json_schema())


def test_the_command_prints_it(conduit):
    said = conduit("config", "schema")

    assert (said.returncode, said.stderr) == (0, "")
    assert json.loads(said.stdout) == json_schema()
    jsonschema_rs.meta.validate(json.loads(said.stdout))


@pytest.mark.parametrize("path", EXAMPLES, ids=lambda path: path.name)
def test_the_examples_fit(validator, path):
    assert [error.message for error in validator.iter_errors(tomllib.loads(path.read_text()))] == []


RIGHT = [
    "",
    '[rpc]\nmax_message = "64MiB"',
    '[rpc]\nmax_message = "1.5 gb"',
    "[rpc]\nmax_message = 1000",
    '[rpc]\nsocket_mode = "0660"',
    "[rpc]\nsocket_mode = 0o600",
    '[rpc]\nmax_message = "${env:SIZE:-1MB}"',
    '[log]\nlevel = "${env:LEVEL:-debug}"',
    "[limits]\nshutdown_timeout = 0",
    "[limits]\nrate = { calls = 1 }",
    SERVER + 'tools = { allow = ["a*"], describe = { a = "b" } }',
    SERVER + 'backoff = { initial = 1 }\nenv = { A = "b" }',
    '[[policy.rules]]\neffect = "deny"\nannotations = { readOnlyHint = true }\nservers = ["a"]',
    '[[policy.tests]]\ncall = "a__b"\nexpect = "approve"\narguments = { a = [1, { b = 1.5 }] }',
]
WRONG = [
    'wach = "x"',
    "watch = 1",
    '[rpc]\nmax_message = "64"',
    '[rpc]\nmax_message = "64MX"',
    "[rpc]\nmax_message = 0",
    '[rpc]\nsocket_mode = "0999"',
    "[rpc]\nsocket_mode = 4096",
    "[rpc]\nmax_connections = 0",
    '[log]\nlevel = "loud"',
    '[limits]\ncall_timeout = "60"',
    "[limits]\nrate = { per = 1 }",
    '[servers."a b"]\ncommand = "c"',
    '[servers.a__b]\ncommand = "c"',
    '[servers.untrusted]\ncommand = "c"',
    "[servers.s]\nenabled = true",
    SERVER + 'url = "https://example.com"',
    SERVER + "args = [1]",
    SERVER + "backof = { initial = 1 }",
    "[[policy.rules]]\nname = 'x'",
    '[[policy.rules]]\neffect = "${env:EFFECT}"',
    '[[policy.tests]]\ncall = "a__b"\nexpect = "maybe"',
]


@pytest.mark.parametrize("text", RIGHT)
def test_what_the_daemon_takes_fits(validator, text):
    config.parse(text.encode(), Path("/x/conduit.toml"), {"SIZE": "", "LEVEL": ""})
    assert validator.is_valid(tomllib.loads(text))


@pytest.mark.parametrize("text", WRONG)
def test_what_the_daemon_refuses_is_marked(validator, text):
    with pytest.raises(ConfigError):
        config.parse(text.encode(), Path("/x/conduit.toml"), {"EFFECT": "deny"})
    assert not validator.is_valid(tomllib.loads(text))


def test_keys_say_what_they_mean_and_what_they_are_without():
    found = json_schema()["$defs"]["RpcConfig"]["properties"]

    assert found["max_message"]["default"] == "64MiB"
    assert found["socket_mode"]["default"] == "0660"
    assert found["control_socket"]["description"].startswith("Where administration connects; leave it out for")
    assert "null" not in json.dumps(json_schema())
