"""What the live prompt shows of a call."""

from conduit_daemon.agent import Approval
from conduit_daemon.cli.approval_prompt import KEYS, described

CALL = Approval(
    id="ap-1",
    server="mail",
    tool="send",
    exposed_name="mail__send",
    principal="ann/researcher",
    arguments={"to": "bob", "body": "x" * 5000, "parts": [{"text": "y" * 5000}]},
    annotations={"destructiveHint": True, "readOnlyHint": False},
    taint=["web", "search"],
    rule="mail is asked about",
    reason="a person looks at it",
)


def test_all_that_a_person_decides_by_is_shown_and_long_texts_are_folded():
    shown = described(CALL)

    for part in (
        "ann/researcher calls mail__send  (server mail, tool send)",
        '"to": "bob"',
        "4840 characters more, f shows them",
        "the model has read what came from: web, search",
        "the server says of the tool: destructiveHint",
        "asked by mail is asked about: a person looks at it",
    ):
        assert part in shown
    assert max(map(len, shown.splitlines())) < 250
    assert "x" * 5000 in described(CALL, whole=True)
    assert "y" * 5000 in described(CALL, whole=True)


def test_many_arguments_are_folded_by_lines():
    call = Approval(arguments={f"key {n}": n for n in range(500)})

    assert len(described(call).splitlines()) < 25
    assert "lines more, f shows them" in described(call)
    assert len(described(call, whole=True).splitlines()) > 500


def test_a_key_for_each_answer():
    answers = {(choice.decision, choice.scope, choice.halt) for choice in KEYS.values()}

    assert answers == {
        ("approve", None, False),
        ("approve", "args", False),
        ("approve", "tool", False),
        ("deny", None, False),
        ("deny", None, True),
    }
