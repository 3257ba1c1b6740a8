"""The plan: what costs come to, in numbers and in a sentence."""

from __future__ import annotations

from dataclasses import replace

import pytest
from hypothesis import given
from hypothesis import strategies as st

from spec_cpu import defaults
from spec_cpu.costs.acceptance import assumed
from spec_cpu.costs.costs import Costs
from spec_cpu.costs.plan import ALPHAS, best_chain, make_plan, predicted_speedup, tree_speedup


def costs(slope: float, c: float, *, plain: float = 0.1, row: float = 0.0) -> Costs:
    passes = tuple(plain * (1 + slope * n) for n in range(17))
    return Costs(passes, draft_step=c * plain, draft_catch_up=0.0, rebuild=0.0, row=row, depth=0)


def test_where_verification_is_free_the_textbook_holds() -> None:
    plan = make_plan(costs(0, 0.1), 16, assumed())
    assert predicted_speedup(costs(0, 0.1), 0.75, 4) == pytest.approx(2.18, abs=0.005)
    assert plan.speculate
    assert plan.verdict.startswith("Guess ahead, ")


def test_the_best_is_the_best_of_all_k() -> None:
    here = costs(0.1, 0.05)
    for best in make_plan(here, 16, assumed()).best:
        gains = [1.0] + [predicted_speedup(here, best.alpha, k) for k in range(1, 17)]
        assert best.speedup == pytest.approx(max(gains))
        assert gains[best.k] == pytest.approx(max(gains))


def test_a_chain_of_equal_acceptance_is_the_formulas() -> None:
    here = costs(0.1, 0.05, row=0.002)
    for best in make_plan(here, 8, assumed()).best:
        assert best_chain(here, [best.alpha] * 8) == (best.k, pytest.approx(best.speedup))


def test_a_chain_is_cut_where_acceptance_falls() -> None:
    assert best_chain(costs(0.1, 0.05), [0.9, 0.9, 0.0, 0.9])[0] == 2
    assert best_chain(costs(0.1, 0.05), []) == (0, 1.0)


def test_break_even_is_where_the_prediction_is_one() -> None:
    here = costs(0.2, 0.1, row=0.002)
    for k, alpha in enumerate(make_plan(here, 16, assumed()).break_even, start=1):
        if alpha is not None:
            assert predicted_speedup(here, alpha, k) == pytest.approx(1, abs=1e-6)
        else:
            assert predicted_speedup(here, 1.0, k) < 1


@pytest.mark.parametrize(
    ("slope", "c", "obstacle"),
    [(0.1, 1.0, "draft is too large"), (0.9, 0.05, "checking a guess takes too long")],
)
def test_the_verdict_names_what_is_in_the_way(slope: float, c: float, obstacle: str) -> None:
    plan = make_plan(costs(slope, c), 16, assumed())
    assert not plan.speculate
    assert plan.verdict.startswith("Do not guess ahead here")
    assert obstacle in plan.verdict


def test_every_alpha_is_answered() -> None:
    plan = make_plan(costs(0.3, 0.3), 8, assumed())
    assert tuple(best.alpha for best in plan.best) == ALPHAS
    assert len(plan.break_even) == 8


def test_a_tree_from_one_pass_pays_by_what_it_brings() -> None:
    here = Costs(
        passes=(1.0, 1.5, 2.0, 2.5), draft_step=0.1, draft_catch_up=0.0, rebuild=0.0, row=0.1
    )
    assert tree_speedup(here, 3, 1.0) == pytest.approx(1.1 / 2.7)
    assert tree_speedup(here, 3, 4.0) == pytest.approx(4 * 1.1 / 3.0)


@given(st.floats(0.0, 2.0), st.floats(0.0, 2.0))
def test_what_was_timed_on_a_busy_machine_gets_no_firm_verdict(slope: float, c: float) -> None:
    disturbed = replace(costs(slope, c), disturbed="other programs used 1.5 of 2 processors")
    verdict = make_plan(disturbed, 8, assumed()).verdict
    assert verdict.startswith("Doubtful")
    assert "1.5 of 2 processors" in verdict
    assert verdict.endswith("Run it again when it is quiet.")
    assert not make_plan(costs(slope, c), 8, assumed()).verdict.startswith("Doubtful")


@given(st.floats(0.0, 2.0), st.floats(0.0, 2.0))
def test_no_share_is_told_where_nothing_is_known(slope: float, c: float) -> None:
    """But that from which on guesses pay, and the best of the table."""
    plan = make_plan(costs(slope, c), 8, None)
    assert (plan.acceptance, plan.expected) == (None, ())
    assert plan.speculate == (plan.best[-1].speedup > defaults.WORTHWHILE_SPEEDUP)
    if plan.speculate:
        (told,) = [word for word in plan.verdict.split() if "%" in word]
        assert told == f"{min(one for one in plan.break_even if one is not None):.0%}"
    else:
        assert plan.verdict.startswith("Do not guess ahead here")
