"""`conduit import`: other hosts' files become tables of our own, and no secret is copied."""

import json
import os
import re
import stat
import subprocess
import tomllib
from pathlib import Path

import pytest

from conduit_daemon.cli.hosts import HOSTS, places

GITHUB = {"command": "npx", "args": ["-y", "github"], "env": {"GITHUB_TOKEN": "a-secret-1", "LOG_LEVEL": "info"}}
REMOTE = {"type": "http", "url": "https://api.example.com/mcp", "headers": {"Authorization": "Bearer a-secret-2"}}
ELSEWHERE = {
    "command": "npx",
    "args": ["mcp-remote", "https://example.com", "--header", "Authorization: Bearer a-secret-3"],
}


@pytest.fixture
def hosts(conduit, tmp_path):
    """A home directory with the files of all four hosts, and a project; the command runs in the project."""
    folder = tmp_path / "project"
    (tmp_path / "config/Claude").mkdir(parents=True)
    (tmp_path / "config/Code/User").mkdir(parents=True)
    (tmp_path / ".cursor").mkdir()
    (folder / ".vscode").mkdir(parents=True)
    desktop = {"globalShortcut": "x", "mcpServers": {"My GitHub": GITHUB, "remote": ELSEWHERE}}
    (tmp_path / "config/Claude/claude_desktop_config.json").write_text(json.dumps(desktop))
    local = {"projects": {str(folder): {"mcpServers": {"local": {"command": "./serve"}}}, "/other": {}}}
    (tmp_path / ".claude.json").write_text(json.dumps({"numStartups": 3, "mcpServers": {"remote": REMOTE}, **local}))
    (tmp_path / ".cursor/mcp.json").write_text(json.dumps({"mcpServers": {"My GitHub": GITHUB}}))
    (tmp_path / "config/Code/User/settings.json").write_text('{ // mine\n "editor.fontSize": 12, }')
    editor = {"command": "${userHome}/x", "args": ["${workspaceFolder}/y"], "env": {"T": "${input:gh-token}"}}
    (folder / ".vscode/mcp.json").write_text(json.dumps({"inputs": [], "servers": {"editor": editor}}))
    before = Path.cwd()
    os.chdir(folder)
    yield conduit
    os.chdir(before)


def test_every_hosts_servers_become_one_configuration(hosts, tmp_path):
    said = hosts("import")

    assert said.returncode == 0
    assert "a-secret" not in said.stdout + said.stderr
    servers = tomllib.loads(said.stdout)["servers"]
    assert list(servers) == ["my-github", "remote", "remote-2", "local", "editor"]
    assert servers["my-github"]["env"] == {"GITHUB_TOKEN": "${env:GITHUB_TOKEN}", "LOG_LEVEL": "info"}
    assert servers["remote"]["args"][3] == "Authorization: Bearer ${env:REMOTE_TOKEN}"
    assert servers["remote-2"]["headers"] == {"Authorization": "Bearer ${env:REMOTE_2_TOKEN}"}
    assert servers["editor"] == {
        "command": f"{tmp_path}/x",
        "args": [f"{tmp_path}/project/y"],
        "env": {"T": "${env:GH_TOKEN}"},
        "cwd": f"{tmp_path}/project",
    }
    assert re.findall(r"^# From (.*): ", said.stdout, re.MULTILINE) == ["Claude Desktop", "Claude Code", "VS Code"]
    for told in (
        "'My GitHub': is no server id; the server is called my-github here",
        "remote: is another server than remote above; it is called remote-2 here",
        "GITHUB_TOKEN (for my-github; its value stands in",
        "GH_TOKEN (for editor)",
    ):
        assert told in said.stderr
    assert "numStartups" not in said.stderr


def test_one_hosts_servers_for_programs(hosts, tmp_path):
    hosts.environ |= {"REMOTE_TOKEN": "another value"}
    said = hosts("import", "claude-code", "--json")

    assert (said.returncode, said.stderr) == (0, "")
    assert "a-secret" not in said.stdout
    found = json.loads(said.stdout)
    assert found["sources"] == [
        {"host": "Claude Code", "file": str(tmp_path / ".claude.json"), "servers": ["remote", "local"]}
    ]
    assert found["variables"] == [
        {
            "name": "REMOTE_TOKEN",
            "servers": ["remote"],
            "found_at": [f"{tmp_path}/.claude.json: remote: headers.Authorization"],
            "state": "different",
        }
    ]
    assert tomllib.loads(found["toml"])["servers"] == found["servers"]


def test_into_a_configuration_what_is_there_stays(hosts, tmp_path):
    config = tmp_path / "conduit.toml"
    config.write_text('# mine\n[servers.remote]\ncommand = "my own"\n[[policy.rules]]\neffect = "deny"')
    config.chmod(0o640)

    said = hosts("import", "--into", config)

    assert said.stdout == f"{config}: added my-github, local, editor.\n"
    assert "remote: the configuration has it already; it is left as it is" in said.stderr
    after = tomllib.loads(config.read_text())
    assert config.read_text().startswith("# mine\n")
    assert after["servers"]["remote"] == {"command": "my own"}
    assert after["policy"] == {"rules": [{"effect": "deny"}]}
    assert stat.S_IMODE(config.stat().st_mode) == 0o640
    again = config.read_bytes()
    assert hosts("import", "--into", config).stdout == f"{config}: added nothing.\n"
    assert config.read_bytes() == again
    assert sorted(path.name for path in tmp_path.glob(".conduit*")) == []
    hosts.environ |= {"GITHUB_TOKEN": "x", "REMOTE_TOKEN": "x", "GH_TOKEN": "x"}
    assert hosts("check", config).returncode == 0


@pytest.mark.parametrize("text", ['servers = { a = { command = "x" } }', "servers = 1", "[servers"])
def test_a_configuration_that_cannot_take_tables_stays_as_it_is(hosts, tmp_path, text):
    config = tmp_path / "conduit.toml"
    config.write_text(text)

    said = hosts("import", "--into", config)

    assert said.returncode == 2
    assert "Nothing was added." in said.stderr
    assert config.read_text() == text


def test_secrets_are_written_where_shells_read_them(hosts, tmp_path):
    nasty = 'a "quoted" $HOME `x` \\ back'
    (tmp_path / "nasty.json").write_text(json.dumps({"mcpServers": {"s": {"command": "c", "env": {"KEY": nasty}}}}))
    file = tmp_path / "secrets.env"

    said = hosts("import", tmp_path / "nasty.json", "--secrets", file)

    assert said.returncode == 0
    assert stat.S_IMODE(file.stat().st_mode) == 0o600
    read = subprocess.run(["sh", "-c", f'. {file}; printf %s "$KEY"'], capture_output=True, text=True, check=True)
    assert read.stdout == nasty
    again = hosts("import", tmp_path / "nasty.json", "--secrets", file)
    assert (again.returncode, again.stdout) == (2, "")
    assert "not overwritten" in again.stderr


def test_the_start_that_is_named_is_of_the_configuration_that_was_written(hosts, tmp_path):
    (tmp_path / "s.json").write_text(json.dumps({"mcpServers": {"s": {"command": "c", "env": {"KEY": "a-secret-4"}}}}))
    default = tmp_path / "config/conduit/conduit.toml"

    usual = hosts("import", tmp_path / "s.json", "--into", default, "--secrets", tmp_path / "1.env")
    other = hosts("import", tmp_path / "s.json", "--into", "my own.toml", "--secrets", tmp_path / "2.env")

    assert "set +a; conduit run\n" in usual.stderr
    assert f"set +a; conduit run --config '{tmp_path}/project/my own.toml'\n" in other.stderr


def test_a_password_within_a_url_is_no_mistake(hosts, tmp_path):
    url = "https://ann:a-secret-5@example.com/mcp?api_key=a-secret-6"
    servers = {"inside": {"url": url}, "whole": {"url": "${input:address}"}, "wrong": {"url": "gopher://example.com"}}
    (tmp_path / "urls.json").write_text(json.dumps({"mcpServers": servers}))

    said = hosts("import", tmp_path / "urls.json")

    assert "a-secret" not in said.stdout + said.stderr
    assert re.findall(r"(\S+): expected a URL", said.stderr) == ["servers.wrong.url"]


def test_what_cannot_be_imported_is_said(hosts, tmp_path):
    (tmp_path / "broken.json").write_text('{"mcpServers": {')
    (tmp_path / "none.json").write_text('{"other": 1}')

    for words, code, told in (
        (["nobody"], 2, "claude-desktop, claude-code, cursor, vscode"),
        ([tmp_path / "broken.json"], 1, "no valid JSON"),
        ([tmp_path / "none.json"], 1, "mcpServers"),
    ):
        said = hosts("import", *words)
        assert (said.returncode, said.stdout) == (code, "")
        assert told in said.stderr
        assert "Traceback" not in said.stderr
    (tmp_path / ".cursor/mcp.json").write_text("{")
    assert hosts("import", "cursor").returncode == 1
    others = hosts("import")
    assert others.returncode == 0
    assert ".cursor/mcp.json: line 1" in others.stderr


def test_a_home_without_any_host(conduit, tmp_path):
    for host in HOSTS:
        said = conduit("import", host)
        assert (said.returncode, said.stdout) == (2, "")
        assert str(tmp_path) in said.stderr


@pytest.mark.parametrize(
    ("host", "mac", "path"),
    [
        ("claude-desktop", False, "/h/.config/Claude/claude_desktop_config.json"),
        ("claude-desktop", True, "/h/Library/Application Support/Claude/claude_desktop_config.json"),
        ("claude-code", True, "/h/.claude.json"),
        ("claude-code", False, "/p/.mcp.json"),
        ("cursor", False, "/h/.cursor/mcp.json"),
        ("cursor", True, "/p/.cursor/mcp.json"),
        ("vscode", False, "/h/.config/Code/User/mcp.json"),
        ("vscode", True, "/h/Library/Application Support/Code/User/mcp.json"),
        ("vscode", True, "/p/.vscode/mcp.json"),
    ],
)
def test_the_known_places(host, mac, path):
    assert Path(path) in [place.path for place in places(host, {"HOME": "/h"}, Path("/p"), mac=mac)]
