"""What the live prompt shows of a call: all that a person decides by, and nothing that passes for it."""

import itertools

import pytest
from hypothesis import given
from hypothesis import strategies as st

from conduit_daemon.agent import Approval
from conduit_daemon.cli import output
from conduit_daemon.cli.approval_prompt import KEYS
from conduit_daemon.cli.approval_text import brief, described, is_whole

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
SPOOF = "send)\n  asked by default\r\x1b[2K\x1b[1A\u202e\u2066\u200b\u3164\u2028ok"


def test_all_that_a_person_decides_by_is_shown_and_long_texts_are_folded():
    shown = described(CALL)

    for part in (
        "ann/researcher calls mail__send  (server mail, tool send)",
        '"to": "bob"',
        "characters more, f shows them",
        "the model has read what came from: web, search",
        "the server says of the tool: destructiveHint",
        "asked by mail is asked about: a person looks at it",
    ):
        assert part in shown
    assert max(map(len, shown.splitlines())) < 250
    assert "x" * 5000 in described(CALL, whole=True)
    assert "y" * 5000 in described(CALL, whole=True)


def test_many_arguments_are_folded_by_lines_and_are_not_approved_unseen():
    call = Approval(arguments={f"key {n}": n for n in range(500)})

    assert len(described(call).splitlines()) < 25
    assert described(call).splitlines()[-1] == "  484 arguments more of 500, f shows them"
    assert not is_whole(call)
    assert len(described(call, whole=True).splitlines()) > 500


def test_no_argument_pushes_another_out_of_sight():
    junk = {f"a{n}": ["z" * 300] * 300 for n in range(14)}
    arguments = {**junk, "k" * 3000: {"deep": [[[["x"] * 50] * 50]]}, "to": "eve@example.com"}
    call = Approval(principal="ann", exposed_name="mail__send", arguments=arguments)

    lines = described(call).splitlines()

    assert is_whole(call)
    assert '  "to": "eve@example.com"' in lines
    assert len(lines) < 22
    assert max(map(len, lines)) < 330
    assert lines[0] == lines[-1]  # who calls what is said again where it is read
    assert '"to": "eve@example.com"' in brief(arguments)


def test_the_end_of_a_long_text_is_seen():
    command = "ls" + " " * 5000 + "; rm -rf ~"

    assert "; rm -rf ~" in described(Approval(arguments={"command": command}))
    assert "; rm -rf ~" in brief({"command": command})


def test_a_resource_is_its_uri_which_is_not_approved_unseen():
    uri = f"resource:file:///srv/{'a/../' * 200}etc/passwd"
    call = Approval(principal="ann", server="files", tool=uri, exposed_name=uri)

    assert described(call).splitlines()[0].endswith("etc/passwd)")
    assert described(call).splitlines()[-1] == "  Its name is longer, f shows it"
    assert not is_whole(call)
    assert uri in described(call, whole=True)
    assert is_whole(Approval(server="files", tool="resource:file:///srv/a", exposed_name="resource:file:///srv/a"))


def test_a_prefix_of_the_agents_choice_does_not_rename_the_tool():
    call = Approval(
        principal="ann", server="mail", tool="send", exposed_name="files__read_only_list_of_names_mail__send"
    )

    assert described(call).splitlines()[0] == "ann calls mail__send  (server mail, tool send)"


def test_what_is_too_large_to_be_told_whole_is_said_last():
    for whole in (False, True):
        last = described(Approval(arguments={"a": 1}, folded=True), whole=whole).splitlines()[-1]
        assert "too large to be shown whole" in last


@pytest.mark.parametrize("whole", [False, True])
def test_nothing_in_a_call_passes_for_a_line_of_the_prompt(whole):
    hostile = Approval(
        server=SPOOF,
        tool=SPOOF,
        exposed_name=SPOOF,
        principal=SPOOF,
        arguments={SPOOF: SPOOF},
        annotations={SPOOF: True},
        taint=[SPOOF, *(f"{n}{SPOOF * 50}" for n in range(900))],
        rule=SPOOF,
        reason=SPOOF,
    )

    shown = output.safe(described(hostile, whole=whole))
    lines = shown.splitlines()

    assert all(char.isprintable() or char == "\n" for char in shown)
    assert "\u3164" not in shown
    assert lines[0] == lines[-1]
    assert all(line.startswith("  ") for line in lines[1:-1])
    assert [line for line in lines if line.startswith("  asked by")] == [lines[-2]]
    assert "and 891 more" in shown
    assert len(shown) < 6000


def test_names_that_differ_only_where_they_are_cut_are_both_shown():
    shown = described(Approval(arguments={"k" * 300 + end: end for end in "ab"}))

    assert shown.count("characters more, f shows them") == 2


@given(st.text(max_size=60), st.integers(1, 30))
def test_one_line_is_one_line_and_bounded(text, most):
    shown = output.inline(text, most)

    assert shown.isprintable()
    assert len(shown) <= most + 20


def test_marks_heaped_on_a_letter_are_not_drawn_over_other_lines():
    assert output.safe("e\u0301") == "e\u0301"
    assert output.safe("e" + "\u0301" * 40).isascii()


def test_a_key_for_each_answer():
    answers = {(choice.decision, choice.scope, choice.halt) for choice in KEYS.values()}

    assert answers == {
        ("approve", None, False),
        ("approve", "args", False),
        ("approve", "tool", False),
        ("deny", None, False),
        ("deny", None, True),
    }
    assert all(one != other for one, other in itertools.combinations(KEYS, 2))
