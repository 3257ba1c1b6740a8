"""What the weigher makes of proposals: simulated texts and costs, no model and no clock."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace

import numpy as np
import pytest

from spec_cpu.costs.costs import Costs
from spec_cpu.cycle.schedule_base import HOPELESS, Outcome
from spec_cpu.cycle.weigh import Weigher
from spec_cpu.draft.tree import ROOT, TokenTree

K = 16
WIDTHS = np.arange(1, K + 2)
CURVES = {
    "linear": WIDTHS.astype(float),
    "stock": np.interp(WIDTHS, [1, 2, 4, 8, 16, 17], [1, 1.9, 3, 5, 9, 9.5]),
    "kernel": np.interp(WIDTHS, [1, 2, 4, 8, 16, 17], [1, 1.25, 1.5, 2, 3.2, 3.4]),
    "flat": 1 + 0.02 * (WIDTHS - 1),
}

Chances = Callable[[np.random.Generator], list[float]]
"""The true chances of a chain that is looked up; none: nothing was found."""


def costs(curve: str, rebuild: float = 0.0, recovery: float = 0.0) -> Costs:
    return Costs(CURVES[curve].tolist(), 0.0, 0.0, rebuild, 0.0, recovery=recovery)


def chain(confidence: list[float]) -> TokenTree:
    return TokenTree([*range(len(confidence))], None, confidence)


def warm(curve: str) -> Weigher:
    """One whose purse is full, and that is used to plain decoding's rate."""
    weigher = Weigher(costs(curve), k_max=K)
    for _ in range(3000):
        weigher.observe(Outcome(0, 0, 0.0, 1.0))
    return weigher


def test_looking_up_is_paid_for_like_anything_else() -> None:
    """It takes 3 % of a plain step here: more than may be lost for nothing."""
    weigher = Weigher(costs("kernel"), k_max=K)
    looked = seconds = 0.0
    for _ in range(1000):
        look = 0.03 if weigher.next_k(99) else 0.0
        looked += look > 0
        weigher.observe(Outcome(0, 0, look, 1.0))
        seconds += 1.0 + look
    assert 1000 / seconds >= 0.98
    assert looked > 200


def play(
    weigher: Weigher,
    true: Costs,
    chances: Chances,
    tokens: int,
    *,
    said: float = 1.0,
    seed: int = 0,
) -> float:
    """Tokens a plain step; the drafter says `said` times the truth."""
    rng = np.random.default_rng(seed)
    seconds, written, last = 0.0, 0, 0
    while written < tokens:
        truth = chances(rng)[: weigher.next_k(100)]
        tree = chain([min(1.0, said * chance) for chance in truth])
        n = weigher.worth(tree)
        hits = rng.random(len(truth)) < truth
        right = len(truth) if hits.all() else int(hits.argmin())
        accepted = min(right, n)
        took = true.passes[n] + (n != last) * true.rebuild
        tried = [(tree.confidence[i], i < right) for i in range(min(len(tree), accepted + 1))]
        weigher.observe(Outcome(n, accepted, 0.0, took, tried))
        took += (n > 0 and last == 0) * true.recovery  # plain steps later on
        seconds, written, last = seconds + took, written + accepted + 1, n
    return written / seconds


def mixed(rng: np.random.Generator) -> list[float]:
    """Sometimes nothing, sometimes a weak match, sometimes a passage that is copied."""
    kind = rng.choice(3, p=[0.5, 0.3, 0.2])
    return [[], [0.3] * 3, [0.95] * K][kind]


def copied(rng: np.random.Generator) -> list[float]:
    return [0.97] * K


def useless(rng: np.random.Generator) -> list[float]:
    return [0.0] * 8


def best_fixed(true: Costs, chances: Chances, tokens: int) -> float:
    """The best of: verify at most k of what is found."""
    rates = []
    for k in range(K + 1):
        rng = np.random.default_rng(0)
        seconds, written = 0.0, 0
        while written < tokens:
            truth = chances(rng)[:k]
            hits = rng.random(len(truth)) < truth
            written += 1 + (len(truth) if hits.all() else int(hits.argmin()))
            seconds += true.passes[len(truth)]
        rates.append(written / seconds)
    return max(rates)


@pytest.mark.parametrize("curve", list(CURVES))
@pytest.mark.parametrize("chances", [mixed, copied, useless])
def test_it_does_as_well_as_the_best_fixed_number(curve: str, chances: Chances) -> None:
    true = costs(curve)
    found = play(Weigher(true, k_max=K), true, chances, 3000)
    assert found >= 0.95 * best_fixed(true, chances, 3000)


@pytest.mark.parametrize("curve", list(CURVES))
@pytest.mark.parametrize("rebuild", [0.0, 0.4])
@pytest.mark.parametrize("recovery", [0.0, 0.5])
@pytest.mark.parametrize("tokens", [256, 600])
def test_it_is_never_slower_than_0_98_of_plain_decoding(
    curve: str, rebuild: float, recovery: float, tokens: int
) -> None:
    """Even if what it is told is always wrong, or turns wrong when it has learnt to trust it."""
    true = costs(curve, rebuild, recovery)
    lies: Chances = lambda rng: [0.001] * 8  # noqa: E731
    assert play(Weigher(true, k_max=K), true, lies, tokens, said=950) >= 0.98
    weigher = Weigher(true, k_max=K)
    good = play(weigher, true, copied, 200)
    bad = play(weigher, true, lies, tokens, said=950)
    assert (200 + tokens) / (200 / good + tokens / bad) >= 0.98


@pytest.mark.parametrize("curve", ["kernel", "flat"])
def test_an_empty_purse_that_fills_again_is_noticed(curve: str) -> None:
    """Though each cycle brings a tree, of which no few nodes are worth what a change takes."""
    true = costs(curve, rebuild=0.3, recovery=0.5)
    weigher = Weigher(true, k_max=K)
    lies: Chances = lambda rng: [0.001] * 8  # noqa: E731
    assert play(weigher, true, lies, 300, said=950) < 1.0
    play(weigher, true, copied, 400)
    assert play(weigher, true, copied, 600) > 0.9 * best_fixed(true, copied, 600)


def test_a_steep_curve_leaves_nothing_a_flat_one_all() -> None:
    assert Weigher(costs("linear"), k_max=K).reason == HOPELESS
    assert warm("linear").worth(chain([1.0] * 12)) == 0
    hopeless = Weigher(Costs([1.0, 2.6, 4.0], 0.0, 0.0, 0.0, 0.0), k_max=2)
    hopeless.observe(Outcome(0, 0, 0.0, 1.0))
    assert hopeless.next_k(9) == 0, "it does not even look"
    tree = chain([0.6] * 12)
    taken = [warm(curve).worth(tree) for curve in ("stock", "kernel", "flat")]
    assert taken == sorted(taken)
    assert taken[0] == 0
    assert taken[-1] >= 6


def test_branches_are_taken_where_they_cost_little() -> None:
    """A star of siblings: each adds its chance, whatever became of the others."""
    star = TokenTree([1, 2, 3, 4], None, [0.4, 0.2, 0.15, 0.1], [ROOT] * 4)
    assert warm("flat").worth(star) == 4
    assert warm("stock").worth(star) == 0
    assert 0 < warm("kernel").worth(TokenTree([1, 2], None, [0.7, 0.25], [ROOT] * 2)) <= 2


def test_more_is_not_drafted_than_the_purse_bears() -> None:
    weigher = Weigher(costs("stock"), k_max=K)
    weigher.observe(Outcome(0, 0, 0.0, 1.0))
    first = weigher.next_k(99)
    assert 0 < first < 6
    for _ in range(50):
        n = weigher.worth(chain([1.0] * weigher.next_k(99)))
        weigher.observe(Outcome(n, n, 0.0, CURVES["stock"][n], [(1.0, True)] * n))
    assert weigher.next_k(99) == K, "it has earned it"
    assert weigher.worth(chain([1.0] * K)) > 2 * first


def test_it_learns_from_what_was_not_verified() -> None:
    """Chances that were said too low would else never be found out."""
    true = costs("kernel")
    assert play(Weigher(true, k_max=K), true, copied, 2000, said=0.2) > 1.8


def test_first_a_pass_to_compare_with_then_room_is_respected() -> None:
    weigher = Weigher(costs("flat"), k_max=K)
    assert weigher.next_k(9) == 0
    weigher.observe(Outcome(0, 0, 0.0, 1.0))
    assert [weigher.next_k(room) for room in (-1, 0, 5, 99)] == [0, 0, 5, K], "flat: it bears all"
    assert weigher.reason is None
    for _ in range(30):
        weigher.observe(Outcome(0, 0, 0.0, 1.0))
    assert weigher.reason == "the text does not repeat itself enough"


def test_what_cannot_be_is_refused() -> None:
    with pytest.raises(ValueError, match="must"):
        Weigher(costs("flat"), k_max=K + 1)
    with pytest.raises(ValueError, match="cannot"):
        Weigher(costs("flat"), k_max=2).observe(Outcome(1, 2, 0.0, 1.0))


def test_it_goes_by_what_passes_cost_with_the_context_there_is() -> None:
    deepens = [0.0, *(0.0015 * n for n in range(1, K + 1))]  # a thousand tokens further none pays
    weigher = Weigher(replace(costs("flat"), deepens=deepens), k_max=K)
    chosen: dict[int, list[int]] = {0: [], 1000: []}
    for depth in (0, 1000, 0, 1000):
        for _ in range(40):
            n = weigher.worth(chain([0.9] * weigher.next_k(99)))
            seconds = CURVES["flat"][n] + depth * deepens[n]
            weigher.observe(Outcome(n, n, 0.0, seconds, [(0.9, True)] * n, depth=depth))
            chosen[depth].append(n)
    assert sum(n > 0 for n in chosen[0]) > 72
    assert sum(n > 0 for n in chosen[1000]) < 8
