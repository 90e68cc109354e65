"""`conduit check` and the start of `conduit run`: what is wrong with a configuration, and what is in it."""

import json

import pytest

GOOD = """
[servers.clock]
command = "clock-server"
args = ["--token", "not to be printed"]
[servers.old]
command = "old-server"
enabled = false
[policy]
default = "deny"
[[policy.rules]]
effect = "allow"
servers = ["clok"]
"""

BAD = """
colour = "red"
[servers.clock]
comand = "clock-server"
[limits]
call_timeout = "soon"
"""


@pytest.fixture
def file(tmp_path):
    def write(text):
        path = tmp_path / "conduit.toml"
        path.write_text(text)
        return path

    return write


def test_what_a_good_one_holds(conduit, file):
    said = conduit("check", file(GOOD))

    assert (said.returncode, said.stderr) == (0, "")
    assert f"{file(GOOD)} can be used." in said.stdout
    assert [line.split() for line in said.stdout.splitlines() if "server" in line and "stdio" in line] == [
        ["clock", "stdio", "eager", "clock-server"],
        ["old", "stdio", "disabled", "old-server"],
    ]
    assert "1 rule; a call that none matches: deny" in said.stdout
    assert "'clock'" in said.stdout.split("warning:")[1]
    assert "not to be printed" not in said.stdout


def test_the_policys_own_tests_are_run(conduit, file):
    tests = """
[[policy.tests]]
call = "clock__tell"
expect = "deny"
[[policy.tests]]
call = "clock__tell"
expect = "allow"
"""
    wrong = "policy.tests[1]: clock__tell was expected to be allowed, but default has it denied\n"
    said = conduit("check", file(GOOD + tests))
    assert said.returncode == 1
    assert "1 of 2 tests passed." in said.stdout
    assert wrong in said.stdout

    said = conduit("policy", "test", file(GOOD + tests))
    assert (said.returncode, said.stdout) == (1, f"{wrong}1 of 2 tests passed.\n")
    assert json.loads(conduit("policy", "test", file(GOOD), "--json").stdout) == {"tests": 0, "failed": []}
    assert conduit("policy", "test", file(BAD)).returncode == 1


def test_the_same_for_programs(conduit, file):
    found = json.loads(conduit("check", "--config", file(GOOD), "--json").stdout)

    assert found["ok"] is True
    assert found["servers"]["old"] == {
        "transport": "stdio",
        "enabled": False,
        "start": "eager",
        "target": "old-server",
    }
    assert found["policy"]["rules"] == 1
    assert len(found["warnings"]) == 1


def test_every_problem_is_a_line_and_the_exit_code_is_1(conduit, file):
    said = conduit("check", file(BAD))

    assert said.returncode == 1
    assert len(said.stdout.splitlines()) == 3
    for key in ("colour", "servers.clock.comand", "limits.call_timeout"):
        assert any(key in line and str(file(BAD)) in line for line in said.stdout.splitlines())
    assert "did you mean 'command'" in said.stdout
    assert said.stderr == "conduit: 3 problems; nothing would be started\n"
    problems = json.loads(conduit("check", file(BAD), "--json").stdout)["problems"]
    assert {problem["key"] for problem in problems} >= {"colour", "limits.call_timeout"}


def test_run_refuses_a_bad_one_with_78_and_starts_nothing(conduit, file, tmp_path):
    said = conduit("run", "--config", file(BAD))

    assert said.returncode == 78
    assert len(said.stderr.splitlines()) == 3
    assert "Traceback" not in said.stderr
    assert {path.name for path in tmp_path.iterdir()} == {"conduit.toml"}


def test_policy_tests_without_a_configuration_say_where_one_was_looked_for(conduit):
    tested = conduit("policy", "test")
    assert (tested.returncode, tested.stdout) == (0, "The policy has no tests.\n")
    assert "no configuration found" in tested.stderr


@pytest.mark.parametrize("verb", ["check", "run"])
def test_a_file_that_is_not_there(conduit, verb, tmp_path):
    said = conduit(verb, tmp_path / "none.toml")

    assert said.returncode == {"check": 1, "run": 78}[verb]
    assert str(tmp_path / "none.toml") in said.stdout + said.stderr
    assert "Traceback" not in said.stderr


def test_keys_without_effect_under_the_installed_units_are_warned_of(conduit, tmp_path):
    (tmp_path / "config/conduit").mkdir(parents=True)
    (tmp_path / "config/conduit/conduit.toml").write_text('[rpc]\nsocket_group = "agents"\n')
    assert "no effect" not in conduit("check").stdout
    units = tmp_path / "config/systemd/user"
    units.mkdir(parents=True)
    (units / "conduit-agent.socket").write_text("[Socket]\nListenStream=%t/conduit/agent.sock\n")

    said = conduit("check")

    assert said.returncode == 0
    assert "warning: " in said.stdout
    assert "rpc.socket_group has no effect: systemd makes the agent socket" in said.stdout
    assert len(json.loads(conduit("check", "--json").stdout)["warnings"]) == 1
