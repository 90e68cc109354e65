"""Where the sockets are looked for."""

from pathlib import Path

import pytest

from conduit_daemon import config
from conduit_daemon.agent.sockets import Sockets, configured, defaults, lookup


def write(path, text):
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(text)
    return path


def agents(places):
    return [str(place.agent) for place in places]


def test_what_is_asked_for_comes_before_everything(tmp_path):
    environ = {"CONDUIT_SOCKET": "/b/agent.sock", "XDG_RUNTIME_DIR": "/run/user/1", "HOME": str(tmp_path)}

    assert lookup(environ, socket="/a/x.sock") == (Sockets(Path("/a/x.sock"), Path("/a/control.sock")),)
    assert agents(lookup(environ)) == ["/b/agent.sock"]


def test_the_defaults_in_their_order():
    environ = {"RUNTIME_DIRECTORY": "/run/one:/run/two", "XDG_RUNTIME_DIR": "/run/user/1", "HOME": "/home/u"}

    assert agents(defaults(environ)) == [
        "/run/one/agent.sock",
        "/run/user/1/conduit/agent.sock",
        "/home/u/.local/state/conduit/agent.sock",
        "/run/conduit/agent.sock",
    ]
    assert agents(defaults({"HOME": "/home/u"}))[0] == "/home/u/.local/state/conduit/agent.sock"


def test_the_configuration_decides_before_the_defaults(tmp_path):
    file = write(tmp_path / "conduit.toml", '[rpc]\nagent_socket = "run/a.sock"\n')
    both = write(tmp_path / "both.toml", '[rpc]\nagent_socket = "/r/a.sock"\ncontrol_socket = "/s/c.sock"\n')

    assert lookup({}, config=file) == (Sockets(tmp_path / "run/a.sock", tmp_path / "run/control.sock"),)
    assert lookup({"CONDUIT_CONFIG": str(both)}) == (Sockets(Path("/r/a.sock"), Path("/s/c.sock")),)


def test_the_configuration_is_found_where_the_daemon_finds_it(tmp_path):
    write(tmp_path / "etc/conduit.toml", '[rpc]\nagent_socket = "/one.sock"\n')
    write(tmp_path / "xdg/conduit/conduit.toml", '[rpc]\nagent_socket = "/two.sock"\n')
    environ = {"XDG_CONFIG_HOME": str(tmp_path / "xdg"), "HOME": str(tmp_path)}

    assert agents(lookup(environ)) == ["/two.sock"]
    assert agents(lookup({**environ, "CONFIGURATION_DIRECTORY": str(tmp_path / "etc")})) == ["/one.sock"]


def test_variables_in_its_paths(tmp_path):
    file = write(tmp_path / "c.toml", '[rpc]\nagent_socket = "${env:BASE:-/fallback}/a.sock"\n')

    assert agents(lookup({"BASE": "/base"}, config=file)) == ["/base/a.sock"]
    assert agents(lookup({}, config=file)) == ["/fallback/a.sock"]


@pytest.mark.parametrize("text", ["", "[rpc]\n", "[rpc", 'rpc = "x"', "[rpc]\nagent_socket = 5\n"])
def test_one_that_names_none_or_is_wrong_is_passed_over(tmp_path, text):
    file = write(tmp_path / "c.toml", text)

    assert configured({}, file) is None
    assert lookup({"HOME": "/h"}, config=file) == defaults({"HOME": "/h"})


@pytest.mark.parametrize(
    "environ",
    [
        {"HOME": "/home/u"},
        {"HOME": "/home/u", "XDG_RUNTIME_DIR": "/run/user/1"},
        {"HOME": "/home/u", "XDG_RUNTIME_DIR": "relative"},
        {"HOME": "/home/u", "XDG_RUNTIME_DIR": "/run/user/1", "RUNTIME_DIRECTORY": "/run/a:/run/b"},
    ],
)
def test_the_daemon_and_its_clients_mean_the_same_place(environ):
    ours = defaults(environ)[0]

    assert ours.agent == config.agent_socket(config.Config(), environ)
    assert ours.control == config.control_socket(config.Config(), environ)


def test_the_daemon_and_its_clients_read_the_same_from_a_file(tmp_path):
    environ = {"HOME": str(tmp_path), "BASE": str(tmp_path / "base")}
    file = write(tmp_path / "c.toml", '[rpc]\nagent_socket = "${env:BASE}/a.sock"\ncontrol_socket = "c/c.sock"\n')
    loaded = config.load(file, environ).config

    ours = configured(environ, file)
    assert ours == Sockets(config.agent_socket(loaded, environ), config.control_socket(loaded, environ))
