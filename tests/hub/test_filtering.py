"""The configuration's filters over a server's tools."""

from __future__ import annotations

from conduit_daemon.config import ToolFilter
from conduit_daemon.hub.filtering import filtered
from conduit_daemon.model import Tool

TOOLS = [Tool(name=name, description="The server's words.") for name in ("read_file", "read_secret", "write_file")]


def names(rules: ToolFilter) -> tuple[list[str], list[str]]:
    kept, hidden = filtered(TOOLS, rules)
    return [tool.name for tool in kept], hidden


def test_deny_wins_over_allow_and_globs_match_whole_names() -> None:
    assert names(ToolFilter()) == (["read_file", "read_secret", "write_file"], [])
    assert names(ToolFilter(allow=("read_*",), deny=("*_secret",))) == (["read_file"], ["read_secret", "write_file"])
    assert names(ToolFilter(allow=("read",))) == ([], ["read_file", "read_secret", "write_file"])
    assert names(ToolFilter(allow=("READ_*",))) == ([], ["read_file", "read_secret", "write_file"])


def test_the_configuration_describes_a_tool_in_its_own_words() -> None:
    kept, _ = filtered(TOOLS, ToolFilter(describe={"read_file": "Ours."}))
    assert [tool.description for tool in kept] == ["Ours.", "The server's words.", "The server's words."]
