"""What is said of an answer's speed: nothing that it is too short to show, and once the same."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st
from spec_cpu_cli.report import compared, live_line, summary

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
