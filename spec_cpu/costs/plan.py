"""Does speculation pay on this machine? The answer of the formulas to measured costs."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from spec_cpu import defaults
from spec_cpu.costs import theory
from spec_cpu.costs.costs import Costs

ALPHAS = (0.3, 0.4, 0.5, 0.6, 0.7, 0.8, 0.9, 0.95)
GOOD_ALPHA = 0.8  # what a draft of the same family reaches on common text
_LARGE_DRAFT = 0.3  # c from which the draft is what is in the way


@dataclass(frozen=True, slots=True)
class Best:
    """The best k for an acceptance rate, and the speedup it should bring."""

    alpha: float
    k: int
    speedup: float


@dataclass(frozen=True, slots=True)
class Plan:
    """What the costs come to.

    Attributes:
        break_even: for k = 1, 2, ... the alpha from which drafting k tokens pays; None: from none.
        best: for each of `ALPHAS`.
        speculate: does a good draft (alpha `GOOD_ALPHA`) pay?
        verdict: the same in a sentence, with k, or with what is in the way.
    """

    costs: Costs
    break_even: tuple[float | None, ...]
    best: tuple[Best, ...]
    speculate: bool
    verdict: str


def make_plan(costs: Costs, k_max: int) -> Plan:
    """Work out what `costs` mean for k up to `k_max` (passes over k_max + 1 tokens are known)."""
    ks = np.arange(1, k_max + 1)
    c, verify = _in_plain_steps(costs)
    alphas = theory.break_even_alpha(ks, c, verify)
    best = tuple(_best(alpha, k_max, c, verify) for alpha in ALPHAS)
    good = next(one for one in best if one.alpha == GOOD_ALPHA)
    break_even = tuple(None if np.isnan(alpha) else float(alpha) for alpha in alphas)
    return Plan(
        costs,
        break_even,
        best,
        good.speedup > defaults.WORTHWHILE_SPEEDUP,
        _verdict(costs, break_even, best, good),
    )


def predicted_speedup(costs: Costs, alpha: float, k: int) -> float:
    """The speedup of drafting k tokens a cycle, from V, c and the overhead as measured."""
    c, verify = _in_plain_steps(costs)
    return float(theory.speedup(alpha, k, c, verify))


def best_chain(costs: Costs, alphas: Sequence[float]) -> tuple[int, float]:
    """The best k up to len(alphas) and its speedup, where acceptance differs by position.

    Args:
        alphas: of each position, given that the one before was accepted.

    Returns:
        k and the speedup; 0 and 1.0 where drafting does not pay.
    """
    c, verify = _in_plain_steps(costs)
    ks = np.arange(1, len(alphas) + 1)
    overhead = costs.draft_catch_up / (costs.passes[0] + costs.row)
    gains = theory.chain_tokens(alphas)[1:] / theory.cycle_cost(ks, c, verify, overhead)
    speedups = [1.0, *gains.tolist()]
    k = int(np.argmax(speedups))
    return k, speedups[k]


def tree_speedup(costs: Costs, nodes: int, tokens: float) -> float:
    """The speedup of trees of `nodes` nodes, each of which one pass of the draft makes.

    Args:
        tokens: tokens that a cycle brings; as many rows are sampled from.
    """
    seconds = costs.passes[nodes] + costs.draft_step + tokens * costs.row
    return tokens * (costs.passes[0] + costs.row) / seconds


def _in_plain_steps(costs: Costs) -> tuple[float, theory.VerifyCost]:
    """c and V in plain steps; all of them include the sampling of their rows."""
    plain = costs.passes[0] + costs.row
    seconds = [passed + n * costs.row for n, passed in enumerate(costs.passes, start=1)]
    widths = np.arange(1, len(seconds) + 1)
    return costs.draft_step / plain, lambda n: np.interp(n, widths, seconds) / plain


def _best(alpha: float, k_max: int, c: float, verify: theory.VerifyCost) -> Best:
    k = int(theory.best_k(alpha, c, k_max, verify))
    return Best(alpha, k, float(theory.speedup(alpha, k, c, verify)) if k else 1.0)


def _verdict(
    costs: Costs, break_even: tuple[float | None, ...], best: tuple[Best, ...], good: Best
) -> str:
    pays = [alpha for alpha in break_even if alpha is not None]
    if good.speedup > defaults.WORTHWHILE_SPEEDUP:
        return (
            f"Speculate, with k = {good.k}: a draft that is right {GOOD_ALPHA:.0%} of the time "
            f"brings {good.speedup:.2f}x, and it pays once {min(pays):.0%} are accepted."
        )
    obstacle = (
        f"the draft is too large (a step of it costs {costs.c:.2f} plain steps)"
        if costs.c > _LARGE_DRAFT
        else f"verifying costs too much (a pass over 2 tokens: {costs.verify(2):.2f} plain steps)"
    )
    if not pays:
        return f"Do not speculate here: no draft pays, because {obstacle}."
    top = best[-1]
    gain = f"at {top.alpha:.0%} k = {top.k} would bring {top.speedup:.2f}x" if top.k else ""
    start = f"it pays only once {min(pays):.0%} of the drafted tokens are accepted"
    return f"Do not speculate here: {start}{f' ({gain})' if gain else ''}, because {obstacle}."
