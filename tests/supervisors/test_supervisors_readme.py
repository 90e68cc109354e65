"""The README's examples run, and print what they say."""

from __future__ import annotations

import re
import subprocess
import sys
from pathlib import Path

import pytest

import supervisors

README = (Path(supervisors.__file__).parent / "README.md").read_text()
EXAMPLES = re.findall(r"```python\n(.*?)```", README, flags=re.DOTALL)


@pytest.mark.parametrize("number", range(3))
def test_example(number: int, tmp_path: Path) -> None:
    example = EXAMPLES[number]
    script = tmp_path / "example.py"
    script.write_text(example)
    done = subprocess.run([sys.executable, script], capture_output=True, text=True, timeout=30, check=False)
    assert done.returncode == 0, done.stderr
    for said in re.findall(r"print\(.*\)  # (.*)", example):
        if not said.startswith("such as"):
            value = re.sub(r"^\.\.\. and a fresh one counts from |: the first attempt failed.*$", "", said)
            assert value in done.stdout, done.stdout


def test_there_are_three_examples_and_the_names_of_the_table_exist() -> None:
    assert len(EXAMPLES) == 3
    table = README.partition("| Elixir | here |")[2].partition("## What is different")[0]
    for name in re.findall(
        r"`([A-Za-z_]+)\(", "".join(line.split("|")[2] for line in table.splitlines() if "|" in line)
    ):
        assert hasattr(supervisors, name) or hasattr(supervisors.Actor, name), name


def test_links_lead_somewhere() -> None:
    headings = {
        re.sub(r"[^a-z0-9 -]", "", line[3:].lower()).replace(" ", "-")
        for line in README.splitlines()
        if line.startswith("## ")
    }
    assert set(re.findall(r"\]\(#([^)]+)\)", README)) <= headings
