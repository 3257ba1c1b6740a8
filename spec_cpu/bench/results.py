"""What the rounds of a benchmark come to: speedups with intervals, acceptance, comparisons."""

from __future__ import annotations

import resource
from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from spec_cpu.answer.stats import Stats
from spec_cpu.bench.arms import PLAIN, Pin, Round
from spec_cpu.costs import theory
from spec_cpu.costs.acceptance import ENOUGH
from spec_cpu.costs.costs import Costs
from spec_cpu.costs.plan import predicted_speedup

_RESAMPLES = 2000
_FEWEST = 3  # prompts, of which an interval can be told
OVERALL = "overall"


@dataclass(frozen=True, slots=True)
class Speedup:
    """The median of pairwise ratios, and the bootstrap's 95 % interval of it.

    Attributes:
        low, high: None where there are too few prompts: they say nothing of how others spread.
    """

    median: float
    low: float | None
    high: float | None

    @property
    def interval(self) -> str:
        """As tables show it."""
        return "-" if self.low is None or self.high is None else f"{self.low:.2f}-{self.high:.2f}"


@dataclass(frozen=True, slots=True)
class SourceShare:
    """One source: its share of the cycles, and what became of its drafts in them."""

    cycles: float
    alpha: float | None
    tokens_per_cycle: float | None


@dataclass(frozen=True, slots=True)
class Result:
    """A category's rounds, summed up: the speculative arm against the plain one.

    Shares of fewer than 30 tokens are None; by position they are left out.

    Attributes:
        prompts: conversations, of one turn or several.
        sources: by name; the other cycles were plain steps.
        k: tokens drafted in most of the cycles that drafted any. `k_used`: cycles by that number.
        repetition: the share of an answer's text that stood in it before, in the mean.
    """

    prompts: int
    tokens_per_second: float
    plain_tokens_per_second: float
    speedup: Speedup
    alpha: float | None
    alpha_exact: float | None
    alpha_by_position: list[float]
    tokens_per_cycle: float | None
    k: int
    k_used: dict[int, int]
    sources: dict[str, SourceShare]
    c: float | None
    speedup_theory: float | None
    speedup_textbook: float | None
    share_draft: float
    share_target: float
    share_sample: float
    repetition: float


@dataclass(frozen=True, slots=True)
class SweepPoint:
    """One pinned k: the speedup measured, and what the formulas say at its exact alpha.

    Attributes:
        predicted: with V as measured here; of trees as of that run. `textbook`: with V = 1. None
            where too little was drafted.
    """

    k: int
    speedup: Speedup
    predicted: float | None
    textbook: float | None
    alpha: float | None
    tokens_per_cycle: float | None


@dataclass(frozen=True, slots=True)
class Comparison:
    """A rival; all None if none of its answers was long enough to time.

    Attributes:
        speedup: of the rival over our plain decoding. `ours`: of our speculative arm over it.
    """

    name: str
    tokens_per_second: float | None
    speedup: Speedup | None
    ours: Speedup | None


def summarize(rounds: Sequence[Round], pin: Pin) -> dict[str, Result]:
    """The arm `pin` by category, `overall` last."""
    names = {one.category: None for one in rounds}
    results = {name: _result([r for r in rounds if r.category == name], pin) for name in names}
    return {**results, OVERALL: _result(rounds, pin)}


def _result(rounds: Sequence[Round], pin: Pin) -> Result:
    fast, plain = _merged(rounds, pin), _merged(rounds, PLAIN)
    tried = sum(fast.tried_by_position)
    return Result(
        prompts=_conversations(rounds),
        tokens_per_second=_speed(fast),
        plain_tokens_per_second=_speed(plain),
        speedup=_speedup(rounds, pin),
        alpha=_told(fast.alpha, tried),
        alpha_exact=_told(fast.alpha_exact, tried),
        alpha_by_position=[
            accepted / n
            for accepted, n in zip(fast.accepted_by_position, fast.tried_by_position, strict=True)
            if n >= ENOUGH
        ],
        tokens_per_cycle=fast.tokens_per_cycle,
        k=fast.k,
        k_used=fast.k_used,
        sources={
            name: SourceShare(
                one.cycles / fast.cycles, _told(one.alpha, one.tried), one.tokens_per_cycle
            )
            for name, one in fast.by_source.items()
        },
        c=fast.c,
        speedup_theory=_told(fast.speedup_theory, tried),
        speedup_textbook=_told(fast.speedup_textbook, tried),
        share_draft=fast.draft / fast.decode if fast.decode else 0.0,
        share_target=fast.target / fast.decode if fast.decode else 0.0,
        share_sample=fast.sample / fast.decode if fast.decode else 0.0,
        repetition=sum(one.repetition for one in rounds) / len(rounds),
    )


def sweep(rounds: Sequence[Round], ks: Sequence[int], costs: Costs) -> list[SweepPoint]:
    """Each pinned k of `ks`; `costs` must know passes over k + 1 tokens."""
    return [_point(rounds, k, costs) for k in ks]


def _point(rounds: Sequence[Round], k: int, costs: Costs) -> SweepPoint:
    stats = _merged(rounds, k)
    tried = sum(stats.tried_by_position)
    exact = _told(stats.alpha_exact, tried)
    alpha = None if exact is None else min(exact, 1.0)  # a sum of floats may end just above 1
    predicted = _told(stats.speedup_theory, tried)
    textbook = _told(stats.speedup_textbook, tried)
    if alpha is not None and not stats.branched:
        predicted = predicted_speedup(costs, alpha, k)
        textbook = float(theory.speedup(alpha, k, costs.c))
    return SweepPoint(
        k=k,
        speedup=_speedup(rounds, k),
        predicted=predicted,
        textbook=textbook,
        alpha=alpha,
        tokens_per_cycle=stats.tokens_per_cycle,
    )


def most_used(k_used: dict[int, int]) -> int:
    """The number of drafted tokens that most cycles had; 0 is plain decoding."""
    return max(k_used, key=lambda k: (k_used[k], k), default=PLAIN)


def compare(rounds: Sequence[Round], names: Sequence[str], pin: Pin) -> list[Comparison]:
    """Each rival of `names` against the plain arm, and the arm `pin` against it."""
    return [_comparison([r for r in rounds if name in r.rivals], name, pin) for name in names]


def _comparison(rounds: Sequence[Round], name: str, pin: Pin) -> Comparison:
    if not rounds:
        return Comparison(name, None, None, None)
    answers = [one.rivals[name] for one in rounds]
    prompts = _conversations(rounds)
    pairs = [(one.stats, one.rivals[name].tokens_per_second) for one in rounds]
    return Comparison(
        name,
        sum(one.tokens for one in answers) / sum(one.seconds for one in answers),
        bootstrap([rival / _speed(stats[PLAIN]) for stats, rival in pairs], prompts),
        bootstrap([_speed(stats[pin]) / rival for stats, rival in pairs], prompts),
    )


def _merged(rounds: Sequence[Round], pin: Pin) -> Stats:
    stats = Stats()
    for one in rounds:
        stats.merge(one.stats[pin])
    return stats


def _speedup(rounds: Sequence[Round], pin: Pin) -> Speedup:
    ratios = [_speed(one.stats[pin]) / _speed(one.stats[PLAIN]) for one in rounds]
    return bootstrap(ratios, _conversations(rounds))


def _conversations(rounds: Sequence[Round]) -> int:
    return len({one.conversation for one in rounds})


def _told(value: float | None, tried: int) -> float | None:
    """What rests on `tried` tokens, if those are enough."""
    return value if tried >= ENOUGH else None


def _speed(stats: Stats) -> float:
    speed = stats.tokens_per_second
    assert speed, "an answer has a cycle at least"
    return speed


def bootstrap(ratios: Sequence[float], prompts: int) -> Speedup:
    """The median and its 95 % interval, from resampling the pairs with replacement.

    Args:
        prompts: how many the ratios are of: several turns of one are much alike.
    """
    values = np.asarray(ratios, np.float64)
    if prompts < _FEWEST:
        return Speedup(float(np.median(values)), None, None)
    rng = np.random.default_rng(0)
    medians = np.median(rng.choice(values, (_RESAMPLES, len(values))), axis=1)
    low, high = np.quantile(medians, [0.025, 0.975])
    return Speedup(float(np.median(values)), float(low), float(high))


def peak_memory() -> int:
    """The most memory that this process had, in bytes."""
    return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * 1024
