"""Simulated texts and a simulated engine for a scheduler: no model, no clock.

A text says at each token how many drafted ones in a row would be accepted there. Acceptance depends
on the token, is correlated from token to token, and falls a little with depth. The engine charges
the true costs, in plain steps; what the scheduler is shown of them may be noisy. Throughput is
tokens a plain step, by the true costs: plain decoding's is 1.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from functools import lru_cache
from math import erf, exp, sqrt

import numpy as np
from numpy.typing import NDArray

from spec_cpu.costs.costs import Costs
from spec_cpu.cycle.schedule import Scheduler
from spec_cpu.cycle.schedule_base import Outcome

K = 8
WIDTHS = np.arange(1, K + 2)
CURVES = {
    "linear": WIDTHS.astype(float),
    "stock": np.interp(WIDTHS, [1, 2, 4, 8, 9], [1, 1.9, 3, 5, 5.5]),
    "kernel": np.interp(WIDTHS, [1, 2, 4, 8, 9], [1, 1.25, 1.5, 2, 2.2]),
    "flat": 1 + 0.4 * (WIDTHS - 1) / 7,
}

Run = NDArray[np.float64]
"""A row a cycle: tokens, seconds, drafted, accepted."""
Accepts = Callable[[int, int, int], int]
"""(position in the text, drafted, number of the cycle) to accepted."""
Noise = Callable[[int], tuple[float, float]]
"""The number of a cycle to the factors on the draft's and the target's time that are shown."""


def costs(curve: str, c: float, rebuild: float = 0.1, **more: float) -> Costs:
    return Costs(CURVES[curve].tolist(), c, 0.0, rebuild, 0.0, **more)  # type: ignore[arg-type]


def text(alphas: Sequence[float], seed: int, correlation: float = 0.4) -> list[int]:
    """How many drafted tokens are accepted in a row at each position, of `alphas` each."""
    normal = np.random.default_rng(seed).standard_normal(len(alphas))
    for i in range(1, len(normal)):
        fresh = sqrt(1 - correlation**2) * normal[i]
        normal[i] = correlation * normal[i - 1] + fresh
    luck = [(1 + erf(x / sqrt(2))) / 2 for x in normal]
    lengths: list[int] = []
    for t in range(len(alphas)):
        n = 0
        while n < K and t + n < len(luck) and luck[t + n] < alphas[t + n] * 0.98**n:
            n += 1
        lengths.append(n)
    return lengths


def follows(lengths: list[int]) -> Accepts:
    return lambda t, k, _: min(k, lengths[t])


def play(
    scheduler: Scheduler, true: Costs, accepts: Accepts, tokens: int, noise: Noise | None = None
) -> Run:
    """Decode `tokens` tokens."""
    rows: list[tuple[int, float, int, int]] = []
    t = last = missed = 0
    while t < tokens:
        k = scheduler.next_k(tokens - t - 1)
        accepted = accepts(t, k, len(rows))
        draft = k * true.draft_step + (true.reading(missed) if k else 0.0)
        target = true.passes[k] + (k != last) * true.rebuild
        recovering = (k > 0 and last == 0) * true.recovery  # plain steps later on will take
        slow_draft, slow_target = noise(len(rows)) if noise else (1.0, 1.0)
        scheduler.observe(Outcome(k, accepted, draft * slow_draft, target * slow_target))
        rows.append((accepted + 1, draft + target + recovering, k, accepted))
        missed = 0 if k else missed + 1
        last = k
        t += accepted + 1
    return np.array(rows)


def decode(true: Costs, accepts: Accepts, tokens: int, noise: Noise | None = None) -> Run:
    return play(Scheduler(true, k_max=K), true, accepts, tokens, noise)


def throughput(run: Run, after: int = 0) -> float:
    counted = np.cumsum(run[:, 0]) > after
    return float(run[counted, 0].sum() / run[counted, 1].sum())


def oracle(true: Costs, texts: list[list[int]], tokens: int, after: int) -> float:
    """The best fixed k's throughput, on average over the texts."""
    fixed = [[_fixed(true, each, tokens, after, k) for each in texts] for k in range(K + 1)]
    return float(np.mean(fixed, axis=1).max())


def _fixed(true: Costs, lengths: list[int], tokens: int, after: int, k: int) -> float:
    t = counted = 0
    seconds = 0.0
    while t < tokens:
        n = min(k, lengths[t]) + 1
        t += n
        if t > after:
            counted += n
            seconds += true.cycle(k, changed=False)
    return counted / seconds


def changes(run: Run) -> int:
    return int((np.diff(run[:, 2]) != 0).sum())


def busy(seed: int) -> Noise:
    """Passes vary by 3 %; another program makes all of them 3 times as slow for a while, and some
    single ones."""
    rng = np.random.default_rng(seed)
    log = np.zeros(2000)
    i = 0
    while i < len(log):
        i += int(rng.integers(20, 80))
        length = int(rng.integers(3, 25))
        log[i : i + length] = np.log(3)
        i += length
    both = log[:, None] + 0.03 * rng.standard_normal((2000, 2))
    both[:, 1] += np.log(3) * (rng.random(2000) < 0.03)
    return lambda i: (exp(both[i, 0]), exp(both[i, 1]))


@lru_cache
def steady_texts(alpha: float) -> list[list[int]]:
    return [text([alpha] * 520, seed) for seed in range(6)]
