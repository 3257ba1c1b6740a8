"""Bad lines in a chat: it goes on after them."""

from __future__ import annotations

from pathlib import Path

import pytest
from calling import NOT_UTF8, Call, spawn


def test_a_chat_goes_on_after_a_prompt_that_does_not_fit(call: Call, plain: list[str]) -> None:
    lines = b"x" * 500 + b"\nhi\n/stats\n"
    outcome = call("chat", "-q", *plain, "-c", "64", stdin=lines)
    assert outcome.code == 1
    assert outcome.out
    complaint, *stats = outcome.err.strip().splitlines()
    assert "64" in complaint
    assert "5 tokens" in " ".join(stats)


def test_a_chat_answers_up_to_the_end_of_the_context(call: Call, pair: list[str]) -> None:
    outcome = call("chat", *pair, "-c", "64", "-n", "500", stdin=b"hi\n")
    assert outcome.code == 0
    assert outcome.out
    assert "the context of 64 tokens is full: /reset" in outcome.err


@pytest.mark.parametrize(
    "name", ["", "/nothing/here.md", ".", "/dev/full", "a\0b", "~nobody-by-this-name/x", "x" * 5000]
)
def test_a_chat_goes_on_where_it_cannot_be_saved(call: Call, plain: list[str], name: str) -> None:
    lines = f"hi\n/save {name}\n/save good.md\n"
    outcome = call("chat", "-q", *plain, stdin=lines.encode())
    assert outcome.code == 1
    complaint, saved = outcome.err.splitlines()
    assert complaint.startswith("spec-cpu: ")
    assert "/save" in complaint if not name else "cannot" in complaint or "else" in complaint
    assert "good.md" in saved
    assert "## user" in Path("good.md").read_text(encoding="utf-8")


@pytest.mark.parametrize(
    "line",
    [
        *(
            "/set",
            "/set temp x",
            "/set temp -1",
            "/set nothing 1",
            "/set seed -1",
            "/set top-k 0.5",
        ),
        *("/set max-tokens 0", "/set logit-bias x", "/set logit-bias 99999=1", "/set temp 1 2"),
        *("/file /nothing/here", "/file .", "/file /dev/zero", "/file a\0b"),
        *("/load", "/load /nothing/here", "/load .", "/load text.txt", "/load /dev/zero"),
        *("/retry", "/undo", "/edit", "/edit x", "/continue", "/drop", "/drop x", "/drop 0"),
        *("/drop -1", "/stats", "/draft no-such-draft", "/draft a,b", "/draft ,", "/draft target"),
    ],
)
def test_a_bad_command_in_a_chat_is_one_line_and_changes_nothing(
    call: Call, plain: list[str], line: str
) -> None:
    Path("text.txt").write_text("hello", encoding="utf-8")
    expected = call("chat", "-q", *plain, stdin=b"hi\n")
    outcome = call("chat", "-q", *plain, stdin=f"{line}\nhi\n".encode())
    assert (outcome.code, outcome.out) == (
        int(line not in ("/set", "/set top-k", "/set temp")),
        expected.out,
    )
    if line not in ("/set", "/set top-k", "/set temp"):
        (complaint,) = outcome.err.splitlines()
        assert complaint.startswith("spec-cpu: ")


@pytest.mark.parametrize("errors", ["strict", "surrogateescape"])
def test_a_line_that_is_not_utf8_is_the_only_one_a_chat_leaves_out(
    plain: list[str], errors: str
) -> None:
    """Rule: the lines before and after it are answered, whatever Python makes of the locale."""
    env = {"PYTHONIOENCODING": f"utf-8:{errors}"}
    lines = b"one\n" + NOT_UTF8 + b"\ntwo\n/save text.md\n"
    outcome = spawn("chat", "-q", *plain, stdin=lines, env=env)
    assert outcome.code == 1, outcome.err
    complaint, saved = outcome.err.splitlines()
    assert "UTF-8" in complaint
    assert "4 turns" in saved
