"""What is said of a draft whose guesses are too seldom accepted."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from spec_cpu.costs.acceptance import too_few
from spec_cpu.costs.costs import Costs
from spec_cpu.costs.plan import least_acceptance, predicted_speedup


@given(st.floats(0.0, 0.6), st.floats(0.0, 0.5), st.integers(1, 8))
def test_what_is_needed_is_where_drafting_begins_to_pay(slope: float, c: float, most: int) -> None:
    costs = Costs([1.0 + slope * n for n in range(9)], c, 0.0, 0.0, 0.0)
    needed = least_acceptance(costs, most)
    if needed is None:
        assert all(predicted_speedup(costs, 1.0, k) < 1.0 for k in range(1, most + 1))
        return
    best = max(predicted_speedup(costs, needed, k) for k in range(1, most + 1))
    assert best == pytest.approx(1.0, abs=1e-6)


def test_nothing_to_draft_needs_nothing() -> None:
    assert least_acceptance(Costs([1.0, 1.1], 0.0, 0.0, 0.0, 0.0), 0) is None


@given(st.none() | st.floats(0.0, 1.0), st.none() | st.floats(0.0, 1.0))
def test_only_shares_that_are_known_are_told(seen: float | None, needed: float | None) -> None:
    said = too_few(seen, needed)
    known = [f"{share:.0%}" for share in (seen, needed) if share is not None]
    told = [word.strip("(),:") for word in said.split() if "%" in word]
    assert set(told) <= set(known)
    if needed is not None:
        assert told, "something to go by"
