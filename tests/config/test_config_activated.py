"""What the configuration says of sockets that systemd makes is warned of, for it has no effect."""

from pathlib import Path

from conduit_daemon.config import Config, RpcConfig, installed_sockets, without_effect

AGENT, CONTROL = Path("/run/conduit/agent.sock"), Path("/run/conduit/control.sock")
UNITS = Path(__file__).parents[2] / "systemd"


def test_each_key_without_effect_is_named_with_the_units_own() -> None:
    rpc = RpcConfig(agent_socket=Path("/a"), socket_mode=0o666, socket_group="agents", control_group="admin")
    both = without_effect(Config(rpc=rpc), {"agent": AGENT, "control": CONTROL})
    assert [text.partition(" ")[0] for text in both] == [
        "rpc.agent_socket",
        "rpc.socket_mode",
        "rpc.socket_group",
        "rpc.control_group",
    ]
    assert "Set SocketGroup= in conduit-agent.socket" in both[2]
    assert "Set SocketGroup= in conduit-control.socket" in both[3]
    assert without_effect(Config(rpc=rpc), {"control": CONTROL}) == both[3:]
    assert without_effect(Config(rpc=rpc), {}) == ()


def test_what_is_as_the_unit_has_it_or_at_its_default_is_no_warning() -> None:
    rpc = RpcConfig(agent_socket=AGENT, control_socket=CONTROL, max_connections=3)
    assert without_effect(Config(rpc=rpc), {"agent": AGENT, "control": CONTROL}) == ()


def test_the_users_units_are_found_for_the_users_configuration(tmp_path: Path) -> None:
    environ = {"HOME": str(tmp_path), "XDG_RUNTIME_DIR": "/run/user/7"}
    file = tmp_path / ".config/conduit/conduit.toml"
    assert installed_sockets(file, environ) == {}
    folder = tmp_path / ".config/systemd/user"
    folder.mkdir(parents=True)
    for unit in (UNITS / "user").glob("*.socket"):
        (folder / unit.name).write_bytes(unit.read_bytes())
    assert installed_sockets(file, environ) == {
        "agent": Path("/run/user/7/conduit/agent.sock"),
        "control": Path("/run/user/7/conduit/control.sock"),
    }
    assert installed_sockets(tmp_path / "other.toml", environ) == {}
    assert installed_sockets(None, environ) == {}
