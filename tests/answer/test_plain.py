"""What plain decoding would have taken, on runs that were made up: no model, no clock."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

import pytest
from hypothesis import given
from hypothesis import strategies as st
from made_up import COSTS, LOOKING, PLAIN, ROW, answer, cycle

from spec_cpu.answer.plain import PlainTime
from spec_cpu.answer.stats import SourceStats, Stats
from spec_cpu.costs.costs import Costs
from spec_cpu.cycle.decode import Cycle


def follow(cycles: Sequence[Cycle], costs: Costs | None) -> PlainTime:
    plain = PlainTime()
    plain.begin(costs)
    for one in cycles:
        plain.add(one, len(one.tokens))
    return plain


def true(cycles: Sequence[Cycle], pace: float) -> float:
    """Seconds of plain decoding of the same text."""
    first, last = cycles[0], cycles[-1]
    contexts = range(first.context, last.context + len(last.tokens))
    return pace * sum(COSTS.pass_at(1, context) + ROW for context in contexts)


widths = st.lists(st.integers(0, 8), min_size=4, max_size=40)
paces = st.floats(0.3, 3.0)


@given(widths, paces, st.floats(0.0, 0.02))
def test_plain_steps_tell_whatever_the_rest_takes(
    drafted: list[int], pace: float, late: float
) -> None:
    """Nor does looking for drafts count, nor what a pass of another width takes or leaves."""
    cycles = answer([*drafted, *[0] * 9], pace, late)
    assert follow(cycles, COSTS).seconds == pytest.approx(true(cycles, pace), rel=2e-3)
    seconds = follow(cycles, None).seconds
    assert seconds == pytest.approx(true(cycles, pace), rel=0.02), "but for the context"


@given(st.lists(st.integers(1, 8), min_size=4, max_size=40), paces)
def test_without_plain_steps_costs_and_pace_tell(drafted: list[int], pace: float) -> None:
    doubled = [n for n in drafted for _ in range(2)]
    cycles = answer(doubled, pace, late=0.01)
    assert follow(cycles, COSTS).seconds == pytest.approx(true(cycles, pace), rel=2e-3)
    assert follow(cycles, None).seconds is None


def test_a_draft_wider_than_what_was_measured_tells_nothing() -> None:
    narrow = replace(COSTS, passes=COSTS.passes[:3], deepens=COSTS.deepens[:3])
    assert follow(answer([8] * 5), narrow).seconds is None
    assert follow(answer([8] * 5 + [2, 2]), narrow).seconds is not None


@given(paces, paces)
def test_answers_add_up(one: float, other: float) -> None:
    answers = [answer([0] * 12 + [3] * 4, one), answer([5] * 12, other)]
    apart = [follow(cycles, COSTS) for cycles in answers]
    expected = sum(plain.seconds or 0.0 for plain in apart)
    together = PlainTime()
    for cycles in answers:
        together.begin(COSTS)
        for each in cycles:
            together.add(each, len(each.tokens))
    assert together.seconds == pytest.approx(expected)
    merged = PlainTime()
    for plain in apart:
        merged.merge(plain)
    assert merged.seconds == pytest.approx(expected)
    merged.merge(follow(answers[1], None))  # an answer that nothing is known of
    tokens = [sum(len(each.tokens) for each in cycles) for cycles in answers]
    assert merged.seconds == pytest.approx(expected * (1 + tokens[1] / sum(tokens)))


def test_an_answer_in_which_only_waiting_was_done_is_a_little_slower() -> None:
    stats = Stats(by_source={"ngram": SourceStats()})
    stats.plain.begin(None)
    for one in answer([0] * 40):
        stats.add(one, 1)
    assert stats.speedup == pytest.approx((PLAIN + ROW) / (PLAIN + ROW + LOOKING), rel=0.01)
    assert stats.plain_step == pytest.approx(PLAIN, rel=0.02)


@pytest.mark.parametrize("order", [(0, 1), (1, 0)])
def test_an_answer_that_tells_nothing_is_taken_to_be_like_the_others(order: Sequence[int]) -> None:
    """A conversation's speedup is not lost for good by one short answer."""
    answers = ([0] * 20, [3])
    conversation = PlainTime()
    for which in order:
        conversation.begin(None)
        for one in answer(answers[which]):
            conversation.add(one, len(one.tokens))
    told = follow(answer(answers[0]), None).seconds
    assert follow(answer(answers[1]), None).seconds is None
    assert told
    assert conversation.seconds == pytest.approx(told * 22 / 20)


@given(widths, st.data())
def test_the_formula_never_promises_more_than_the_textbook(
    drafted: list[int], data: st.DataObject
) -> None:
    """Rule: whatever pace each pass met, a verification is not cheaper than one for free."""
    stats, context = Stats(), 100
    stats.plain.begin(data.draw(st.sampled_from([COSTS, None])))
    stats.by_source["model"] = SourceStats()
    for n in drafted:
        one = cycle(n, context, data.draw(paces))
        stats.add(one, len(one.tokens))
        context += len(one.tokens)
    formula, textbook = stats.speedup_theory, stats.speedup_textbook
    if textbook is not None:
        assert formula is not None
        assert formula <= textbook * (1 + 1e-9)
