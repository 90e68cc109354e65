"""What the library needs and what it says of itself: imports, names, types, sizes."""

from __future__ import annotations

import subprocess
import sys
import textwrap
from pathlib import Path

import supervisors

HOME = Path(supervisors.__file__).parent


def test_importing_it_takes_nothing_along_but_trio_and_msgspec() -> None:
    code = """
        import sys
        import trio, msgspec
        before = set(sys.modules)
        import supervisors
        new = {name.partition(".")[0] for name in set(sys.modules) - before}
        print(*sorted(new - set(sys.stdlib_module_names)))
    """
    done = subprocess.run(
        [sys.executable, "-c", textwrap.dedent(code)], capture_output=True, text=True, check=True, timeout=60
    )
    assert done.stdout.split() == ["supervisors"]


def test_all_is_sorted_and_whole() -> None:
    for module in (supervisors, supervisors.sys, supervisors.events):
        assert list(module.__all__) == sorted(module.__all__)
        assert all(hasattr(module, name) for name in module.__all__)
    public = {name for name in vars(supervisors) if not name.startswith("_")}
    assert public - {"events", "sys"} == set(supervisors.__all__)


def test_every_public_name_is_documented() -> None:
    for module in (supervisors, supervisors.sys, supervisors.events):
        for name in module.__all__:
            value = getattr(module, name)
            if callable(value) and getattr(value, "__module__", "").startswith("supervisors"):
                assert value.__doc__, name


def test_rule_42_it_ships_types_and_its_modules_are_short() -> None:
    assert (HOME / "py.typed").exists()
    for path in HOME.glob("*.py"):
        assert len(path.read_text().splitlines()) <= 400, path.name


SNIPPET = """
from supervisors import Call, Task, Ref, async_task, call, start_child, ChildSpec, Actor, open_supervisor, Supervisor

class Tool: ...

class ListTools(Call[list[Tool]], frozen=True): ...

class Add(Call[int], frozen=True):
    amount: int

class Server(Actor):
    async def handle_call(self, request: ListTools | Add, sender: object) -> list[Tool] | int:
        return []

async def fetch(url: str) -> bytes:
    return b""

async def main(hub: Ref) -> None:
    reveal_type(await call(hub, ListTools()))
    reveal_type(await call("hub", Add(2), timeout=1))
    reveal_type(await (await async_task("tasks", fetch, "x")).result())
    reveal_type(await start_child(hub, ChildSpec(id="a", start=Server)))
    async with open_supervisor([ChildSpec(id="s", start=lambda: Supervisor([]))]) as root:
        reveal_type(root)
    wrong: str = await call(hub, Add(2))
"""


def test_a_calls_reply_is_inferred_from_its_request(tmp_path: Path) -> None:
    snippet = tmp_path / "snippet.py"
    snippet.write_text(SNIPPET)
    done = subprocess.run(
        [sys.executable, "-m", "mypy", "--strict", "--cache-dir", str(tmp_path / "cache"), str(snippet)],
        cwd=HOME.parent,
        capture_output=True,
        text=True,
        timeout=300,
        check=False,
    )
    notes = [line.partition("Revealed type is ")[2] for line in done.stdout.splitlines() if "Revealed" in line]
    assert notes == [
        '"list[snippet.Tool]"',
        '"int"',
        '"bytes"',
        '"supervisors._ref.Ref | None"',
        '"supervisors._ref.Ref"',
    ], done.stdout
    errors = [line for line in done.stdout.splitlines() if ": error:" in line]
    assert len(errors) == 1, done.stdout
    assert "Add" in errors[0]
