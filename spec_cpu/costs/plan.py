"""Does speculation pay on this machine? The answer of the formulas to measured costs."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace

import numpy as np

from spec_cpu import defaults
from spec_cpu.costs import theory
from spec_cpu.costs.acceptance import Acceptance
from spec_cpu.costs.costs import Costs

ALPHAS = (0.3, 0.4, 0.5, 0.6, 0.7, 0.8, 0.9, 0.95)
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
        costs: without passes that are wider than k allows.
        break_even: for k = 1, 2, ... the alpha from which drafting k tokens pays; None: from none.
        best: for each of `ALPHAS`.
        acceptance: what is to be expected of the draft; None: nothing is known of it.
        expected: the best for its low, likely and high rate; nothing where that is not known.
        speculate: does the likely rate pay? Of guesses of which nothing is known: does any?
        verdict: the same in a sentence, with k, or with what is in the way; only that it is
            doubtful where the machine was busy while it was timed.
    """

    costs: Costs
    break_even: tuple[float | None, ...]
    best: tuple[Best, ...]
    acceptance: Acceptance | None
    expected: tuple[()] | tuple[Best, Best, Best]
    speculate: bool
    verdict: str


def make_plan(costs: Costs, k_max: int, acceptance: Acceptance | None) -> Plan:
    """Work out what `costs` mean for k up to `k_max` (passes over k_max + 1 tokens are known).

    Args:
        acceptance: what is to be expected of the draft; None: nothing is known of it.
    """
    n = k_max + 1
    costs = replace(costs, passes=costs.passes[:n], deepens=costs.deepens[:n])
    ks = np.arange(1, n)
    c, verify, first = _in_plain_steps(costs)
    break_even = tuple(
        None if np.isnan(alpha) else float(alpha)
        for alpha in theory.break_even_alpha(ks, c, verify, first)
    )
    best = tuple(_best(costs, alpha, k_max) for alpha in ALPHAS)
    if acceptance is None:
        worthwhile = best[-1].speedup > defaults.WORTHWHILE_SPEEDUP
        verdict = _verdict(costs, break_even, best)
        return Plan(costs, break_even, best, None, (), worthwhile, verdict)
    low, likely, high = (
        _best(costs, alpha, k_max) for alpha in (acceptance.low, acceptance.likely, acceptance.high)
    )
    return Plan(
        costs,
        break_even,
        best,
        acceptance,
        (low, likely, high),
        likely.speedup > defaults.WORTHWHILE_SPEEDUP,
        _verdict(costs, break_even, best, (low, likely, high)),
    )


def least_acceptance(costs: Costs, k_max: int) -> float | None:
    """The alpha from which drafting some k of 1 .. `k_max` tokens pays; None: from none."""
    c, verify, first = _in_plain_steps(costs)
    alphas = theory.break_even_alpha(np.arange(1, k_max + 1), c, verify, first)
    return None if np.isnan(alphas).all() else float(np.nanmin(alphas))


def predicted_speedup(costs: Costs, alpha: float, k: int) -> float:
    """The speedup of drafting k tokens a cycle, from V, c and the overhead as measured."""
    c, verify, first = _in_plain_steps(costs)
    return float(theory.speedup(alpha, k, c, verify, first))


def best_chain(costs: Costs, alphas: Sequence[float]) -> tuple[int, float]:
    """The best k up to len(alphas) and its speedup, where acceptance differs by position.

    Args:
        alphas: of each position, given that the one before was accepted.

    Returns:
        k and the speedup; 0 and 1.0 where drafting does not pay.
    """
    c, verify, first = _in_plain_steps(costs)
    ks = np.arange(1, len(alphas) + 1)
    gains = theory.chain_tokens(alphas)[1:] / theory.cycle_cost(ks, c, verify, first)
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


def _in_plain_steps(costs: Costs) -> tuple[float, theory.VerifyCost, float]:
    """c, V and what a cycle's first draft step takes more, in plain steps.

    All of them include the sampling of their rows.
    """
    plain = costs.passes[0] + costs.row
    seconds = [passed + n * costs.row for n, passed in enumerate(costs.passes, start=1)]
    widths = np.arange(1, len(seconds) + 1)
    first = costs.draft_catch_up / plain
    return costs.draft_step / plain, lambda n: np.interp(n, widths, seconds) / plain, first


def _best(costs: Costs, alpha: float, k_max: int) -> Best:
    c, verify, first = _in_plain_steps(costs)
    k = int(theory.best_k(alpha, c, k_max, verify, first))
    return Best(alpha, k, float(theory.speedup(alpha, k, c, verify, first)) if k else 1.0)


def _verdict(
    costs: Costs,
    break_even: tuple[float | None, ...],
    best: tuple[Best, ...],
    expected: tuple[Best, Best, Best] | None = None,
) -> str:
    if costs.disturbed:
        return (
            f"Doubtful: measured while this machine was busy ({costs.disturbed}). Run it again "
            "when it is quiet."
        )
    pays = [alpha for alpha in break_even if alpha is not None]
    if expected and expected[1].speedup > defaults.WORTHWHILE_SPEEDUP:
        low, likely, high = expected
        return (
            f"Guess ahead, {_tokens(likely.k)} a step: if {likely.alpha:.0%} of the guesses are "
            f"accepted that brings {likely.speedup:.2f}x ({low.speedup:.2f}x to "
            f"{high.speedup:.2f}x), and it pays once {min(pays):.0%} are."
        )
    obstacle = (
        f"the draft is too large (a guess takes {costs.c:.2f} of a step without guessing)"
        if costs.c > _LARGE_DRAFT
        else f"checking a guess takes too long ({costs.verify(2):.2f} steps without guessing)"
    )
    if not pays:
        return f"Do not guess ahead here: no draft pays, because {obstacle}."
    top = best[-1]
    if (expected[2] if expected else top).speedup > defaults.WORTHWHILE_SPEEDUP:
        said = (
            f"and {expected[0].alpha:.0%} to {expected[2].alpha:.0%} are expected"
            if expected
            else "and how many will be is not known"
        )
        return (
            f"It depends on the text: it pays once {min(pays):.0%} of the guesses are "
            f"accepted, {said}. With the number chosen at each step, as it is without -k, little "
            "is lost where they are not."
        )
    gain = f"{top.speedup:.2f}x at {top.alpha:.0%}, {_tokens(top.k)} a step" if top.k else ""
    start = f"it pays only once {min(pays):.0%} of the guesses are accepted"
    return f"Do not guess ahead here: {start}{f' ({gain})' if gain else ''}, because {obstacle}."


def _tokens(n: int) -> str:
    return f"{n} token{'s' if n > 1 else ''}"
