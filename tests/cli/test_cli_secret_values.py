"""Secrets are found where people put them, and nothing else is taken away."""

import tomllib

import pytest
from hypothesis import given
from hypothesis import strategies as st

from conduit_daemon.cli.secret_values import Vault
from conduit_daemon.cli.toml_text import table

TOKEN = "ghp_" + "a1B2" * 9


@pytest.mark.parametrize(
    ("before", "after", "values"),
    [
        ({"env": {"API_KEY": "k"}}, {"env": {"API_KEY": "${env:API_KEY}"}}, {"API_KEY": "k"}),
        ({"env": {"ANY": f"x {TOKEN}"}}, {"env": {"ANY": "x ${env:ANY}"}}, {"ANY": TOKEN}),
        (
            {"env": {"DB": "postgres://me:pass@host/x"}},
            {"env": {"DB": "postgres://me:${env:DB_PASSWORD}@host/x"}},
            {"DB_PASSWORD": "pass"},
        ),
        ({"headers": {"X-Api-Key": "k"}}, {"headers": {"X-Api-Key": "${env:S_1_X_API_KEY}"}}, {"S_1_X_API_KEY": "k"}),
        ({"headers": {"Authorization": "k"}}, {"headers": {"Authorization": "${env:S_1_TOKEN}"}}, {"S_1_TOKEN": "k"}),
        (
            {"headers": {"Authorization": "Bearer a b"}},
            {"headers": {"Authorization": "Bearer ${env:S_1_TOKEN}"}},
            {"S_1_TOKEN": "a b"},
        ),
        ({"args": ["--api-key", "k", "x"]}, {"args": ["--api-key", "${env:S_1_API_KEY}", "x"]}, {"S_1_API_KEY": "k"}),
        ({"args": ["--token=k"]}, {"args": ["--token=${env:S_1_TOKEN}"]}, {"S_1_TOKEN": "k"}),
        (
            {"args": ["-H", "X-Auth: k"]},
            {"args": ["-H", "X-Auth: ${env:S_1_X_AUTH}"]},
            {"S_1_X_AUTH": "k"},
        ),
        ({"args": ["-e", "KEY=k"]}, {"args": ["-e", "KEY=${env:S_1_KEY}"]}, {"S_1_KEY": "k"}),
        (
            {"url": "https://u:p@x/?a=1&token=k"},
            {"url": "https://u:${env:S_1_PASSWORD}@x/?a=1&token=${env:S_1_TOKEN}"},
            {"S_1_PASSWORD": "p", "S_1_TOKEN": "k"},
        ),
        ({"env": {"KEY": "a$${b}"}}, {"env": {"KEY": "${env:KEY}"}}, {"KEY": "a${b}"}),
    ],
)
def test_a_secret_becomes_a_reference(before, after, values):
    vault = Vault()

    assert vault.without_secrets("s-1", before) == after
    assert vault.values == values
    assert {moved.name for moved in vault.moved} == set(values)


@pytest.mark.parametrize(
    "table",
    [
        {"env": {"MAX_TOKENS": "4000", "AUTH_TYPE": "oauth", "KEY_FILE": "/x", "USE_AUTH": "true", "TOKEN": ""}},
        {"env": {"API_KEY": "${env:API_KEY}", "PATH": "/bin", "URL": "https://example.com/?q=1"}},
        {"headers": {"Accept": "x", "Authorization": "Bearer ${env:T}"}},
        {"args": ["--key-file", "/x", "--auth-mode=none", "https://example.com/a", "--", "author: me", "-t", "x"]},
        {"args": ["--token", "--verbose", "${env:X}", 3]},
        {"url": "https://example.com/mcp?session=1"},
        {"command": "npx", "cwd": "/x", "enabled": False},
    ],
)
def test_what_is_no_secret_stays(table):
    vault = Vault()

    assert vault.without_secrets("s", table) == table
    assert vault.values == {}


def test_equal_secrets_share_a_name_and_others_do_not():
    vault = Vault()
    tables = {name: {"env": {"KEY": value}} for name, value in (("a", "1x"), ("b", "1x"), ("c", "2x"), ("d", "3x"))}

    found = [vault.without_secrets(name, table)["env"]["KEY"] for name, table in tables.items()]

    assert found == ["${env:KEY}", "${env:KEY}", "${env:C_KEY}", "${env:D_KEY}"]
    assert vault.values == {"KEY": "1x", "C_KEY": "2x", "D_KEY": "3x"}


TEXT = st.text(st.characters(exclude_categories=["Cs"]))
VALUE = st.recursive(
    TEXT | st.booleans() | st.integers(-(2**63), 2**63 - 1) | st.floats(allow_nan=False),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(TEXT, inner, max_size=3),
    max_leaves=8,
)


@given(st.lists(TEXT, min_size=1, max_size=3), st.dictionaries(TEXT, VALUE, max_size=4))
def test_tables_are_read_as_they_were(path, values):
    read = tomllib.loads(table(path, values))
    for part in path:
        read = read[part]
    assert read == values
