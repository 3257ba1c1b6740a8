"""What is said of an answer's speed: nothing that it is too short to show, and once the same."""

from __future__ import annotations

import ast
import io
import os
import re
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st
from spec_cpu_cli import report
from spec_cpu_cli.answer import print_details
from spec_cpu_cli.report import LEGEND, compared, live_line, summary
from spec_cpu_cli.terminal import for_terminal

from spec_cpu.answer.plain import PlainTime
from spec_cpu.answer.stats import SourceStats, Stats

_COMPARISONS = ("faster", "slower", "times as fast", "about as fast")


def _stats(tokens: int, tried: int, speedup: float) -> Stats:
    plain = PlainTime()
    plain._before, plain._told = speedup, tokens
    return Stats(
        cycles=tokens,
        tokens=tokens,
        drafted=tried,
        tried_by_position=[tried],
        accepted_by_position=[0],
        decode=1.0,
        by_source={"ngram": SourceStats()},
        plain=plain,
    )


@given(st.integers(1, 400), st.integers(1, 400), st.floats(0.2, 5.0))
def test_the_live_line_and_the_summary_say_the_same(
    tokens: int, tried: int, speedup: float
) -> None:
    stats = _stats(tokens, tried, speedup)
    live = live_line(stats, None, 500)
    last = list(summary(stats, None, exact=True))[-1]
    told = [one for one in live.split(" · ") if one.endswith(_COMPARISONS)]
    if min(tokens, tried) < 30:
        assert told == []
        assert last.startswith("Too ")
        return
    (ratio,) = told
    assert last.lower().startswith(ratio)


@given(st.integers(30, 10_000), st.sampled_from([-0.015, -0.001, 0.001, 0.015]))
def test_what_so_short_an_answer_cannot_show_is_not_told(tokens: int, beyond: float) -> None:
    """A 3 % that is noise in 40 tokens is told of thousands."""
    least = max(0.02, 0.5 / tokens**0.5)
    speedup = 1.0 + least + beyond
    said = live_line(_stats(tokens, 30, speedup), None, 500)
    assert ("about as fast" in said) == (beyond <= 0)


def test_why_nothing_is_guessed_any_more_is_said_with_it() -> None:
    last = list(summary(_stats(200, 50, 0.8), "too few guesses are accepted", exact=True))[-1]
    assert last.endswith("It stopped guessing: too few guesses are accepted.")


@pytest.mark.parametrize(("ratio", "said"), [(1.03, "3% faster"), (0.88, "12% slower")])
def test_a_speed_is_compared_in_words(ratio: float, said: str) -> None:
    assert compared(ratio) == said


ROWS = [
    ("speed", "102.4 tok/s", "of this answer"),
    ("  expected", "1.25x", "from the numbers below (E / (V(k+1) + k c))"),
    ("asking, a guess", "0.05", "all asking; plan times one pass of the draft alone"),
]


@given(st.none() | st.integers(20, 200))
def test_all_that_was_measured_is_in_columns(width: int | None) -> None:
    """Values end in one column; what they mean is broken at spaces, or stands below."""
    with pytest.MonkeyPatch.context() as patch:
        out = io.StringIO()
        patch.setattr("sys.stderr", out)
        found = None if width is None else os.terminal_size((width, 24))
        patch.setattr("spec_cpu_cli.terminal.size", lambda _: found)
        print_details(ROWS)
    text = out.getvalue().partition(LEGEND.split()[0])[0]
    lines = text.splitlines()
    if width is not None and width < 33:
        return  # names and values alone take as much
    assert width is None or all(len(line) < width for line in lines)
    for _, value, _meaning in ROWS:
        assert [line.index(value) + len(value) for line in lines if value in line] == [28]
    assert text.split() == " ".join(word for row in ROWS for word in row).split()


@pytest.mark.parametrize("width", [20, 40, 80])
def test_a_question_breaks_at_spaces(width: int, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("spec_cpu_cli.terminal.size", lambda _: os.terminal_size((width, 24)))
    question = "Remove all conversations from /a/long/path.d? [y/N]:"
    asked = for_terminal(question, io.StringIO())
    assert all(len(line) < width for line in asked.splitlines())
    assert asked.split() == question.split()


def test_every_key_of_json_is_explained() -> None:
    page = Path("docs/words.md").read_text(encoding="utf-8")
    told = set(re.findall(r"`(\w+)`", page))
    (function,) = [
        one
        for one in ast.walk(ast.parse(Path(report.__file__).read_text(encoding="utf-8")))
        if isinstance(one, ast.FunctionDef) and one.name == "as_json"
    ]
    keys = {
        key.value
        for found in ast.walk(function)
        if isinstance(found, ast.Dict)
        for key in found.keys
        if isinstance(key, ast.Constant)
    }
    assert "why_plain" in keys
    assert keys - told == set()
