"""What a reload changes."""

from pathlib import Path

from hypothesis import given
from hypothesis import strategies as st

from conduit_daemon.config import Config, LimitsConfig, RpcConfig, ServerConfig, diff, needs_restart

configs = st.dictionaries(
    st.sampled_from("abcd"), st.builds(ServerConfig, command=st.sampled_from(["x", "y"]), trusted=st.booleans())
).map(lambda servers: Config(servers=servers))


def test_only_servers_whose_own_table_changed_are_changed() -> None:
    old = Config(
        servers={"a": ServerConfig(command="x"), "b": ServerConfig(command="x"), "c": ServerConfig(command="x")}
    )
    new = Config(
        servers={
            "d": ServerConfig(command="x"),
            "b": ServerConfig(command="x", env={"A": "1"}),
            "a": ServerConfig(command="x"),
        },
        limits=LimitsConfig(max_in_flight=1),
    )
    found = diff(old, new)
    assert found.added == ("d",)
    assert found.removed == ("c",)
    assert found.changed == ("b",)
    assert found.unchanged == ("a",)


@given(configs, configs)
def test_each_server_is_in_one_list(old: Config, new: Config) -> None:
    found = diff(old, new)
    both = found.changed + found.unchanged
    assert sorted(found.added + found.removed + both) == sorted({*old.servers, *new.servers})
    assert set(both) == set(old.servers) & set(new.servers)
    assert diff(new, new).unchanged == tuple(new.servers)


def test_what_takes_a_restart_is_what_the_daemon_would_make_of_it() -> None:
    environ = {"RUNTIME_DIRECTORY": "/run/conduit"}
    written_out = Config(rpc=RpcConfig(agent_socket=Path("/run/conduit/agent.sock")))
    assert needs_restart(Config(), written_out, environ) == ()
    elsewhere = Config(rpc=RpcConfig(agent_socket=Path("/run/a.sock"), control_group="admin", socket_mode=0o600))
    assert needs_restart(Config(), elsewhere, environ) == ("rpc.agent_socket", "rpc.socket_mode", "rpc.control_group")
    assert needs_restart(Config(), elsewhere, environ, {"agent"}) == ("rpc.control_group",)
    assert needs_restart(Config(), elsewhere, environ, {"agent", "control"}) == ()
