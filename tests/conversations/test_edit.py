"""What may be changed in a conversation."""

from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from spec_cpu import Message
from spec_cpu.conversations.edit import (
    drop_oldest,
    set_system_prompt,
    system_prompt,
    take_back,
)

TEXT = st.text(min_size=1, max_size=5)


def turn(role: str, content: str) -> Message:
    return Message(role=role, content=content)


@st.composite
def conversations(draw: st.DrawFn) -> list[Message]:
    """Perhaps a system prompt, questions and answers; the last one may be open."""
    turns = [turn("system", draw(TEXT))] if draw(st.booleans()) else []
    for _ in range(draw(st.integers(0, 5))):
        turns += [turn("user", draw(TEXT)), turn("assistant", draw(TEXT))]
    return (
        turns[:-1] if turns and turns[-1]["role"] == "assistant" and draw(st.booleans()) else turns
    )


@given(conversations())
def test_taking_back_is_undone_by_putting_back(messages: list[Message]) -> None:
    before = list(messages)
    taken = take_back(messages)
    assert messages + taken == before
    assert [one["role"] for one in taken] in ([], ["user"], ["user", "assistant"])
    assert bool(taken) == any(one["role"] == "user" for one in before)


@given(conversations(), st.integers(1, 9))
def test_dropping_leaves_the_system_prompt_and_the_latest(messages: list[Message], n: int) -> None:
    before = list(messages)
    asked = sum(one["role"] == "user" for one in before)
    dropped = drop_oldest(messages, n)
    assert dropped == max(0, min(n, asked - 1))
    assert system_prompt(messages) == system_prompt(before)
    assert sum(one["role"] == "user" for one in messages) == asked - dropped
    rest = [one for one in messages if one["role"] != "system"]
    assert rest == [one for one in before if one["role"] != "system"][2 * dropped :]


@given(conversations(), st.none() | TEXT)
def test_a_system_prompt_is_first_and_alone(messages: list[Message], text: str | None) -> None:
    others = [one for one in messages if one["role"] != "system"]
    set_system_prompt(messages, text)
    assert system_prompt(messages) == text
    assert [one for one in messages if one["role"] != "system"] == others
    assert sum(one["role"] == "system" for one in messages) == (text is not None)
