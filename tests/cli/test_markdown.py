"""Answers as formatted text."""

from __future__ import annotations

import re
from itertools import pairwise
from unicodedata import category

import pytest
from hypothesis import given
from hypothesis import strategies as st
from spec_cpu_cli.markdown import Markdown, complete_blocks

TEXT = (
    "# Rain\n\nIt *falls*.\n\n1. up\n\n   with heat\n2. down\n\n"
    "```python\nx = 1\n\ny = 2\n```\n\nAnd so on.\n"
)
BLOCKS = [
    "# Rain\n\n",
    "It *falls*.\n\n",
    "1. up\n\n   with heat\n2. down\n\n",
    "```python\nx = 1\n\ny = 2\n```\n\n",
]


def test_blocks_end_where_nothing_more_can_belong_to_them() -> None:
    ends = {complete_blocks(TEXT[:n]) for n in range(len(TEXT) + 1)}
    expected = [len("".join(BLOCKS[:n])) for n in range(len(BLOCKS) + 1)]
    assert sorted(ends) == expected


@given(st.text(st.sampled_from("ab `~\n-1. "), max_size=60), st.data())
def test_a_block_that_is_complete_stays_so(text: str, data: st.DataObject) -> None:
    """Law: what was printed is never revised by what follows."""
    at = data.draw(st.integers(0, len(text)))
    assert complete_blocks(text[:at]) <= complete_blocks(text) <= len(text)


@pytest.mark.parametrize("size", [1, 7, len(TEXT)])
def test_the_same_is_shown_however_it_comes(size: int) -> None:
    formatted = Markdown()
    parts = [formatted.push(TEXT[at : at + size]) for at in range(0, len(TEXT), size)]
    text = "".join([*parts, formatted.finish()])
    assert all(part.endswith("\n") for part in parts if part), "the cursor begins a line"
    shown = text.splitlines()
    assert not any(a == b == "" for a, b in pairwise(shown)), "one empty line between blocks"
    words = " ".join(text.split())
    for part in ("Rain", "It falls.", "1 up", "with heat", "2 down", "x = 1", "And so on."):
        assert part in words
    assert "*" not in words


@given(st.text(st.characters(categories=["Cc"]), min_size=1))
def test_control_characters_do_not_reach_the_terminal(controls: str) -> None:
    formatted = Markdown()
    shown = formatted.push(f"a{controls}b") + formatted.finish()
    assert not {one for one in shown if category(one) == "Cc"} - {"\n"}


def test_every_colour_can_be_read_on_a_light_ground_and_on_a_dark_one(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """No yellow, white, black or blue, but in code, which brings its ground along."""
    monkeypatch.setenv("FORCE_COLOR", "1")
    monkeypatch.setenv("TERM", "xterm-256color")
    formatted = Markdown()
    shown = formatted.push(
        "# One\n\n## Two\n\n### Three\n\nSome *text* with **weight**, `code` and "
        "[a link](http://a.b), <kbd>Ctrl</kbd>, ~~no~~.\n\n> said\n\n"
        "1. one\n2. two\n\n- x\n\n---\n\n"
        "| a | b |\n|---|---|\n| 1 | 2 |\n\n"
    )
    shown += formatted.finish()
    codes = {code for found in re.findall(r"\x1b\[([\d;]*)m", shown) for code in found.split(";")}
    assert "36" in codes, "this looks at nothing"
    grounds, unreadable = (
        {str(n) for n in range(40, 48)},
        {"30", "33", "34", "37", "93", "94", "97"},
    )
    assert not codes & (grounds | unreadable)
