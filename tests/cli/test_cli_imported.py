"""Whatever a host's file holds, what comes out is valid TOML without the secrets that were planted in it."""

import json
import tempfile
import tomllib
from pathlib import Path

from hypothesis import given, settings
from hypothesis import strategies as st

from conduit_daemon.cli.hosts import Place
from conduit_daemon.cli.imported import gather
from conduit_daemon.errors import ConfigError

SECRET = "planted-1f9c"
TEXT = st.text(max_size=8) | st.sampled_from(["${x}", "${env:A}", "$${", "${", "a=b", "--x", "https://u:p@h/?a=1"])
JSON = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats(allow_nan=False, allow_infinity=False) | TEXT,
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(TEXT, inner, max_size=3),
    max_leaves=6,
)
KEY = st.sampled_from(["command", "args", "env", "url", "headers", "type", "disabled", "cwd", "tools", "start", "auth"])
SERVER = st.dictionaries(KEY | TEXT, JSON, max_size=5) | JSON
PLANTED = st.sampled_from(
    [
        {"command": "c", "env": {"API_KEY": SECRET}},
        {"command": "c", "env": {"DSN": f"db://me:{SECRET}@host"}},
        {"command": "c", "args": ["--token", SECRET]},
        {"command": "c", "args": [f"--password={SECRET}", "-H", f"Authorization: Bearer {SECRET}"]},
        {"url": f"https://h/?api_key={SECRET}", "headers": {"X-Auth": SECRET}},
    ]
)


@settings(max_examples=150, deadline=None)
@given(st.dictionaries(TEXT, SERVER | PLANTED, max_size=4))
def test_what_is_imported_is_toml_without_secrets(servers):
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / "mcp.json"
        path.write_text(json.dumps({"mcpServers": servers}))
        found, values = gather([Place("x", path, named=True)], Path(folder), {}, strict=True)
    read = tomllib.loads(found.toml).get("servers", {})
    assert list(read) == list(found.servers)
    assert SECRET not in found.toml
    assert SECRET not in repr(found)
    names = {variable.name for variable in found.variables}
    assert set(values) <= names
    for name in values:
        assert f"${{env:{name}}}" in found.toml


@settings(max_examples=100, deadline=None)
@given(JSON)
def test_a_file_of_anything_is_taken_or_refused_in_words(document):
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / "mcp.json"
        path.write_text(json.dumps(document))
        refused = ()
        try:
            found, _ = gather([Place("x", path, named=True)], Path(folder), {}, strict=True)
        except ConfigError as error:
            refused = error.problems
    if refused:
        assert all(problem.file == str(path) and problem.message for problem in refused)
    else:
        assert found.sources or found.servers == {}
