"""Answers are split the same way, however their text is cut into parts."""

from __future__ import annotations

import itertools
import json
from collections.abc import Iterable
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from spec_cpu.serve.http.call_object import Arguments, Began, Braces, Event, Said
from spec_cpu.serve.http.calls import Calls, Format, format_of, new_id, opening
from spec_cpu.serve.http.thoughts import Thoughts

ROME = '{"city": "Rome", "note": "a \\"quoted\\" } brace"}'
TWO = [("weather", ROME), ("time", "{}")]
WRITTEN: list[tuple[Format, str, str, list[tuple[str, str]]]] = [
    # As a model writes it; what of it is said; what is called.
    ("tags", f'<tool_call>\n{{"name": "weather", "arguments": {ROME}}}\n</tool_call>', "", TWO[:1]),
    (
        "tags",
        f'Well.\n\n<tool_call>{{"name": "weather", "arguments": {ROME}}}</tool_call>\n'
        '<tool_call>\n{"name": "time", "arguments": {}}\n</tool_call>\n',
        "Well.",
        TWO,
    ),
    ("tags", f'<tool_call>{{"arguments": {ROME}, "name": "weather"}}</tool_call>', "", TWO[:1]),
    ("tags", '<tool_call>{"name": "f", "arguments": "{}"}</tool_call>', "", [("f", "{}")]),
    ("tags", '<tool_call>{"name": "f"}</tool_call>', "", [("f", "{}")]),
    ("tags", "a <tool_call> is a tag", "a <tool_call> is a tag", []),
    ("tags", 'a <tool_call>{"no": 1}</tool_call>', 'a <tool_call>{"no": 1}</tool_call>', []),
    ("tags", 'a\n<tool_call>{"name"', 'a\n<tool_call>{"name"', []),
    ("tags", "1 < 2 and <tool", "1 < 2 and <tool", []),
    ("tags", "  \n", "", []),
    ("list", f'[TOOL_CALLS][{{"name": "weather", "arguments": {ROME}}}]', "", TWO[:1]),
    (
        "list",
        f'[TOOL_CALLS] [{{"name": "weather", "arguments": {ROME}}}, '
        '{"name": "time", "arguments": {}}]',
        "",
        TWO,
    ),
    ("list", f"Hm. [TOOL_CALLS]weather[ARGS]{ROME}[TOOL_CALLS]time[ARGS]{{}}", "Hm.", TWO),
    ("list", f"[TOOL_CALLS]weather[CALL_ID]abc123def[ARGS]{ROME}", "", TWO[:1]),
    ("list", "[1, 2] are numbers", "[1, 2] are numbers", []),
    ("object", f'{{"name": "weather", "parameters": {ROME}}}', "", TWO[:1]),
    (
        "object",
        f'<|python_tag|>{{"type": "function", "name": "weather", "parameters": {ROME}}}; '
        '{"name": "time", "parameters": {}}',
        "",
        TWO,
    ),
    ("object", '{"name": "Bob", "age": 3}', '{"name": "Bob", "age": 3}', []),
    ("object", '{"name": "no", "parameters": {}} x', '{"name": "no", "parameters": {}} x', []),
    ("object", "Rome {is} sunny", "Rome {is} sunny", []),
    ("object", '{"name": "weather", "parameters"', '{"name": "weather", "parameters"', []),
]  # fmt: skip


def parts(text: str, cuts: Iterable[int]) -> list[str]:
    places = sorted({cut % (len(text) + 1) for cut in cuts} | {0, len(text)})
    return [text[a:b] for a, b in itertools.pairwise(places)]


def calls_of(events: list[Event]) -> tuple[str, list[tuple[str, str]]]:
    said, found = "", list[tuple[str, str]]()
    for event in events:
        match event:
            case Said(text):
                said += text
            case Began(name):
                found.append((name, ""))
            case Arguments(text):
                name, before = found[-1]
                found[-1] = (name, before + text)
    return said, found


@pytest.mark.parametrize(("form", "text", "said", "called"), WRITTEN)
@given(cuts=st.lists(st.integers(0, 10_000), max_size=200))
def test_calls(
    form: Format, text: str, said: str, called: list[tuple[str, str]], cuts: list[int]
) -> None:
    calls = Calls(form, {"weather", "time"})
    events = [event for part in parts(text, cuts) for event in calls.push(part)]
    assert calls_of([*events, *calls.finish()]) == (said, called)


def test_a_call_is_told_while_it_is_written() -> None:
    calls = Calls("tags", {"f"})
    assert calls.push('<tool_call>{"name": "f", "arguments": {"a"') == [
        Began("f"),
        Arguments('{"a"'),
    ]
    assert calls.push(": 1") == [Arguments(": 1")]


@pytest.mark.parametrize("form", ["tags", "list", "object"])
@pytest.mark.parametrize("name", [None, "weather"])
def test_an_opening_begins_a_call(form: Format, name: str | None) -> None:
    rest = f"{ROME}}}" if name else f'weather", "arguments": {ROME}}}'
    calls = Calls(form, {"weather"})
    events = calls.push(opening(form, name) + rest)
    assert calls_of([*events, *calls.finish()]) == ("", TWO[:1])


def test_a_template_shows_how_calls_are_written() -> None:
    assert format_of("... <tool_call> ...") == "tags"
    assert format_of("... [TOOL_CALLS] ...") == "list"
    assert format_of("... {'parameters'} ...") == "object"
    assert len(new_id("list")) == 9
    assert new_id("tags") != new_id("tags")


TEXTS = st.text(st.sampled_from('ab"\\{}[]é\n'), max_size=6)
JSON: Any = st.recursive(
    st.none() | st.integers() | TEXTS,
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(TEXTS, inner, max_size=3),
    max_leaves=6,
)


@given(value=st.dictionaries(TEXTS, JSON, max_size=3), rest=st.text(), ascii_alone=st.booleans())
def test_the_end_of_an_object(value: dict[str, Any], rest: str, ascii_alone: bool) -> None:
    text = json.dumps(value, ensure_ascii=ascii_alone)
    assert Braces().end(text + rest) == len(text)
    braces = Braces()
    assert [braces.end(character) for character in text[:-1]] == [None] * (len(text) - 1)
    assert braces.end(text[-1]) == 1


THOUGHT = [
    ("<think>\nWell.\n\nYes?\n</think>\n\nYes.", False, "Well.\n\nYes?", "Yes."),
    ("\n<think>a</think>b", False, "a", "b"),
    ("Well.\n</think>\n\nYes.", True, "Well.", "Yes."),
    ("<think>\n\n</think>\n\nYes.", False, "", "Yes."),
    ("<think>cut < off", False, "cut < off", ""),
    ("1 <think>2</think>", False, "", "1 <think>2</think>"),
    ("<thin air", False, "", "<thin air"),
    ("<thi", False, "", "<thi"),
    ("Yes.\n", False, "", "Yes.\n"),
]


@pytest.mark.parametrize(("text", "thinking", "thought", "said"), THOUGHT)
@given(cuts=st.lists(st.integers(0, 10_000), max_size=50))
def test_thoughts(text: str, thinking: bool, thought: str, said: str, cuts: list[int]) -> None:
    thoughts = Thoughts(thinking=thinking)
    found = [*map(thoughts.push, parts(text, cuts)), thoughts.finish()]
    assert "".join(one for one, _ in found) == thought
    assert "".join(other for _, other in found) == said
