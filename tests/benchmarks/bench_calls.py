"""What a governed call through the daemon costs, beside what it replaces; all in one run, in turns.

    python tests/benchmarks/bench_calls.py [--rounds 6]

Rows: the daemon over its agent socket (validation, policy, audit and one log line on), the official SDK's client
calling the same server directly on trio, and a blocking relay, which is the shape's floor. The figures that count
are the ratios within a round; absolute times say more about the machine. One caller, unless a column says 16.
"""

from __future__ import annotations

import argparse
import json
import os
import random
import signal
import socket
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

SERVER = """
import json, os
def text(t): return {"content": [{"type": "text", "text": t}], "isError": False}
BIG = json.dumps(text("x" * 5_000_000))
SCHEMA = {"type": "object", "properties": {"text": {"type": "string"}}, "required": ["text"]}
BIG_TOOL = {"name": "big", "inputSchema": {"type": "object"}}
TOOLS = json.dumps({"tools": [{"name": "echo", "inputSchema": SCHEMA}, BIG_TOOL]})
def answer(m):
    method = m.get("method")
    if "id" not in m: return ""
    if method == "tools/call":
        p = m["params"]
        result = BIG if p["name"] == "big" else json.dumps(text(p["arguments"]["text"]))
    elif method == "tools/list": result = TOOLS
    elif method == "initialize":
        result = json.dumps({"protocolVersion": m["params"]["protocolVersion"], "capabilities": {"tools": {}},
                             "serverInfo": {"name": "bench", "version": "1"}})
    else:
        return '{"jsonrpc":"2.0","id":%s,"error":{"code":-32601,"message":"no"}}\\n' % json.dumps(m["id"])
    return '{"jsonrpc":"2.0","id":%s,"result":%s}\\n' % (json.dumps(m["id"]), result)
rest = b""
while chunk := os.read(0, 1 << 16):
    lines = (rest + chunk).split(b"\\n")
    rest = lines.pop()
    out = memoryview("".join(answer(json.loads(l)) for l in lines if l).encode())
    while out: out = out[os.write(1, out):]
"""

RELAY = """
import os, socket, subprocess, sys
server = subprocess.Popen([sys.executable, sys.argv[2]], stdin=subprocess.PIPE, stdout=subprocess.PIPE, bufsize=0)
w, r = server.stdin.fileno(), server.stdout.fileno()
listen = socket.socket(socket.AF_UNIX)
listen.bind(sys.argv[1])
listen.listen(1)
conn, _ = listen.accept()
while data := conn.recv(1 << 18):
    os.write(w, data)
    while True:
        chunk = os.read(r, 1 << 18)
        conn.sendall(chunk)
        if chunk.endswith(b"\\n"): break
server.kill()
"""

SDK = """
import json, sys, time
import anyio
from mcp import Client, StdioServerParameters
async def main():
    async with Client(StdioServerParameters(command=sys.executable, args=[sys.argv[1]])) as client:
        print("ready", flush=True)
        while line := sys.stdin.readline():
            do = json.loads(line)
            times = []
            async def one(n):
                for _ in range(n):
                    t = time.perf_counter_ns()
                    await client.call_tool(do["tool"], do["arguments"])
                    times.append(time.perf_counter_ns() - t)
            began = time.perf_counter_ns()
            async with anyio.create_task_group() as tg:
                for _ in range(do["callers"]): tg.start_soon(one, do["n"] // do["callers"])
            print(json.dumps([sorted(times)[len(times) // 2], time.perf_counter_ns() - began]), flush=True)
anyio.run(main, backend="trio")
"""


class Target:
    """Something that answers calls, and its processes."""

    def __init__(self, name: str) -> None:
        self.name = name
        self.processes: list[subprocess.Popen[str]] = []

    def volley(self, tool: str, arguments: dict[str, Any], n: int, callers: int = 1) -> tuple[float, float]:
        """(median latency, whole time) of `n` calls by so many callers, in ns."""
        raise NotImplementedError

    def cpu_ns(self) -> int:
        """CPU time of the first process, in ns."""
        fields = Path(f"/proc/{self.processes[0].pid}/stat").read_text().rpartition(")")[2].split()
        return (int(fields[11]) + int(fields[12])) * 10_000_000

    def pause(self, on: bool) -> None:
        for process in self.processes:
            process.send_signal(signal.SIGSTOP if on else signal.SIGCONT)

    def stop(self) -> None:
        self.pause(False)
        for process in self.processes:
            process.terminate()
            process.wait(10)


class Socket(Target):
    """A line of JSON-RPC in, a line out."""

    def __init__(self, name: str, command: list[str], path: Path, prefix: str) -> None:
        super().__init__(name)
        self.processes.append(subprocess.Popen(command, text=True, stderr=subprocess.DEVNULL))
        self.path, self.prefix = path, prefix
        self.socks: list[socket.socket] = []
        wait_for(path.exists)

    def connect(self, count: int) -> None:
        while len(self.socks) < count:
            sock = socket.socket(socket.AF_UNIX)
            sock.connect(str(self.path))
            self.socks.append(sock)

    def line(self, tool: str, arguments: dict[str, Any]) -> bytes:
        params = {"name": self.prefix + tool, "arguments": arguments}
        return json.dumps({"jsonrpc": "2.0", "id": 1, "method": "tools/call", "params": params}).encode() + b"\n"

    def volley(self, tool: str, arguments: dict[str, Any], n: int, callers: int = 1) -> tuple[float, float]:
        self.connect(callers)
        line, times = self.line(tool, arguments), []
        began = time.perf_counter_ns()
        if callers == 1:
            for _ in range(n):
                started = time.perf_counter_ns()
                self.socks[0].sendall(line)
                read_line(self.socks[0])
                times.append(time.perf_counter_ns() - started)
            return statistics.median(times), time.perf_counter_ns() - began
        for _ in range(n // callers):
            for sock in self.socks[:callers]:
                sock.sendall(line)
            for sock in self.socks[:callers]:
                read_line(sock)
        return 0.0, time.perf_counter_ns() - began

    def answers(self) -> bool:
        self.connect(1)
        self.socks[0].sendall(self.line("echo", {"text": "a"}))
        return b'"text":"a"' in read_line(self.socks[0]).replace(b" ", b"")


class Sdk(Target):
    def __init__(self, server: Path) -> None:
        super().__init__("SDK's client, direct")
        command = [sys.executable, "-c", SDK, str(server)]
        self.processes.append(subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True))
        self.processes[0].stdout.readline()  # type: ignore[union-attr]

    def volley(self, tool: str, arguments: dict[str, Any], n: int, callers: int = 1) -> tuple[float, float]:
        process = self.processes[0]
        process.stdin.write(json.dumps({"tool": tool, "arguments": arguments, "n": n, "callers": callers}) + "\n")  # type: ignore[union-attr]
        process.stdin.flush()  # type: ignore[union-attr]
        latency, whole = json.loads(process.stdout.readline())  # type: ignore[union-attr]
        return latency, whole


def read_line(sock: socket.socket) -> bytes:
    parts = []
    while True:
        chunk = sock.recv(1 << 18)
        if not chunk:
            raise EOFError("the target closed the connection")
        parts.append(chunk)
        if chunk.endswith(b"\n"):
            return b"".join(parts)


def wait_for(condition: Callable[[], bool], seconds: float = 20) -> None:
    until = time.monotonic() + seconds
    while not condition():
        if time.monotonic() > until:
            raise TimeoutError
        time.sleep(0.02)


def daemon(folder: Path, server: Path) -> Socket:
    """The daemon under test, with every stage of its pipeline on."""
    config = folder / "conduit.toml"
    config.write_text(
        f'[rpc]\nagent_socket = "{folder}/agent.sock"\n[state]\ndirectory = "{folder}/state"\n'
        '[log]\nformat = "json"\n[policy]\ndefault = "deny"\n'
        '[[policy.rules]]\neffect = "deny"\ntools = ["never_*"]\n[[policy.rules]]\neffect = "allow"\ntools = ["*"]\n'
        f'[servers.s]\ncommand = "{sys.executable}"\nargs = ["{server}"]\n'
    )
    command = [str(Path(sys.executable).with_name("conduit")), "run", "--config", str(config)]
    target = Socket("conduit, governed", command, folder / "agent.sock", "s__")
    wait_for(target.answers)
    return target


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--rounds", type=int, default=6)
    rounds = parser.parse_args().rounds
    with tempfile.TemporaryDirectory(prefix="bench-") as name:
        folder = Path(name)
        server, relay = folder / "server.py", folder / "relay.py"
        server.write_text(SERVER)
        relay.write_text(RELAY)
        relayed = Socket(
            "blocking relay", [sys.executable, str(relay), str(folder / "r"), str(server)], folder / "r", ""
        )
        targets: list[Target] = [daemon(folder, server), Sdk(server), relayed]
        found: dict[str, dict[str, list[float]]] = {target.name: {} for target in targets}
        try:
            for target in targets:
                target.pause(True)
            for _ in range(rounds):
                for target in random.sample(targets, len(targets)):
                    target.pause(False)
                    row = found[target.name]
                    target.volley("echo", {"text": "hello"}, 50)
                    before = target.cpu_ns()
                    row.setdefault("p50 us", []).append(target.volley("echo", {"text": "hello"}, 500)[0] / 1e3)
                    row.setdefault("cpu us", []).append((target.cpu_ns() - before) / 500 / 1e3)
                    row.setdefault("5 MB ms", []).append(target.volley("big", {}, 3)[0] / 1e6)
                    if target is not relayed:
                        whole = target.volley("echo", {"text": "hello"}, 800, 16)[1]
                        row.setdefault("calls/s, 16", []).append(800e9 / whole)
                    target.pause(True)
        finally:
            for target in targets:
                target.stop()
    show(found, targets[1].name)


def show(found: dict[str, dict[str, list[float]]], reference: str) -> None:
    columns = ["p50 us", "cpu us", "calls/s, 16", "5 MB ms"]
    print(f"{'':24}" + "".join(f"{column:>14}{'x SDK':>8}" for column in columns))
    for name, row in found.items():
        cells = ""
        for column in columns:
            if column not in row:
                cells += f"{'-':>14}{'-':>8}"
                continue
            ratio = statistics.median(a / b for a, b in zip(row[column], found[reference][column], strict=True) if b)
            cells += f"{statistics.median(row[column]):14.1f}{ratio:8.2f}"
        print(f"{name:24}{cells}")
    print("CPU time is that of the daemon, the client or the relay alone.")
    print(f"Python {sys.version.split()[0]}, {os.cpu_count()} CPUs.")


if __name__ == "__main__":
    main()
