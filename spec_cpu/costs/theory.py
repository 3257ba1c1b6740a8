"""The formulas of speculative decoding. Pure, and vectorised over every argument.

Notation: alpha, the chance that a drafted token is accepted; k, drafted tokens a cycle; c, a
draft step in plain target steps; V(n), a target pass over n tokens in plain target steps.
Sources: Leviathan et al. 2023, "Fast Inference from Transformers via Speculative Decoding", section
3; Chen et al. 2023, "Accelerating Large Language Model Decoding with Speculative Sampling". Both
take V = 1.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence

import numpy as np
from numpy.typing import ArrayLike, NDArray

Array = NDArray[np.float64]
VerifyCost = Callable[[Array], ArrayLike]
"""V: the number of tokens in a target pass to its cost in plain steps."""


def expected_tokens(alpha: ArrayLike, k: ArrayLike) -> Array:
    """E = (1 - alpha^(k+1)) / (1 - alpha): tokens a cycle, the correction or bonus included.

    Leviathan et al., equation 1. It is 1 at alpha = 0 and k + 1 at alpha = 1.

    Raises:
        ValueError: alpha outside 0 .. 1, or a negative k.
    """
    alpha, k = np.asarray(alpha, np.float64), np.asarray(k, np.float64)
    _check(alpha, k)
    gap = 1.0 - alpha
    sure = gap < 1e-12
    return np.where(sure, k + 1.0, -np.expm1((k + 1.0) * _log(alpha)) / np.where(sure, 1.0, gap))


def chain_tokens(alphas: Sequence[float]) -> Array:
    """E for k = 0 .. K drafted tokens where acceptance differs by position.

    Args:
        alphas: K chances of acceptance, each given that the position before was accepted.

    Returns:
        (K + 1,): 1 + the sum of the chances that positions are reached and accepted. For equal
        alphas it is `expected_tokens`.
    """
    return np.cumsum([1.0, *np.cumprod(np.asarray(alphas, np.float64))])


def expected_tokens_seen(overlap: ArrayLike, cycles: ArrayLike) -> Array:
    """Tokens a cycle, whatever was drafted: 1 + what was to be expected of the positions tried.

    A position is tried if all before it were accepted, so that the chances of an acceptance at
    those tried add up to the accepted tokens in expectation, of a tree as of a chain.

    Args:
        overlap: the sum over all positions tried of the chance that a token is accepted there.
        cycles: in how many cycles, 1 or more.
    """
    return np.asarray(1.0 + np.asarray(overlap, np.float64) / np.asarray(cycles, np.float64))


def cycle_cost(
    k: ArrayLike, c: ArrayLike, verify: VerifyCost | None = None, overhead: ArrayLike = 0.0
) -> Array:
    """V(k+1) + k c + overhead: a cycle's cost in plain target steps; V = 1 without `verify`."""
    k = np.asarray(k, np.float64)
    pass_cost = np.asarray(1.0 if verify is None else verify(k + 1.0), np.float64)
    return np.asarray(pass_cost + k * np.asarray(c, np.float64) + np.asarray(overhead, np.float64))


def speedup(
    alpha: ArrayLike,
    k: ArrayLike,
    c: ArrayLike,
    verify: VerifyCost | None = None,
    overhead: ArrayLike = 0.0,
) -> Array:
    """E / (V(k+1) + k c + overhead): tokens a plain step's time, against one.

    Without `verify` and `overhead` this is the textbook's E / (1 + k c) (Leviathan et al., theorem
    3.8), which takes a pass over k + 1 tokens to cost what a pass over one does.
    """
    return expected_tokens(alpha, k) / cycle_cost(k, c, verify, overhead)


def best_k(
    alpha: ArrayLike,
    c: ArrayLike,
    k_max: int,
    verify: VerifyCost | None = None,
    overhead: ArrayLike = 0.0,
) -> NDArray[np.int64]:
    """The k in 0 .. `k_max` with the highest speedup; 0 where speculation does not pay.

    Plain decoding (k = 0) pays no overhead, so its speedup is 1.
    """
    alpha, c, overhead = (np.asarray(x, np.float64)[..., None] for x in (alpha, c, overhead))
    ks = np.arange(1, k_max + 1, dtype=np.float64)
    gains = speedup(alpha, ks, c, verify, overhead)
    plain = np.ones((*gains.shape[:-1], 1))
    best: NDArray[np.int64] = np.concatenate([plain, gains], axis=-1).argmax(axis=-1)
    return best


def break_even_alpha(
    k: ArrayLike, c: ArrayLike, verify: VerifyCost | None = None, overhead: ArrayLike = 0.0
) -> Array:
    """The alpha at which k drafted tokens a cycle cost what they bring; nan where none does.

    E grows with alpha, so the crossing is unique; found by bisection to 1e-12.
    """
    k = np.asarray(k, np.float64)
    cost = cycle_cost(k, c, verify, overhead)
    k = np.broadcast_to(k, cost.shape)
    low, high = np.zeros(cost.shape), np.ones(cost.shape)
    for _ in range(40):
        middle = (low + high) / 2
        enough = expected_tokens(middle, k) >= cost
        low, high = np.where(enough, low, middle), np.where(enough, middle, high)
    return np.where(cost > k + 1.0, np.nan, high)


def _log(alpha: Array) -> Array:
    with np.errstate(divide="ignore"):
        return np.log(alpha)


def _check(alpha: Array, k: Array) -> None:
    if not ((alpha >= 0) & (alpha <= 1)).all():
        raise ValueError(f"alpha must be from 0 to 1, not {alpha}")
    if not (k >= 0).all():
        raise ValueError(f"k must be 0 or more, not {k}")
