"""Any two valid configurations, applied in turn, end as if the daemon had been started with the second.

Each step reloads a running daemon with a configuration drawn at random, looks at everything that can be seen of it,
starts it again with the same file and the same state, looks again, and compares.
"""

from __future__ import annotations

import difflib
import itertools
import json
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any, get_type_hints

import msgspec
import psutil
import pytest
from hypothesis import HealthCheck, Phase, given, note, settings
from hypothesis import strategies as st

from conduit_daemon.cli.toml_text import table
from conduit_daemon.config import Config, ServerConfig

FAKE = Path(__file__).parents[1] / "fakes" / "stdio_server.py"
CONDUIT = Path(sys.executable).with_name("conduit")
HOOKS = """
import msgspec

def shout(call):
    arguments = {key: value.upper() if isinstance(value, str) else value for key, value in call.arguments.items()}
    return msgspec.structs.replace(call, arguments=arguments)

def sign(call, outcome):
    if outcome.kind != "ok":
        return None
    result = msgspec.json.decode(outcome.result)
    result["content"].append({"type": "text", "text": "signed"})
    return msgspec.structs.replace(outcome, result=msgspec.Raw(msgspec.json.encode(result)))
"""
BEHAVIOURS = ["tools=1", "tools=2", "pages=3", "free_form", "malformed_tool"]
RULES = [
    {"effect": "deny", "tools": ["add"], "reason": "no sums"},
    {"effect": "allow", "servers": ["a"], "name": "all of a"},
    {"effect": "deny", "tainted_by": ["b"]},
    {"effect": "deny", "tools": ["big"], "tainted_by": ["untrusted"]},
    {"effect": "allow", "when": "has(args.text) && args.text == 'hello'"},
    {"effect": "allow", "annotations": {"readOnlyHint": False}},
    {"effect": "approve", "tools": ["s*"]},
    {"effect": "allow", "principals": ["*/probe*"], "servers": ["b", "c"]},
]
EXPLAINED = ("a__echo", "b__add", "c__big")
PROBES: list[tuple[str, dict[str, Any]]] = [
    ("echo", {"text": "hello"}),
    ("add", {"a": 1, "b": 2}),
    ("add", {"a": "one"}),
    ("big", {"size": 3000}),
    ("sleep", {"seconds": 0.5}),
    ("echo", {"text": "hello"}),
    ("echo", {"text": "third"}),
    ("fail", {"kind": "other"}),
    ("tool_1", {"value": "x"}),
]

rates = st.fixed_dictionaries({"calls": st.sampled_from([1, 2]), "per": st.sampled_from([600, 3600])})


def some(**choices: Any) -> st.SearchStrategy[dict[str, Any]]:
    """A table with some of these keys, each with one of its values."""
    return st.fixed_dictionaries({}, optional={key: st.sampled_from(values) for key, values in choices.items()})


SERVER: dict[str, list[Any]] = {
    "env": [{"MARK": "one"}, {"MARK": "two"}],
    "cwd": ["."],
    "start": ["lazy"],
    "scope": ["connection"],
    "trusted": [True],
    "pin": [True],
    "tools": [{"allow": ["e*", "a*"]}, {"deny": ["add", "big"]}, {"describe": {"echo": "Says it again."}}],
    "call_timeout": [0.25, 30],
    "connect_timeout": [20, 40],
    "idle_timeout": [600],
    "max_in_flight": [1, 4],
    "max_instances": [9],
    "protocol": ["2025-11-25"],
    "roots": [["."]],
    "log_stderr": ["off", "debug"],
    "backoff": [{"initial": 0.1, "maximum": 1}],
    "enabled": [False, True, True, True],
}
OTHER: dict[str, dict[str, list[Any]]] = {
    "limits": {
        "max_result": [2000, "10MiB"],
        "call_timeout": [0.25, 60],
        "max_call_time": [20, 600],
        "max_in_flight": [1, 256],
        "shutdown_timeout": [2, 10],
    },
    "log": {"level": ["debug", "info", "warning", "error"]},
    "policy": {"default": ["allow", "allow", "deny", "approve"], "track_taint": [False], "approval_timeout": [5]},
    "hooks": {"before_call": [["conduit_probe_hooks:shout"]], "after_call": [["conduit_probe_hooks:sign"]]},
    "audit": {"enabled": [False, True], "arguments": [True], "retention_days": [1]},
    "shape": {"max_text": [500, "50KiB"]},
    "rpc": {"max_connections": [20, 256], "max_message": ["1MiB"]},
    "toolsets": {"few": [{"servers": ["a"]}, {"tools": ["e*"]}]},
}
DRAWN = {"command", "args", "rate", "rules"}
UNTRIED = {
    "agent_socket", "control_socket", "socket_mode", "socket_group", "control_group", "directory", "listen", "format",
    "url", "transport", "headers", "auth", "tests",
}  # fmt: skip
"""What takes a restart, what needs servers on the network, and what the daemon itself makes nothing of."""

servers = st.tuples(
    st.lists(st.sampled_from(BEHAVIOURS), unique=True, max_size=2), st.booleans(), some(**SERVER), st.none() | rates
)


@st.composite
def configurations(draw: st.DrawFn) -> dict[str, Any]:
    """The sections of a configuration; servers in an order of their own."""
    tables = {}
    for name in draw(st.permutations(["a", "b", "c"]))[: draw(st.integers(1, 3))]:
        behaviours, broken, keys, rate = draw(servers)
        command = "/nowhere/at/all" if broken and name == "c" else sys.executable
        tables[name] = {"command": command, "args": [str(FAKE), *behaviours], "rate": rate, **keys}
    sections = {section: draw(some(**choices)) for section, choices in OTHER.items()}
    sections["limits"]["rate"] = draw(st.none() | rates)
    sections["policy"]["rules"] = draw(st.lists(st.sampled_from(RULES), unique_by=str, max_size=4))
    return {**sections, "servers": tables, "watch": draw(st.booleans())}


def test_no_key_is_forgotten() -> None:
    keys = {field.name for field in msgspec.structs.fields(ServerConfig)}
    assert keys == SERVER.keys() | (keys & (DRAWN | UNTRIED))
    for name, kind in get_type_hints(Config).items():
        if name in OTHER and name != "toolsets":
            keys = {field.name for field in msgspec.structs.fields(kind)}
            assert keys == OTHER[name].keys() | (keys & (DRAWN | UNTRIED)), name
        else:
            assert name in {"servers", "toolsets", "watch", "state", "metrics"}


def written(folder: Path, config: dict[str, Any]) -> str:
    parts = [f"watch = {str(config['watch']).lower()}\n"]
    for section in ("limits", "log", "policy", "hooks", "audit", "shape", "rpc"):
        values = dict(config[section])
        if section == "rpc":
            values["agent_socket"] = str(folder / "agent.sock")
        if section == "log":
            values["format"] = "json"
        parts.append(table((section,), values))
    parts.append(table(("state",), {"directory": str(folder / "state")}))
    for section in ("toolsets", "servers"):
        parts += [table((section, name), values) for name, values in config[section].items()]
    return "\n".join(parts)


class Seen:
    """Looks at a daemon from the outside, by all that its sockets tell and the processes that it runs."""

    numbers = itertools.count(1)

    def __init__(self, daemon: Any, config: dict[str, Any]) -> None:
        self.daemon = daemon
        self.config = config
        self.control = daemon.rpc(control=True)
        self.agent = daemon.rpc()

    def all(self, earlier: Any = None) -> dict[str, Any]:
        """All that is seen; through a connection from before the reload where one is given."""
        self.daemon.wait_until(self._settled, 20)
        seen = {
            "status": self._status(),
            "processes": self._processes(),
            "tools": self._tools({}),
            "few": self._tools({"set": "few"}),
            "openai": self._tools({"provider": "openai", "api": "chat"}),
            "policy": [self._explained(name, taint) for name in EXPLAINED for taint in ([], ["b"])],
            "level": self._level(),
        }
        self._wake(earlier or self.agent)
        self.control.result("conduit/taint/reset")
        since = time.time()
        seen["calls"] = self._calls(earlier or self.agent)
        seen["audit"] = self._audit(since)
        return seen

    def _settled(self) -> bool:
        """Whether each server is where it will stay; a lazy one that is to be learned rests for a moment before."""
        states = self._states()
        time.sleep(0.25)
        return (
            list(states) == list(self.config["servers"])
            and set(states.values()) <= {"ready", "idle", "stopped", "needs_attention"}
            and states == self._states()
        )

    def _states(self) -> dict[str, str]:
        found = self.control.result("conduit/status")["servers"]
        return {name: each["state"] for name, each in found.items()}

    def _status(self) -> dict[str, Any]:
        found = self.control.result("conduit/status")
        kept = ("transport", "protocol_version", "tools", "dropped", "reason", "circuit", "last_error")
        servers = []
        for name, each in found["servers"].items():
            rests = self.config["servers"][name].get("start") == "lazy"
            told = {key: each.get(key) for key in kept}
            # A lazy server that is up when it need not restart stays up, and one that rests has no version to tell.
            state = "lazy" if rests and each["state"] in {"ready", "idle"} else each["state"]
            if state == "lazy":
                told["protocol_version"] = told["reason"] = None
            servers.append((name, state, told))
        watch, later = found["config"]["watch"], found["config"].get("needs_restart")
        assert "rejected" not in found["config"]
        return {"health": found["health"], "servers": servers, "watch": watch, "later": later}

    def _processes(self) -> dict[str, Any]:
        found = {}
        for name, each in self.control.result("conduit/status")["servers"].items():
            if "pid" in each and self.config["servers"][name].get("start") != "lazy":
                process = psutil.Process(each["pid"])
                environ = {key: value for key, value in process.environ().items() if not key.startswith("CONDUIT_")}
                found[name] = (process.cmdline(), process.cwd(), environ)
        return found

    def _tools(self, params: dict[str, Any]) -> Any:
        answer = self.agent.ask("conduit/tools", params)
        if "error" in answer:
            return answer["error"]["data"]["kind"]
        found = answer["result"]
        for each in found.get("missing", ()):
            del each["reason"]
        return found

    def _explained(self, name: str, taint: list[str]) -> Any:
        params = {"name": name, "arguments": {"text": "hello"}, "taint": taint}
        answer = self.control.ask("conduit/policy/explain", params)
        return answer.get("result", answer.get("error", {}).get("data", {}).get("kind"))

    def _level(self) -> str:
        level: str = self.control.result("conduit/log_level", {"level": "error"})["level"]
        self.control.result("conduit/log_level", {"level": level})
        return level

    def _wake(self, connection: Any) -> None:
        """Has servers that rest, and a connection's own, start: what the calls then take is no matter of that."""
        for server in self.config["servers"]:
            for _ in range(8):
                principal = f"probe-waker{next(self.numbers)}"
                params = {"name": f"{server}__echo", "arguments": {"text": "hello"}, "principal": principal}
                error = connection.ask("conduit/call", params).get("error")
                if error is None or error["data"]["kind"] not in {"timeout", "unavailable"}:
                    break

    def _calls(self, connection: Any) -> list[Any]:
        principal = f"probe{next(self.numbers)}"  # whose rates are untouched
        found = []
        for server in ("a", "b", "c"):
            for tool, arguments in PROBES:
                params = {"name": f"{server}__{tool}", "arguments": arguments, "principal": principal, "shape": "llm"}
                answer = connection.ask("conduit/call", params)
                error = answer.get("error")
                told = answer.get("result") if error is None else (error["data"]["kind"], error["data"].get("rule"))
                found.append((server, tool, told))
        return found

    def _audit(self, since: float) -> list[Any]:
        rows = self.control.result("conduit/audit", {"since": since, "limit": 1000})["rows"]
        kept = ("server", "tool", "decision", "rule", "kind", "outcome", "arguments_digest", "arguments")
        return [[row.get(key) for key in kept] for row in rows]


def run_again(daemon: Any) -> None:
    assert daemon.stop() == 0
    with daemon.log_path.open("ab") as log:
        command = [CONDUIT, "run", "--config", daemon.config]
        daemon.process = subprocess.Popen(command, stdout=log, stderr=log, start_new_session=True)
    daemon.wait_until(lambda: answers(daemon), 15)


def answers(daemon: Any) -> bool:
    try:
        daemon.rpc(control=True)
    except OSError:
        return False
    return True


def converge(daemon: Any, configs: list[dict[str, Any]]) -> None:
    """Goes through `configs`, each by a reload and then by a start."""
    (daemon.folder / "conduit_probe_hooks.py").write_text(HOOKS)
    for config in configs:
        earlier = daemon.rpc()
        text = written(daemon.folder, config)
        note(text)
        daemon.config.write_text(text)
        daemon.rpc(control=True).result("conduit/reload")
        reloaded = Seen(daemon, config).all(earlier)
        run_again(daemon)
        started = Seen(daemon, config).all()
        ways = (json.dumps(seen, indent=1).splitlines() for seen in (reloaded, started))
        differing = "\n".join(difflib.unified_diff(*ways, "reloaded", "started", lineterm="", n=12))
        assert not differing, f"{differing}\n\n{text}"


@pytest.fixture
def ended(start: Callable[..., Any]) -> Iterator[Callable[[], Any]]:
    """Daemons of which one runs at a time, however many examples are tried."""
    running: list[Any] = []

    def begin() -> Any:
        if running:
            running.pop().stop()
        running.append(start())
        return running[0]

    yield begin
    if running:
        running.pop().stop()


QUIET = (HealthCheck.function_scoped_fixture, HealthCheck.too_slow, HealthCheck.data_too_large)
ONE = {"deadline": None, "suppress_health_check": QUIET, "print_blob": True}


@settings(max_examples=3, derandomize=True, phases=(Phase.generate,), **ONE)
@given(configs=st.lists(configurations(), min_size=3, max_size=3))
def test_a_reload_ends_as_a_start_does(ended: Callable[[], Any], configs: list[dict[str, Any]]) -> None:
    converge(ended(), configs)


@pytest.mark.campaign
@settings(max_examples=40, phases=(Phase.generate,), **ONE)
@given(configs=st.lists(configurations(), min_size=2, max_size=4))
def test_any_configurations_end_as_the_last_would_have_begun(
    ended: Callable[[], Any], configs: list[dict[str, Any]]
) -> None:
    converge(ended(), configs)
