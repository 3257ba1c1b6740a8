"""Measured costs, corrected by what passes take in this run; other programs do not fool it."""

from __future__ import annotations

from collections import deque
from dataclasses import replace
from itertools import accumulate
from math import log, sqrt
from operator import mul
from statistics import median

import numpy as np

from spec_cpu.costs.costs import Costs

# Of log seconds, as standard deviations.
_DRIFT = 0.05  # the machine's pace, from one observation to the next
_NOISE = 0.05  # one observation
_ERROR = 0.1  # the given costs of the target's passes
_DRAFT_ERROR = 0.8  # of the draft: choosing among its tokens was not measured with its passes
_ALIKE = 4.0  # widths so far apart hardly err alike
_KEPT = 0.9995  # of what was learnt of an error, from one observation to the next
_DEEPER = 32  # tokens more or fewer of context, from which on costs are worked out again
_LATEST = 5  # plain steps in a row, at most, whose median says what the pace is
_OUTLIER = 1.5  # beyond it a surprise counts as noise


class Pace:
    """The costs, corrected by what passes took in this run.

    log(seconds / given seconds) is taken as s + r + noise: s, the pace of the machine, the same for
    all and drifting quickly; r, the error of one cost, all but fixed, and alike for widths close
    together. A Kalman filter tells them apart. While one width is in use, a change of pace goes to
    s, on which no choice depends; only the contrast of two widths, or of a pass and the draft
    beside it, teaches an r. A surprise beyond the usual is taken for noise as far as it is beyond
    (Huber's weights), so that a pass which another program held up counts little.
    """

    def __init__(self, costs: Costs) -> None:
        n = len(costs.passes)
        self._given = costs
        self._costs = costs  # with the context there is
        self._plain: deque[float] = deque(maxlen=_LATEST)  # seconds / given, not learnt from yet
        self._waiting = 0  # plain steps since
        self._log = np.zeros(n + 2)  # s, r of the draft, r of each width
        widths = np.arange(n)
        prior = np.zeros((n + 2, n + 2))
        prior[1, 1] = _DRAFT_ERROR**2
        apart = np.abs(widths[:, None] - widths)
        prior[2:, 2:] = _ERROR**2 * np.exp(-apart / _ALIKE)
        self._covariance = prior.copy()
        self._covariance[0, 0] = 1.0  # nothing is known of it
        # s drifts; what was learnt of r fades, back to the given costs.
        self._keep = np.array([1.0, *[_KEPT] * (n + 1)])
        self._loosen = (1.0 - _KEPT**2) * prior
        self._loosen[0, 0] = _DRIFT**2

    def move(self, depth: int) -> bool:
        """The text has `depth` tokens now. Returns whether costs changed by that."""
        if abs(depth - self._costs.depth) < _DEEPER or not self._costs.deepens:
            return False
        self._costs = self._given.at(depth)
        return True

    def draft(self, seconds: float, drafted: float, missed: int) -> None:
        """Learn from drafting `drafted` tokens, or what takes as long as so many.

        Args:
            missed: tokens that were decoded without the draft before, which it took in.
        """
        given = self._costs.draft_catch_up + drafted * self._costs.draft_step
        self._learn(1, seconds, given + self._costs.reading(missed))

    def target(self, seconds: float, n: int) -> None:
        """Learn from a target pass over `n` tokens."""
        self._learn(n + 1, seconds, self._costs.passes[n - 1])

    def plain(self, seconds: float) -> None:
        """A plain step after another: learnt from when something else comes to compare it with.

        Until then it would teach s alone, and a step of a tiny model leaves no time for that.
        """
        if seconds > 0.0:
            self._plain.append(seconds / self._costs.passes[0])
            self._waiting += 1

    def corrected(self, rebuild: float) -> Costs:
        """The costs at the machine's first pace: without s.

        Args:
            rebuild: what a graph's building takes by now.
        """
        errors: list[float] = np.exp(self._log[1:]).tolist()
        draft = errors[0]
        passes = map(mul, errors[1:], self._costs.passes)
        return replace(
            self._costs,
            passes=[*accumulate(passes, max)],
            draft_step=self._costs.draft_step * draft,
            draft_catch_up=self._costs.draft_catch_up * draft,
            draft_read=self._costs.draft_read * draft,
            rebuild=rebuild,
        )

    def _learn(self, i: int, seconds: float, given: float) -> None:
        if seconds <= 0.0 or given <= 0.0:  # a draft that costs nothing
            return
        if self._waiting:
            self._covariance[0, 0] += (self._waiting - 1) * _DRIFT**2
            self._update(2, log(median(self._plain)), _NOISE / sqrt(len(self._plain)))
            self._plain.clear()
            self._waiting = 0
        self._update(i, log(seconds / given), _NOISE)

    def _update(self, i: int, observed: float, noise: float) -> None:
        """Learn from log(seconds / given seconds) of the cost `i`."""
        self._log *= self._keep
        self._covariance *= self._keep
        self._covariance *= self._keep[:, None]
        self._covariance += self._loosen
        direction = self._covariance[0] + self._covariance[i]
        variance = float(direction[0] + direction[i]) + noise**2
        surprise = observed - float(self._log[0] + self._log[i])
        variance *= max(1.0, abs(surprise) / (_OUTLIER * sqrt(variance)))
        self._log += direction * surprise / variance
        self._covariance -= direction[:, None] * (direction / variance)
