"""The scheduler's laws, on simulated texts and a simulated engine: see `simulated`."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace

import numpy as np
import pytest
from simulated import (
    CURVES,
    Accepts,
    K,
    busy,
    changes,
    costs,
    decode,
    follows,
    oracle,
    play,
    steady_texts,
    text,
    throughput,
)

from spec_cpu.costs.costs import Costs
from spec_cpu.cycle.pinned import Pinned
from spec_cpu.cycle.schedule import Scheduler
from spec_cpu.cycle.schedule_base import Outcome

ALPHAS = (0.1, 0.3, 0.5, 0.7, 0.8, 0.9, 0.95)


@pytest.mark.slow
@pytest.mark.parametrize("c", [0.02, 0.1, 0.3, 1.0])
@pytest.mark.parametrize("curve", list(CURVES))
def test_after_200_tokens_it_is_within_5_percent_of_the_best_fixed_k(curve: str, c: float) -> None:
    true = costs(curve, c)
    for alpha in ALPHAS:
        texts = steady_texts(alpha)
        runs = [decode(true, follows(lengths), 500) for lengths in texts]
        best = oracle(true, texts, 500, 200)
        found = np.mean([throughput(run, 200) for run in runs])
        overall = np.mean([throughput(run) for run in runs])
        # A rejected block costs a stock pass so much that the purse may be empty after bad luck,
        # and then it takes longer to get to a small gain.
        least = 0.9 if curve == "stock" and alpha >= 0.9 else 0.95
        told = f"{curve} c={c} alpha={alpha}: {found:.3f}, overall {overall:.3f}, best {best:.3f}"
        print(told)
        assert found >= least * best, told
        assert overall >= 0.98, told


def good_bad_good(good: int, bad: int) -> list[float]:
    return [0.93] * good + [0.02] * bad + [0.93] * 600


@pytest.mark.parametrize(("curve", "c"), [("kernel", 0.1), ("kernel", 0.3), ("flat", 0.3)])
@pytest.mark.parametrize("seed", range(4))
def test_it_stops_drafting_within_40_tokens_of_a_change_of_domain(
    curve: str, c: float, seed: int
) -> None:
    run = decode(costs(curve, c), follows(text(good_bad_good(200, 200), seed)), 400)
    position = np.cumsum(run[:, 0])
    assert run[position <= 200, 2].max() >= 3
    off = position[(position > 200) & (run[:, 2] == 0)]
    assert off[0] <= 240


@pytest.mark.parametrize(("curve", "c"), [("kernel", 0.1), ("kernel", 0.3), ("flat", 0.3)])
@pytest.mark.parametrize("seed", range(4))
def test_it_drafts_again_within_300_tokens_of_a_change_back(
    curve: str, c: float, seed: int
) -> None:
    true = costs(curve, c)
    lengths = text(good_bad_good(200, 200), seed)
    run = decode(true, follows(lengths), 960)
    assert throughput(run, 700) > 0.9 * oracle(true, [lengths], 960, 700)


def collapsing(t: int, k: int, cycle: int) -> int:
    """Good for 12 cycles, then bad for 12."""
    return k if (cycle // 12) % 2 else 0


def tempting() -> Accepts:
    """Accepts 4 blocks, rejects 5, counting only those drafted."""
    count = 0

    def accepts(t: int, k: int, cycle: int) -> int:
        nonlocal count
        count += k > 0
        return k if count % 9 < 4 else 0

    return accepts


ADVERSARIES: dict[str, Callable[[], Accepts]] = {
    "rejects all": lambda: lambda t, k, cycle: 0,
    "alternates": lambda: collapsing,
    "tempts": tempting,
    "rejects what is long": lambda: lambda t, k, cycle: k if k <= 2 else 0,
    "accepts one of many": lambda: lambda t, k, cycle: min(k, 1) * (k > 1),
}


@pytest.mark.parametrize("adversary", list(ADVERSARIES))
@pytest.mark.parametrize("curve", list(CURVES))
def test_it_is_never_slower_than_0_98_of_plain_decoding(curve: str, adversary: str) -> None:
    for c, rebuild in ((0.02, 0.0), (0.02, 0.5), (0.1, 0.1), (0.3, 0.0), (0.3, 0.5), (1.0, 0.1)):
        for recovery in (0.0, 0.5):
            true = costs(curve, c, rebuild, draft_read=0.002, recovery=recovery)
            for tokens in (256, 500):
                run = decode(true, ADVERSARIES[adversary](), tokens)
                assert throughput(run) >= 0.98, (c, rebuild, recovery, tokens)


@pytest.mark.parametrize("seed", range(3))
@pytest.mark.parametrize("curve", ["stock", "kernel"])
def test_nor_is_it_where_another_program_disturbs_its_measurements(curve: str, seed: int) -> None:
    for adversary in ADVERSARIES.values():
        run = decode(costs(curve, 0.1), adversary(), 600, busy(seed))
        assert throughput(run) >= 0.97


@pytest.mark.parametrize("curve", ["kernel", "stock"])
def test_probes_of_a_hopeless_draft_cost_1_percent(curve: str) -> None:
    run = decode(costs(curve, 0.1, draft_read=0.001), lambda t, k, cycle: 0, 2000)
    later = np.cumsum(run[:, 0]) > 300
    assert run[later, 2].any()
    assert throughput(run, 300) >= 1 / 1.011


def test_a_draft_too_far_behind_to_catch_up_for_1_percent_is_not_probed() -> None:
    run = decode(costs("kernel", 0.1, draft_read=0.05), lambda t, k, cycle: 0, 1000)
    assert not run[np.cumsum(run[:, 0]) > 100, 2].any()
    window = decode(
        costs("kernel", 0.1, draft_read=0.05, draft_window=8), lambda t, k, cycle: 0, 1000
    )
    assert window[np.cumsum(window[:, 0]) > 100, 2].any()


@pytest.mark.parametrize(("curve", "c", "alpha"), [("flat", 0.1, 0.8), ("kernel", 0.1, 0.8)])
@pytest.mark.parametrize("seed", range(3))
def test_another_programs_noise_does_not_flip_the_width(
    curve: str, c: float, alpha: float, seed: int
) -> None:
    true = costs(curve, c)
    lengths = text([alpha] * 1020, seed)
    quiet = decode(true, follows(lengths), 1000)
    noisy = decode(true, follows(lengths), 1000, busy(seed))
    assert changes(noisy) <= 25
    assert throughput(noisy) >= 0.95 * throughput(quiet)


@pytest.mark.parametrize("curve", ["flat", "kernel"])
def test_a_slow_down_of_everything_changes_next_to_no_choice(curve: str) -> None:
    true = costs(curve, 0.1)
    lengths = text([0.8] * 620, 1)
    steady = decode(true, follows(lengths), 600)
    slowed = decode(true, follows(lengths), 600, lambda i: (2.0, 2.0) if i > 20 else (1.0, 1.0))
    assert throughput(slowed) == pytest.approx(throughput(steady), rel=0.02)
    assert changes(slowed) <= changes(steady) + 4


def test_the_unit_of_time_changes_no_choice() -> None:
    lengths = text([0.8] * 320, 2)
    true = costs("kernel", 0.1)
    small = Costs([x / 1024 for x in true.passes], 0.1 / 1024, 0.0, 0.1 / 1024, 0.0)
    a = decode(true, follows(lengths), 300)
    b = decode(small, follows(lengths), 300)
    assert (a[:, 2] == b[:, 2]).all()


@pytest.mark.parametrize("scale", [0.75, 1.3])
def test_costs_given_30_percent_wrong_cost_little(scale: float) -> None:
    true = costs("kernel", 0.1)
    wrong = [1.0, *(max(1.0, scale * x) for x in true.passes[1:])]
    given = Costs(wrong, 0.1, 0.0, 0.1, 0.0)
    texts = [text([0.7] * 620, seed) for seed in range(4)]
    runs = [play(Scheduler(given, k_max=K), true, follows(t), 600) for t in texts]
    found = np.mean([throughput(run, 200) for run in runs])
    assert found >= 0.93 * oracle(true, texts, 600, 200)


def test_a_dear_rebuild_holds_the_width() -> None:
    lengths = text([0.75] * 820, 3)
    free = decode(costs("kernel", 0.05, rebuild=0.0), follows(lengths), 800)
    dear = decode(costs("kernel", 0.05, rebuild=1.0), follows(lengths), 800)
    assert changes(dear) <= 12
    assert changes(dear) <= changes(free)


@pytest.mark.parametrize("pinned", [0, 1, 5, 8])
def test_pinned_is_pinned(pinned: int) -> None:
    scheduler = Pinned(pinned)
    for _ in range(50):
        assert scheduler.next_k(100) == pinned
        assert scheduler.next_k(3) == min(pinned, 3)
        assert scheduler.worth_another(min(pinned, 3) - 1, 0.0, 0.0)
        scheduler.observe(Outcome(pinned, 0, 1.0, 1.0))
    assert scheduler.reason is None


def test_room_is_respected() -> None:
    scheduler = Scheduler(costs("flat", 0.02), k_max=K)
    rng = np.random.default_rng(0)
    for _ in range(300):
        room = int(rng.integers(-1, 12))
        k = scheduler.next_k(room)
        assert 0 <= k <= max(0, min(room, K))
        scheduler.observe(Outcome(k, k, 0.02 * k, CURVES["flat"][k]))


def test_it_is_deterministic() -> None:
    lengths = text([0.6] * 420, 4)
    runs = [decode(costs("kernel", 0.1), follows(lengths), 400, busy(4)) for _ in range(2)]
    assert (runs[0] == runs[1]).all()


def test_correlated_acceptance_is_not_taken_for_powers_of_alpha() -> None:
    """All or nothing, each half of the time: alpha^i would stop at k = 2."""
    true = costs("kernel", 0.02)
    run = decode(true, lambda t, k, cycle: k if cycle % 2 else 0, 600)
    assert np.median(run[np.cumsum(run[:, 0]) > 300, 2]) >= 7


def test_the_reason_says_why_it_is_off() -> None:
    hopeless = Scheduler(costs("linear", 0.1), k_max=K)
    play(hopeless, costs("linear", 0.1), lambda t, k, cycle: 0, 20)
    assert hopeless.reason is not None
    assert "even if every token were accepted" in hopeless.reason
    bad = Scheduler(costs("kernel", 0.1), k_max=K)
    play(bad, costs("kernel", 0.1), lambda t, k, cycle: 0, 60)
    assert bad.reason is not None
    assert "too few tokens are accepted" in bad.reason
    good = Scheduler(costs("kernel", 0.1), k_max=K)
    play(good, costs("kernel", 0.1), lambda t, k, cycle: k, 60)
    assert good.reason is None


def test_repeatable_choices_do_not_depend_on_time() -> None:
    quick, slow = (Scheduler(costs("stock", 0.1), k_max=K, repeatable=True) for _ in range(2))
    rng = np.random.default_rng(0)
    for _ in range(200):
        k = quick.next_k(100)
        assert slow.next_k(100) == k
        accepted = int(rng.integers(0, k + 1))
        quick.observe(Outcome(k, accepted, 0.1 * k, 1.0))
        slow.observe(Outcome(k, accepted, 9.0 * k, float(rng.random()) + 0.1))


@pytest.mark.parametrize(
    "build",
    [
        lambda: Costs([], 0.1, 0.0, 0.0, 0.0),
        lambda: Costs([2.0, 1.0], 0.1, 0.0, 0.0, 0.0),
        lambda: Costs([1.0, 2.0], -0.1, 0.0, 0.0, 0.0),
        lambda: Scheduler(costs("flat", 0.1), k_max=-1),
        lambda: Scheduler(costs("flat", 0.1), k_max=9),
        lambda: Scheduler(costs("flat", 0.1), k_max=2).observe(Outcome(1, 2, 0.1, 1.0)),
        lambda: Scheduler(costs("flat", 0.1), k_max=2).observe(Outcome(3, 2, 0.1, 1.0)),
    ],
)
def test_what_cannot_be_is_refused(build: Callable[[], object]) -> None:
    with pytest.raises(ValueError, match=r"must|cannot"):
        build()


def test_it_goes_by_what_passes_cost_with_the_context_there_is() -> None:
    flat = costs("flat", 0.02)
    deepens = [0.0, *(0.0015 * n for n in range(1, K + 1))]  # a thousand tokens further none pays
    scheduler = Scheduler(replace(flat, deepens=deepens), k_max=K)
    chosen: dict[int, list[int]] = {0: [], 1000: []}
    for depth in (0, 1000, 0, 1000):
        for _ in range(40):
            k = scheduler.next_k(99)
            seconds = flat.passes[k] + depth * deepens[k]
            scheduler.observe(Outcome(k, k, 0.02 * k, seconds, [(0.9, True)] * k, depth=depth))
            chosen[depth].append(k)
    assert np.mean(np.array(chosen[0]) > 0) > 0.8
    assert np.mean(np.array(chosen[1000]) > 0) < 0.1


def test_what_was_gained_is_not_all_lost() -> None:
    """A draft that was always right, and is always wrong from then on."""
    true = costs("kernel", 0.1)
    run = decode(true, lambda t, k, _: k if t < 2000 else 0, 4000)
    late = run[run[:, 0].cumsum() > 2000]
    assert late[:, 1].sum() - late[:, 0].sum() < 100 + 2.5 + 0.01 * 2000 + 5
