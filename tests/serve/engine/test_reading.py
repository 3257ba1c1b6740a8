"""Prompts are read beside answers, in parts so small that nobody waits for longer than said."""

from __future__ import annotations

from itertools import pairwise
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st
from served import PATIENCE, TEXT, Held, Told, holding, opened, plain, request

from spec_cpu.llama.context import Context, Rows
from spec_cpu.serve.engine import batching
from spec_cpu.serve.engine.pace import ReadingPace
from spec_cpu.serve.engine.request import Delta, Event, Reading

SECONDS = st.floats(1e-6, 10.0)


@given(SECONDS, SECONDS, SECONDS, st.integers(1, 512), st.lists(st.booleans(), max_size=20))
def test_a_part_and_a_cycle_take_no_longer_than_they_should(
    max_gap: float, a_token: float, a_cycle: float, most: int, steps: list[bool]
) -> None:
    """Law: as soon as one part was timed; but a token at least is read, so that it goes on."""
    pace = ReadingPace(max_gap, most=most)
    for is_part in steps:
        if is_part:
            n = pace.tokens(beside_texts=True)
            pace.took(n, n * a_token)
        else:
            pace.cycle_took(a_cycle)
    pace.took(0, 5.0)  # of nothing nothing is learnt
    n = pace.tokens(beside_texts=True)
    assert 1 <= n <= most
    if True in steps:
        known_cycle = a_cycle if False in steps else 0.0
        assert n == 1 or n * a_token + known_cycle <= max_gap * (1 + 1e-6)
        full = (n + 1) * a_token + known_cycle > max_gap * (1 - 1e-6)
        assert full or n == most  # and no smaller than it need be
    assert pace.tokens(beside_texts=False) == most


@given(st.lists(st.floats(0.5, 2.0), min_size=12, max_size=12))
def test_what_was_learnt_follows_the_machine(factors: list[float]) -> None:
    pace = ReadingPace(0.2, most=512)
    for factor in (*factors, *[3.0] * 12):
        pace.took(10, 10 * factor * 0.001)
    assert 0.2 / 0.003 <= pace.tokens(beside_texts=True) <= 1.1 * 0.2 / 0.003


@pytest.fixture
def clock(monkeypatch: pytest.MonkeyPatch) -> list[float]:
    """A clock that each token of a pass moves on by ten milliseconds."""
    now = [0.0]
    works = Context.decode

    def decode(self: Context, tokens: Any, *args: Any, **how: Any) -> Rows:
        now[0] += 0.01 * len(tokens)
        return works(self, tokens, *args, **how)

    monkeypatch.setattr(Context, "decode", decode)
    monkeypatch.setattr(batching, "perf_counter", lambda: now[0])
    return now


@pytest.mark.parametrize("max_gap", [0.1, 0.3])
@pytest.mark.parametrize("draft", ["none", "ngram"])
def test_an_answer_under_way_waits_for_its_next_tokens_no_longer_than_max_gap(
    target: Path, clock: list[float], draft: str, max_gap: float
) -> None:
    times: list[float] = []

    class Timed(Held):
        def __call__(self, event: Event) -> None:
            if isinstance(event, Delta):
                times.append(clock[0])
            super().__call__(event)

    with opened(target, draft, slots=3, ctx=256, max_gap=max_gap, k=0) as engine:
        mine, others = Timed(Delta), [Told(), Told()]
        asked = [request(TEXT * n, max_tokens=20) for n in (8, 7)]
        engine.submit(request(TEXT, max_tokens=100), mine)
        assert mine.holds.wait(PATIENCE)
        for one, told in zip(asked, others, strict=True):
            engine.submit(one, told)
        mine.let_go()
        texts = [told.ids for told in others]
        assert mine.end.finish == "length"
    assert texts == plain(target, asked)
    gaps = [b - a for a, b in pairwise(times)]
    assert all(len(told.readings) > 1 for told in others)
    # The first part is of a fixed size, and a cycle of three rows is known once there was one.
    assert max(gaps[2:]) <= max_gap + 0.02 + 1e-9
    assert max(gaps) > 0.6 * max_gap  # and the time that there is is used


def test_prompts_are_read_in_turn(target: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A short one is not kept waiting by a long one."""
    monkeypatch.setattr(ReadingPace, "tokens", lambda *_, **__: 4)
    order: list[int] = []

    class Numbered(Told):
        def __init__(self, number: int) -> None:
            super().__init__()
            self._number = number

        def __call__(self, event: Event) -> None:
            super().__call__(event)
            if isinstance(event, Reading):
                order.append(self._number)

    with opened(target, slots=4, ctx=256) as engine:
        asked = [[*TEXT * 8], [*TEXT[::-1] * 8], TEXT[3:15]]
        answers = [Numbered(number) for number in range(3)]
        with holding(engine, max_tokens=1):
            for tokens, told in zip(asked, answers, strict=True):
                engine.submit(request(tokens, max_tokens=2), told)
        for told in answers:
            told.wait()
    short = len(answers[2].readings)
    assert order[: 3 * short].count(2) == short
    both = [number for number in order if number != 2]
    for n in range(len(both)):
        assert abs(both[:n].count(0) - both[:n].count(1)) <= 2
