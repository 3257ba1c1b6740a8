"""The formulas: worked values from the literature, and their laws."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from spec_cpu.costs import theory

alphas = st.floats(0, 1)
ks = st.integers(0, 32)
costs = st.floats(0, 3)


@pytest.mark.parametrize(
    ("alpha", "tokens", "speedup"), [(0.75, 3.05, 2.18), (0.9, 4.10, 2.9), (0.5, 1.94, 1.4)]
)
def test_worked_values_at_k_4_and_c_a_tenth(alpha: float, tokens: float, speedup: float) -> None:
    assert theory.expected_tokens(alpha, 4) == pytest.approx(tokens, abs=0.005)
    assert theory.speedup(alpha, 4, 0.1) == pytest.approx(speedup, abs=0.05)


@given(k=ks)
def test_expected_tokens_at_the_ends(k: int) -> None:
    assert theory.expected_tokens(0.0, k) == 1
    assert theory.expected_tokens(1.0, k) == k + 1


@given(alpha=alphas, k=ks)
def test_expected_tokens_is_the_sum_of_powers(alpha: float, k: int) -> None:
    series = sum(alpha**i for i in range(k + 1))
    assert theory.expected_tokens(alpha, k) == pytest.approx(series, rel=1e-9)


@given(alpha=alphas, k=ks)
def test_a_chain_of_equal_acceptance_is_the_closed_form(alpha: float, k: int) -> None:
    tokens = theory.chain_tokens([alpha] * k)
    assert tokens == pytest.approx(theory.expected_tokens(alpha, np.arange(k + 1)), rel=1e-9)


@given(alpha=st.floats(0.999999, 1), k=ks)
def test_expected_tokens_is_stable_near_one(alpha: float, k: int) -> None:
    assert theory.expected_tokens(alpha, k) == pytest.approx(
        sum(alpha**i for i in range(k + 1)), rel=1e-9
    )


def test_expected_tokens_is_the_mean_of_a_simulation() -> None:
    rng = np.random.default_rng(0)
    accepted = rng.random((200_000, 5)) < 0.7
    tokens = accepted.cumprod(axis=1).sum(axis=1) + 1
    assert theory.expected_tokens(0.7, 5) == pytest.approx(tokens.mean(), abs=0.02)


def test_formulas_are_vectorised() -> None:
    alpha = np.array([[0.2], [0.8]])
    k = np.array([1, 4, 8])
    assert theory.expected_tokens(alpha, k).shape == (2, 3)
    assert theory.speedup(alpha, k, 0.1, lambda n: 1 + 0.1 * n).shape == (2, 3)
    assert theory.best_k(alpha, 0.1, 8).shape == (2, 1)
    assert theory.break_even_alpha(k, 0.1).shape == (3,)


@given(alpha=alphas, k=ks, c=costs)
def test_speedup_with_a_free_verification_is_the_textbook(alpha: float, k: int, c: float) -> None:
    free = theory.speedup(alpha, k, c, np.ones_like)
    assert free == theory.speedup(alpha, k, c)


@given(alpha=alphas, c=st.floats(0.01, 3), slope=st.floats(0, 1))
def test_best_k_is_the_best(alpha: float, c: float, slope: float) -> None:
    def verify(n: theory.Array) -> theory.Array:
        return 1 + slope * (n - 1)

    best = int(theory.best_k(alpha, c, 12, verify))
    gains = [1.0] + [float(theory.speedup(alpha, k, c, verify)) for k in range(1, 13)]
    assert gains[best] == pytest.approx(max(gains))


def test_best_k_is_zero_where_nothing_pays() -> None:
    assert theory.best_k(0.9, 1.0, 8, lambda n: n) == 0


@given(k=st.integers(1, 16), c=costs, slope=st.floats(0, 1))
def test_break_even_is_where_the_speedup_is_one(k: int, c: float, slope: float) -> None:
    def verify(n: theory.Array) -> theory.Array:
        return 1 + slope * (n - 1)

    alpha = float(theory.break_even_alpha(k, c, verify))
    if np.isnan(alpha):
        assert theory.speedup(1.0, k, c, verify) < 1
    else:
        assert theory.speedup(alpha, k, c, verify) == pytest.approx(1, abs=1e-6)


@pytest.mark.parametrize(("alpha", "k"), [(-0.1, 1), (1.1, 1), (np.nan, 1), (0.5, -1)])
def test_arguments_out_of_range_are_refused(alpha: float, k: int) -> None:
    with pytest.raises(ValueError, match="must be"):
        theory.expected_tokens(alpha, k)


def test_tokens_seen_are_those_expected_of_a_chain_where_positions_are_independent() -> None:
    """Of what was tried the chances add up, whatever the shape; here with every position alike."""
    rng = np.random.default_rng(0)
    alpha, k, cycles = 0.7, 4, 50_000
    hits = rng.random((cycles, k)) < alpha
    tried = np.minimum(hits.cumprod(axis=1).sum(axis=1) + 1, k)
    seen = theory.expected_tokens_seen(alpha * tried.sum(), cycles)
    assert seen == pytest.approx(theory.expected_tokens(alpha, k), rel=0.01)
