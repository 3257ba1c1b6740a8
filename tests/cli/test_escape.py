"""`--prompt` and `--escape`: where the prompt of the command line comes from."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st
from spec_cpu_cli.prompt import chosen_prompt, unescaped

from spec_cpu.errors import UsageError

TEXT = st.text(st.characters(exclude_categories=["Cs"]))


@pytest.mark.parametrize(
    ("typed", "read"),
    [
        (r"a\nb", "a\nb"),
        (r"\t\r\'\"\\", "\t\r'\"\\"),
        (r"\\n", r"\n"),
        (r"\x41\xc3\xa4", "Aä"),
        (r"\d+\.", r"\d+\."),
        ("\\", "\\"),
        (r"\xg", r"\xg"),
        ("ä\\\n", "ä\\\n"),
    ],
)
def test_what_escapes_stand_for(typed: str, read: str) -> None:
    assert unescaped(typed) == read


@given(TEXT)
def test_a_text_whose_backslashes_are_doubled_stays(text: str) -> None:
    assert unescaped(text.replace("\\", "\\\\")) == text


@given(TEXT, TEXT)
def test_only_one_prompt(one: str, two: str) -> None:
    assert chosen_prompt(one, None, escape=False) == one == chosen_prompt(None, one, escape=False)
    with pytest.raises(UsageError, match="not both"):
        chosen_prompt(one, two, escape=False)


def test_bytes_that_are_no_text_are_refused() -> None:
    with pytest.raises(UsageError, match="not UTF-8"):
        unescaped(r"\xff")
