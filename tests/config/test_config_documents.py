"""The examples work, and their README lists every key with its default."""

import re
import tomllib
from pathlib import Path
from types import NoneType
from typing import Annotated, Any, get_args, get_origin, get_type_hints

import msgspec
import pytest

from conduit_daemon import config
from conduit_daemon.config.decode import Decoder
from conduit_daemon.config.report import Report
from conduit_daemon.pipeline.policy import compile_policy
from conduit_daemon.pipeline.policy_tests import run_tests

FOLDER = Path(__file__).parents[2] / "config"
EXAMPLES = sorted(FOLDER.glob("*.toml"))
ROW = re.compile(r"^\| `([A-Za-z_.]+)` \| (.*?) \| ?(.*?) ?\|$", re.MULTILINE)
NAMES = {"servers": "ID", "toolsets": "NAME"}


def struct_of(kind: Any) -> tuple[type[msgspec.Struct] | None, bool]:
    """The Struct inside a type, and whether it stands in a table of names."""
    if get_origin(kind) is Annotated:
        return None, False
    if isinstance(kind, type) and issubclass(kind, msgspec.Struct):
        return kind, False
    for argument in get_args(kind):
        if argument is not NoneType and argument is not Ellipsis:
            found, _ = struct_of(argument)
            if found is not None:
                return found, get_origin(kind) is dict
    return None, False


def keys_of(kind: type[msgspec.Struct], prefix: str = "") -> dict[str, tuple[type, str]]:
    keys: dict[str, tuple[type, str]] = {}
    for name, hint in get_type_hints(kind, include_extras=True).items():
        inner, named = struct_of(hint)
        if inner is None:
            keys[prefix + name] = (kind, name)
            continue
        if prefix:
            keys[prefix + name] = (kind, name)
        keys.update(keys_of(inner, f"{prefix}{name}.{NAMES[name]}." if named else f"{prefix}{name}."))
    return keys


@pytest.mark.parametrize("path", EXAMPLES, ids=lambda path: path.name)
def test_each_example_loads_and_passes_its_own_tests(path: Path, tmp_path: Path) -> None:
    (tmp_path / "database").write_text("a credential\n")
    environ = {"HOME": "/home/me", "MAIL_TOKEN": "a mail token", "CREDENTIALS_DIRECTORY": str(tmp_path)}
    loaded = config.load(path, environ)
    assert loaded.warnings == ()
    trusted = frozenset(name for name, server in loaded.config.servers.items() if server.trusted)
    policy = compile_policy(loaded.config.policy, trusted)
    assert loaded.config.policy.tests
    assert run_tests(policy, loaded.config.policy.tests, loaded.config.servers) == ()


def test_there_are_examples() -> None:
    assert len(EXAMPLES) >= 3
    readme = (FOLDER / "README.md").read_text()
    assert all(f"[{path.name}]({path.name})" in readme for path in EXAMPLES)


def test_the_readme_lists_every_key_and_no_other() -> None:
    listed = [key for key, _, _ in ROW.findall((FOLDER / "README.md").read_text())]
    assert len(listed) == len(set(listed))
    assert set(listed) == set(keys_of(config.Config))


def test_the_defaults_that_the_readme_writes_out_are_those_of_the_model() -> None:
    keys = keys_of(config.Config)
    report = Report("README.md")
    decoder = Decoder(report, lambda text, _: text, Path, {})
    checked = 0
    for key, default, _ in ROW.findall((FOLDER / "README.md").read_text()):
        kind, name = keys[key]
        field = next(field for field in msgspec.structs.fields(kind) if field.name == name)
        assert field.required == (default == "required"), key
        literal = re.fullmatch(r"`([^$`]*)`", default)
        if literal is None or key == "policy.rules.name":
            continue
        raw = tomllib.loads(f"x = {literal[1]}")["x"]
        expected = field.default_factory() if field.default is msgspec.NODEFAULT else field.default
        assert decoder.decode(raw, get_type_hints(kind, include_extras=True)[name]) == expected, key
        checked += 1
    assert report.problems == []
    assert checked >= 35
