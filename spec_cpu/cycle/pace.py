"""Measured costs, corrected by what passes take in this run."""

from __future__ import annotations

from dataclasses import replace
from itertools import accumulate
from math import exp, log

from spec_cpu.costs.costs import Costs

# Of a surprise: that is the machine's pace, and that is a wrong cost. Were no cost corrected, a
# draft three times as slow as measured would cost 3 %, passes measured 30 % too dear 10 %.
_PACE, _ERROR = 0.3, 0.15
_SURPRISE = 0.2  # of log seconds, at most: another program held the pass up
_DEEPER = 32  # tokens more or fewer of context, from which on costs are worked out again
_KEPT = 0.98  # of the record of tokens and seconds, from one cycle to the next
# Plain steps that the record begins with. With 1, a draft model brings 3 % less, and where
# acceptance comes in runs one node is drafted in place of five or more.
_RECORD = 16.0


class Record:
    """Tokens and the seconds that they took, lately."""

    def __init__(self, tokens: float, seconds: float) -> None:
        """Begin with some plain steps, of so many tokens and seconds each."""
        self._tokens, self._seconds = _RECORD * tokens, _RECORD * seconds

    def add(self, tokens: int, seconds: float) -> None:
        """A cycle brought `tokens` in `seconds`."""
        self._tokens = _KEPT * self._tokens + tokens
        self._seconds = _KEPT * self._seconds + seconds

    @property
    def rate(self) -> float:
        """Tokens a second."""
        return self._tokens / self._seconds


class CostsInRun:
    """The measured costs times what the run shows: a factor for the draft and one a width.

    The machine's pace, which all passes share, is told apart from them and left out: no choice
    depends on it.
    """

    def __init__(self, costs: Costs) -> None:
        self._given = costs
        self._now: Costs | None = costs  # None: to be worked out, once it is asked for
        self._at = costs  # with the context there is
        self._pace: float | None = None  # logarithms
        self._draft = 0.0
        self._width = [0.0] * len(costs.passes)

    @property
    def now(self) -> Costs:
        """The costs, at the machine's first pace; the same object until they change."""
        if self._now is None:
            self._now = self._corrected()
        return self._now

    def move(self, depth: int) -> None:
        """The text has `depth` tokens now."""
        if self._at.deepens and abs(depth - self._at.depth) >= _DEEPER:
            self._at = self._given.at(depth)
            self._now = None

    def target(self, seconds: float, n: int, *, changed: bool) -> None:
        """A target pass over `n` tokens took so long; `changed`: the last had another width."""
        given = self._at.passes[n - 1] * exp(self._width[n - 1]) + changed * self._at.rebuild
        surprise = self._surprise(seconds, given)
        if n > 1 and surprise:
            self._width[n - 1] += _ERROR * surprise
            self._now = None

    def draft(self, seconds: float, given: float) -> None:
        """Drafting took so long; by `now` it was to take `given`."""
        surprise = self._surprise(seconds, given, pace=False)
        self._draft += _ERROR * surprise
        self._now = None

    def _surprise(self, seconds: float, given: float, *, pace: bool = True) -> float:
        """How far off `given` was, beside the machine's pace; `pace`: which is learnt, too."""
        if seconds <= 0.0 or given <= 0.0:  # it costs nothing
            return 0.0
        seen = log(seconds / given)
        if self._pace is None:
            self._pace = seen if pace else 0.0
        surprise = max(-_SURPRISE, min(_SURPRISE, seen - self._pace))
        if pace:
            self._pace += _PACE * surprise
        return surprise

    def _corrected(self) -> Costs:
        at, draft = self._at, exp(self._draft)
        passes = (exp(error) * given for error, given in zip(self._width, at.passes, strict=True))
        return replace(
            at,
            passes=[*accumulate(passes, max)],
            draft_step=at.draft_step * draft,
            draft_catch_up=at.draft_catch_up * draft,
            draft_read=at.draft_read * draft,
        )
