"""`conduit init`: a first configuration."""

import json
import re
import stat
import tomllib
from importlib.resources import files

from conduit_daemon import config

TEMPLATE = (files("conduit_daemon.cli") / "templates/conduit.toml").read_text("utf-8")


def test_it_is_written_where_the_daemon_looks_and_never_again(conduit, tmp_path):
    path = tmp_path / "config/conduit/conduit.toml"

    said = conduit("init", timeout=10)

    assert (said.returncode, said.stderr) == (0, "")
    assert said.stdout == f"Written: {path}\n\nNext:\n  put your servers in it\n  conduit check\n  conduit run\n"
    assert path.read_text() == TEMPLATE
    assert stat.S_IMODE(path.stat().st_mode) == 0o600
    assert f"{path} can be used." in conduit("check").stdout
    path.write_text("# mine")
    again = conduit("init")
    assert (again.returncode, again.stdout) == (1, "")
    assert f"{path} exists and is left as it is" in again.stderr
    assert path.read_text() == "# mine"


def test_a_place_of_ones_own(conduit, tmp_path):
    assert f"conduit run --config {tmp_path}/a/my.toml" in conduit("init", tmp_path / "a/my.toml").stdout
    assert json.loads(conduit("init", tmp_path, "--json").stdout) == {
        "written": str(tmp_path / "conduit.toml"),
        "instead_of": None,
        "importable": {},
    }
    conduit.environ["CONDUIT_CONFIG"] = str(tmp_path / "b.toml")
    assert conduit("init").stdout.startswith(f"Written: {tmp_path}/b.toml\n")
    assert conduit("check").returncode == 0


def test_it_tells_whose_servers_can_be_imported(conduit, tmp_path):
    (tmp_path / ".cursor").mkdir()
    (tmp_path / ".cursor/mcp.json").write_text('{"mcpServers": {"one": {"command": "x"}, "two": {"command": "y"}}}')

    said = conduit("init").stdout
    line = next(line for line in said.splitlines() if "import" in line)
    assert line.endswith("# the servers of Cursor (one, two)")
    added = conduit(*line.partition("#")[0].split()[1:])
    assert added.stdout.endswith(": added one, two.\n")
    assert conduit("check").returncode == 0


def test_a_file_that_it_hides_is_named(conduit, tmp_path):
    (tmp_path / "config/conduit").mkdir(parents=True)
    (tmp_path / "config/conduit/conduit.toml").write_text("")
    conduit.environ["CONFIGURATION_DIRECTORY"] = str(tmp_path / "service")

    said = conduit("init").stdout

    assert f"takes it from now on, and not {tmp_path}/config/conduit/conduit.toml." in said


def test_every_example_in_it_is_right_once_the_sign_is_taken_away(tmp_path):
    plain = re.sub(r"^#(?! )", "", TEMPLATE, flags=re.MULTILINE)
    assert plain.count("[servers.") == 3
    loaded = config.parse(plain.encode(), tmp_path / "conduit.toml", {})
    assert loaded.warnings == ()
    assert len(loaded.config.policy.rules) == 3
    assert set(tomllib.loads(TEMPLATE)) == {"policy"}
