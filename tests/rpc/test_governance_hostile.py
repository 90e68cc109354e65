"""A thousand hostile calls through the agents' socket: no stage breaks, no deny rule is passed, no secret is told."""

from __future__ import annotations

import json
import socket
import sys
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import hypothesis
import pytest
import trio
from hypothesis import strategies as st
from in_process import CallsOnly, agent_of, governed

from conduit_daemon.config import AuditConfig, Config, PolicyConfig, PolicyRule, ServerConfig
from conduit_daemon.pipeline import Answer, Gate, Question
from conduit_daemon.pipeline.audit import Audit
from conduit_daemon.telemetry.events import Event, EventBus
from conduit_daemon.telemetry.masking import Masker

SERVER = Path(__file__).parents[1] / "fakes" / "governed_server.py"
SECRET = "correct-horse-battery-staple"
ANY: dict[str, Any] = {"type": "object"}
TOOLS = [
    {"name": "open", "inputSchema": ANY},
    {"name": "typed", "inputSchema": {"type": "object", "properties": {"n": {"type": "integer"}}, "required": ["n"]}},
    {"name": "forbidden", "inputSchema": ANY},
    {"name": "careful", "inputSchema": ANY},
    {"name": "asked", "inputSchema": ANY},
    {"name": "Open", "inputSchema": ANY},
    {"name": "open/", "inputSchema": ANY},
    {"name": "ｏｐｅｎ", "inputSchema": ANY},
]
POLICY = PolicyConfig(
    default="deny",
    rules=(
        PolicyRule(effect="deny", tools=("forbidden", "Open")),
        PolicyRule(effect="deny", tools=("careful",), when="args.path.startsWith('/etc')"),
        PolicyRule(effect="approve", tools=("asked",)),
        PolicyRule(effect="allow", tools=("open", "typed", "careful")),
    ),
)


class Attacked:
    """The daemon's own parts between an agent's socket and a server that notes what reaches it."""

    def __init__(self, sock: socket.socket, gate: Gate, events: list[Event], calls: Path) -> None:
        self.sock = sock
        self.gate = gate
        self.events = events
        self._calls = calls
        self._seen = 0
        self._ids = iter(range(1, 10**9))

    async def call(self, name: Any, arguments: Any) -> dict[str, Any]:
        params = {"name": name, "arguments": arguments}
        return await self.send(
            json.dumps({"jsonrpc": "2.0", "id": next(self._ids), "method": "tools/call", "params": params})
        )

    async def send(self, line: str | bytes) -> dict[str, Any]:
        """One line, and its answer; nothing else may come."""
        data = (line if isinstance(line, bytes) else line.encode("utf-8", "surrogatepass")) + b"\n"
        with trio.fail_after(30):
            view = memoryview(data)
            while view:
                await trio.lowlevel.wait_writable(self.sock.fileno())
                view = view[self.sock.send(view) :]
            got = b""
            while not got.endswith(b"\n"):
                await trio.lowlevel.wait_readable(self.sock.fileno())
                chunk = self.sock.recv(1 << 20)
                assert chunk, "the connection was closed"
                got += chunk
        assert got.count(b"\n") == 1
        assert SECRET.encode() not in got
        answer: dict[str, Any] = json.loads(got)
        return answer

    def received(self) -> list[dict[str, Any]]:
        """What has reached the server since the last time."""
        lines = self._calls.read_text().splitlines() if self._calls.exists() else []
        new, self._seen = lines[self._seen :], len(lines)
        return [json.loads(line) for line in new]


@asynccontextmanager
async def attacked(folder: Path) -> AsyncIterator[Attacked]:
    (folder / "tools.json").write_text(json.dumps(TOOLS))
    bus, events = EventBus(), []
    bus.attach(events.append)
    servers = {
        "s": ServerConfig(command=sys.executable, args=(str(SERVER), str(folder / "tools.json")), env={"K": SECRET})
    }
    config = Config(servers=servers, policy=POLICY, audit=AuditConfig(arguments=True))
    masker = Masker([SECRET])
    audit = Audit(folder, config.audit, bus, masker)
    async with governed(config, bus, audit=audit, masker=masker) as gate:
        async with agent_of(gate, bus, CallsOnly(), max_message=64 << 20) as sock:
            yield Attacked(sock, gate, events, folder / "tools.json.calls")
            await audit.query(limit=10_000)
        assert not gate.flights


def in_a_daemon(folder: Path, attack: Any, *args: Any) -> None:
    async def main() -> None:
        async with attacked(folder) as target:
            await attack(target, *args)
            broken = [event for event in target.events if event.type == "internal.error"]
            assert not broken, broken[0].fields
            alive = await target.call("s__open", {"still": "alive"})
            assert alive["result"]["content"][0]["text"] == "done"

    trio.run(main)


numbers = st.one_of(
    st.integers(),
    st.integers(2**63, 2**70) | st.integers(-(2**70), -(2**63)),
    st.sampled_from([10**400, -(10**400), 0, -1, 1e308, 5e-324, -0.0, float("nan"), float("inf"), float("-inf")]),
    st.floats(),
)
texts = st.one_of(
    st.text(max_size=20),
    st.text(st.characters(codec=None), max_size=10),
    st.sampled_from(
        ["", "\x00", "\ud800", "\udfff\ud800", "\u202e", "\r\n", "/etc/passwd", "'", '"', "${env:HOME}", "../" * 50]
    ),
)
scalars = st.one_of(st.none(), st.booleans(), numbers, texts)
values = st.recursive(
    scalars, lambda inner: st.lists(inner, max_size=4) | st.dictionaries(texts, inner, max_size=4), max_leaves=12
)
names = st.one_of(
    st.sampled_from(["s__open", "s__typed", "s__forbidden", "s__careful", "s__Open"]),
    st.sampled_from(
        ["s__forbidden ", " s__forbidden", "S__forbidden", "s__FORBIDDEN", "s__forbidden\x00", "s__for\u200bbidden",
         "s__ｆorbidden", "s__fоrbidden", "s_forbidden", "s___forbidden", "forbidden", "s__open/../forbidden", "s__*",
         "conduit__approve", "__proto__", "", "x" * 10_000]
    ),
    texts,
)  # fmt: skip
arguments = st.one_of(
    st.dictionaries(st.sampled_from(["n", "path", "to"]) | texts, values, max_size=4),
    st.fixed_dictionaries({"path": st.just("/etc/passwd") | values}),
    st.fixed_dictionaries({"n": values}),
    values,
)


def test_a_thousand_hostile_calls(tmp_path: Path) -> None:
    calls = hypothesis.settings(
        max_examples=1000, deadline=None, database=None, suppress_health_check=list(hypothesis.HealthCheck)
    )
    made: list[tuple[Any, Any]] = []

    @calls
    @hypothesis.seed(20261129)
    @hypothesis.given(names, arguments)
    def collect(name: Any, given: Any) -> None:
        made.append((name, given))

    collect()
    assert len(made) >= 1000
    # Each set of arguments also goes to a tool that is open to all, or the name alone would refuse most of them.
    made += [("s__open", given) for _, given in made[::2]]

    async def attack(target: Attacked) -> None:
        kinds: dict[str, int] = {}
        for name, given in made:
            answer = await target.call(name, given)
            got = answer.get("result") or answer["error"]
            kind = "ok" if "content" in got and not got.get("isError") else "refused"
            kinds[kind] = kinds.get(kind, 0) + 1
            for reached in target.received():
                assert reached["name"] in {"open", "typed", "careful"}
                if reached["name"] == "careful":
                    assert isinstance(reached["arguments"]["path"], str)
                    assert not reached["arguments"]["path"].startswith("/etc")
                if reached["name"] == "typed":
                    n = reached["arguments"]["n"]
                    assert type(n) is int or n.is_integer()
        assert min(kinds["ok"], kinds["refused"]) > 50, kinds

    in_a_daemon(tmp_path, attack)


@pytest.mark.parametrize("depth", [199, 200, 201, 5_000, 100_000])
@pytest.mark.parametrize("opening", ["[", '{"a":'])
def test_nesting_of_any_depth_is_passed_or_refused(tmp_path: Path, depth: int, opening: str) -> None:
    async def attack(target: Attacked) -> None:
        closing = "]" if opening == "[" else "}"
        for tool in ("s__open", "s__careful", "s__forbidden", "s__typed"):
            deep = opening * depth + "1" + closing * depth
            line = '{"jsonrpc":"2.0","id":1,"method":"tools/call","params":{"name":"%s","arguments":{"path":%s}}}'
            answer = await target.send(line % (tool, deep))
            reached = target.received()
            assert [one["name"] for one in reached] == (["open"] if depth == 199 and tool == "s__open" else [])
            assert ("error" in answer or answer["result"].get("isError") is True) is (not reached)

    in_a_daemon(tmp_path, attack)


def test_ten_megabytes_in_one_string_and_many_small_ones(tmp_path: Path) -> None:
    async def attack(target: Attacked) -> None:
        for given in (
            {"path": "x" * 10_000_000},
            {"x" * 10_000_000: 1},
            {"list": ["y"] * 1_000_000},
            {str(n): n for n in range(100_000)},
        ):
            for tool in ("s__open", "s__careful", "s__forbidden"):
                await target.call(tool, given)
                assert all(one["name"] != "forbidden" for one in target.received())

    in_a_daemon(tmp_path, attack)


def test_hostile_arguments_are_shown_to_approvers_whole_and_decided(tmp_path: Path) -> None:
    async def attack(target: Attacked) -> None:
        seen: list[Question] = []

        def deny(question: Question) -> Answer:
            seen.append(question)
            return Answer(decision="deny", reason="no")

        target.gate.governance.approvals.register("test", deny)
        for given in ({"a": 10**400}, {"a": "\x00\u202e"}, {"": {}}, {"a": 1e308}, {"b" * 100_000: None}):
            answer = await target.call("s__asked", given)
            assert "denied by test: no" in answer["result"]["content"][0]["text"]
        assert len(seen) == 5
        assert target.received() == []

    in_a_daemon(tmp_path, attack)


def test_a_secret_of_the_daemon_in_a_call_is_kept_out_of_messages_and_the_audit(tmp_path: Path) -> None:
    async def attack(target: Attacked) -> None:
        for tool in ("s__typed", "s__forbidden", "s__nothing", "s__asked"):
            params = {"name": tool, "arguments": {"n": SECRET, SECRET: "x"}}
            line = json.dumps({"jsonrpc": "2.0", "id": 1, "method": "tools/call", "params": params})
            await target.send(line)  # which looks for it in the answer
        assert target.received() == []

    in_a_daemon(tmp_path, attack)
    for file in tmp_path.glob("audit.db*"):
        assert SECRET.encode() not in file.read_bytes()
