"""Arguments as people type them."""

import pytest

from conduit_daemon.cli.arguments import parse_arguments
from conduit_daemon.cli.exits import UsageError


@pytest.mark.parametrize(
    ("words", "arguments"),
    [
        ([], {}),
        (['{"a": 1, "b": {"c": null}}'], {"a": 1, "b": {"c": None}}),
        ([" {}"], {}),
        (["a=text"], {"a": "text"}),
        (["a=1", "b:=1", "c:=[1, 2]", 'd:="x"'], {"a": "1", "b": 1, "c": [1, 2], "d": "x"}),
        (["url=http://x/?a=b:=c"], {"url": "http://x/?a=b:=c"}),
        (["a=", "b==", "c=:=1", "d=two\nlines"], {"a": "", "b": "=", "c": ":=1", "d": "two\nlines"}),
        (['{"a": 1}', "b=2"], {"a": 1, "b": "2"}),
    ],
)
def test_what_is_meant(words, arguments):
    assert parse_arguments(words) == arguments


@pytest.mark.parametrize(
    ("words", "said"),
    [
        (["a"], "'a' is no argument"),
        (["=x"], "'=x' is no argument"),
        (["{"], "cannot be read as JSON"),
        (["a:={"], "The value of 'a' cannot be read as JSON"),
        (["a:=nope"], "cannot be read as JSON"),
        (["a=1", "a:=2"], "'a' is given twice"),
        (['{"a": 1}', "a=2"], "'a' is given twice"),
    ],
)
def test_what_is_not(words, said):
    with pytest.raises(UsageError, match=said):
        parse_arguments(words)
