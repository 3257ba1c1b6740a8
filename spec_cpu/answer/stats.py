"""What a generation did and took: counters, alpha, speed, and the formulas beside them."""

from __future__ import annotations

import statistics
from collections import defaultdict, deque
from dataclasses import dataclass, field
from itertools import zip_longest

import numpy as np

from spec_cpu.answer.plain import PlainTime
from spec_cpu.costs import theory
from spec_cpu.cycle.decode import Cycle
from spec_cpu.cycle.drafting import Part

_KEPT = 512  # passes of one width whose times are kept, for their median
_SUMS = (
    "cycles",
    "tokens",
    "drafted",
    "accepted",
    "branched",
    "overlap",
    "draft",
    "target",
    "sample",
    "decode",
    "prefill",
    "calibrate",
    "prompt_tokens",
    "reused_tokens",
    "_rows",
)


@dataclass(slots=True)
class SourceStats:
    """Counters over the cycles in which one source had a part.

    Attributes:
        cycles, tokens, seconds: of these cycles, whoever else had a part in them.
        drafted, accepted, tried: nodes that it proposed, as others may have; see `Part`.
    """

    cycles: int = 0
    tokens: int = 0
    drafted: int = 0
    accepted: int = 0
    tried: int = 0
    seconds: float = 0.0

    def add(self, cycle: Cycle, part: Part, kept: int) -> None:
        """Count a cycle of which `kept` tokens became text, and in which it had this part."""
        seconds = cycle.seconds.total
        self.merge(SourceStats(1, kept, part.drafted, part.accepted, part.tried, seconds))

    def merge(self, other: SourceStats) -> None:
        """Add what another answer counted."""
        self.cycles += other.cycles
        self.tokens += other.tokens
        self.drafted += other.drafted
        self.accepted += other.accepted
        self.tried += other.tried
        self.seconds += other.seconds

    @property
    def alpha(self) -> float | None:
        """Observed acceptance, as `Stats.alpha`."""
        return self.accepted / self.tried if self.tried else None

    @property
    def tokens_per_cycle(self) -> float | None:
        return self.tokens / self.cycles if self.cycles else None


@dataclass(slots=True)
class _Passes:
    """Target passes of one width: how many there were, and what the latest of them took."""

    count: int = 0
    _latest: deque[float] = field(default_factory=lambda: deque(maxlen=_KEPT))

    def add(self, seconds: float) -> None:
        self.count += 1
        self._latest.append(seconds)

    def merge(self, other: _Passes) -> None:
        self.count += other.count
        self._latest.extend(other._latest)

    @property
    def median(self) -> float:
        return statistics.median(self._latest)


@dataclass(slots=True, repr=False)
class Stats:
    """Counters over cycles. Times are seconds.

    Attributes:
        by_source: counters of each source, by its name.
        prefill, calibrate: time before the first cycle: reading the prompt, measuring what passes
            cost where that is not known yet.
        plain: what plain decoding would have taken for the same tokens.
    """

    cycles: int = 0
    tokens: int = 0
    drafted: int = 0
    accepted: int = 0
    branched: int = 0
    tried_by_position: list[int] = field(default_factory=list)
    accepted_by_position: list[int] = field(default_factory=list)
    by_source: dict[str, SourceStats] = field(default_factory=dict)
    overlap: float = 0.0
    draft: float = 0.0
    target: float = 0.0
    sample: float = 0.0
    decode: float = 0.0
    prefill: float = 0.0
    calibrate: float = 0.0
    prompt_tokens: int = 0
    reused_tokens: int = 0
    plain: PlainTime = field(default_factory=PlainTime)
    _passes: defaultdict[int, _Passes] = field(default_factory=lambda: defaultdict(_Passes))
    _rows: int = 0

    def __repr__(self) -> str:
        """The few figures that a person looks for."""
        parts = [f"{self.tokens} tokens in {self.decode:.2f} s"]
        if self.tokens_per_second:
            parts.append(f"{self.tokens_per_second:.1f} tokens/s")
        if self.drafted:
            parts.append(f"{self.accepted} of {self.drafted} drafted tokens accepted")
            parts.append(f"{self.tokens_per_cycle:.2f} tokens per step")
        if self.drafted and self.speedup:
            parts.append(f"{self.speedup:.2f}x plain decoding")
        return f"<Stats: {', '.join(parts)}>"

    def add(self, cycle: Cycle, kept: int) -> None:
        """Count a cycle of which `kept` tokens became text (fewer at the end of an answer)."""
        self.cycles += 1
        self.tokens += kept
        self.drafted += cycle.drafted
        self.accepted += cycle.accepted
        self.branched += cycle.depth < cycle.drafted
        self.overlap += sum(cycle.overlaps)
        self._count_positions(cycle)
        self.draft += cycle.seconds.draft
        self.target += cycle.seconds.target
        self.sample += cycle.seconds.sample
        self.decode += cycle.seconds.total
        self._passes[cycle.drafted + 1].add(cycle.seconds.target)
        self._rows += cycle.rows
        self.plain.add(cycle, kept)
        for name, part in cycle.parts.items():
            self.by_source.setdefault(name, SourceStats()).add(cycle, part, kept)

    def merge(self, other: Stats) -> None:
        """Add what another answer counted."""
        self.plain.merge(other.plain)
        for name in _SUMS:
            setattr(self, name, getattr(self, name) + getattr(other, name))
        for name in ("tried_by_position", "accepted_by_position"):
            pairs = zip_longest(getattr(self, name), getattr(other, name), fillvalue=0)
            setattr(self, name, [mine + its for mine, its in pairs])
        for width, passes in other._passes.items():
            self._passes[width].merge(passes)
        for source, counted in other.by_source.items():
            self.by_source.setdefault(source, SourceStats()).merge(counted)

    def _count_positions(self, cycle: Cycle) -> None:
        missing = cycle.depth - len(self.tried_by_position)
        self.tried_by_position += [0] * missing
        self.accepted_by_position += [0] * missing
        for i in range(cycle.tried):
            self.tried_by_position[i] += 1
            self.accepted_by_position[i] += i < cycle.accepted

    @property
    def alpha(self) -> float | None:
        """Observed acceptance: accepted / tried; None before any token was tried.

        Under the block rule, which accepts more, it lies a little above `alpha_exact`.
        """
        tried = sum(self.tried_by_position)
        return self.accepted / tried if tried else None

    @property
    def alpha_exact(self) -> float | None:
        """Mean of sum min(p, q) over the tried positions: the same quantity with less noise."""
        tried = sum(self.tried_by_position)
        return self.overlap / tried if tried else None

    @property
    def alpha_by_position(self) -> list[float]:
        """Observed acceptance at each position that was reached."""
        shares = zip(self.accepted_by_position, self.tried_by_position, strict=True)
        return [accepted / tried for accepted, tried in shares if tried]

    @property
    def tokens_per_cycle(self) -> float | None:
        return self.tokens / self.cycles if self.cycles else None

    @property
    def tokens_per_second(self) -> float | None:
        return self.tokens / self.decode if self.decode else None

    @property
    def plain_tokens_per_second(self) -> float | None:
        """The speed of plain decoding here; without sources it is this run's own."""
        if not self.by_source:
            return self.tokens_per_second
        return self.tokens / self.plain.seconds if self.plain.seconds else None

    @property
    def plain_step(self) -> float | None:
        """Seconds of a plain target step, a pass over one token."""
        plain = self.plain_tokens_per_second
        step = 1.0 / plain - self._sample_per_row if plain else 0.0
        return step if step > 0.0 else None

    @property
    def speedup(self) -> float | None:
        """Measured: tokens a second over those of plain decoding."""
        fast, plain = self.tokens_per_second, self.plain_tokens_per_second
        return fast / plain if fast and plain else None

    @property
    def c(self) -> float | None:
        """All that asking took for each drafted token, in plain target steps.

        More than `Costs.c`, which is a pass of the draft alone: what sources looked up, and what
        was found and not drafted, is in it.
        """
        if not self.drafted or not self.plain_step:
            return None
        return self.draft / self.drafted / self.plain_step

    @property
    def k(self) -> int:
        """Drafted tokens in most of the cycles that drafted any; 0 if none did."""
        counts = {k: cycles for k, cycles in self.k_used.items() if k}
        return max(counts, key=lambda k: (counts[k], k), default=0)

    @property
    def k_used(self) -> dict[int, int]:
        """Cycles by the number of tokens drafted in them."""
        return {n - 1: passes.count for n, passes in sorted(self._passes.items())}

    @property
    def passes(self) -> dict[int, tuple[int, float]]:
        """Target passes by their width: how many there were, and the median of their seconds."""
        return {n: (passes.count, passes.median) for n, passes in self._passes.items()}

    @property
    def verify_cost(self) -> float | None:
        """V(k + 1): the median pass of that width, in plain target steps."""
        passes = self._passes.get(self.k + 1)
        if not passes or not self.plain_step:
            return None
        return passes.median / self.plain_step

    @property
    def speedup_theory(self) -> float | None:
        """E / (V(k+1) + k c + overhead) over all cycles, with alpha, V and c as measured here.

        A pass that took less than a plain one counts as one: the machine was quicker then.
        """
        if not self.plain_step or not self.cycles:
            return None
        overhead = self.sample / self.cycles / self.plain_step
        passes = np.array([one.median for one in self._passes.values()]) / self.plain_step
        return self._predicted(lambda _: passes.clip(1.0), overhead)

    @property
    def speedup_textbook(self) -> float | None:
        """E / (1 + k c) over all cycles: the same alpha and c, with verification for free.

        Whatever is drafted, a token is sampled a cycle, as in plain decoding.
        """
        return self._predicted(None, self._sample_per_step)

    def _predicted(self, verify: theory.VerifyCost | None, overhead: float) -> float | None:
        """Expected tokens over expected cost of the cycles there were, each with its k.

        The costs are in plain target passes; plain decoding samples a token behind each.

        The number of its nodes does not tell what a tree should bring, so that of trees the
        positions that were tried are counted.
        """
        if self.alpha_exact is None or self.c is None:
            return None
        ks = np.array([n - 1 for n in self._passes])
        counts = np.array([passes.count for passes in self._passes.values()])
        if self.branched:
            tokens = theory.expected_tokens_seen(self.overlap, self.cycles)
        else:
            tokens = theory.expected_tokens(min(self.alpha_exact, 1.0), ks)
        costs = theory.cycle_cost(ks, self.c, verify, overhead)
        speedup = (counts * tokens).sum() / (counts * costs).sum()
        return float(speedup) * (1.0 + self._sample_per_step)

    @property
    def _sample_per_step(self) -> float:
        """Sampling a token, in plain target passes."""
        return self._sample_per_row / self.plain_step if self.plain_step else 0.0

    @property
    def _sample_per_row(self) -> float:
        return self.sample / self._rows if self._rows else 0.0
