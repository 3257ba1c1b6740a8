"""What a cycle costs on this machine.

A verification is not free on a CPU, so every choice of how much to draft starts from V(n), the time
of a target pass over n tokens, and from what a draft step takes.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from itertools import pairwise

import numpy as np

_LEAST = 0.3  # of a cost as it was measured, with less context


@dataclass(frozen=True, slots=True)
class Costs:
    """What the parts of a cycle cost, in seconds; only their ratios matter.

    Attributes:
        passes: `passes[n - 1]` is a target pass over n tokens, n = 1 .. K + 1; never falling.
        draft_step: drafting one token, its sampling included.
        draft_catch_up: what a cycle's first step takes beyond another, for the tokens committed
            since.
        rebuild: what the first pass of a new width takes in addition (the graph is built anew).
        row: sampling and verifying one row of logits.
        recovery: what plain steps after a wider pass lose in all, besides the graph: wide passes
            lower the processor's clock, and it takes many plain steps to rise again.
        draft_read: what the draft pays for each token that was decoded without it, once it drafts
            again. Where this alone is more than 1 % of a plain step, a draft that was given up is
            never tried again, unless it skips what is older than its `draft_window`.
        draft_window: the most tokens that it reads to catch up; None: all of them.
        depth: tokens of context that this holds for.
        deepens: what `passes` grow by with each further token of context: attention takes a part of
            a small model's time that cannot be left out. Empty: not known, taken for nothing.
        measured: when, in seconds since 1970; 0: it was not.
        disturbed: what held passes up meanwhile, in a person's words; empty: nothing that was seen.

    Raises:
        ValueError: no passes, passes that fall, or a negative cost.
    """

    passes: Sequence[float]
    draft_step: float
    draft_catch_up: float
    rebuild: float
    row: float
    draft_read: float = 0.0
    draft_window: int | None = None
    recovery: float = 0.0
    depth: int = 0
    deepens: Sequence[float] = ()
    measured: float = 0.0
    disturbed: str = ""

    def __post_init__(self) -> None:
        falls = any(wide < narrow for narrow, wide in pairwise(self.passes))
        if not self.passes or self.passes[0] <= 0 or falls:
            raise ValueError(f"passes must be positive and never fall, not {self.passes}")
        drafting = (self.draft_step, self.draft_catch_up, self.draft_read)
        rest = (*drafting, self.rebuild, self.recovery, self.row)
        if min(rest) < 0:
            raise ValueError(f"costs must be 0 or more, not {rest}")

    @property
    def c(self) -> float:
        """A draft step in plain target steps."""
        return self.draft_step / self.passes[0]

    def verify(self, n: int) -> float:
        """V(n): a pass over n tokens in passes over one."""
        return self.passes[n - 1] / self.passes[0]

    def at(self, depth: int) -> Costs:
        """The same with `depth` tokens of context."""
        more = depth - self.depth
        if not more or not self.deepens:
            return replace(self, depth=depth)
        grown = np.add(self.passes, more * np.asarray(self.deepens))
        # Measurements are noisy: a line through them must not be followed down to nothing.
        passes = np.maximum.accumulate(np.maximum(grown, np.multiply(_LEAST, self.passes)))
        return replace(self, passes=passes.tolist(), depth=depth)

    def pass_at(self, n: int, depth: int) -> float:
        """Seconds of a pass over n tokens with `depth` tokens of context."""
        seconds = self.passes[n - 1]
        if not self.deepens:
            return seconds
        return max(seconds + (depth - self.depth) * self.deepens[n - 1], _LEAST * seconds)

    def cycle(self, k: int, *, changed: bool) -> float:
        """Seconds of a cycle with k drafted tokens; `changed`: the last pass had another width.

        All k + 1 rows are counted, though a rule may stop at the first that it rejects.
        """
        return self.passes[k] + self.drafting(k) + (k + 1) * self.row + changed * self.rebuild

    def drafting(self, k: int) -> float:
        """Seconds for the draft model to draft k tokens."""
        return self.draft_catch_up + k * self.draft_step if k else 0.0

    def reading(self, missed: int) -> float:
        """Seconds for the draft to take in `missed` tokens that were decoded without it."""
        most = missed if self.draft_window is None else self.draft_window
        return self.draft_read * min(missed, most)
