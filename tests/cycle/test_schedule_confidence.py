"""Blocks that are cut short by how sure the draft is."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
import pytest
from simulated import K, costs

from spec_cpu.cycle.schedule import Scheduler
from spec_cpu.cycle.schedule_base import Outcome


def tried(confidences: Sequence[float], accepted: int) -> list[tuple[float, bool]]:
    return [(x, i < accepted) for i, x in enumerate(confidences[: accepted + 1])]


def warm(rebuild: float, c: float = 0.3, cycles: int = 60) -> tuple[Scheduler, int]:
    """A scheduler that holds a width, where tokens are accepted as their confidence says."""
    true = costs("kernel", c, rebuild)
    scheduler = Scheduler(true, k_max=K)
    rng = np.random.default_rng(5)
    k = 0
    for _ in range(cycles):
        k = scheduler.next_k(100)
        confidences = [float(x) for x in rng.choice([0.6, 0.97], k, p=[0.2, 0.8])]
        misses = rng.random(k) >= confidences
        accepted = int(misses.argmax()) if misses.any() else k
        scheduler.observe(Outcome(k, accepted, c * k, true.passes[k], tried(confidences, accepted)))
    return scheduler, scheduler.next_k(100)


def test_confidence_cuts_a_block_short_where_another_step_does_not_pay() -> None:
    scheduler, k = warm(rebuild=0.0)
    assert k >= 3
    assert scheduler.worth_another(1, 0.95, 0.95)
    assert not scheduler.worth_another(1, 0.3, 0.1)
    assert not scheduler.worth_another(k, 1.0, 1.0)


def test_a_dear_rebuild_keeps_a_block_whole() -> None:
    scheduler, k = warm(rebuild=0.6, c=0.02)
    assert k >= 3
    assert scheduler.worth_another(1, 0.3, 0.1)


def test_more_reach_and_more_confidence_never_make_a_token_less_worth() -> None:
    scheduler, k = warm(rebuild=0.02)
    grid = np.linspace(0, 1, 9)
    for drafted in range(1, k):
        worth = np.array([[scheduler.worth_another(drafted, r, x) for x in grid] for r in grid])
        assert (np.diff(worth.astype(int), axis=0) >= 0).all()


def test_confidence_is_calibrated_by_the_record() -> None:
    scheduler = Scheduler(costs("flat", 0.02), k_max=K)
    assert scheduler.acceptance(0.9) == pytest.approx(0.9)
    for _ in range(100):
        scheduler.observe(Outcome(1, 0, 0.02, 1.06, [(0.9, False)]))
        scheduler.observe(Outcome(1, 1, 0.02, 1.06, [(0.3, True)]))
    assert scheduler.acceptance(0.9) < 0.1
    assert scheduler.acceptance(0.3) > 0.9
    assert scheduler.acceptance(0.6) == pytest.approx(0.5, abs=0.1), "what is usual, unless known"


@pytest.mark.parametrize("c", [0.1, 0.3])
def test_cutting_by_confidence_brings_more_than_it_costs(c: float) -> None:
    """Without rebuilds, on tokens that are accepted as often as the draft is sure of them."""
    results = {cut: np.mean([_cutting(c, seed, cut) for seed in range(3)]) for cut in (True, False)}
    assert results[True] >= 1.03 * results[False]


def _cutting(c: float, seed: int, cut: bool) -> float:
    true = costs("kernel", c, rebuild=0.0)
    rng = np.random.default_rng(seed)
    sure = rng.choice([0.2, 0.97], 2020, p=[0.25, 0.75])
    accepted_at = rng.random(2020) < sure
    scheduler = Scheduler(true, k_max=K)
    t = 0
    seconds = 0.0
    while t < 2000:
        k = scheduler.next_k(2000 - t)
        drafted, reach = 0, 1.0
        while drafted < k:
            confidence = float(sure[t + drafted])
            if cut and not scheduler.worth_another(drafted, reach, confidence):
                break
            reach *= scheduler.acceptance(confidence)
            drafted += 1
        block = accepted_at[t : t + drafted]
        accepted = drafted if block.all() else int(block.argmin())
        confidences = [float(x) for x in sure[t : t + drafted]]
        known = tried(confidences, accepted)
        scheduler.observe(Outcome(drafted, accepted, c * drafted, true.passes[drafted], known))
        seconds += true.cycle(drafted, changed=False)
        t += accepted + 1
    return t / seconds
